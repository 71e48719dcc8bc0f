//! The connection: opens streams, sends their requests, and passes on their responses.

use std::collections::BTreeMap;

use super::block::Block;
use super::failure::Failure;
use super::request::{Refused, Request};
use super::stream::{Progress, Received, Stream};
use crate::error_table::{Error, Reason};
use crate::fault::Fault;
use crate::flow::{INITIAL_WINDOW, MAX_WINDOW, ReceiveWindow, SendWindow};
use crate::frame::{self, FrameHeader, Kind, flag};
use crate::hpack::{Decoder, encode};
use crate::response;
use crate::settings::Settings;

/// The first bytes of a client (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The receive window of a stream, which bounds the bytes of a response that wait to be read.
const WINDOW: u32 = 256 * 1024;
/// The receive window of the connection. It is refilled as bytes arrive, so that a response that nobody reads does not
/// stop others. The windows of the streams bound the memory.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// The size of the table for decoding, which is the protocol's default.
const TABLE: usize = 4096;
/// The longest frame that the server may send: the protocol's default.
pub(super) const MAX_FRAME: u32 = 16384;
/// The number of waiting bytes from which no more of a body is taken.
const MAX_OUTPUT: usize = 64 * 1024;
/// The maximum number of streams at a time, whatever the server allows.
const MAX_STREAMS: u32 = 100;
/// The last number of a stream, after which a new connection is needed.
const LAST_STREAM: u32 = 0x7fff_0000;

/// The limits of the fields of a response.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum size of a list of fields in bytes, with 32 bytes for each field (RFC 9113 section 6.5.2). A longer one
    /// ends its stream.
    pub list: u32,
}

impl Limits {
    /// Returns the size of a header block, or of its fields, that ends the connection.
    pub(super) fn hard(self) -> usize {
        (self.list as usize).saturating_mul(4).max(1 << 16)
    }
}

/// The settings of the server.
#[derive(Debug)]
pub(super) struct Server {
    pub settings: Settings,
    /// The table for encoding is to be announced as empty.
    pub empties_table: bool,
    pub has_announced: bool,
    /// The last stream that is processed, after GOAWAY.
    pub last_stream: Option<u32>,
}

impl Server {
    /// Begins a header block, with the size of the table if that has to be announced.
    fn begin_block(&self, block: &mut Vec<u8>) {
        if self.empties_table {
            encode::empty_table(block);
        }
    }
}

/// The bytes to be sent.
#[derive(Debug)]
pub(super) struct Output {
    pub bytes: Vec<u8>,
    /// The number of bytes that were sent before.
    sent: u64,
}

impl Output {
    /// Returns the number of bytes before the next one.
    fn position(&self) -> u64 {
        self.sent + self.bytes.len() as u64
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    pub(super) limits: Limits,
    pub(super) decoder: Decoder,
    pub(super) server: Server,
    pub(super) streams: BTreeMap<u32, Stream>,
    pub(super) next: u32,
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    pub(super) block: Option<Block>,
    /// The number of frames without use since the last useful one.
    pub(super) useless: u32,
    pub(super) out: Output,
    /// The streams that have changed since the last call of `take_changed`.
    pub(super) changed: Vec<u32>,
    pub(super) end: Option<Failure>,
}

impl Connection {
    /// Begins a connection: the preface and the settings are the first output.
    pub fn new(limits: Limits) -> Connection {
        let mut out = PREFACE.to_vec();
        let settings = Settings {
            enable_push: 0,
            initial_window_size: WINDOW,
            max_header_list_size: limits.list,
            ..Settings::DEFAULT
        };
        frame::write_settings(&mut out, &settings);
        frame::window_update(&mut out, 0, CONNECTION_WINDOW - INITIAL_WINDOW);
        Connection {
            limits,
            decoder: Decoder::new(TABLE),
            server: Server {
                settings: Settings::DEFAULT,
                empties_table: false,
                has_announced: false,
                last_stream: None,
            },
            streams: BTreeMap::new(),
            next: 1,
            send: SendWindow::new(INITIAL_WINDOW),
            receive: ReceiveWindow::new(CONNECTION_WINDOW),
            block: None,
            useless: 0,
            out: Output { bytes: out, sent: 0 },
            changed: Vec::new(),
            end: None,
        }
    }

    // The state.

    /// Returns whether a further stream can be opened, in addition to `reserved` others. A server that does not read gets
    /// no further requests.
    pub fn has_room_for(&self, reserved: u32) -> bool {
        let has_room = |streams: usize| streams as u64 + u64::from(reserved) < u64::from(self.most_streams());
        let has_stream = has_room(self.streams.len()) || has_room(self.used_streams().count());
        self.is_open() && has_stream && !self.is_clogged()
    }

    /// Returns the streams whose responses are not released. The others only lack their ends.
    fn used_streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values().filter(|stream| !stream.is_released)
    }

    fn most_streams(&self) -> u32 {
        self.server.settings.max_concurrent_streams.min(MAX_STREAMS)
    }

    /// Returns whether streams can be opened, now or once others have ended.
    pub fn is_open(&self) -> bool {
        self.end.is_none() && self.server.last_stream.is_none() && self.next <= LAST_STREAM
    }

    /// Returns whether the server has announced its settings.
    pub fn has_settings(&self) -> bool {
        self.server.has_announced
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether streams are in use. Those that only lack their ends do not count.
    pub fn is_in_use(&self) -> bool {
        self.used_streams().next().is_some()
    }

    /// Returns why the connection has ended.
    pub fn end(&self) -> Option<&Failure> {
        self.end.as_ref()
    }

    /// Returns the number of streams that were opened.
    pub fn opened(&self) -> u32 {
        (self.next - 1) / 2
    }

    /// Returns the bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.out.bytes
    }

    /// Returns whether so many bytes wait that nothing should be received, because replies would add more.
    pub fn is_clogged(&self) -> bool {
        self.out.bytes.len() > 2 * MAX_OUTPUT
    }

    /// Removes bytes that were sent.
    pub fn sent(&mut self, n: usize) {
        let was_full = self.out.bytes.len() >= MAX_OUTPUT;
        self.out.bytes.drain(..n);
        self.out.sent += n as u64;
        if was_full && self.out.bytes.len() < MAX_OUTPUT {
            self.wake_senders();
        }
    }

    /// Removes and returns the streams that have changed: bytes may have arrived, or may be sent.
    pub fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed)
    }

    // Requests.

    /// Opens a stream and sends the head of its request. The caller has made sure that there is room.
    pub fn open(&mut self, request: Request<'_>) -> Result<u32, Refused> {
        self.make_room();
        let id = self.next;
        let mut block = Vec::with_capacity(512);
        self.server.begin_block(&mut block);
        request.write(&mut block)?;
        let begins = self.out.position();
        if !self.write_block(id, &block, request.ends) {
            return Err(Refused("the head is longer than the origin accepts"));
        }
        let window = self.server.settings.initial_window_size;
        let stream = Stream::new(window, WINDOW, request.is_head(), request.ends);
        self.streams.insert(id, Stream { begins, ..stream });
        self.next += 2;
        Ok(id)
    }

    /// Resets the oldest streams that only lack their ends, which a server may never send, until it accepts another.
    fn make_room(&mut self) {
        while self.streams.len() as u64 >= u64::from(self.most_streams())
            && let Some((&id, _)) = self.streams.iter().find(|(_, stream)| stream.is_released)
        {
            self.reset(id, Reason::Cancel, Failure::Closed);
        }
    }

    /// Sends a header block. Returns false if it is longer than the server accepts.
    fn write_block(&mut self, id: u32, block: &[u8], ends: bool) -> bool {
        let server = &mut self.server;
        if block.len() as u64 > u64::from(server.settings.max_header_list_size).saturating_mul(2) {
            return false;
        }
        server.empties_table = false;
        let max = (server.settings.max_frame_size as usize).min(MAX_FRAME as usize);
        frame::write_headers(&mut self.out.bytes, id, ends, max, |out| out.extend_from_slice(block));
        true
    }

    /// Sends bytes of the body, as many as the windows and the waiting output allow. Returns their number, or the
    /// failure of the stream.
    pub fn send_body(&mut self, id: u32, bytes: &[u8]) -> Result<usize, Failure> {
        let Some(stream) = self.streams.get_mut(&id) else { return Err(Failure::Closed) };
        if let Some(failure) = &stream.failure {
            return Err(failure.clone());
        }
        if stream.is_sent {
            return Err(Failure::Closed);
        }
        let room = MAX_OUTPUT.saturating_sub(self.out.bytes.len());
        let n = bytes.len().min(room).min(stream.send.available()).min(self.send.available());
        stream.send.charge(n);
        self.send.charge(n);
        if n > 0 {
            // The credit for these bytes is of use.
            self.useless = 0;
        }
        let max = self.server.settings.max_frame_size.min(MAX_FRAME) as usize;
        for piece in bytes[..n].chunks(max) {
            self.out.bytes.extend_from_slice(&FrameHeader::new(Kind::Data, 0, id, piece.len()).bytes());
            self.out.bytes.extend_from_slice(piece);
        }
        Ok(n)
    }

    /// Ends the body, with these trailers, whose lines end with CR LF. Returns false if they are longer than the server
    /// accepts, and were not sent.
    pub fn end_body(&mut self, id: u32, trailers: &[u8]) -> Result<bool, Failure> {
        let Some(stream) = self.streams.get_mut(&id) else { return Err(Failure::Closed) };
        if let Some(failure) = &stream.failure {
            return Err(failure.clone());
        }
        if std::mem::replace(&mut stream.is_sent, true) {
            return Ok(true);
        }
        let mut block = Vec::new();
        if !trailers.is_empty() {
            self.server.begin_block(&mut block);
            response::write_trailers(&mut block, trailers);
        }
        let is_trailed = !block.is_empty() && self.write_block(id, &block, true);
        if !is_trailed {
            self.out.bytes.extend_from_slice(&FrameHeader::new(Kind::Data, flag::END_STREAM, id, 0).bytes());
        }
        Ok(is_trailed || trailers.is_empty())
    }

    // Responses.

    /// Reads bytes that have arrived: the heads, as the text of HTTP/1.1, then the body.
    pub fn read(&mut self, id: u32, out: &mut [u8]) -> Received {
        let Some(stream) = self.streams.get_mut(&id) else { return Received::Failed(Failure::Closed) };
        let received = stream.read(out);
        if let Some(credit) = stream.credit(WINDOW) {
            frame::window_update(&mut self.out.bytes, id, credit);
        }
        received
    }

    /// Returns whether a read would return something else than [`Received::Nothing`].
    pub fn is_readable(&self, id: u32) -> bool {
        self.streams.get(&id).is_none_or(Stream::is_readable)
    }

    /// Returns whether the response has arrived to its end, and all of it was read.
    pub fn is_drained(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(Stream::is_drained)
    }

    /// Returns whether bytes of the body could be sent now, or their sending would fail.
    pub fn is_writable(&self, id: u32) -> bool {
        let Some(stream) = self.streams.get(&id) else { return true };
        let has_window = stream.send.available() > 0 && self.send.available() > 0;
        stream.failure.is_some() || stream.is_sent || (has_window && self.out.bytes.len() < MAX_OUTPUT)
    }

    /// Returns the failure of a stream that was not complete.
    pub fn failure(&self, id: u32) -> Option<Failure> {
        self.streams.get(&id)?.failure.clone()
    }

    /// Returns whether trailers have arrived that were not taken.
    pub fn has_trailers(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.arrived.trailers.is_empty())
    }

    /// Removes and returns the trailers, as lines that end with CR LF.
    pub fn take_trailers(&mut self, id: u32) -> Vec<u8> {
        self.streams
            .get_mut(&id)
            .map(|stream| std::mem::take(&mut stream.arrived.trailers))
            .unwrap_or_default()
    }

    /// Ends the use of a stream. It is reset unless it is complete, or lacks only the end of a complete response.
    pub fn release(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.is_released = true;
        if stream.is_over() {
            self.streams.remove(&id);
        } else if stream.is_sent && stream.progress == Progress::Head && stream.expected == Some(0) {
            stream.arrived = super::stream::Arrived::default();
        } else {
            self.reset(id, Reason::Cancel, Failure::Closed);
        }
    }

    /// Resets a stream that is not complete, because the rest of its request will not come.
    pub fn cancel(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(|stream| !stream.is_over()) {
            self.reset(id, Reason::Cancel, Failure::Closed);
        }
    }

    /// Resets a stream.
    pub(super) fn reset(&mut self, id: u32, reason: Reason, failure: Failure) {
        frame::rst_stream(&mut self.out.bytes, id, reason.code());
        self.fail_stream(id, failure);
    }

    /// Ends a stream with a failure.
    pub(super) fn fail_stream(&mut self, id: u32, failure: Failure) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.fail(failure);
        self.changed.push(id);
        self.forget_if_over(id);
    }

    /// Removes a stream that is complete and no longer used.
    pub(super) fn forget_if_over(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(|stream| stream.is_released && stream.is_over()) {
            self.streams.remove(&id);
        }
    }

    pub(super) fn wake_senders(&mut self) {
        let waiting = self.streams.iter().filter(|(_, stream)| !stream.is_sent);
        self.changed.extend(waiting.map(|(id, _)| *id));
    }

    // The end.

    /// Ends the connection because of a fault of the server, which is told.
    pub(super) fn fail(&mut self, fault: &Fault) {
        frame::goaway(&mut self.out.bytes, 0, fault.error.code());
        let text = fault.note.as_ref().map_or(fault.error.text(), |note| &note.text);
        self.close_with(Failure::Connection(text.into()));
    }

    /// Ends the connection because the server has closed it, or it has failed.
    pub fn closed(&mut self) {
        if self.end.is_none() {
            let sent = self.out.sent;
            for stream in self.streams.values_mut().filter(|stream| stream.begins >= sent) {
                stream.fail(Failure::Unprocessed("the origin has closed the connection before it was sent"));
            }
            // Those are repeated elsewhere, and none of their bytes may follow.
            self.out.bytes.clear();
        }
        self.close_with(Failure::Closed);
    }

    /// Ends a connection that is not needed any more. The server is told.
    pub fn finish(&mut self) {
        if self.end.is_none() {
            frame::goaway(&mut self.out.bytes, 0, Reason::NoError.code());
            self.close_with(Failure::Closed);
        }
    }

    fn close_with(&mut self, failure: Failure) {
        if self.end.is_some() {
            return;
        }
        for (id, stream) in &mut self.streams {
            stream.fail(failure.clone());
            self.changed.push(*id);
        }
        self.streams.retain(|_, stream| !stream.is_released);
        self.end = Some(failure);
    }

    /// Charges a frame without use. Too many in a row end the connection.
    pub(super) fn charge_useless(&mut self) -> Result<(), Fault> {
        const MAX_USELESS: u32 = 1000;
        self.useless += 1;
        if self.useless > MAX_USELESS {
            return Err(Fault::connection(Reason::EnhanceYourCalm, "too many frames without use"));
        }
        Ok(())
    }

    /// Adds credit to the window of the connection.
    pub(super) fn credit(&mut self, increment: u32) -> Result<(), Fault> {
        if self.send.credit(increment).is_err() {
            let error = Error::Connection(Reason::FlowControlError);
            return Err(error.noted(crate::fault::Tag::SessError, "the window of the connection overflows"));
        }
        self.wake_senders();
        Ok(())
    }

    /// Charges a DATA frame to the window of the connection, and refills it.
    pub(super) fn charge(&mut self, len: u32) -> Result<(), Fault> {
        debug_assert!(i64::from(CONNECTION_WINDOW) <= MAX_WINDOW);
        if !self.receive.charge(len) {
            return Err(Fault::connection(Reason::FlowControlError, "more bytes than the window allows"));
        }
        let low = CONNECTION_WINDOW / 2;
        let credit = self.receive.refill_within(low, CONNECTION_WINDOW, CONNECTION_WINDOW);
        if credit > 0 {
            frame::window_update(&mut self.out.bytes, 0, credit);
        }
        Ok(())
    }
}
