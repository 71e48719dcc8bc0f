//! The rules of a site, as options and settings give them.

use super::backend;
use super::cookies::CookieNames;
use super::network::Network;
use super::pattern::Pattern;
use super::rule::{Rule, Time};
use super::wrong::Wrong;

/// The rules of a site.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Each as `host:port`, `https://host:port` or the path of a socket.
    pub(super) backends: Vec<String>,
    /// The page that probes fetch.
    pub(super) probe: Option<String>,
    pub(super) cookies: Option<CookieNames>,
    pub(super) except: Vec<Pattern>,
    pub(super) rules: Vec<Rule>,
    pub(super) stale: Option<Time>,
    pub(super) is_compressed: bool,
    pub(super) purgers: Vec<Network>,
    pub(super) tags: Option<String>,
}

/// The names of the options that a site consists of, besides its backends.
pub const RULES: [&str; 8] =
    ["probe", "ignore-cookies", "except", "cache", "stale", "compress", "purge-from", "tags"];

impl Site {
    /// Adds a backend: `host:port`, `https://host:port` or the path of a socket.
    pub fn add_backend(&mut self, backend: &str) -> Result<(), Wrong> {
        backend::check(backend)?;
        self.backends.push(backend.to_owned());
        Ok(())
    }

    /// Sets one of [`RULES`], or adds a value to it. Other names have no effect.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Wrong> {
        if value.chars().any(char::is_control) {
            return Err(Wrong::new(
                "it contains a line break or another control character",
                "write the value on one line",
            ));
        }
        match name {
            "probe" => self.probe = Some(backend::page(value)?),
            "ignore-cookies" => self.cookies.get_or_insert_default().add(value)?,
            "except" => self.except.push(Pattern::parse(value)?),
            "cache" => self.rules.push(Rule::parse(value)?),
            "stale" => self.stale = Some(Time::parse(value)?),
            "compress" => self.is_compressed = true,
            "purge-from" => self.purgers.push(Network::parse(value)?),
            "tags" => self.tags = Some(header(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Checks rules that need each other.
    pub fn check(&self) -> Result<(), Wrong> {
        if self.tags.is_some() && self.purgers.is_empty() {
            return Err(Wrong::new(
                "tags without purge-from",
                "name the addresses that may purge: --purge-from 127.0.0.1",
            ));
        }
        Ok(())
    }
}

/// Headers with a meaning of their own. They cannot be removed from responses, or are in each request.
const NO_TAGS: [&str; 11] = [
    "Cache-Control",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Date",
    "ETag",
    "Host",
    "Set-Cookie",
    "Transfer-Encoding",
    "Vary",
];

/// Returns the name of a header field for tags.
fn header(value: &str) -> Result<String, Wrong> {
    if NO_TAGS.iter().any(|name| name.eq_ignore_ascii_case(value)) {
        return Err(Wrong::new("this header has another meaning", "write a name such as xkey or Cache-Tag"));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if value.starts_with(|c: char| c.is_ascii_alphabetic()) && value.len() < 100 && value.chars().all(is_name)
    {
        return Ok(value.to_owned());
    }
    Err(Wrong::new("it is not the name of a header", "write a name such as xkey or Cache-Tag"))
}
