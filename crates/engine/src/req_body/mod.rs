//! The body of a client's request. The protocol that brings it implements [`BodyReader`].
//!
//! The reader of the body owns the receiving half of the connection while it reads. Between requests, this is the
//! session; while it forwards the body, the fetch.

mod allowance;
mod error;
mod input;
mod keep;
mod kept;
mod reader;
mod stream_reader;

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use allowance::{Allowance, EarlyResponse, Missed};
pub use error::BodyError;
pub use input::BodyInput;
pub use keep::Keep;
use lacquer_cache::Object;
use lacquer_http::BodyStatus;
use lacquer_http::h1::Framing;
use lacquer_http::trailers::RequestTrailers;
use lacquer_net::Rx;
use lacquer_params::Params;
use lacquer_sources::clock;
pub use reader::BodyReader;
pub use stream_reader::BodyStream;

use crate::req_filters::BodyFilters;

pub struct ReqBody {
    input: BodyInput,
    status: BodyStatus,
    /// The length that the head declared.
    length: u64,
    tally: Tally,
    cached: Option<Arc<Object>>,
    /// A reader has begun to read the body and left a rest, which is not the body that the head declares.
    is_cut: bool,
    /// The filters that the body passes through when it is read.
    pub filters: Option<Box<BodyFilters>>,
    allowance: Allowance,
    buffer: Vec<u8>,
}

/// The statistics of reading the body, for the request's log.
#[derive(Default)]
struct Tally {
    /// Reading has begun and was not logged yet.
    has_begun: bool,
    /// The bytes that were received, and the number of reads.
    bytes: u64,
    reads: u64,
    fault: Option<BodyError>,
    /// The time when reading ended.
    ended: f64,
}

/// The result of reading a body, for the log.
pub struct Reading {
    pub fault: Option<BodyError>,
    pub ended: f64,
}

impl ReqBody {
    /// Returns an empty body.
    #[inline]
    pub fn none() -> ReqBody {
        ReqBody::new(BodyInput::of_connection(None, Framing::NONE), Framing::NONE)
    }

    /// Returns the body that a head with this framing declared.
    #[inline]
    pub fn new(input: BodyInput, framing: Framing) -> ReqBody {
        ReqBody {
            input,
            status: framing.status,
            length: framing.content_length,
            tally: Tally::default(),
            cached: None,
            is_cut: false,
            filters: None,
            allowance: Allowance::default(),
            buffer: Vec::new(),
        }
    }

    /// Sets the receiving side of the connection, from which the body is read. Does nothing for a stream.
    #[inline]
    pub fn set_rx(&mut self, rx: Option<Rx>) {
        self.input.set_rx(rx);
    }

    /// Takes the receiving side back. Returns `None` for a stream, and while a fetch still reads the body.
    #[inline]
    pub fn take_rx(&mut self) -> Option<Rx> {
        self.input.take_rx()
    }

    /// Ready when the handshake of the connection is complete.
    pub fn poll_handshaken(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.rx().map_or(Poll::Ready(Ok(())), |rx| rx.poll_handshaken(cx))
    }

    /// Returns whether bytes after the head were already read from the connection.
    pub fn has_surplus(&self) -> bool {
        self.input.rx().is_some_and(Rx::has_pending)
    }

    /// Returns whether no bytes of the body are left on the connection.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.is_done() || !(self.is_available() || self.status == BodyStatus::Error)
    }

    #[inline]
    pub fn status(&self) -> BodyStatus {
        self.status
    }

    pub fn set_status(&mut self, status: BodyStatus) {
        self.status = status;
    }

    /// Returns whether there is a body that was not read yet, and can be read only once.
    pub fn is_available(&self) -> bool {
        matches!(self.status, BodyStatus::Length | BodyStatus::Chunked | BodyStatus::Eof)
    }

    /// Makes a body of unknown length that is known to be empty none, so that the request is like others without a body.
    pub fn settle_empty(&mut self) {
        if self.status == BodyStatus::Eof && self.filters.is_none() && self.input.is_empty() {
            self.status = BodyStatus::None;
        }
    }

    /// Waits for the end of a body of unknown length, and does the same if it is empty. Returns whether it is.
    pub async fn proves_empty(&mut self, params: &Params) -> bool {
        if self.status != BodyStatus::Eof || !matches!(self.receive(params).await, Ok([])) {
            return false;
        }
        (self.status, self.tally) = (BodyStatus::None, Tally::default());
        true
    }

    /// Returns the length of the body as its reader receives it, if that is known.
    pub fn announced(&self) -> Option<u64> {
        (self.status == BodyStatus::Length && !self.is_resized()).then_some(self.length)
    }

    /// Returns whether filters change the length of the body.
    pub fn is_resized(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.changes_length())
    }

    /// Returns the log's name for the body's reader.
    pub fn receiver(&self) -> &'static str {
        self.input.receiver()
    }

    pub fn cached(&self) -> Option<Arc<Object>> {
        self.cached.clone()
    }

    /// Returns whether bytes were read since the last call of [`ReqBody::take_counted`].
    pub fn was_read(&self) -> bool {
        self.tally.reads > 0
    }

    /// Returns the number of reads and of body bytes since the last call.
    #[inline]
    pub fn take_counted(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.tally.reads), std::mem::take(&mut self.tally.bytes))
    }

    /// Returns the result of reading the body; `None` if it was not read since the last call.
    pub fn take_reading(&mut self) -> Option<Reading> {
        let begun = std::mem::take(&mut self.tally.has_begun);
        // The reports of filters contain their faults.
        let fault = self.tally.fault.take().filter(|fault| !matches!(fault, BodyError::Filter));
        begun.then_some(Reading { fault, ended: self.tally.ended })
    }

    /// Moves the body to a reader, and marks it as taken.
    #[must_use]
    pub fn take(&mut self) -> ReqBody {
        let reader = ReqBody {
            input: self.input.take(),
            status: self.status,
            length: self.length,
            tally: Tally::default(),
            cached: self.cached.clone(),
            is_cut: self.is_cut,
            filters: self.filters.take(),
            allowance: std::mem::take(&mut self.allowance),
            buffer: std::mem::take(&mut self.buffer),
        };
        self.status = BodyStatus::Taken;
        reader
    }

    /// Takes back the connection from a reader that is done.
    pub fn give_back(&mut self, reader: ReqBody) {
        // A failed body stays failed, because the start of the next request is unknown.
        let taken = reader.status != BodyStatus::Error && reader.is_done();
        self.status = if taken { BodyStatus::Taken } else { reader.status };
        self.is_cut |= !taken && reader.tally.has_begun;
        let Tally { bytes, reads, .. } = self.tally;
        self.tally = reader.tally;
        self.tally.bytes += bytes;
        self.tally.reads += reads;
        self.input = reader.input;
        self.filters = reader.filters;
        self.allowance = reader.allowance;
        self.buffer = reader.buffer;
    }

    /// Sets the response that may arrive while the client still sends its body, if there is one.
    pub fn set_response(&mut self, response: Option<Rc<EarlyResponse>>) {
        self.allowance.set_response(response);
    }

    /// Returns whether the whole body was read.
    pub fn is_done(&self) -> bool {
        match self.status {
            BodyStatus::Length | BodyStatus::Chunked | BodyStatus::Eof => self.input.is_done(),
            BodyStatus::Error => false,
            _ => true,
        }
    }

    /// Returns the next piece of the body. The piece is empty at the end of the body.
    pub async fn next(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        if self.filters.is_some() {
            Box::pin(self.next_filtered(params)).await
        } else {
            self.receive(params).await
        }
    }

    /// Returns the next output of the filters.
    async fn next_filtered(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        let Some(mut filters) = self.filters.take() else { return Ok(&[]) };
        let outcome = self.filter_more(&mut filters, params).await;
        let filters = self.filters.insert(filters);
        outcome.map(|()| filters.out())
    }

    /// Reads until the filters have output, or the body ends.
    async fn filter_more(&mut self, filters: &mut BodyFilters, params: &Params) -> Result<(), BodyError> {
        loop {
            if !filters.is_broken() {
                filters.process(&self.buffer).await;
            }
            if filters.is_broken() {
                self.status = BodyStatus::Error;
                return Err(BodyError::Filter);
            }
            if !filters.out().is_empty() || filters.has_ended() {
                return Ok(());
            }
            let piece = self.receive_range(params).await?;
            filters.set_input(piece);
        }
    }

    /// Returns the next unfiltered piece.
    async fn receive(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        let piece = self.receive_range(params).await?;
        Ok(&self.buffer[piece])
    }

    /// Reads the next piece into the buffer, and returns its range. The range is empty at the end of the body.
    async fn receive_range(&mut self, params: &Params) -> Result<Range<usize>, BodyError> {
        if self.is_done() {
            return Ok(0..0);
        }
        if self.status == BodyStatus::Error {
            return Err(BodyError::Framing("failed before"));
        }
        self.tally.has_begun = true;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(self.input.step(params), 0);
        let outcome = self.input.fill(&mut buffer, &mut self.allowance, params).await;
        self.buffer = buffer;
        self.tally.ended = clock::real();
        match outcome {
            Ok(piece) => {
                self.tally.bytes += piece.len() as u64;
                self.tally.reads += 1;
                Ok(piece)
            }
            Err(e) => {
                self.status = BodyStatus::Error;
                Err(e)
            }
        }
    }

    /// Leaves the rest of the body unread, because nobody needs it. The connection closes after the response, and the
    /// client's side of a stream ends with it.
    pub fn give_up_rest(&mut self) {
        if !self.is_done() {
            self.status = BodyStatus::Error;
        }
    }

    /// Fails the body if only a rest of it is left, so that the rest is not sent as if it were the whole.
    pub fn fail_if_cut(&mut self) {
        if self.is_cut {
            self.status = BodyStatus::Error;
        }
    }

    /// Removes and returns the trailers behind a body that was read.
    pub fn take_trailers(&mut self) -> Option<Box<RequestTrailers>> {
        self.input.take_trailers()
    }

    /// Records a fault for the request's log.
    pub fn fail(&mut self, fault: BodyError) {
        self.tally.fault = Some(fault);
    }

    /// Reads and discards the rest of the body. Returns false on failure.
    pub async fn drain(&mut self, params: &Params) -> bool {
        loop {
            match self.receive(params).await {
                Ok([]) => break,
                Ok(_) => {}
                Err(fault) => {
                    self.fail(fault);
                    return false;
                }
            }
        }
        self.status = BodyStatus::Taken;
        true
    }
}
