//! Client objects.

use std::sync::Arc;

use lacquer_vcl::program::Probe;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectState, Value};

use super::backend::{self, Base, BaseUrl};
use super::settings::{Http, Settings, given};
use crate::support::CallResult;

pub(super) struct Client {
    pub http: Http,
    pub backend: BackendId,
}

pub(super) fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let name = args.object_name;
    let fault = |text: &str| ModuleError(format!("reqwest: couldn't initialize {name}: {text}"));
    let url = given(args, 0);
    if url.is_some() && args.is_given(1) {
        return Err(fault("can't take both an https and a base_url argument"));
    }
    let url = url.map(BaseUrl::parse).transpose().map_err(|why| fault(&why))?;
    let base = Base { url, https: args.bool(1) };
    if let Some(why) = args.probe(12).and_then(|probe| unusable(probe, &base)) {
        return Err(format!("reqwest: failed to add probe to {name}: {why}").into());
    }
    let http = Settings::of(args).build().map_err(|text| fault(&text))?;
    let backend = backend::create(ctx, name, http.clone(), base, args.probe(12).cloned())?;
    Ok(Arc::new(Client { http, backend }))
}

/// Returns why a probe cannot be sent.
fn unusable(probe: &Probe, base: &Base) -> Option<&'static str> {
    match (&probe.url, &base.url) {
        (None, _) => Some("can't use a probe without .url"),
        (Some(url), None) if url.starts_with(b"/") => {
            Some("client has no .base_url, and the probe doesn't have a fully-qualified URL as .url")
        }
        _ => None,
    }
}

pub(super) fn backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(args.this::<Client>()?.backend))
}
