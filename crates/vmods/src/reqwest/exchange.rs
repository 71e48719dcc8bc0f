//! One request of VCL and its response, with limits for time, number and memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::header::HeaderMap;
use reqwest::Method;
use tokio::sync::Semaphore;

use super::settings::{Http, failure, text_of};

/// The maximum length of a response body, after decompression.
pub(super) const LONGEST_BODY: usize = 16 << 20;
/// The maximum number of bytes of all response bodies.
const MOST_BYTES: usize = 256 << 20;
/// The maximum number of requests at a time.
const MOST_REQUESTS: usize = 1024;
/// Header fields that belong to one connection, or that the library sets by the body.
const SET_BY_LIBRARY: [&[u8]; 8] = [
    b"connection",
    b"content-length",
    b"expect",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"transfer-encoding",
    b"upgrade",
];

/// A response, or the reason why there is none.
pub(super) type Outcome = Result<Response, String>;

pub(super) struct Request {
    pub url: String,
    pub method: Vec<u8>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: ResponseBody,
}

/// The bytes of a body, which count towards the limit of all bodies.
#[derive(Debug, Default)]
pub(super) struct ResponseBody(Vec<u8>);

static HELD: AtomicUsize = AtomicUsize::new(0);

impl ResponseBody {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn add(&mut self, part: &[u8]) -> Result<(), String> {
        if self.0.len() + part.len() > LONGEST_BODY {
            return Err(format!("the response body has more than {LONGEST_BODY} bytes"));
        }
        if HELD.fetch_add(part.len(), Ordering::Relaxed) + part.len() > MOST_BYTES {
            HELD.fetch_sub(part.len(), Ordering::Relaxed);
            return Err(format!("the bodies of all responses have more than {MOST_BYTES} bytes"));
        }
        self.0.extend_from_slice(part);
        Ok(())
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// Sends a request and reads the response.
pub(super) async fn exchange(http: Http, request: Request) -> Outcome {
    static RUNNING: Semaphore = Semaphore::const_new(MOST_REQUESTS);
    let _permit =
        RUNNING.try_acquire().map_err(|_| format!("{MOST_REQUESTS} requests are being sent already"))?;
    let method = Method::from_bytes(&request.method).map_err(|error| text_of(&error))?;
    if method == Method::CONNECT {
        return Err("the method CONNECT cannot be used".to_owned());
    }
    let has_host = request.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host"));
    let mut builder = http.client(has_host).request(method, request.url).timeout(http.timeout);
    for (name, value) in request.fields {
        if !SET_BY_LIBRARY.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
            builder = builder.header(name, value);
        }
    }
    if let Some(body) = request.body {
        builder = builder.body(body);
    }
    let mut response = builder.send().await.map_err(failure)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = ResponseBody::default();
    while let Some(part) = response.chunk().await.map_err(failure)? {
        body.add(&part)?;
    }
    Ok(Response { status, headers, body })
}
