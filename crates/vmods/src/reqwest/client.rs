//! Client objects: the settings of their requests and connections.

use std::sync::Arc;

use lacquer_sources::clock;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectState};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Proxy, Url};

use super::backend;
use crate::local_server;
use crate::support::shown;

pub(super) struct Client {
    pub http: reqwest::Client,
    pub backend: BackendId,
}

/// How the URL of a backend's request is made.
pub(super) struct Base {
    pub url: Option<String>,
    pub https: bool,
}

fn given(args: &Args<'_>, i: usize) -> Option<String> {
    args.is_given(i).then(|| shown(args.str(i)).into_owned())
}

pub(super) fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let name = args.object_name;
    let fault = |text: &str| ModuleError(format!("reqwest: couldn't initialize {name}: {text}"));
    let base = Base { url: given(args, 0), https: args.bool(1) };
    if base.url.is_some() && args.is_given(1) {
        return Err(fault("can't take both an https and a base_url argument"));
    }
    if let Some(url) = &base.url {
        Url::parse(url).map_err(|error| fault(&format!("base_url {url}: {error}")))?;
    }
    let http = builder(args).and_then(|builder| {
        // Connections belong to the thread of the servers.
        let _entered = local_server::runtime()?.enter();
        builder.build().map_err(|error| text_of(&error))
    });
    let http = http.map_err(|text| fault(&text))?;
    if let Some(probe) = args.probe(12) {
        let why = match (&probe.url, &base.url) {
            (None, _) => Some("can't use a probe without .url"),
            (Some(url), None) if url.starts_with(b"/") => {
                Some("client has no .base_url, and the probe doesn't have a fully-qualified URL as .url")
            }
            _ => None,
        };
        if let Some(why) = why {
            return Err(format!("reqwest: failed to add probe to {name}: {why}").into());
        }
    }
    let backend = backend::create(ctx, name, http.clone(), base, args.probe(12).cloned())?;
    Ok(Arc::new(Client { http, backend }))
}

fn builder(args: &Args<'_>) -> Result<ClientBuilder, String> {
    let follow = usize::try_from(args.int(2)).unwrap_or(0);
    let mut builder = ClientBuilder::new()
        .redirect(if follow == 0 { Policy::none() } else { Policy::limited(follow) })
        .gzip(args.bool(5))
        .deflate(args.bool(6))
        .brotli(args.bool(7))
        .tls_danger_accept_invalid_certs(args.bool(8))
        .tls_danger_accept_invalid_hostnames(args.bool(9));
    if args.is_given(3) {
        builder = builder.timeout(clock::seconds(args.real(3)));
    }
    if args.is_given(4) {
        builder = builder.connect_timeout(clock::seconds(args.real(4)));
    }
    if let Some(proxy) = given(args, 10) {
        builder = builder.proxy(Proxy::http(&proxy).map_err(|error| format!("HTTP proxy {proxy}: {}", text_of(&error)))?);
    }
    if let Some(proxy) = given(args, 11) {
        builder = builder.proxy(Proxy::https(&proxy).map_err(|error| format!("HTTPS proxy {proxy}: {}", text_of(&error)))?);
    }
    Ok(builder)
}

/// Returns the text of an error with its causes.
pub(super) fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
