//! Decodes a header block that arrives in fragments into a message.

use super::builder::{RequestBuilder, RequestHead, too_large};
use super::check::Log;
use super::{Limits, Version};
use crate::error_table::{Error, Reason};
use crate::fault::{Note, Tag};
use crate::hpack::{Decoder, HpackError, Step, TRUNCATED};
use lacquer_http::trailers::RequestTrailers;
use lacquer_http::{Message, Workspace};

const DAMAGED: Error = Error::Connection(Reason::CompressionError);

/// A header block that is being received. A connection has at most one.
#[derive(Debug)]
pub struct RequestDecoder {
    builder: RequestBuilder,
    /// The number of bytes by which the encoded block may still grow.
    left: usize,
    /// An incomplete field, and the minimum number of bytes that it needs.
    rest: Vec<u8>,
    needed: usize,
}

impl RequestDecoder {
    /// Begins a block: clears `msg` and allocates an area of the workspace.
    pub fn begin(
        decoder: &mut Decoder,
        ws: &mut Workspace,
        msg: &mut Message,
        limits: &Limits,
    ) -> RequestDecoder {
        RequestDecoder::new(decoder, RequestBuilder::begin(Version::Http2, ws, msg, limits), limits)
    }

    /// Begins a block of a stream that is refused with `error`. The block is decoded because it may change the
    /// tables. The workspace and the message that are passed to the other functions are not changed.
    pub fn refused(decoder: &mut Decoder, error: Error, limits: &Limits) -> RequestDecoder {
        RequestDecoder::new(decoder, RequestBuilder::refused(Version::Http2, error, limits), limits)
    }

    /// Begins a block of trailers, which ends a request whose headers were received before. It must end with
    /// [`RequestDecoder::finish_trailers`].
    pub fn trailers(decoder: &mut Decoder, limits: &Limits) -> RequestDecoder {
        RequestDecoder::new(decoder, RequestBuilder::trailers(Version::Http2, limits), limits)
    }

    fn new(decoder: &mut Decoder, builder: RequestBuilder, limits: &Limits) -> RequestDecoder {
        decoder.begin();
        RequestDecoder { builder, left: limits.list_size, rest: Vec::new(), needed: 0 }
    }

    /// Decodes a fragment of the block. An error here ends the connection.
    pub fn feed(
        &mut self,
        decoder: &mut Decoder,
        fragment: &[u8],
        ws: &mut Workspace,
        msg: &mut Message,
        log: Log<'_>,
    ) -> Result<(), Error> {
        self.left = self.left.checked_sub(fragment.len()).ok_or_else(|| too_large(log))?;
        if self.rest.is_empty() {
            let consumed = self.fields(decoder, fragment, ws, msg, log)?;
            self.rest.extend_from_slice(&fragment[consumed..]);
            return Ok(());
        }
        self.rest.extend_from_slice(fragment);
        if self.rest.len() >= self.needed {
            let mut rest = std::mem::take(&mut self.rest);
            let consumed = self.fields(decoder, &rest, ws, msg, log)?;
            rest.drain(..consumed);
            self.rest = rest;
        }
        Ok(())
    }

    /// Decodes the complete fields in `input`. Returns the number of bytes that they use.
    fn fields(
        &mut self,
        decoder: &mut Decoder,
        input: &[u8],
        ws: &mut Workspace,
        msg: &mut Message,
        log: Log<'_>,
    ) -> Result<usize, Error> {
        let mut left = input;
        loop {
            let out = self.builder.field_buffer(ws);
            match decoder.next(&mut left, out).map_err(|error| damaged(error, log))? {
                Step::Field(line) => self.builder.add(line, ws, msg, log)?,
                Step::End => return Ok(input.len()),
                Step::More { needed } => {
                    self.needed = needed;
                    return Ok(input.len() - left.len());
                }
                Step::Full => self.builder.overflow(decoder.field_size_bound(left)),
            }
        }
    }

    /// Ends the block. Returns the request, unless the stream has a fault.
    pub fn finish(
        self,
        ws: &mut Workspace,
        msg: &mut Message,
        end_stream: bool,
        log: Log<'_>,
    ) -> Result<RequestHead, Error> {
        self.check_end(log)?;
        self.builder.finish(ws, msg, end_stream, log)
    }

    /// Ends a block of trailers. Returns the fields that may be passed on.
    pub fn finish_trailers(self, log: Log<'_>) -> Result<Box<RequestTrailers>, Error> {
        self.check_end(log)?;
        self.builder.finish_trailers()
    }

    /// Fails if the block ends within a field.
    fn check_end(&self, log: Log<'_>) -> Result<(), Error> {
        if self.rest.is_empty() {
            return Ok(());
        }
        log(Note::new(Tag::BogoHeader, format!("HPACK compression error/fini ({TRUNCATED})")));
        Err(DAMAGED)
    }
}

#[cold]
fn damaged(error: HpackError, log: Log<'_>) -> Error {
    log(Note::new(Tag::SessBogoHeader, format!("HPACK compression error ({})", error.text())));
    DAMAGED
}
