//! The origins of a test: rules decide what they respond, and each request to them is recorded.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lacquer_net::memory::{self, Dialed, Ends, Limits, Peer};
use lacquer_sources::clock;
use rustix::io::Errno;
use tokio::time::sleep;

use crate::format::{Answer, OriginRule, Page};
use crate::message::{Incoming, Message, Side, pack};

/// The limits of connections: nothing waits for buffers.
pub const LIMITS: Limits = Limits { window: 1 << 20, step: usize::MAX, buffer: 0, sends_files: false };

/// A request that an origin has received.
#[derive(Debug)]
pub struct Fetched {
    pub backend: String,
    pub message: Message,
}

/// The origins of a test.
#[derive(Default)]
pub struct Origins {
    rules: Vec<ActiveRule>,
    fetched: Vec<Rc<Fetched>>,
}

struct ActiveRule {
    rule: Rc<OriginRule>,
    /// The number of further requests.
    left: Option<u32>,
}

pub type SharedOrigins = Rc<RefCell<Origins>>;

impl Origins {
    /// Forgets all rules and requests.
    pub fn clear(&mut self) {
        *self = Origins::default();
    }

    /// Adds a rule, which has precedence over earlier ones.
    pub fn add(&mut self, rule: Rc<OriginRule>) {
        let left = rule.times;
        self.rules.push(ActiveRule { rule, left });
    }

    pub fn fetched(&self) -> &[Rc<Fetched>] {
        &self.fetched
    }

    /// Returns whether a backend accepts no connection, whatever the request.
    fn refuses(&mut self, backend: &str) -> bool {
        let of_backend = |rule: &OriginRule| rule.backend.as_deref().is_none_or(|name| name == backend);
        let any_request = |rule: &OriginRule| rule.method.is_none() && rule.url.is_none();
        let rules = self.rules.iter_mut().rev().filter(|active| active.left != Some(0));
        let mut first = rules.filter(|active| of_backend(&active.rule) && any_request(&active.rule));
        first.next().is_some_and(|active| match active.rule.answer {
            Answer::Refuses => {
                active.left = active.left.map(|left| left - 1);
                true
            }
            _ => false,
        })
    }

    /// Chooses the rule for a request, and records the request.
    fn choose(&mut self, fetched: Fetched) -> Option<Rc<OriginRule>> {
        let (method, url) = (fetched.message.word(0).to_owned(), fetched.message.word(1).to_owned());
        let applies = |rule: &OriginRule| {
            rule.backend.as_deref().is_none_or(|name| name == fetched.backend)
                && rule.method.as_deref().is_none_or(|name| name == method)
                && rule.url.as_deref().is_none_or(|pattern| matches(pattern, &url))
        };
        let mut rules = self.rules.iter_mut().rev().filter(|active| active.left != Some(0));
        let chosen = rules.find(|active| applies(&active.rule)).map(|active| {
            active.left = active.left.map(|left| left - 1);
            active.rule.clone()
        });
        self.fetched.push(Rc::new(fetched));
        chosen
    }
}

/// Compares a URL with a pattern, in which `*` stands for any text.
pub fn matches(pattern: &str, url: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = url.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Lets the backend accept connections at its address.
pub fn open(backend: &str, address: SocketAddr, origins: &SharedOrigins) {
    let (backend, origins) = (backend.to_owned(), origins.clone());
    memory::serve_at(&address.to_string(), move || {
        if origins.borrow_mut().refuses(&backend) {
            return Dialed { after: Duration::ZERO, outcome: Err(Errno::CONNREFUSED.into()) };
        }
        let engine = SocketAddr::from(([127, 0, 0, 1], 49_152));
        let (near, peer) = memory::connection(LIMITS, Ends { engine, peer: address });
        let (backend, origins) = (backend.clone(), origins.clone());
        tokio::task::spawn_local(async move { serve(&backend, &origins, peer).await });
        Dialed { after: Duration::ZERO, outcome: Ok(near) }
    });
}

/// Serves one request. Each connection has one, so that a change of the rules concerns all later requests.
async fn serve(backend: &str, origins: &SharedOrigins, peer: Peer) {
    let mut incoming = Incoming::default();
    let Some(message) = incoming.message(&peer, Side::Request).await else { return };
    let (method, url) = (message.word(0).to_owned(), message.word(1).to_owned());
    let tags = message.get("If-None-Match").map(str::to_owned);
    let accepts_gzip = message.get("Accept-Encoding").is_some_and(|value| value.contains("gzip"));
    let rule = origins.borrow_mut().choose(Fetched { backend: backend.to_owned(), message });
    let delay = rule.as_ref().map_or(0.0, |rule| rule.delay);
    if delay > 0.0 {
        sleep(clock::seconds(delay)).await;
    }
    let unnamed = || Page {
        status: 200,
        headers: vec![("Content-Type".to_owned(), "text/plain".to_owned())],
        body: format!("{backend} {url}").into_bytes(),
        ..Page::default()
    };
    let made;
    let page = match rule.as_ref().map(|rule| &rule.answer) {
        Some(Answer::Page(page)) => page,
        Some(Answer::Closes | Answer::Refuses) => return,
        Some(Answer::Hangs) => {
            // The engine ends the connection.
            while incoming.message(&peer, Side::Request).await.is_some() {}
            return;
        }
        None => {
            made = unnamed();
            &made
        }
    };
    let is_known = tags.is_some_and(|tags| has_tag(page, &tags));
    let bytes = if is_known { not_modified(page) } else { response(page, &method, accepts_gzip) };
    // The engine may have closed the connection.
    let _ = peer.write_all(&bytes).await;
}

/// Returns whether a request names the entity tag of a page.
fn has_tag(page: &Page, tags: &str) -> bool {
    let own = page.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("ETag"));
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    page.status == 200 && own.is_some_and(|(_, own)| tags.split(',').any(|tag| strong(tag) == strong(own)))
}

fn not_modified(page: &Page) -> Vec<u8> {
    let mut head = "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n".to_owned();
    for (name, value) in page.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("Content-Type")) {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head += "\r\n";
    head.into_bytes()
}

fn response(page: &Page, method: &str, accepts_gzip: bool) -> Vec<u8> {
    let reason = if page.reason.is_empty() { lacquer_http::reason_of(page.status) } else { &page.reason };
    let mut head = format!("HTTP/1.1 {} {reason}\r\nConnection: close\r\n", page.status);
    let has = |wanted: &str| page.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    for (name, value) in &page.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let is_packed = page.is_packed && accepts_gzip;
    let packed = if is_packed { pack(&page.body) } else { Vec::new() };
    let body = if is_packed { &packed } else { &page.body };
    if is_packed {
        head += "Content-Encoding: gzip\r\n";
    }
    let has_no_body = matches!(page.status, 100..200 | 204 | 304);
    let mut bytes = Vec::new();
    if page.is_chunked && !has_no_body {
        head += "Transfer-Encoding: chunked\r\n";
        if !body.is_empty() {
            bytes.extend(format!("{:x}\r\n", body.len()).bytes());
            bytes.extend_from_slice(body);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
    } else {
        if !has_no_body && !has("Content-Length") && !has("Transfer-Encoding") {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        bytes.extend_from_slice(body);
    }
    if method == "HEAD" || has_no_body {
        bytes.clear();
    } else if page.is_cut {
        bytes.truncate(bytes.len() / 2);
    }
    head += "\r\n";
    [head.into_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, url, expected) in [
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a*", "/a", true),
            ("/a*", "/ab?c", true),
            ("*.jpg", "/x/y.jpg", true),
            ("/a/*/b", "/a/x/b", true),
            ("/a/*/b", "/a/b", false),
            ("/*a*a", "/aa", true),
            ("/*aa*", "/a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, url), expected, "{pattern} {url}");
        }
    }
}
