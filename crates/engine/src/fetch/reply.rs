//! The state of the response on a connection to an origin.

use std::time::Duration;

use lacquer_http::h1::Framing;
use lacquer_http::{BodyStatus, Text};
use lacquer_sources::clock;

/// The state of the response on a connection, from the time when the request was sent.
pub struct Reply {
    framing: Framing,
    /// The bytes after the head that were received with it, in the fetch's workspace.
    ahead: Text,
    /// The response was read to its end, so bytes after it belong to no request.
    is_at_end: bool,
    /// The protocol does not allow this response a body, whatever its head contains.
    is_bodyless: bool,
    /// The time when the request was sent; 0 before that.
    asked: f64,
    /// The seconds from there until the head of the response was complete; 0 before that.
    took: f64,
}

impl Default for Reply {
    fn default() -> Reply {
        Reply {
            framing: Framing::length(0),
            ahead: Text::NONE,
            is_at_end: false,
            is_bodyless: false,
            asked: 0.0,
            took: 0.0,
        }
    }
}

impl Reply {
    /// Records the time when the request was sent.
    #[inline]
    pub fn request_sent(&mut self, now: f64) {
        self.asked = now;
    }

    /// Records a valid head and the bytes that were received after it.
    #[inline]
    pub fn begin(&mut self, framing: Framing, ahead: Text, is_bodyless: bool) {
        (self.framing, self.ahead, self.is_bodyless) = (framing, ahead, is_bodyless);
        self.is_at_end = framing.status == BodyStatus::None;
    }

    /// Records the time when the response was taken over from the connection.
    #[inline]
    pub fn head_received(&mut self, now: f64) {
        self.took = now - self.asked;
    }

    /// Records that these bytes, received in place of a head, belong to no request.
    pub fn set_surplus(&mut self, received: Text) {
        (self.ahead, self.is_at_end) = (received, true);
    }

    /// Records that the response was read to its end.
    #[inline]
    pub fn end(&mut self) {
        self.is_at_end = true;
    }

    #[inline]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    #[inline]
    pub fn ahead(&self) -> Text {
        self.ahead
    }

    /// Returns the bytes that were received with the head. They count as read from now on.
    #[inline]
    pub fn take_ahead(&mut self) -> Text {
        std::mem::replace(&mut self.ahead, Text::NONE)
    }

    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    #[inline]
    pub fn is_bodyless(&self) -> bool {
        self.is_bodyless
    }

    /// Returns whether the response was read to its end, or the end of the connection is its end.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.is_at_end || self.framing.status == BodyStatus::Eof
    }

    /// Returns the length of the body, if all of it was received with the head.
    #[inline]
    pub fn buffered_body(&self) -> Option<usize> {
        let length = match self.framing.status {
            BodyStatus::None => 0,
            BodyStatus::Length => usize::try_from(self.framing.content_length).ok()?,
            _ => return None,
        };
        Some(length).filter(|&length| length <= self.ahead.len())
    }

    /// Returns the microseconds from the request to the head of the response; 0 if there is none.
    pub fn microseconds(&self) -> u64 {
        (self.took * 1e6) as u64
    }

    /// Returns the time from the request to the response head, or until now if there is none.
    pub fn silence(&self) -> Duration {
        let waited = || if self.asked > 0.0 { clock::real() - self.asked } else { 0.0 };
        clock::seconds(if self.took > 0.0 { self.took } else { waited() })
    }
}
