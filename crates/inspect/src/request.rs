//! The request that `lacquer why` sends: one exchange, whose response is read and dropped.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::http2;
use crate::page::plain;
use crate::wire::{Address, Means, Wire};

/// The time that a response may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum length of a response head in bytes.
const MAX_HEAD: usize = 256 << 10;
/// Bytes of a body that are read before the connection is closed.
const MAX_BODY: u64 = 64 << 20;

/// The hint if a listener does not respond to HTTP/1.
pub const OTHER_PROTOCOL: &str =
    "it may expect TLS (an https URL), a PROXY header (--proxy-header) or HTTP/2 (--http2)";

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub is_https: bool,
    /// The host and port as in the URL; empty if it has none.
    pub host: String,
    pub port: Option<u16>,
    pub path: String,
}

/// A request of the user's.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    pub host: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

/// The status and head of a response; empty if the connection was closed.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub status: Option<u16>,
    pub head: Vec<u8>,
    pub body: u64,
    /// `None` over a UNIX socket.
    pub local_port: Option<u16>,
}

impl Target {
    /// Parses `http://host:port/path`, `host/path` and `/path`. Bytes that no request may contain are percent-encoded.
    pub fn parse(url: &str) -> Result<Target, Fault> {
        let wrong = |why: &str| {
            Fault::new(
                format_args!("the URL {} {why}", plain(url.as_bytes())),
                "write it as http://www.example.org/path or as /path",
            )
        };
        let (is_https, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) if !scheme.contains(['/', '?']) => {
                return Err(wrong("has a scheme that is not http"));
            }
            _ => (false, url),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let host = host.rsplit('@').next().unwrap_or_default();
        if url.is_empty() || host.is_empty() && path.is_empty() {
            return Err(wrong("is empty"));
        }
        if host.bytes().any(|b| !b.is_ascii_graphic() || b == b'\\') {
            return Err(wrong("has a host with characters that no host has"));
        }
        let behind_address = host.rsplit(']').next().unwrap_or_default();
        let port = match behind_address.rsplit_once(':') {
            Some((_, "")) | None => None,
            Some((_, port)) => {
                Some(port.parse().map_err(|_| wrong("has a port that is not a number below 65536"))?)
            }
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Target { is_https, host: host.to_owned(), port, path: format!("{slash}{}", encoded(path)) })
    }

    /// Returns the host without its port, as certificates name it.
    pub fn name(&self) -> &str {
        let host = match self.port {
            Some(_) => self.host.rsplit_once(':').map_or(&*self.host, |(host, _)| host),
            None => self.host.trim_end_matches(':'),
        };
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

fn encoded(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_graphic() {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Parses a header of the command line.
pub fn header(line: &str) -> Result<(String, String), Fault> {
    let wrong = |why: &str| {
        Fault::new(
            format_args!("the header {} {why}", plain(line.as_bytes())),
            "write it as -H 'Name: value'",
        )
    };
    let (name, value) = line.split_once(':').ok_or_else(|| wrong("has no colon"))?;
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(wrong("has no valid name"));
    }
    if value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
        return Err(wrong("contains a control character"));
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Returns whether a word can be the method of a request.
pub fn is_method(word: &str) -> bool {
    (1..=32).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

impl Request {
    /// Returns the head as it is sent over HTTP/1.
    fn head(&self) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let has = |name: &str| self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut add = |name: &str, value: &str| {
            let _ = write!(text, "{name}: {value}\r\n");
        };
        if !has("host") {
            add("Host", &self.host);
        }
        for (name, value) in [("User-Agent", "lacquer-why"), ("Accept", "*/*"), ("Connection", "close")] {
            if !has(name) {
                add(name, value);
            }
        }
        if !has("content-length") && !has("transfer-encoding") && self.has_body() {
            add("Content-Length", "0");
        }
        for (name, value) in &self.headers {
            add(name, value);
        }
        text.push_str("\r\n");
        text
    }

    fn has_body(&self) -> bool {
        ["POST", "PUT", "PATCH"].contains(&self.method.as_str())
    }

    /// Sends the request and reads the response to its end.
    pub fn send(&self, to: &Address, means: &Means) -> Result<Response, Fault> {
        let mut wire = Wire::open(to, means, PATIENCE)?;
        let mut reading = Reading {
            response: Response { local_port: wire.local_port, ..Response::default() },
            ..Reading::new()
        };
        let failed = |what: String| {
            Fault::new(
                format_args!("the request to {to} failed: {}", plain(what.as_bytes())),
                "name the address of a listener: --to HOST:PORT, or --to /PATH of a UNIX socket",
            )
        };
        if wire.is_http2 {
            let mut take = |wire: &Wire, bytes: &[u8]| reading.take(wire, bytes);
            let exchange =
                http2::exchange(&mut wire, &self.head(), means.tls.is_some(), MAX_HEAD as u32, &mut take);
            exchange.map_err(failed)?;
        } else {
            wire.write_all(self.head().as_bytes()).map_err(|error| failed(error.to_string()))?;
            wire.flush().map_err(|error| failed(error.to_string()))?;
            read(&mut wire, &mut reading);
        }
        let mut response = reading.response;
        response.status = status_of(&response.head);
        if response.status.is_none() && !response.head.is_empty() {
            return Err(Fault::new(format_args!("the listener {to} does not speak HTTP/1"), OTHER_PROTOCOL));
        }
        Ok(response)
    }
}

/// A response that arrives.
struct Reading {
    response: Response,
    begun: Instant,
    has_head: bool,
    length_of_body: u64,
}

impl Reading {
    fn new() -> Reading {
        Reading {
            response: Response::default(),
            begun: Instant::now(),
            has_head: false,
            length_of_body: MAX_BODY,
        }
    }

    /// Takes bytes that have arrived. Returns false if no more are needed, or the time is over.
    fn take(&mut self, wire: &Wire, bytes: &[u8]) -> bool {
        let response = &mut self.response;
        if self.has_head {
            response.body += bytes.len() as u64;
        } else {
            response.head.extend_from_slice(bytes);
            if let Some(end) = response.head.windows(4).position(|four| four == b"\r\n\r\n") {
                response.body = (response.head.len() - end - 4) as u64;
                response.head.truncate(end + 4);
                self.has_head = true;
                // A piped connection may stay open.
                self.length_of_body = content_length(&response.head).unwrap_or(MAX_BODY).clamp(1, MAX_BODY);
            } else if response.head.len() > MAX_HEAD {
                return false;
            }
        }
        let left = PATIENCE.saturating_sub(self.begun.elapsed());
        response.body < self.length_of_body && !left.is_zero() && wire.set_patience(left).is_ok()
    }
}

/// Reads until the end, or as long as the limits allow. A response that ends early is not a failure.
fn read(wire: &mut Wire, reading: &mut Reading) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match wire.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) if reading.take(wire, &buffer[..length]) => {}
            Ok(_) => return,
        }
    }
}

fn content_length(head: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(head);
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next()?.1.trim().parse().ok()
}

fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    std::str::from_utf8(line).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_several_forms() {
        for (url, host, port, path) in [
            ("http://a.example/x?y#z", "a.example", None, "/x?y"),
            ("https://a.example:8443", "a.example:8443", Some(8443), "/"),
            ("a.example?q", "a.example", None, "/?q"),
            ("/x y\u{1}é", "", None, "/x%20y%01%C3%A9"),
            ("http://[::1]:80/", "[::1]:80", Some(80), "/"),
            ("http://u:p@h/", "h", None, "/"),
            ("/go?to=http://other/", "", None, "/go?to=http://other/"),
        ] {
            let target = Target::parse(url).expect(url);
            assert_eq!((&*target.host, target.port, &*target.path), (host, port, path), "{url}");
        }
        for url in ["", "ftp://x/", "http://", "http://a\r\nb/", "http://a:99999/", "http://a b/"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn headers_cannot_smuggle_lines() {
        assert_eq!(header("Cookie:  a=b "), Ok(("Cookie".into(), "a=b".into())));
        for line in ["", "x", ": v", "a b: c", "a: b\r\nc: d", "a\n: b", "a: \u{0}"] {
            assert!(header(line).is_err(), "{line:?}");
        }
        assert!(is_method("PURGE") && !is_method("GET /") && !is_method(""));
    }

    #[test]
    fn the_users_headers_replace_the_defaults() {
        let headers =
            vec![("host".to_owned(), "b".to_owned()), ("Accept".to_owned(), "text/html".to_owned())];
        let request = Request { method: "POST".into(), host: "a".into(), path: "/".into(), headers };
        let text = request.head();
        assert!(
            !text.contains("Host: a") && !text.contains("*/*") && text.contains("Content-Length: 0"),
            "{text}"
        );
    }
}
