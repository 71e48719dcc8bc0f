//! The states of a message body, by how its end is determined, with Varnish's names and numbers.

/// The state of a body. `Taken` and `Cached` occur only for request bodies after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BodyStatus {
    #[default]
    None,
    Error,
    Chunked,
    Length,
    Eof,
    Taken,
    Cached,
}

impl BodyStatus {
    /// Returns the name in log records and panic messages.
    pub const fn name(self) -> &'static str {
        match self {
            BodyStatus::None => "none",
            BodyStatus::Error => "error",
            BodyStatus::Chunked => "chunked",
            BodyStatus::Length => "length",
            BodyStatus::Eof => "eof",
            BodyStatus::Taken => "taken",
            BodyStatus::Cached => "cached",
        }
    }

    /// Returns the name in `VfpAcct` records of the filter that reads such a body from a connection.
    pub const fn receiver(self) -> &'static str {
        match self {
            BodyStatus::Length => "V1F_STRAIGHT",
            BodyStatus::Chunked => "V1F_CHUNKED",
            BodyStatus::Eof => "V1F_EOF",
            _ => "",
        }
    }

    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns Varnish's number: -1 never readable, 0 no body (left), 1 readable once, 2 readable repeatedly.
    pub const fn available(self) -> i8 {
        match self {
            BodyStatus::None | BodyStatus::Taken => 0,
            BodyStatus::Error => -1,
            BodyStatus::Chunked | BodyStatus::Length | BodyStatus::Eof => 1,
            BodyStatus::Cached => 2,
        }
    }

    pub const fn length_known(self) -> bool {
        matches!(self, BodyStatus::None | BodyStatus::Length | BodyStatus::Cached)
    }
}
