//! Edge Side Includes: which parts of a body are delivered, and where other responses are inserted.
//!
//! The parser runs once, when the body is fetched, and produces a `program` that is stored with the object. Delivery
//! reads the program together with the stored body ([`Steps`]) and never parses again.

mod filter;
mod layout;
mod parser;
mod program;
mod words;

pub use filter::{Esi, EsiGzip};
pub use program::{Step, Steps, is_sound};

/// The options of the parser: bits of the parameter `feature`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub ignore_https: bool,
    pub disable_xml_check: bool,
    pub ignore_other_elements: bool,
    pub remove_bom: bool,
}

/// Errors in a body, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EsiNote {
    /// The number is the stored length before the error.
    Error(u64, &'static str),
    Warning(u64, &'static str),
    /// The body was not processed.
    Untouched(&'static str),
}

/// The text is that of Varnish 7. The alternate form (`{:#}`) is that of Varnish 9, in which a colon ends the level.
impl std::fmt::Display for EsiNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let colon = if f.alternate() { ":" } else { "" };
        match self {
            EsiNote::Error(after, text) => write!(f, "ERR{colon} after {after} {text}"),
            EsiNote::Warning(after, text) => write!(f, "WARN{colon} after {after} {text}"),
            EsiNote::Untouched(text) if f.alternate() => write!(f, "WARN: {text}"),
            EsiNote::Untouched(text) => f.write_str(text),
        }
    }
}
