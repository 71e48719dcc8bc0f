//! A span as a message: `opentelemetry.proto.trace.v1.Span`.

use lacquer_http::trace_context::TraceContext;

use crate::attribute;
use crate::protobuf::Message;

/// The relation of a span to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    /// The request of a client.
    Server = 2,
    /// A request to an origin.
    Client = 3,
}

/// The flags of a span: it is sampled, and it is known whether its parent is in another process.
const FLAGS: u32 = 0x101;
const PARENT_IS_REMOTE: u32 = 0x200;
const STATUS_ERROR: u64 = 2;

/// A span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub context: TraceContext,
    /// The number of the span above it; 0 if there is none.
    pub parent: u64,
    pub is_parent_remote: bool,
    pub kind: Kind,
    pub name: String,
    /// Begin and end, in seconds since the epoch.
    pub times: [f64; 2],
    pub texts: Vec<(&'static str, String)>,
    pub numbers: Vec<(&'static str, u64)>,
    /// The reason of a failure. It may be empty.
    pub failure: Option<String>,
}

impl Span {
    /// Returns the message.
    pub fn message(&self) -> Message {
        let mut span = Message::default();
        span.bytes(1, &self.context.trace().to_be_bytes());
        span.bytes(2, &self.context.span().to_be_bytes());
        if self.parent != 0 {
            span.bytes(4, &self.parent.to_be_bytes());
        }
        span.text(5, &self.name);
        span.unsigned(6, self.kind as u64);
        let [begin, end] = self.times;
        span.fixed64(7, nanoseconds(begin));
        span.fixed64(8, nanoseconds(end.max(begin)));
        for (name, text) in self.texts.iter().filter(|(_, text)| !text.is_empty()) {
            span.message(9, &attribute::text(name, text));
        }
        for (name, value) in &self.numbers {
            span.message(9, &attribute::number(name, *value));
        }
        if let Some(why) = &self.failure {
            let mut status = Message::default();
            if !why.is_empty() {
                status.text(2, why);
            }
            status.unsigned(3, STATUS_ERROR);
            span.message(15, &status);
        }
        span.fixed32(16, FLAGS | if self.is_parent_remote { PARENT_IS_REMOTE } else { 0 });
        span
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    // Out of range, it is saturated; NaN becomes 0. Microseconds are the resolution of the log.
    ((seconds * 1e6).round() as u64).saturating_mul(1000)
}
