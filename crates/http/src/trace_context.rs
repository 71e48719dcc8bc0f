//! The header `traceparent` of W3C Trace Context (Recommendation of 2021): the trace and the span that a request belongs to.

use std::fmt;

use crate::{HeaderName, Message, Workspace};

/// `traceparent` and `tracestate`.
pub const TRACEPARENT: HeaderName<'static> = HeaderName::new(b"traceparent");
pub const TRACESTATE: HeaderName<'static> = HeaderName::new(b"tracestate");

/// The length of version 00 in bytes.
pub const LENGTH: usize = 55;
const SAMPLED: u8 = 1;

/// A span and its trace. Neither number is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    is_sampled: bool,
}

impl TraceContext {
    /// Returns the context of a span. A number that is 0, which stands for none, becomes 1.
    pub fn new(trace: u128, span: u64, is_sampled: bool) -> TraceContext {
        TraceContext { trace: trace.max(1), span: span.max(1), is_sampled }
    }

    /// Parses the value of the header. Returns `None` if it is invalid (sections 3.2.2 and 4.3).
    pub fn parse(value: &[u8]) -> Option<TraceContext> {
        let (first, rest) = value.split_first_chunk::<LENGTH>()?;
        let version = number(&first[..2])?;
        let has_dashes = [2, 35, 52].into_iter().all(|at| first[at] == b'-');
        // A later version may append fields behind another dash.
        let ends = if version == 0 { rest.is_empty() } else { matches!(rest.first(), None | Some(b'-')) };
        if version == 0xff || !has_dashes || !ends {
            return None;
        }
        let (trace, span) = (number(&first[3..35])?, u64::try_from(number(&first[36..52])?).ok()?);
        let flags = u8::try_from(number(&first[53..])?).ok()?;
        (trace != 0 && span != 0).then_some(TraceContext { trace, span, is_sampled: flags & SAMPLED != 0 })
    }

    /// Returns the context that a message has. Several lines are invalid.
    pub fn of(message: &Message, ws: &Workspace) -> Option<TraceContext> {
        let is_single = message.count(ws, TRACEPARENT) == 1;
        message.get(ws, TRACEPARENT).filter(|_| is_single).and_then(TraceContext::parse)
    }

    /// Returns the context of another span of the trace.
    #[must_use]
    pub fn with_span(self, span: u64) -> TraceContext {
        TraceContext::new(self.trace, span, self.is_sampled)
    }

    /// Returns the context with another decision about its recording.
    #[must_use]
    pub fn with_sampled(self, is_sampled: bool) -> TraceContext {
        TraceContext { is_sampled, ..self }
    }

    pub fn trace(self) -> u128 {
        self.trace
    }

    pub fn span(self) -> u64 {
        self.span
    }

    pub fn is_sampled(self) -> bool {
        self.is_sampled
    }
}

/// Writes the value of the header, in version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

/// Returns the value of digits in base 16, which must be lower case; at most 32.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |value: u128, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn valid_values_are_parsed_and_written() {
        let context = TraceContext::parse(VALID.as_bytes()).expect("valid");
        assert_eq!(context.trace(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span(), context.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.to_string(), VALID);
        let child = context.with_span(0).with_sampled(false);
        assert_eq!(child.to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000001-00");
        // Unknown flags and versions are not passed on.
        for value in
            [VALID.replace("-01", "-ff"), VALID.replace("00-4", "cc-4"), format!("01{}-x", &VALID[2..])]
        {
            assert_eq!(TraceContext::parse(value.as_bytes()), Some(context), "{value}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        let zeroes = VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let long = format!("{VALID}-{}", "x".repeat(9000));
        for value in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID} "),
            &format!("{VALID}-"),
            &long,
            &VALID.to_uppercase(),
            &VALID.replace("00-4", "ff-4"),
            &VALID.replace("00-4", "0x-4"),
            &format!("01{}x", &VALID[2..]),
            &VALID.replace('-', "_"),
            &VALID.replace("-01", "-0g"),
            &zeroes,
            &VALID.replace("00f067aa0ba902b7", "0000000000000000"),
            &VALID.replace("4bf9", "4b\u{e9}9"),
        ] {
            assert_eq!(TraceContext::parse(value.as_bytes()), None, "{value}");
        }
    }
}
