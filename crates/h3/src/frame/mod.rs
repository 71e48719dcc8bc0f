//! Frames: a type, a length and a payload (RFC 9114 section 7.1). Reading checks nothing. The rules for each type are
//! in [`crate::connection`] and [`crate::request`].

mod read;
mod write;

#[cfg(test)]
mod tests;

pub use read::{Piece, Reader};
pub use write::{HeaderBytes, data_header, goaway, settings, write_header, write_section};

/// The known frame types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Data,
    Headers,
    CancelPush,
    Settings,
    PushPromise,
    GoAway,
    MaxPushId,
    /// A type of HTTP/2 that HTTP/3 does not have: PRIORITY, PING, WINDOW_UPDATE or CONTINUATION. It is an error on
    /// every stream (section 7.2.8).
    Http2(u8),
    /// A reserved or unknown type, which is ignored (section 9).
    Unknown,
}

impl Kind {
    pub const fn of(number: u64) -> Kind {
        match number {
            0x0 => Kind::Data,
            0x1 => Kind::Headers,
            0x3 => Kind::CancelPush,
            0x4 => Kind::Settings,
            0x5 => Kind::PushPromise,
            0x7 => Kind::GoAway,
            0xd => Kind::MaxPushId,
            0x2 | 0x6 | 0x8 | 0x9 => Kind::Http2(number as u8),
            _ => Kind::Unknown,
        }
    }

    /// Returns the name, for log records.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Data => "DATA",
            Kind::Headers => "HEADERS",
            Kind::CancelPush => "CANCEL_PUSH",
            Kind::Settings => "SETTINGS",
            Kind::PushPromise => "PUSH_PROMISE",
            Kind::GoAway => "GOAWAY",
            Kind::MaxPushId => "MAX_PUSH_ID",
            Kind::Http2(0x2) => "PRIORITY (HTTP/2)",
            Kind::Http2(0x6) => "PING (HTTP/2)",
            Kind::Http2(0x8) => "WINDOW_UPDATE (HTTP/2)",
            Kind::Http2(_) => "CONTINUATION (HTTP/2)",
            Kind::Unknown => "unknown",
        }
    }
}

/// The type and length of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The type; see [`FrameHeader::kind`].
    pub number: u64,
    /// The length of the payload in bytes.
    pub len: u64,
}

impl FrameHeader {
    pub const fn kind(&self) -> Kind {
        Kind::of(self.number)
    }
}
