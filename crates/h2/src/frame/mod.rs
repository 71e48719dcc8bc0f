//! Frames: nine bytes with length, type, flags and stream, then a payload (RFC 9113 section 4). Parsing checks each
//! frame in isolation. Checks that depend on the open streams are in [`crate::rules`].

mod describe;
mod parse;
mod write;

#[cfg(test)]
mod tests;

pub use parse::{Frame, parse};
pub use write::{
    goaway, ping_ack, rst_stream, settings_ack, split, window_update, write_headers, write_settings,
};

/// The length of a frame header in bytes.
pub const HEADER_LEN: usize = 9;

/// The bits of a stream number. The first bit of the field is reserved and ignored.
pub(crate) const STREAM_BITS: u32 = 0x7fff_ffff;

/// Bits of a frame's flags.
pub mod flag {
    pub const END_STREAM: u8 = 0x01;
    pub const ACK: u8 = 0x01;
    pub const END_HEADERS: u8 = 0x04;
    pub const PADDED: u8 = 0x08;
    pub const PRIORITY: u8 = 0x20;
}

/// The known frame types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Data = 0,
    Headers = 1,
    Priority = 2,
    RstStream = 3,
    Settings = 4,
    PushPromise = 5,
    Ping = 6,
    GoAway = 7,
    WindowUpdate = 8,
    Continuation = 9,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Data,
        Kind::Headers,
        Kind::Priority,
        Kind::RstStream,
        Kind::Settings,
        Kind::PushPromise,
        Kind::Ping,
        Kind::GoAway,
        Kind::WindowUpdate,
        Kind::Continuation,
    ];

    /// Returns the type, or `None` for one that is ignored.
    pub fn of(number: u8) -> Option<Kind> {
        Kind::ALL.get(number as usize).copied()
    }

    pub const fn name(self) -> &'static str {
        match self {
            Kind::Data => "DATA",
            Kind::Headers => "HEADERS",
            Kind::Priority => "PRIORITY",
            Kind::RstStream => "RST_STREAM",
            Kind::Settings => "SETTINGS",
            Kind::PushPromise => "PUSH_PROMISE",
            Kind::Ping => "PING",
            Kind::GoAway => "GOAWAY",
            Kind::WindowUpdate => "WINDOW_UPDATE",
            Kind::Continuation => "CONTINUATION",
        }
    }

    /// Returns the flags that are defined for this type. Others are ignored.
    pub const fn flags(self) -> u8 {
        match self {
            Kind::Data => flag::END_STREAM | flag::PADDED,
            Kind::Headers => flag::END_STREAM | flag::END_HEADERS | flag::PADDED | flag::PRIORITY,
            Kind::Settings | Kind::Ping => flag::ACK,
            Kind::PushPromise => flag::END_HEADERS | flag::PADDED,
            Kind::Continuation => flag::END_HEADERS,
            Kind::Priority | Kind::RstStream | Kind::GoAway | Kind::WindowUpdate => 0,
        }
    }

    /// Returns whether the payload counts as overhead of the session instead of as bytes of a request.
    pub const fn is_overhead(self) -> bool {
        !matches!(self, Kind::Data | Kind::Headers | Kind::Continuation)
    }
}

/// A frame header as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The length of the payload in bytes.
    pub len: u32,
    /// The type; see [`FrameHeader::kind`].
    pub number: u8,
    pub flags: u8,
    /// Without the reserved bit.
    pub stream: u32,
}

impl FrameHeader {
    pub const fn new(kind: Kind, flags: u8, stream: u32, len: usize) -> FrameHeader {
        FrameHeader { len: len as u32, number: kind as u8, flags, stream }
    }

    /// Returns the header at the start of `bytes`, or `None` if it is not complete.
    pub fn read(bytes: &[u8]) -> Option<FrameHeader> {
        let [a, b, c, number, flags, stream @ ..] = bytes.first_chunk::<HEADER_LEN>()?;
        Some(FrameHeader {
            len: u32::from_be_bytes([0, *a, *b, *c]),
            number: *number,
            flags: *flags,
            stream: u32::from_be_bytes(*stream) & STREAM_BITS,
        })
    }

    pub const fn bytes(&self) -> [u8; HEADER_LEN] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.number, self.flags, d, e, f, g]
    }

    /// Returns the length of header and payload.
    pub const fn total_len(&self) -> usize {
        HEADER_LEN + self.len as usize
    }

    /// Returns the type, or `None` for one that is ignored.
    pub fn kind(&self) -> Option<Kind> {
        Kind::of(self.number)
    }

    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
