//! Responses, and the fields that all of them have.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::{Content, Unread};
use crate::guard::Refusal;

pub const JSON: &str = "application/json";
pub const TEXT: &str = "text/plain; charset=utf-8";

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub media: &'static str,
    pub content: Content,
    /// Further fields.
    pub fields: Vec<(&'static str, String)>,
}

/// Fields of every response: nothing of it is stored, framed, guessed or given to other sites.
const ALWAYS: [(&str, &str); 6] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];
/// The policy of responses other than the page.
const NO_CONTENT: &str = "default-src 'none'; frame-ancestors 'none'";
const POLICY: &str = "content-security-policy";

impl Reply {
    pub fn new(status: u16, media: &'static str, bytes: impl Into<Bytes>) -> Reply {
        Reply { status, media, content: Content::Whole(Some(bytes.into())), fields: Vec::new() }
    }

    pub fn json(status: u16, value: &Value) -> Reply {
        Reply::new(status, JSON, format!("{value}\n"))
    }

    /// Returns an error that a program can read.
    pub fn error(status: u16, text: &str) -> Reply {
        Reply::json(status, &json!({"error": text}))
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.fields.push((name, value.into()));
        self
    }

    pub fn into_response(self) -> Response<Content> {
        let mut response = Response::new(self.content);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        };
        set(POLICY, NO_CONTENT);
        for (name, value) in ALWAYS {
            set(name, value);
        }
        set("content-type", self.media);
        for (name, value) in &self.fields {
            set(name, value);
        }
        response
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Reply {
        let reply = Reply::error(refusal.status(), refusal.text());
        if refusal == Refusal::Token { reply.with("www-authenticate", "Bearer") } else { reply }
    }
}

impl From<Unread> for Reply {
    fn from(unread: Unread) -> Reply {
        let (status, text) = match unread {
            Unread::TooLong => (413, "the body is too long"),
            Unread::TooSlow => (408, "the body arrived too slowly"),
            Unread::Broken => (400, "the body is incomplete"),
        };
        Reply::error(status, text).with("connection", "close")
    }
}
