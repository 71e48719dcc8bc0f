//! The backend of a client: a server within this process that sends each request on.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING, UPGRADE};
use hyper::{Request, Response};
use lacquer_vcl::program::{Backend, Probe};
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, NewBackend, Value};
use reqwest::Body;

use super::client::{Base, Client};
use crate::local_server::{self, NoResponse};
use crate::support::CallResult;

/// Header fields that belong to one connection.
const OF_CONNECTION: [HeaderName; 4] =
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

pub(super) fn create(
    ctx: &Ctx<'_>,
    name: &str,
    client: reqwest::Client,
    base: Base,
    probe: Option<Probe>,
) -> Result<BackendId, ModuleError> {
    let base = Arc::new(base);
    let open = local_server::serve(move |request| send_on(client.clone(), base.clone(), request))?;
    let spec = Backend { name: name.to_owned(), host_header: Some("0.0.0.0".into()), ..Backend::default() };
    let backend = NewBackend { spec, probe, local: Some(open), ..NewBackend::default() };
    Ok(ctx.vcl.make_backend(backend)?)
}

pub(super) fn backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(args.this::<Client>()?.backend))
}

/// Returns the URL for a target: after the base, as it is, or at the host of the request.
fn url(base: &Base, target: &str, headers: &HeaderMap) -> Option<String> {
    if let Some(base) = &base.url {
        return Some(format!("{base}{target}"));
    }
    if !target.starts_with('/') {
        return Some(target.to_owned());
    }
    let host = headers.get(HOST)?.to_str().ok()?;
    Some(format!("{}://{host}{target}", if base.https { "https" } else { "http" }))
}

async fn send_on(
    client: reqwest::Client,
    base: Arc<Base>,
    request: Request<Incoming>,
) -> Result<Response<Body>, NoResponse> {
    let (mut head, body) = request.into_parts();
    // The target is absolute if the base is; a probe of an absolute URL has that of its own.
    let url = url(&base, &head.uri.to_string(), &head.headers).ok_or(NoResponse)?;
    OF_CONNECTION.iter().for_each(|name| drop(head.headers.remove(name)));
    let request = client.request(head.method, url).headers(head.headers);
    let has_body = hyper::body::Body::size_hint(&body).exact() != Some(0);
    let request = if has_body { request.body(Body::wrap(body)) } else { request };
    let mut response: Response<Body> = request.send().await.map_err(|_| NoResponse)?.into();
    OF_CONNECTION.iter().for_each(|name| drop(response.headers_mut().remove(name)));
    *response.version_mut() = hyper::Version::HTTP_11;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_the_base_or_the_host_of_the_request() {
        let mut headers = HeaderMap::new();
        let with = |url: Option<&str>, https| Base { url: url.map(str::to_owned), https };
        assert_eq!(url(&with(None, false), "/x", &headers), None, "no host");
        headers.insert(HOST, "a.example:81".parse().unwrap());
        let table = [
            (with(Some("http://b/c"), false), "/x?y", "http://b/c/x?y"),
            (with(None, false), "/x", "http://a.example:81/x"),
            (with(None, true), "/x", "https://a.example:81/x"),
            (with(None, true), "http://z/x", "http://z/x"),
        ];
        for (base, target, expected) in table {
            assert_eq!(url(&base, target, &headers).as_deref(), Some(expected));
        }
    }
}
