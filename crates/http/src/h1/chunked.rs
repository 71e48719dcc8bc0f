//! Chunked transfer coding. The decoder receives the bytes of each read and returns which part is data, so no byte is
//! copied twice. Its state is a few words, and the length of a chunk's size line is limited. Extensions and trailers
//! are refused as in Varnish, and so are line ends other than CRLF from clients (RFC 9112 section 7.1).

use crate::ascii::is_hex;
use std::fmt;

/// Errors in the framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    NonHex,
    HeaderTooLong,
    HeaderNoNewline,
    TooLarge,
    TailNoNewline,
}

impl ChunkError {
    /// Returns the text in `FetchError` records.
    pub const fn text(self) -> &'static str {
        match self {
            ChunkError::NonHex => "chunked header non-hex",
            ChunkError::HeaderTooLong => "chunked header too long",
            ChunkError::HeaderNoNewline => "chunked header no NL",
            ChunkError::TooLarge => "bogusly large chunk size",
            ChunkError::TailNoNewline => "chunked tail no NL",
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for ChunkError {}

/// The result of one call of [`ChunkedDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of input bytes that were processed, including data.
    pub consumed: usize,
    /// The data is `input[consumed - data_len..consumed]`.
    pub data_len: usize,
    /// The body is complete. Bytes after `consumed` are not part of it.
    pub done: bool,
}

impl Piece {
    pub fn data<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        &input[self.consumed - self.data_len..self.consumed]
    }
}

/// The data that one call of [`ChunkedDecoder::decode_run`] found: `buffer[start..end]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The number of bytes of the buffer that were decoded. The bytes after them are unchanged.
    pub consumed: usize,
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SizeStart,
    Size { digits: u8 },
    SizeBlank { count: u8 },
    SizeNewline,
    Data,
    DataEnd,
    DataNewline,
    Tail,
    TailNewline,
    Done,
}

/// The log texts for input that ends too early.
const READ_ERROR: &str = "chunked read err";
const DATA_ERROR: &str = "chunked insufficient bytes";

/// The maximum number of hex digits of a size, not counting leading zeros.
const MAX_DIGITS: u8 = 19;
/// The maximum number of blanks after a size, and of leading zeros in it.
const MAX_PADDING: u8 = 255;

/// A decoder of a chunked body, with its position in the body.
#[derive(Clone, Copy, Debug)]
pub struct ChunkedDecoder {
    state: State,
    left: u64,
    zeros: u8,
    lenient: bool,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        ChunkedDecoder::new()
    }
}

impl ChunkedDecoder {
    pub const fn new() -> ChunkedDecoder {
        ChunkedDecoder { state: State::SizeStart, left: 0, zeros: 0, lenient: false }
    }

    /// Returns a decoder that is as lenient as Varnish is towards origins: it accepts blanks before a size, and lines
    /// that end with a lone LF.
    pub const fn lenient() -> ChunkedDecoder {
        ChunkedDecoder { state: State::SizeStart, left: 0, zeros: 0, lenient: true }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Skips `n` bytes of the current chunk.
    fn skip(&mut self, n: u64) {
        self.left -= n.min(self.left);
        if self.state == State::Data && self.left == 0 {
            self.state = State::DataEnd;
        }
    }

    /// Returns the log text for an input that ends before the body does.
    pub fn eof_text(&self) -> &'static str {
        if self.state == State::Data { DATA_ERROR } else { READ_ERROR }
    }

    /// Decodes up to the end of the input, of the body, or of one run of data.
    pub fn decode(&mut self, input: &[u8]) -> Result<Piece, ChunkError> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let n = self.left.min((input.len() - at) as u64);
                self.skip(n);
                return Ok(Piece { consumed: at + n as usize, data_len: n as usize, done: false });
            }
            let b = input[at];
            if self.step(b)? {
                at += 1;
            }
        }
        Ok(Piece { consumed: at, data_len: 0, done: self.state == State::Done })
    }

    /// Decodes the whole buffer, or up to the end of the body, and moves the data of its chunks together, so that a
    /// chunk of one byte costs only its decoding. An error after some data is returned by the next call.
    pub fn decode_run(&mut self, buffer: &mut [u8]) -> Result<Run, ChunkError> {
        let mut run = Run { consumed: 0, start: 0, end: 0 };
        while run.consumed < buffer.len() && self.state != State::Done {
            let before = *self;
            let piece = match self.decode(&buffer[run.consumed..]) {
                Ok(piece) => piece,
                Err(_) if run.end > run.start => {
                    // The next call starts again at this piece.
                    *self = before;
                    return Ok(run);
                }
                Err(error) => return Err(error),
            };
            let from = run.consumed + piece.consumed - piece.data_len;
            run.consumed += piece.consumed;
            if run.start == run.end {
                (run.start, run.end) = (from, run.consumed);
            } else {
                buffer.copy_within(from..run.consumed, run.end);
                run.end += piece.data_len;
            }
        }
        Ok(run)
    }

    /// Processes one byte outside of data. Returns false if the byte must be processed again in the new state.
    fn step(&mut self, b: u8) -> Result<bool, ChunkError> {
        self.state = match (self.state, b) {
            (State::DataEnd, b'\r') => State::DataNewline,
            (State::DataNewline, b'\n') => State::SizeStart,
            (State::DataEnd, b'\n') | (State::SizeStart, b' ' | b'\t') if self.lenient => State::SizeStart,

            (State::SizeStart, _) if is_hex(b) => {
                (self.left, self.zeros) = (0, 0);
                self.state = State::Size { digits: 0 };
                return Ok(false);
            }
            (State::SizeStart, _) => return Err(ChunkError::NonHex),

            (State::Size { digits }, _) if is_hex(b) => self.digit(digits, b)?,
            (State::Size { .. }, b' ' | b'\t') => State::SizeBlank { count: 1 },
            (State::SizeBlank { count: MAX_PADDING }, _) => return Err(ChunkError::HeaderTooLong),
            (State::SizeBlank { count }, b' ' | b'\t') => State::SizeBlank { count: count + 1 },
            (State::Size { .. } | State::SizeBlank { .. }, b'\r') => State::SizeNewline,
            (State::SizeNewline, b'\n') => self.after_size()?,
            (State::Size { .. } | State::SizeBlank { .. }, b'\n') if self.lenient => self.after_size()?,
            (State::Size { .. } | State::SizeBlank { .. } | State::SizeNewline, _) => {
                return Err(ChunkError::HeaderNoNewline);
            }

            (State::Tail, b'\r') => State::TailNewline,
            (State::TailNewline, b'\n') => State::Done,
            (State::Tail, b'\n') if self.lenient => State::Done,
            (State::DataEnd | State::DataNewline | State::Tail | State::TailNewline, _) => {
                return Err(ChunkError::TailNoNewline);
            }

            (State::Data | State::Done, _) => return Ok(false),
        };
        Ok(true)
    }

    /// Returns the state after a size line.
    fn after_size(&self) -> Result<State, ChunkError> {
        if i64::try_from(self.left).is_err() {
            return Err(ChunkError::TooLarge);
        }
        Ok(if self.left == 0 { State::Tail } else { State::Data })
    }

    fn digit(&mut self, digits: u8, b: u8) -> Result<State, ChunkError> {
        if b == b'0' && self.left == 0 {
            self.zeros = self.zeros.saturating_add(1);
            return if self.zeros < MAX_PADDING {
                Ok(State::Size { digits })
            } else {
                Err(ChunkError::HeaderTooLong)
            };
        }
        if digits == MAX_DIGITS {
            return Err(ChunkError::HeaderTooLong);
        }
        let value = u64::from((b as char).to_digit(16).unwrap_or(0));
        self.left = self.left.checked_mul(16).map_or(u64::MAX, |n| n.saturating_add(value));
        Ok(State::Size { digits: digits + 1 })
    }
}

/// The line before the data of a chunk ("1f4\r\n"). CRLF follows the data.
#[derive(Clone, Copy, Debug)]
pub struct ChunkHeader {
    bytes: [u8; 18],
    start: u8,
}

/// The last chunk, which ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

impl ChunkHeader {
    pub fn new(mut size: usize) -> ChunkHeader {
        let mut bytes = *b"0000000000000000\r\n";
        let mut start = 16;
        loop {
            start -= 1;
            bytes[start] = b"0123456789abcdef"[size & 15];
            size >>= 4;
            if size == 0 {
                return ChunkHeader { bytes, start: start as u8 };
            }
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }
}
