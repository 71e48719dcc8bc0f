//! The request that `lacquer why` sends: one HTTP/1.1 exchange, whose response is read and dropped.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::page::plain;

/// The time that a response may take.
const PATIENCE: Duration = Duration::from_mins(1);
const CONNECT: Duration = Duration::from_secs(5);
/// Maximum length of a response head in bytes.
const MAX_HEAD: usize = 256 << 10;
/// Bytes of a body that are read before the connection is closed.
const MAX_BODY: u64 = 64 << 20;

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
    pub local_port: u16,
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
    fn bytes(&self) -> Vec<u8> {
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
        text.into_bytes()
    }

    fn has_body(&self) -> bool {
        ["POST", "PUT", "PATCH"].contains(&self.method.as_str())
    }

    /// Sends the request and reads the response to its end.
    pub fn send(&self, to: SocketAddr) -> Result<Response, Fault> {
        let cannot = |error: std::io::Error| {
            Fault::new(
                format_args!("the request to {to} failed: {error}"),
                "name the address of a listener that expects plain HTTP/1: --to HOST:PORT",
            )
        };
        let mut stream = TcpStream::connect_timeout(&to, CONNECT).map_err(cannot)?;
        let local_port = stream.local_addr().map_err(cannot)?.port();
        stream.set_nodelay(true).map_err(cannot)?;
        stream.write_all(&self.bytes()).map_err(cannot)?;
        let mut response = Response { local_port, ..Response::default() };
        read(&mut stream, &mut response);
        response.status = status_of(&response.head);
        if response.status.is_none() && !response.head.is_empty() {
            return Err(Fault::new(
                format_args!("the listener {to} does not speak HTTP/1"),
                "it may expect TLS or a PROXY header; name another listener with --to HOST:PORT",
            ));
        }
        Ok(response)
    }
}

/// Reads until the end, or as long as the limits allow. A response that ends early is not a failure.
fn read(stream: &mut TcpStream, response: &mut Response) {
    let start = Instant::now();
    let mut buffer = vec![0; 64 << 10];
    let mut head_end = None;
    let mut length_of_body = MAX_BODY;
    while response.body < length_of_body {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        let Ok(length) = stream.read(&mut buffer) else { return };
        if length == 0 {
            return;
        }
        if head_end.is_some() {
            response.body += length as u64;
            continue;
        }
        response.head.extend_from_slice(&buffer[..length]);
        head_end = response.head.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = head_end {
            response.body = (response.head.len() - end - 4) as u64;
            response.head.truncate(end + 4);
            // A piped connection may stay open.
            length_of_body = content_length(&response.head).unwrap_or(MAX_BODY).clamp(1, MAX_BODY);
        } else if response.head.len() > MAX_HEAD {
            return;
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
        let text = String::from_utf8(request.bytes()).expect("text");
        assert!(
            !text.contains("Host: a") && !text.contains("*/*") && text.contains("Content-Length: 0"),
            "{text}"
        );
    }
}
