//! The handling of the frames that a client sends.

use std::rc::Rc;
use std::task::Context;

use lacquer_engine::h2::{Conn, FrameQuota, Stream};
use lacquer_h2::frame::{self, Frame, FrameHeader};
use lacquer_h2::hpack::Decoder;
use lacquer_h2::request::RequestDecoder;
use lacquer_h2::rules::Admit;
use lacquer_h2::settings::Settings;
use lacquer_h2::stream::State;
use lacquer_h2::{Error, Reason, settings};
use lacquer_http::{Message, Workspace};
use lacquer_params::bits::DebugBits;
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::opening::{self, Opening};
use crate::stream_request;

/// The limit on useless frames within [`USELESS_PERIOD`] seconds, beyond those that useful frames allow for. A client
/// that exceeds it is treated as an attacker.
const USELESS_MAX: u32 = 10_000;
const USELESS_PERIOD: f64 = 60.0;
/// The number of useless frames that a DATA frame, in either direction, allows for.
const ALLOWED_BY_DATA: u32 = 10;
/// The number of useless frames that a request allows for.
const ALLOWED_BY_REQUEST: u32 = 1000;

/// The size of a client's header table before it has received the settings.
const DEFAULT_TABLE: u32 = Settings::DEFAULT.header_table_size;

/// A header block that is being received.
enum Block {
    Request(Opening),
    /// The header block of a refused stream. It is decoded all the same, because it may change the header table.
    Refused(RequestDecoder),
    /// The trailers of a body, and their stream if it has not ended.
    Trailers(RequestDecoder, Option<Rc<Stream>>),
}

pub struct Receiver {
    conn: Rc<Conn>,
    hpack: Decoder,
    block: Option<Block>,
    /// The client's SETTINGS have arrived, which must be its first frame.
    has_settings: bool,
    /// The time when the current frames were read.
    now: f64,
    useless: u32,
    /// The time when the counting of useless frames started.
    useless_since: f64,
}

impl Receiver {
    pub fn new(conn: &Rc<Conn>) -> Receiver {
        Receiver {
            // The client may use the default until it has received the settings.
            hpack: Decoder::new(conn.settings().header_table_size.max(DEFAULT_TABLE) as usize),
            conn: conn.clone(),
            block: None,
            has_settings: false,
            now: clock::real(),
            useless: 0,
            useless_since: 0.0,
        }
    }

    pub fn read_at(&mut self, now: f64) {
        self.now = now;
    }

    /// Logs a frame that is longer than allowed, and returns its error.
    pub fn frame_too_long(&self) -> Error {
        self.conn.log(Tag::SessError, format_args!("H2: HTC overflow (Buffer/workspace too small)"));
        Error::Connection(Reason::EnhanceYourCalm)
    }

    /// Ends a request whose header block is incomplete, because the connection ends.
    pub fn abandon(&mut self) {
        if let Some(Block::Request(opening)) = self.block.take() {
            opening.abandon();
        }
    }

    /// Handles one frame. An error ends the connection.
    pub fn frame(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        quota: &mut FrameQuota,
        cx: &mut Context<'_>,
    ) -> Result<(), Error> {
        self.conn.received(header, payload);
        self.count_useless();
        let outcome = self.dispatch(*header, payload, quota, cx);
        let outcome = match outcome {
            Err(error) if header.stream == 0 || error.is_connection() => Err(error),
            Err(error) => self.reset_faulty(header.stream, error),
            Ok(()) => Ok(()),
        };
        if self.useless > USELESS_MAX {
            self.conn.log(Tag::SessError, format_args!("H2: Too many frames without use"));
            return outcome.and(Err(Error::Connection(Reason::EnhanceYourCalm)));
        }
        outcome
    }

    /// Resets the stream of a faulty frame. Counts the reset like one that the client sends.
    fn reset_faulty(&self, id: u32, error: Error) -> Result<(), Error> {
        let Some(stream) = Stream::find(&self.conn, id) else {
            self.conn.reset_stream(id, error);
            return Ok(());
        };
        stream.reset(error);
        self.charge_reset(&stream)
    }

    fn charge_reset(&self, stream: &Stream) -> Result<(), Error> {
        let counted = self.conn.conduct().count_reset(clock::real(), stream.opened());
        if !counted.map_err(|fault| self.conn.log_fault(&fault))? {
            return Ok(());
        }
        self.charge_address()
    }

    /// Charges a reset to the client's address. All connections of an address share a budget, so opening a new
    /// connection does not help a client.
    fn charge_address(&self) -> Result<(), Error> {
        let (conn, services) = (&self.conn, self.conn.services());
        if conn.sess().charge_reset(services.addresses(), &services.params()) {
            return Ok(());
        }
        conn.log(Tag::SessError, format_args!("H2: Hit h2_rapid_reset_address_limit. Closing session."));
        services.counters().h2_reset_limited.add(1);
        Err(Error::Connection(Reason::RapidReset))
    }

    /// Counts the current frame as useless, until it proves useful.
    fn count_useless(&mut self) {
        if self.now - self.useless_since > USELESS_PERIOD {
            self.useless = 0;
            self.useless_since = self.now;
        }
        self.allow(self.conn.take_progress().saturating_mul(ALLOWED_BY_DATA));
        self.useless += 1;
    }

    fn allow(&mut self, frames: u32) {
        self.useless = self.useless.saturating_sub(frames);
    }

    /// Returns whether a header block is incomplete.
    pub fn is_in_block(&self) -> bool {
        self.block.is_some()
    }

    /// Returns whether the header block of a request is incomplete.
    pub fn is_opening(&self) -> bool {
        matches!(self.block, Some(Block::Request(_)))
    }

    fn dispatch(
        &mut self,
        mut header: FrameHeader,
        payload: &[u8],
        quota: &mut FrameQuota,
        cx: &mut Context<'_>,
    ) -> Result<(), Error> {
        let conn = self.conn.clone();
        let stream = if header.stream == 0 { None } else { Stream::find(&conn, header.stream) };
        let state = self.state_of(header.stream, stream.as_deref());
        let admit = conn.conduct().admit(&mut header, state, &mut |n| conn.note(&n));
        let admit = admit.map_err(|fault| conn.log_fault(&fault))?;
        if matches!(admit, Admit::Ignore) {
            return Ok(());
        }
        match frame::parse(&header, payload).map_err(|fault| conn.log_fault(&fault))? {
            Frame::Data { data, end_stream } => self.data(stream.as_deref(), &header, data, end_stream),
            Frame::Headers { fragment, end_headers, end_stream } => {
                self.headers(&header, admit, end_stream, stream);
                self.fragment(&header, fragment, end_headers, quota, cx)
            }
            Frame::Continuation { fragment, end_headers } => {
                self.fragment(&header, fragment, end_headers, quota, cx)
            }
            Frame::RstStream { code } => self.reset(stream.as_deref(), code),
            Frame::Settings { entries } => self.settings(entries),
            Frame::Ping { opaque } => {
                conn.queue(|out| frame::ping_ack(out, opaque));
                Ok(())
            }
            Frame::GoAway { code, .. } => {
                let error = Error::of_connection(code);
                conn.conduct().record_goaway();
                conn.log(Tag::Debug, format_args!("GOAWAY {}", error.name()));
                let end = Error::Connection(Reason::NoError);
                if error != end {
                    conn.log(Tag::Error, format_args!("H2: rx goaway {}", error.name()));
                }
                Err(end)
            }
            Frame::WindowUpdate { increment } => self.window_update(&header, stream.as_deref(), increment),
            Frame::SettingsAck if !self.has_settings => {
                // RFC 9113 section 3.4.
                conn.log(Tag::SessError, format_args!("H2: rx settings ack before settings"));
                Err(Error::Connection(Reason::ProtocolError))
            }
            Frame::SettingsAck => {
                self.hpack.grant(conn.settings().header_table_size as usize);
                Ok(())
            }
            Frame::Priority | Frame::Unknown => Ok(()),
        }
    }

    /// Returns the stream state that applies to a frame. The last streams that this side reset count as open, because the
    /// client may have sent frames before it received the reset.
    fn state_of(&self, id: u32, stream: Option<&Stream>) -> Option<State> {
        match stream {
            Some(stream) if stream.is_cancelled() => Some(State::Closed),
            Some(stream) => Some(stream.state()),
            None => self.conn.conduct().was_reset(id).then_some(State::Open),
        }
    }

    fn headers(&mut self, header: &FrameHeader, admit: Admit, end_stream: bool, stream: Option<Rc<Stream>>) {
        let conn = &self.conn;
        let block = match admit {
            Admit::Trailers => {
                let decoder = RequestDecoder::trailers(&mut self.hpack, &opening::limits(conn));
                self.block = Some(Block::Trailers(decoder, stream));
                return;
            }
            Admit::Refuse(fault) => Err(conn.log_fault(&fault)),
            _ if conn.is_crowded() => Err(self.refuse_stream()),
            _ => Opening::begin(conn, header.stream, self.now, end_stream, &mut self.hpack)
                .ok_or_else(|| self.refuse_stream()),
        };
        self.block = Some(match block {
            Ok(opening) => Block::Request(opening),
            Err(error) => {
                let limits = opening::limits(&self.conn);
                Block::Refused(RequestDecoder::refused(&mut self.hpack, error, &limits))
            }
        });
    }

    /// Refuses a stream that the protocol's rules allow, and returns its error.
    fn refuse_stream(&self) -> Error {
        self.conn.conduct().close_one();
        Error::Stream(Reason::RefusedStream)
    }

    /// Handles a fragment of a header block. The last fragment starts the request.
    fn fragment(
        &mut self,
        header: &FrameHeader,
        fragment: &[u8],
        last: bool,
        quota: &mut FrameQuota,
        cx: &mut Context<'_>,
    ) -> Result<(), Error> {
        let conn = self.conn.clone();
        let Some(block) = &mut self.block else { return Ok(()) };
        let fed = match block {
            Block::Request(opening) => opening.feed(&mut self.hpack, fragment, header.len),
            Block::Refused(decoder) | Block::Trailers(decoder, _) => {
                let (ws, message) = (&mut Workspace::new(0), &mut Message::new(0));
                decoder.feed(&mut self.hpack, fragment, ws, message, &mut |n| conn.note(&n))
            }
        };
        if let Err(error) = fed {
            conn.log(Tag::Debug, format_args!("HPACK(hdr) {}", error.name()));
            self.abandon();
            return Err(error);
        }
        if !last {
            return Ok(());
        }
        match self.block.take() {
            Some(Block::Request(opening)) => {
                let (stream, slot) = opening.finish()?;
                self.allow(ALLOWED_BY_REQUEST);
                quota.count_request(stream_request::start(stream, slot, cx));
                Ok(())
            }
            Some(Block::Refused(refused)) => {
                let (ws, message) = (&mut Workspace::new(0), &mut Message::new(0));
                refused.finish(ws, message, false, &mut |n| conn.note(&n)).map(drop)
            }
            Some(Block::Trailers(decoder, stream)) => self.trailers(decoder, stream.as_deref()),
            None => Ok(()),
        }
    }

    /// Handles trailers as the end of the body.
    fn trailers(&self, decoder: RequestDecoder, stream: Option<&Stream>) -> Result<(), Error> {
        let conn = &self.conn;
        let sound = decoder.finish_trailers(&mut |n| conn.note(&n));
        let Some(stream) = stream.filter(|stream| stream.error().is_none()) else {
            return sound.map(drop).or_else(|error| if error.is_connection() { Err(error) } else { Ok(()) });
        };
        stream.receive_trailers(sound?).map_err(|fault| conn.log_fault(&fault))?;
        stream.end();
        Ok(())
    }

    fn data(
        &mut self,
        stream: Option<&Stream>,
        header: &FrameHeader,
        data: &[u8],
        end: bool,
    ) -> Result<(), Error> {
        let conn = &self.conn;
        let more = conn.charge_received(header)?;
        if more > 0 {
            conn.queue(|out| frame::window_update(out, 0, more));
        }
        if let Some(stream) = stream.filter(|stream| stream.error().is_none()) {
            if !data.is_empty() || end {
                self.allow(ALLOWED_BY_DATA);
            }
            return self.data_of(stream, header, data, end);
        }
        // Frames that the client sent before it received a reset are discarded. Others are an error and cause one
        // reset.
        if conn.error().is_none() && !conn.conduct().was_reset(header.stream) {
            conn.reset_stream(header.stream, Error::Stream(Reason::StreamClosed));
        }
        Ok(())
    }

    fn data_of(&self, stream: &Stream, header: &FrameHeader, data: &[u8], end: bool) -> Result<(), Error> {
        let (conn, id) = (&self.conn, stream.id());
        stream.charge_data(header, data.len(), end).map_err(|fault| conn.log_fault(&fault))?;
        if !data.is_empty() && !stream.buffer_body(data, end) {
            let text = format_args!("H2: stream {id}: Failed to allocate request body buffer");
            conn.log(Tag::Debug, text);
            return Err(Error::Stream(Reason::InternalError));
        }
        if end {
            stream.end();
        } else if data.len() < header.len as usize {
            // Nothing reads padding.
            stream.extend_window();
        }
        Ok(())
    }

    fn reset(&self, stream: Option<&Stream>, code: u32) -> Result<(), Error> {
        let Some(stream) = stream else { return Ok(()) };
        stream.cancel(Error::of_stream(code));
        self.charge_reset(stream)
    }

    fn settings(&mut self, entries: &[u8]) -> Result<(), Error> {
        let conn = &self.conn;
        if settings::entries(entries).count() > settings::MAX_ENTRIES {
            conn.log(Tag::SessError, format_args!("H2: Too many entries in a SETTINGS frame"));
            return Err(Error::Connection(Reason::EnhanceYourCalm));
        }
        apply_settings(conn, entries)?;
        conn.queue(frame::settings_ack);
        conn.wake_streams();
        self.has_settings = true;
        Ok(())
    }

    fn window_update(
        &self,
        header: &FrameHeader,
        stream: Option<&Stream>,
        increment: u32,
    ) -> Result<(), Error> {
        if header.stream == 0 {
            return self.conn.add_credit(increment);
        }
        stream.map_or(Ok(()), |stream| stream.add_credit(increment))
    }
}

/// Applies the client's settings.
pub fn apply_settings(conn: &Conn, entries: &[u8]) -> Result<(), Error> {
    let unchecked = conn.services().params().debug.has(DebugBits::H2_NOCHECK);
    let mut remote = conn.client_settings();
    for entry in settings::entries(entries) {
        let applied = remote.apply(entry, unchecked);
        conn.note(&applied.note);
        if let Some(error) = applied.error {
            return Err(error);
        }
        if applied.window_delta != 0 {
            Stream::each(conn, |stream| stream.follow_settings(applied.window_delta));
        }
        conn.set_client_settings(remote);
    }
    Ok(())
}
