//! The unidirectional streams that a client opens.

use crate::error_table::Reason;
use crate::fault::Fault;
use crate::varint;

/// The types of unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2).
pub(super) mod stream_type {
    pub const CONTROL: u64 = 0x00;
    pub const PUSH: u64 = 0x01;
    pub const ENCODER: u64 = 0x02;
    pub const DECODER: u64 = 0x03;
}

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Control,
    Encoder,
    Decoder,
    /// A stream of an unknown type, whose bytes are discarded.
    Ignored,
}

/// A stream that a client opened. Its first bytes determine its role.
#[derive(Debug, Default)]
pub struct UniStream {
    /// The beginning of the type.
    head: [u8; varint::MAX_LEN],
    head_len: usize,
    pub(super) role: Option<Role>,
}

impl UniStream {
    /// Removes the type from the front of `input`. Returns `None` if it is not complete.
    pub(super) fn read_type(&mut self, input: &mut &[u8]) -> Option<u64> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            self.head[self.head_len] = byte;
            self.head_len += 1;
            if let Some((number, _)) = varint::read(&self.head[..self.head_len]) {
                return Some(number);
            }
        }
        None
    }
}

/// The streams that a client has opened, of those that it may open only once.
#[derive(Debug, Default)]
pub(super) struct Seen {
    control: bool,
    encoder: bool,
    decoder: bool,
}

impl Seen {
    /// Records a stream with this type. Returns its role.
    pub(super) fn open(&mut self, number: u64) -> Result<Role, Fault> {
        let (seen, role, name) = match number {
            stream_type::CONTROL => (&mut self.control, Role::Control, "control"),
            stream_type::ENCODER => (&mut self.encoder, Role::Encoder, "QPACK encoder"),
            stream_type::DECODER => (&mut self.decoder, Role::Decoder, "QPACK decoder"),
            stream_type::PUSH => return Err(refused("H3: client opened a push stream")),
            _ => return Ok(Role::Ignored),
        };
        if *seen {
            return Err(refused(format!("H3: client opened a second {name} stream")));
        }
        *seen = true;
        Ok(role)
    }
}

fn refused(text: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::connection(Reason::StreamCreationError, text)
}
