//! Client objects.

use std::sync::Arc;

use lacquer_vcl::program::Probe;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectState, Value};
use reqwest::Url;

use super::backend::{self, Base};
use super::settings::{Http, Settings, given};
use crate::support::CallResult;

pub(super) struct Client {
    pub http: Http,
    pub backend: BackendId,
}

pub(super) fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let name = args.object_name;
    let fault = |text: &str| ModuleError(format!("reqwest: couldn't initialize {name}: {text}"));
    let base = Base { url: given(args, 0), https: args.bool(1) };
    if base.url.is_some() && args.is_given(1) {
        return Err(fault("can't take both an https and a base_url argument"));
    }
    if let Some(url) = &base.url {
        let parsed = Url::parse(url).map_err(|error| fault(&format!("base_url {url}: {error}")))?;
        if !["http", "https"].contains(&parsed.scheme())
            || parsed.query().is_some()
            || parsed.fragment().is_some()
        {
            return Err(fault(&format!(
                "base_url {url} is not http:// or https:// with a host and a path only"
            )));
        }
    }
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
