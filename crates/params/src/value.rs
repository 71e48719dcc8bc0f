//! Typed access to one field of [`crate::Params`] by name, and its text.

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

use crate::bits::{self, BitSet, DebugBits, ExperimentalBits, FeatureBits, VccFeatureBits, VslMask};
use crate::number::{show_bytes, show_general};
use crate::spec::Kind;

/// Limits of a pool of reusable memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolParam {
    /// Minimum number of free elements.
    pub min_pool: u32,
    /// Maximum number of free elements.
    pub max_pool: u32,
    /// Seconds after which a free element is released.
    pub max_age: f64,
}

/// A field for reading.
pub enum Slot<'a> {
    /// A flag.
    Flag(bool),
    /// Seconds or a plain number.
    Number(f64),
    /// A count.
    Count(u32),
    /// A size.
    Size(u64),
    /// Text.
    Text(&'a str),
    /// A memory pool.
    Pool(&'a PoolParam),
    /// A bit set.
    Bits(&'a dyn BitSet),
}

/// A field for writing.
pub enum SlotMut<'a> {
    /// A flag.
    Flag(&'a mut bool),
    /// Seconds or a plain number.
    Number(&'a mut f64),
    /// A count.
    Count(&'a mut u32),
    /// A size.
    Size(&'a mut u64),
    /// Text.
    Text(&'a mut String),
    /// A memory pool.
    Pool(&'a mut PoolParam),
    /// A bit set.
    Bits(&'a mut dyn BitSet),
}

/// A type of fields.
pub(crate) trait Field {
    fn slot(&self) -> Slot<'_>;
    fn slot_mut(&mut self) -> SlotMut<'_>;
}

macro_rules! field {
    ($($type:ty: $variant:ident, $self:ident => $read:expr;)*) => {$(
        impl Field for $type {
            fn slot(&self) -> Slot<'_> {
                let $self = self;
                Slot::$variant($read)
            }
            fn slot_mut(&mut self) -> SlotMut<'_> {
                SlotMut::$variant(self)
            }
        }
    )*};
}

field! {
    bool: Flag, v => *v;
    f64: Number, v => *v;
    u32: Count, v => *v;
    u64: Size, v => *v;
    String: Text, v => v;
    PoolParam: Pool, v => v;
    DebugBits: Bits, v => v;
    FeatureBits: Bits, v => v;
    ExperimentalBits: Bits, v => v;
    VccFeatureBits: Bits, v => v;
    VslMask: Bits, v => v;
}

/// Escapes quotes and control characters, as the CLI shows strings.
fn quote(text: &str, json: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '"' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if json && (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\{:03o}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns a value's text for `param.show`.
pub fn show(kind: Kind, slot: &Slot<'_>) -> String {
    match *slot {
        Slot::Flag(on) => if on { "on" } else { "off" }.to_owned(),
        Slot::Number(n) if n == f64::INFINITY => "never".to_owned(),
        Slot::Number(n) if kind == Kind::Double => show_general(n),
        Slot::Number(n) => format!("{n:.3}"),
        Slot::Count(u32::MAX) => "unlimited".to_owned(),
        Slot::Count(n) => n.to_string(),
        Slot::Size(n) => show_bytes(n),
        Slot::Text(text) => quote(text, false),
        Slot::Pool(p) => format!("{},{},{}", p.min_pool, p.max_pool, show_general(p.max_age)),
        Slot::Bits(set) => bits::show(set),
    }
}

/// Returns a value as a JSON literal.
pub fn json(kind: Kind, slot: &Slot<'_>) -> String {
    match *slot {
        Slot::Flag(on) => on.to_string(),
        Slot::Number(f64::INFINITY) => "\"never\"".to_owned(),
        Slot::Number(_) => show(kind, slot),
        Slot::Count(n) => n.to_string(),
        Slot::Size(n) => n.to_string(),
        Slot::Text(text) => format!("\"{}\"", quote(text, true)),
        Slot::Pool(p) => format!(
            "{{\n        \"min_pool\": {},\n        \"max_pool\": {},\n        \"max_age\": {}\n    }}",
            p.min_pool,
            p.max_pool,
            show_general(p.max_age)
        ),
        Slot::Bits(set) => format!("\"{}\"", bits::show(set)),
    }
}
