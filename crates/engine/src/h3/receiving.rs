//! The receiving side of a request stream: reads from QUIC as much as the reader asks for, so that the client's window
//! opens only for bytes that were read.

use lacquer_h3::request::{Body, Event};
use lacquer_h3::{Fault, RequestStream};
use lacquer_quic::{Bytes, Connection, ReadError, StreamId};

/// The number of bytes to take from QUIC at a time.
const STEP: usize = 16 * 1024;

/// The reason why a stream cannot be read.
pub enum Failure {
    /// No more bytes have arrived.
    Blocked,
    /// The client has broken a rule.
    Fault(Fault),
    /// The client has reset the stream with this code.
    Reset(u64),
    /// The stream or the connection has ended.
    Closed,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match error {
            ReadError::Blocked => Failure::Blocked,
            ReadError::Reset(code) => Failure::Reset(code),
            ReadError::Closed => Failure::Closed,
        }
    }
}

/// The field section of a request.
pub struct Head {
    pub section: Vec<u8>,
    /// The stream is known to end with the section.
    pub ends: bool,
}

/// A piece of a body.
pub enum Piece {
    /// This number of bytes was read into the buffer.
    Bytes(usize),
    /// The field section of the trailers.
    Trailers(Vec<u8>),
    End,
}

pub struct Receiving {
    frames: RequestStream,
    /// The bytes that were received and not yet read.
    input: Bytes,
    has_ended: bool,
}

impl Receiving {
    /// Creates the receiving side of a stream whose field sections have at most `max_section` bytes.
    pub fn new(max_section: usize) -> Receiving {
        Receiving { frames: RequestStream::new(max_section), input: Bytes::new(), has_ended: false }
    }

    /// Returns whether all bytes were received and read.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes bytes from QUIC, unless there are some already or the stream has ended.
    fn receive(&mut self, quic: &Connection, id: StreamId) -> Result<(), Failure> {
        if self.input.is_empty() && !self.has_ended {
            match quic.read(id, STEP)? {
                Some(bytes) => self.input = bytes,
                None => {
                    self.has_ended = true;
                    self.frames.end()?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the stream has ended and all bytes were read. Takes what has arrived from QUIC.
    pub fn is_at_end(&mut self, quic: &Connection, id: StreamId) -> Result<bool, Failure> {
        match self.receive(quic, id) {
            Ok(()) | Err(Failure::Blocked) => Ok(self.has_ended),
            Err(failure) => Err(failure),
        }
    }

    /// Handles at most `most` bytes of the input.
    fn next<R>(&mut self, most: usize, work: impl FnOnce(Event<'_>) -> R) -> Result<Option<R>, Failure> {
        let whole = &self.input[..self.input.len().min(most)];
        let mut rest = whole;
        let event = self.frames.next(&mut rest)?.map(work);
        let used = whole.len() - rest.len();
        let _ = self.input.split_to(used);
        Ok(event)
    }

    /// Returns the field section of the request.
    pub fn head(&mut self, quic: &Connection, id: StreamId) -> Result<Head, Failure> {
        loop {
            self.receive(quic, id)?;
            if self.has_ended {
                return Err(Failure::Closed);
            }
            let section = self.next(usize::MAX, |event| match event {
                Event::Headers(section) => Some(section.into_owned()),
                Event::Data(_) | Event::Trailers(_) => None,
            })?;
            if let Some(Some(section)) = section {
                return Ok(Head { section, ends: self.is_at_end(quic, id)? });
            }
        }
    }

    /// Records the body that the head announces.
    pub fn expect(&mut self, body: Body) {
        self.frames.expect(body);
    }

    /// Fails if the stream has ended and its body does not have the announced length.
    pub fn check_end(&self) -> Result<(), Fault> {
        if self.has_ended { self.frames.end() } else { Ok(()) }
    }

    /// Reads the next piece of the body.
    pub fn body(&mut self, quic: &Connection, id: StreamId, buffer: &mut [u8]) -> Result<Piece, Failure> {
        loop {
            self.receive(quic, id)?;
            if self.has_ended {
                return Ok(Piece::End);
            }
            let piece = self.next(buffer.len(), |event| match event {
                Event::Data(bytes) => {
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    Piece::Bytes(bytes.len())
                }
                Event::Trailers(section) | Event::Headers(section) => Piece::Trailers(section.into_owned()),
            })?;
            if let Some(piece) = piece {
                return Ok(piece);
            }
        }
    }
}
