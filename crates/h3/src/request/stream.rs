//! The frames of a request stream (RFC 9114 section 4.1): HEADERS, any number of DATA, and optional HEADERS with
//! trailers. A tunnel has no trailers (section 4.4). Unknown frames may occur anywhere.

use crate::error_table::Reason;
use crate::fault::Fault;
use crate::frame::{FrameHeader, Kind, Piece, Reader};
use lacquer_h2::request::Body;
use std::borrow::Cow;

/// The maximum number of frames without use on a stream, beyond those that DATA frames allow for.
const MAX_USELESS: u32 = 1000;
/// The number of useless frames that a DATA frame with bytes allows for.
const ALLOWED_BY_DATA: u32 = 10;

/// A part of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The field section of the request, for [`super::decode()`]. The caller must not read on before it is decoded, and
    /// must then call [`RequestStream::expect`].
    Headers(Cow<'a, [u8]>),
    /// Bytes of the body, at least one: a part of the input.
    Data(&'a [u8]),
    /// The field section of the trailers, for [`super::decode_trailers`].
    Trailers(Cow<'a, [u8]>),
}

/// The frames that may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Headers,
    Body,
    /// Bytes of another protocol.
    Tunnel,
    End,
}

/// The state of a request stream.
#[derive(Debug)]
pub struct RequestStream {
    reader: Reader,
    kind: Kind,
    phase: Phase,
    /// The beginning of an incomplete field section.
    section: Vec<u8>,
    max_section: u64,
    /// The length of the body according to `Content-Length`.
    expected: Option<u64>,
    /// The number of bytes of the body in the frames that have begun.
    received: u64,
    useless: u32,
}

impl RequestStream {
    /// Creates a stream whose field sections have at most `max_section` encoded bytes.
    pub fn new(max_section: usize) -> RequestStream {
        RequestStream {
            reader: Reader::default(),
            kind: Kind::Unknown,
            phase: Phase::Headers,
            section: Vec::new(),
            max_section: max_section as u64,
            expected: None,
            received: 0,
            useless: 0,
        }
    }

    /// Records which body is expected. Called when the headers are decoded.
    pub fn expect(&mut self, body: Body) {
        self.expected = match body {
            Body::None => Some(0),
            Body::Length(len) => Some(len),
            Body::UntilEnd | Body::Tunnel => None,
        };
        if body == Body::Tunnel {
            self.phase = Phase::Tunnel;
        }
    }

    /// Returns whether no field section has arrived completely.
    pub fn is_opening(&self) -> bool {
        self.phase == Phase::Headers
    }

    /// Removes bytes up to the end of the next event from the front of `input`. Returns `None` if more bytes are
    /// needed; the input is then empty.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fault> {
        while let Some(piece) = self.reader.next(input) {
            match piece {
                Piece::Begin(header) => {
                    self.begin(&header)?;
                    if header.len == 0 && self.kind == Kind::Headers {
                        return Ok(Some(self.headers(&[])));
                    }
                }
                Piece::Payload(bytes) => match self.kind {
                    Kind::Data => return Ok(Some(Event::Data(bytes))),
                    Kind::Headers if self.reader.left() == 0 => return Ok(Some(self.headers(bytes))),
                    Kind::Headers => self.section.extend_from_slice(bytes),
                    _ => {}
                },
            }
        }
        Ok(None)
    }

    /// Handles a frame header. Fails if the frame is not allowed now.
    fn begin(&mut self, header: &FrameHeader) -> Result<(), Fault> {
        self.kind = header.kind();
        match (self.kind, self.phase) {
            (Kind::Headers, Phase::Headers | Phase::Body) => {
                if header.len > self.max_section {
                    let text = "Header list too large (h2_max_header_list_size)";
                    return Err(Fault::stream(Reason::ExcessiveLoad, text));
                }
            }
            (Kind::Data, Phase::Body | Phase::Tunnel) if header.len > 0 => {
                self.received = self.received.saturating_add(header.len);
                if self.expected.is_some_and(|expected| self.received > expected) {
                    return Err(mismatch());
                }
                self.useless = self.useless.saturating_sub(ALLOWED_BY_DATA);
            }
            (Kind::Data, Phase::Body | Phase::Tunnel) | (Kind::Unknown, _) => {
                self.useless += 1;
                if self.useless > MAX_USELESS {
                    let text = "H3: Too many frames without use";
                    return Err(Fault::connection(Reason::ExcessiveLoad, text));
                }
            }
            (kind, phase) => {
                let when = match phase {
                    Phase::Headers => "before headers",
                    Phase::Body => "on a request stream",
                    Phase::Tunnel => "in a tunnel",
                    Phase::End => "after trailers",
                };
                let text = format!("H3: unexpected {} frame {when}", kind.name());
                return Err(Fault::connection(Reason::FrameUnexpected, text));
            }
        }
        Ok(())
    }

    /// Returns the field section that ends with these bytes.
    fn headers<'a>(&mut self, bytes: &'a [u8]) -> Event<'a> {
        let section = if self.section.is_empty() {
            Cow::Borrowed(bytes)
        } else {
            let mut section = std::mem::take(&mut self.section);
            section.extend_from_slice(bytes);
            Cow::Owned(section)
        };
        if self.phase == Phase::Headers {
            self.phase = Phase::Body;
            return Event::Headers(section);
        }
        self.phase = Phase::End;
        Event::Trailers(section)
    }

    /// Handles the end of the stream. Fails if the request is not complete.
    pub fn end(&self) -> Result<(), Fault> {
        if !self.reader.is_between_frames() {
            return Err(Fault::connection(Reason::FrameError, "H3: stream ends within a frame"));
        }
        if self.phase == Phase::Headers {
            return Err(Fault::stream(Reason::RequestIncomplete, "H3: stream ends without headers"));
        }
        if self.expected.is_some_and(|expected| self.received != expected) {
            return Err(mismatch());
        }
        Ok(())
    }
}

fn mismatch() -> Fault {
    Fault::stream(Reason::MessageError, "H3: Received data and Content-Length mismatch")
}
