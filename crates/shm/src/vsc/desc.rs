//! Descriptions of counters, and their JSON for readers.
//!
//! Readers assert on the JSON: every key must exist and have a value of the expected kind.

use std::fmt::Write;

/// How the number changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Semantics {
    /// Only grows; readers show its rate.
    Counter,
    /// Grows and shrinks.
    Gauge,
    /// Each bit has a meaning.
    Bitmap,
}

/// The audience of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Info,
    Diag,
    Debug,
}

/// The format in which readers show the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Integer,
    Bytes,
    Bitmap,
    Duration,
}

/// One counter of a set.
#[derive(Debug)]
pub struct CounterDesc {
    pub name: &'static str,
    pub semantics: Semantics,
    pub level: Level,
    pub format: Format,
    pub oneliner: &'static str,
    pub docs: &'static str,
}

/// One set of counters.
#[derive(Debug)]
pub struct SetDesc {
    /// The name in lower case. In upper case it is the first word of every counter's full name.
    pub name: &'static str,
    /// The position of the set in a list of all sets.
    pub order: u32,
    pub oneliner: &'static str,
    pub docs: &'static str,
    pub counters: &'static [CounterDesc],
}

impl Semantics {
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Bitmap => "bitmap",
        }
    }
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Diag => "diag",
            Self::Debug => "debug",
        }
    }
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Bytes => "bytes",
            Self::Bitmap => "bitmap",
            Self::Duration => "duration",
        }
    }
}

impl SetDesc {
    /// Returns the identifier of a segment: `MAIN`, `VBE.boot.default`.
    pub fn ident(&self, instance: &str) -> String {
        let mut ident = self.name.to_ascii_uppercase();
        if !instance.is_empty() {
            ident.push('.');
            ident.push_str(instance);
        }
        ident
    }

    /// Returns the description as readers parse it, without the final NUL.
    pub fn json(&self) -> String {
        let mut out = String::with_capacity(300 * self.counters.len());
        out.push_str("{\"version\":\"1\"");
        text(&mut out, "name", self.name);
        text(&mut out, "oneliner", self.oneliner);
        let _ = write!(out, ",\"order\":{}", self.order);
        text(&mut out, "docs", self.docs);
        let _ = write!(out, ",\"elements\":{},\"elem\":{{", self.counters.len());
        for (i, counter) in self.counters.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            let _ = write!(out, "\"{}\":{{\"type\":\"{}\"", counter.name, counter.semantics.name());
            text(&mut out, "ctype", "uint64_t");
            text(&mut out, "level", counter.level.name());
            text(&mut out, "oneliner", counter.oneliner);
            text(&mut out, "format", counter.format.name());
            let _ = write!(out, ",\"index\":{}", i * size_of::<u64>());
            text(&mut out, "name", counter.name);
            text(&mut out, "docs", counter.docs);
            out.push('}');
        }
        out.push_str("}}");
        out
    }
}

fn text(out: &mut String, key: &str, value: &str) {
    let _ = write!(out, ",\"{key}\":\"");
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // A test ensures that the tables are ASCII; other characters would need escapes.
            c if c.is_ascii_graphic() || c == ' ' => out.push(c),
            _ => out.push('?'),
        }
    }
    out.push('"');
}
