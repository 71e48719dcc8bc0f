//! The backend of a client: a server within this process that sends each request on.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HOST, HeaderMap};
use hyper::{Method, Request, Response, Version};
use lacquer_vcl::program::{Backend, Probe};
use lacquer_vcl_runtime::{BackendId, Ctx, ModuleError, NewBackend};
use reqwest::{Body, Url};

use super::server::{self, NoResponse};
use super::settings::{Http, failure};

/// Header fields that belong to one connection.
const OF_CONNECTION: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];
/// The host of a request for which VCL has none. It is not sent.
const NO_HOST: &str = "0.0.0.0";

/// How the URL of a backend's request is made.
pub(super) struct Base {
    pub url: Option<BaseUrl>,
    pub https: bool,
}

/// The URL to which the targets of requests are added.
pub(super) struct BaseUrl {
    text: String,
    /// The beginning of all URLs below it.
    root: Url,
}

impl BaseUrl {
    pub fn parse(text: String) -> Result<BaseUrl, String> {
        let parsed = Url::parse(&text).map_err(|error| format!("base_url {text}: {error}"))?;
        let is_plain = parsed.query().is_none() && parsed.fragment().is_none();
        let root = Url::parse(&format!("{text}/")).ok();
        match root.filter(|_| is_plain && ["http", "https"].contains(&parsed.scheme())) {
            Some(root) => Ok(BaseUrl { text, root }),
            None => Err(format!("base_url {text} is not http:// or https:// with a host and a path only")),
        }
    }

    /// Returns the URL of a target, if it is below this one.
    fn below(&self, target: &str) -> Option<Url> {
        let url = Url::parse(&format!("{}{target}", self.text)).ok().filter(|_| target.starts_with('/'))?;
        url.as_str().starts_with(self.root.as_str()).then_some(url)
    }
}

pub(super) fn create(
    ctx: &Ctx<'_>,
    name: &str,
    http: Http,
    base: Base,
    probe: Option<Probe>,
) -> Result<BackendId, ModuleError> {
    let base = Arc::new(base);
    let open = server::serve(move |request| send_on(http.clone(), base.clone(), request))?;
    let spec = Backend { name: name.to_owned(), host_header: Some(NO_HOST.into()), ..Backend::default() };
    let backend = NewBackend { spec, probe, local: Some(open), ..NewBackend::default() };
    Ok(ctx.vcl.make_backend(backend)?)
}

/// Returns the URL for a target: below the base, or else as it is, or at the host of the request. A client must not
/// leave the base by `..`, nor change the host by it.
fn url(base: &Base, target: &str, headers: &HeaderMap) -> Result<Url, String> {
    let text = match &base.url {
        Some(base) => return base.below(target).ok_or("the URL is not below base_url".to_owned()),
        None if !target.starts_with('/') => target.to_owned(),
        None => {
            let host = headers.get(HOST).and_then(|host| host.to_str().ok());
            let host = host.filter(|&host| !host.is_empty() && host != NO_HOST);
            let host = host.ok_or("the request has no host, and the client no base_url")?;
            if !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b)) {
                return Err("the host of the request is none".to_owned());
            }
            let scheme = if base.https { "https" } else { "http" };
            format!("{scheme}://{host}{target}")
        }
    };
    Url::parse(&text).map_err(|error| format!("the URL of the request: {error}"))
}

/// Returns whether a host is that of the URL. The library sends it itself then, and another one after a redirect.
fn is_of(host: &[u8], url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let own = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
    host.eq_ignore_ascii_case(own.as_bytes())
}

fn remove_of_connection(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

async fn send_on(
    http: Http,
    base: Arc<Base>,
    request: Request<Incoming>,
) -> Result<Response<Body>, NoResponse> {
    let (mut head, body) = request.into_parts();
    if head.method == Method::CONNECT {
        return Err(NoResponse("the method CONNECT cannot be used".to_owned()));
    }
    let url = url(&base, &head.uri.to_string(), &head.headers).map_err(NoResponse)?;
    remove_of_connection(&mut head.headers);
    if head.headers.get(HOST).is_some_and(|host| host == NO_HOST || is_of(host.as_bytes(), &url)) {
        head.headers.remove(HOST);
    }
    let client = http.client(head.headers.contains_key(HOST));
    let request = client.request(head.method, url).headers(head.headers);
    let has_body = hyper::body::Body::size_hint(&body).exact() != Some(0);
    let request = if has_body { request.body(Body::wrap(body)) } else { request };
    let mut response: Response<Body> =
        request.send().await.map_err(|error| NoResponse(failure(error)))?.into();
    remove_of_connection(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_the_base_or_the_host_of_the_request() {
        let mut headers = HeaderMap::new();
        let parsed = |url: &str| BaseUrl::parse(url.to_owned()).unwrap();
        let with = |url: Option<&str>, https| Base { url: url.map(parsed), https };
        assert!(url(&with(None, false), "/x", &headers).unwrap_err().contains("no host"));
        headers.insert(HOST, "a.example:81".parse().unwrap());
        let table = [
            (with(Some("http://b/c"), false), "/x?y", Some("http://b/c/x?y")),
            (with(Some("http://b"), false), "/x/../y", Some("http://b/y")),
            (with(Some("http://b/c/"), false), "/x", Some("http://b/c//x")),
            (with(None, false), "/x", Some("http://a.example:81/x")),
            (with(None, true), "/x", Some("https://a.example:81/x")),
            (with(None, true), "http://z/x", Some("http://z/x")),
            // Targets that leave the base.
            (with(Some("http://b/c"), false), "/../secret", None),
            (with(Some("http://b/c"), false), "/%2e%2E/secret", None),
            (with(Some("http://b/c"), false), "/../c2", None),
            (with(Some("http://b/c"), false), "/x/..\\..\\..\\d", None),
            (with(Some("http://b"), false), "@evil/", None),
            (with(Some("http://b"), false), ".evil/", None),
            (with(Some("http://b"), false), "http://evil/", None),
            (with(None, false), "no url", None),
        ];
        for (base, target, expected) in table {
            let found = url(&base, target, &headers);
            assert_eq!(found.as_ref().ok().map(Url::as_str), expected, "{target}: {found:?}");
        }
        for junk in ["", "b/c", "ftp://b/", "http://b/?q", "http://b/#f", "http://", "http://b:x/"] {
            let why = BaseUrl::parse(junk.to_owned()).err().expect(junk);
            assert!(why.starts_with(&format!("base_url {junk}")), "{why}");
        }
        let url_of = |text: &str| Url::parse(text).unwrap();
        assert!(
            is_of(b"A.example:81", &url_of("http://a.example:81/x")) && is_of(b"a", &url_of("http://a/"))
        );
        assert!(!is_of(b"a", &url_of("http://a:81/")) && !is_of(b"b", &url_of("http://a/")));
        for host in ["a@b", "a/b?", "a#b", NO_HOST, "a b", ""] {
            headers.insert(HOST, host.parse().unwrap());
            assert!(url(&with(None, false), "/x", &headers).is_err(), "{host}");
        }
    }
}
