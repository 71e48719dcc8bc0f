//! The rules of `lacquer run` for a site, and the VCL that they mean.
//!
//! Values come from users. Each is parsed into a type that contains no character with a meaning in VCL, or into a
//! pattern whose quotes are escapes of the pattern; a control character is refused. VCL is written from these types
//! only, so that no value can become code.

mod backend;
mod cookies;
mod network;
mod pattern;
mod rule;
#[cfg(test)]
mod tests;
mod text;

use cookies::CookieNames;
use network::Network;
use pattern::Pattern;
use rule::{Rule, Time};

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    pub what: String,
    pub hint: String,
}

impl Wrong {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), hint: hint.into() }
    }
}

/// The rules of a site.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Each as `host:port`, `https://host:port` or the path of a socket.
    backends: Vec<String>,
    /// The page that probes fetch.
    probe: Option<String>,
    cookies: Option<CookieNames>,
    except: Vec<Pattern>,
    rules: Vec<Rule>,
    stale: Option<Time>,
    is_compressed: bool,
    purgers: Vec<Network>,
    tags: Option<String>,
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

    /// Returns whether there is more than one backend.
    pub fn has_rules(&self) -> bool {
        self.backends.len() > 1
            || self.probe.is_some()
            || self.cookies.is_some()
            || !self.except.is_empty()
            || !self.rules.is_empty()
            || self.stale.is_some()
            || self.is_compressed
            || !self.purgers.is_empty()
    }
}

/// Returns the name of a header field.
fn header(value: &str) -> Result<String, Wrong> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if value.starts_with(|c: char| c.is_ascii_alphabetic()) && value.len() < 100 && value.chars().all(is_name)
    {
        return Ok(value.to_owned());
    }
    Err(Wrong::new("it is not the name of a header", "write a name such as xkey or Cache-Tag"))
}
