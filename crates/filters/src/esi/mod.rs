//! Edge Side Includes: what of a body is delivered, and where other responses go in between.
//!
//! The parser runs once, when the body is fetched, and leaves a `program` that is kept with the
//! object. Delivery reads the program beside the stored body ([`Player`]) and never parses again.

mod filter;
mod layout;
mod parser;
mod program;
mod words;

pub use filter::{Esi, EsiGzip};
pub use program::{Order, Player};

/// Inputs of parsing beside the body: bits of the parameter `feature`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub ignore_https: bool,
    pub disable_xml_check: bool,
    pub ignore_other_elements: bool,
    pub remove_bom: bool,
}

/// Faults of a body, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EsiNote {
    /// The number is the stored length after which it happened.
    Error(u64, &'static str),
    Warning(u64, &'static str),
    /// The body was left alone.
    Untouched(&'static str),
}

impl std::fmt::Display for EsiNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EsiNote::Error(after, text) => write!(f, "ERR after {after} {text}"),
            EsiNote::Warning(after, text) => write!(f, "WARN after {after} {text}"),
            EsiNote::Untouched(text) => f.write_str(text),
        }
    }
}
