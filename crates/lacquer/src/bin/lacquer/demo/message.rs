//! A minimal HTTP/1.1 for the demonstration site: reads heads up to 16 kB, and discards bodies.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read};

const MAX_HEAD: u64 = 16 * 1024;

pub struct Request {
    pub method: String,
    pub path: String,
    query: String,
    headers: Vec<(String, String)>,
    pub keep_alive: bool,
}

impl Request {
    /// Reads the next request of a connection. Returns `None` at its end or for a request that it cannot parse.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = from.take(MAX_HEAD);
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next()) else {
            return Ok(None);
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: Vec::new(),
            keep_alive: version == "HTTP/1.1",
        };
        loop {
            let mut line = String::new();
            if head.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end().split_once(':') {
                Some((name, value)) => {
                    request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                None => break,
            }
        }
        request.drop_body(from)?;
        Ok(Some(request))
    }

    fn drop_body(&mut self, from: &mut impl BufRead) -> io::Result<()> {
        let length = self.header("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
        io::copy(&mut from.take(length), &mut io::sink())?;
        if self.header("transfer-encoding").is_some() || self.header("connection") == Some("close") {
            self.keep_alive = false;
        }
        Ok(())
    }

    /// Returns the value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns a number from the query string, or `default`; at most `limit`.
    pub fn number(&self, name: &str, default: u64, limit: u64) -> u64 {
        let given = self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        given.and_then(|n| n.parse().ok()).unwrap_or(default).min(limit)
    }
}

pub struct Response {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn new(status: &'static str, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: vec![("Content-Type", content_type.to_owned())], body: body.into() }
    }

    pub fn not_modified() -> Self {
        Self { status: "304 Not Modified", headers: Vec::new(), body: Vec::new() }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn head(&self, keep_alive: bool) -> String {
        let mut text = format!("HTTP/1.1 {}\r\n", self.status);
        for (name, value) in &self.headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if !self.status.starts_with("304") {
            let _ = write!(text, "Content-Length: {}\r\n", self.body.len());
        }
        text.push_str(if keep_alive { "\r\n" } else { "Connection: close\r\n\r\n" });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_requests_are_read() {
        let mut bytes =
            &b"POST /a?ms=5000&x=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.0\r\n\r\n"[..];
        let first = Request::read(&mut bytes).expect("readable").expect("complete");
        assert_eq!((first.method.as_str(), first.path.as_str(), first.keep_alive), ("POST", "/a", true));
        assert_eq!((first.number("ms", 1, 3000), first.number("y", 7, 9)), (3000, 7));
        let second = Request::read(&mut bytes).expect("readable").expect("complete");
        assert_eq!((second.path.as_str(), second.keep_alive), ("/b", false));
        assert!(Request::read(&mut bytes).expect("readable").is_none());
    }
}
