//! The frames of the server.

use super::block::Block;
use super::connection::{Connection, MAX_FRAME};
use super::failure::Failure;
use super::response::{Fields, Valid};
use super::stream::Progress;
use crate::error_table::Reason;
use crate::fault::Fault;
use crate::frame::{self, Frame, FrameHeader, HEADER_LEN, Kind, flag};
use crate::settings::{MAX_ENTRIES, entries};

/// The largest number of interim responses before the final one.
const MOST_INTERIM: u32 = 16;
/// The number of SETTINGS_ENABLE_PUSH.
const ENABLE_PUSH: u16 = 2;
const UNKNOWN_STREAM: &str = "a frame of a stream that was not opened";

fn protocol(text: &'static str) -> Fault {
    Fault::connection(Reason::ProtocolError, text)
}

impl Connection {
    /// Processes bytes that have arrived. Returns the number of bytes that were used; the others are the beginning of a
    /// frame.
    pub fn receive(&mut self, input: &[u8]) -> usize {
        let mut used = 0;
        while self.end.is_none()
            && let Some(mut header) = FrameHeader::read(&input[used..])
        {
            if header.len > MAX_FRAME {
                self.fail(&Fault::connection(Reason::FrameSizeError, "a frame is too long"));
                break;
            }
            let end = used + header.total_len();
            let Some(payload) = input.get(used + HEADER_LEN..end) else { break };
            used = end;
            if let Err(fault) = self.frame(&mut header, payload) {
                self.fail(&fault);
            }
        }
        if self.end.is_some() { input.len() } else { used }
    }

    /// Processes a frame. An error ends the connection.
    pub(super) fn frame(&mut self, header: &mut FrameHeader, payload: &[u8]) -> Result<(), Fault> {
        let Some(kind) = header.kind() else {
            if self.block.is_some() {
                return Err(protocol("another frame within a header block"));
            }
            return self.charge_useless();
        };
        header.flags &= kind.flags();
        if self.block.is_some() && kind != Kind::Continuation {
            return Err(protocol("another frame within a header block"));
        }
        if !self.server.has_announced && (kind != Kind::Settings || header.has(flag::ACK)) {
            return Err(protocol("the first frame is not SETTINGS"));
        }
        let belongs_to_connection = matches!(kind, Kind::Settings | Kind::Ping | Kind::GoAway);
        if belongs_to_connection != (header.stream == 0) && kind != Kind::WindowUpdate {
            return Err(protocol("a frame on the wrong stream"));
        }
        let is_known = header.stream < self.next && (header.stream % 2 == 1 || header.stream == 0);
        if !is_known && kind != Kind::Priority && kind != Kind::PushPromise {
            return Err(protocol(UNKNOWN_STREAM));
        }
        if kind == Kind::PushPromise {
            return Err(protocol("PUSH_PROMISE, which was switched off"));
        }
        if kind == Kind::WindowUpdate && payload.len() == 4 && payload.iter().all(|&b| b == 0) {
            return self.no_increment(header.stream);
        }
        if kind == Kind::Ping && header.has(flag::ACK) {
            return self.charge_useless();
        }
        match frame::parse(header, payload)? {
            Frame::Data { data, end_stream } => self.data(header, data, end_stream),
            Frame::Headers { fragment, end_headers, end_stream } => {
                self.block = Some(Block::new(header.stream, end_stream));
                self.fragment(fragment, end_headers)
            }
            Frame::Continuation { fragment, end_headers } => match &self.block {
                Some(block) if block.stream == header.stream => self.fragment(fragment, end_headers),
                _ => Err(protocol("CONTINUATION without a header block")),
            },
            Frame::RstStream { code } => self.rst_stream(header.stream, code),
            Frame::Settings { entries } => self.settings(entries),
            Frame::Ping { opaque } => {
                frame::ping_ack(&mut self.out.bytes, opaque);
                self.charge_useless()
            }
            Frame::GoAway { last_stream, .. } => self.goaway(last_stream),
            Frame::WindowUpdate { increment } if header.stream == 0 => {
                self.charge_useless()?;
                self.credit(increment)
            }
            Frame::WindowUpdate { increment } => self.window_update(header.stream, increment),
            Frame::SettingsAck | Frame::Priority | Frame::Unknown => self.charge_useless(),
        }
    }

    /// Handles a WINDOW_UPDATE by 0, which is an error of its stream.
    fn no_increment(&mut self, id: u32) -> Result<(), Fault> {
        if id == 0 {
            return Err(protocol("WINDOW_UPDATE by 0"));
        }
        self.malformed(id, "WINDOW_UPDATE by 0");
        self.charge_useless()
    }

    /// Resets a stream whose response breaks a rule.
    fn malformed(&mut self, id: u32, why: &'static str) {
        if self.streams.get(&id).is_some_and(|stream| !stream.is_over()) {
            self.reset(id, Reason::ProtocolError, Failure::Malformed(why));
        }
    }

    fn data(&mut self, header: &FrameHeader, data: &[u8], end_stream: bool) -> Result<(), Fault> {
        let id = header.stream;
        self.charge(header.len)?;
        // Frames that the server had sent before it received a reset have no effect. There may be many.
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.failure.is_none()) else {
            return if data.is_empty() { self.charge_useless() } else { Ok(()) };
        };
        if !stream.receive.charge(header.len) {
            self.reset(
                id,
                Reason::FlowControlError,
                Failure::Malformed("more bytes than the window of the stream allows"),
            );
            return Ok(());
        }
        match stream.progress {
            Progress::Nothing => {
                self.malformed(id, "DATA before the head");
                return Ok(());
            }
            Progress::End => {
                self.reset(id, Reason::StreamClosed, Failure::Malformed("DATA after the end"));
                return self.charge_useless();
            }
            Progress::Head => {}
        }
        if let Some(left) = stream.expected {
            let Some(left) = left.checked_sub(data.len() as u64) else {
                self.malformed(id, "the body is longer than Content-Length");
                return Ok(());
            };
            stream.expected = Some(left);
        }
        // Of a response that nobody reads, only the end is awaited.
        if !stream.is_released {
            stream.arrived.add(data, header.len);
        }
        if end_stream {
            self.end_stream(id);
        } else if data.is_empty() {
            self.charge_useless()?;
        } else {
            self.useless = 0;
        }
        self.changed.push(id);
        Ok(())
    }

    /// Adds a fragment to the header block, and decodes the block if it is complete.
    fn fragment(&mut self, fragment: &[u8], is_last: bool) -> Result<(), Fault> {
        let (list, hard) = (self.limits.list as usize, self.limits.hard());
        let Some(block) = &mut self.block else { return Ok(()) };
        block.push(fragment, hard)?;
        if !is_last {
            return Ok(());
        }
        let Some(block) = self.block.take() else { return Ok(()) };
        let id = block.stream;
        let is_head = self.streams.get(&id).is_none_or(|stream| stream.progress == Progress::Nothing);
        let mut fields = if is_head { Fields::of_head(list) } else { Fields::of_trailers(list) };
        block.decode(&mut self.decoder, hard, |line, bytes| fields.add(line, bytes))?;
        let Some(stream) = self.streams.get(&id).filter(|stream| stream.failure.is_none()) else {
            return self.charge_useless();
        };
        if stream.progress == Progress::End {
            self.reset(id, Reason::StreamClosed, Failure::Malformed("HEADERS after the end"));
            return self.charge_useless();
        }
        match fields.finish() {
            Err(why) => self.malformed(id, why),
            Ok(valid) if is_head => self.head(id, valid, block.ends_stream),
            Ok(_) if !block.ends_stream => self.malformed(id, "trailers do not end the stream"),
            Ok(valid) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.arrived.trailers = valid.text;
                }
                self.end_stream(id);
            }
        }
        self.changed.push(id);
        Ok(())
    }

    fn head(&mut self, id: u32, head: Valid, ends: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if head.status < 200 {
            stream.interim += 1;
            let fault = match () {
                () if ends => Some("an interim response ends the stream"),
                () if stream.interim > MOST_INTERIM => Some("too many interim responses"),
                () => None,
            };
            stream.arrived.head.extend(head.text);
            return fault.into_iter().for_each(|why| self.malformed(id, why));
        }
        self.useless = 0;
        let is_bodyless = stream.is_head_request || matches!(head.status, 204 | 304);
        stream.expected = if is_bodyless { Some(0) } else { head.length };
        stream.progress = Progress::Head;
        stream.arrived.head.extend(head.text);
        if ends {
            self.end_stream(id);
        }
    }

    /// Handles the end of a response.
    fn end_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.expected.is_some_and(|left| left > 0) {
            return self.malformed(id, "the body is shorter than Content-Length");
        }
        self.useless = 0;
        stream.progress = Progress::End;
        self.changed.push(id);
        self.forget_if_over(id);
    }

    fn rst_stream(&mut self, id: u32, code: u32) -> Result<(), Fault> {
        self.charge_useless()?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let failure = match code {
            // The response is complete, and the server does not want the rest of the request.
            _ if stream.progress == Progress::End => {
                stream.is_sent = true;
                self.changed.push(id);
                self.forget_if_over(id);
                return Ok(());
            }
            code if code == Reason::RefusedStream.code() => {
                Failure::Unprocessed("the origin has refused the stream")
            }
            code => Failure::Reset(code),
        };
        self.fail_stream(id, failure);
        Ok(())
    }

    fn settings(&mut self, payload: &[u8]) -> Result<(), Fault> {
        self.charge_useless()?;
        if payload.len() / 6 > MAX_ENTRIES {
            return Err(Fault::connection(Reason::EnhanceYourCalm, "too many settings"));
        }
        for entry in entries(payload) {
            if entry == (ENABLE_PUSH, 1) {
                return Err(protocol("SETTINGS_ENABLE_PUSH of a server"));
            }
            let table = self.server.settings.header_table_size;
            let applied = self.server.settings.apply(entry, false);
            if let Some(error) = applied.error {
                return Err(error.noted(crate::fault::Tag::SessError, "a setting is out of range"));
            }
            self.server.empties_table |= self.server.settings.header_table_size < table;
            if applied.window_delta != 0 {
                self.adjust_windows(applied.window_delta)?;
            }
        }
        self.server.has_announced = true;
        frame::settings_ack(&mut self.out.bytes);
        Ok(())
    }

    fn adjust_windows(&mut self, delta: i64) -> Result<(), Fault> {
        for stream in self.streams.values_mut() {
            stream.send.adjust(delta);
            if stream.send.is_too_large() {
                return Err(Fault::connection(Reason::FlowControlError, "the window of a stream overflows"));
            }
        }
        self.wake_senders();
        Ok(())
    }

    /// Handles the announcement that the server ends the connection, and processes no later stream.
    fn goaway(&mut self, last: u32) -> Result<(), Fault> {
        self.charge_useless()?;
        let last = self.server.last_stream.map_or(last, |before| last.min(before));
        self.server.last_stream = Some(last);
        let beyond: Vec<u32> = self.streams.range(last.saturating_add(1)..).map(|(id, _)| *id).collect();
        for id in beyond {
            let why = "the origin ends the connection (GOAWAY)";
            self.fail_stream(id, Failure::Unprocessed(why));
        }
        Ok(())
    }

    fn window_update(&mut self, id: u32, increment: u32) -> Result<(), Fault> {
        self.charge_useless()?;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.failure.is_none()) else {
            return Ok(());
        };
        if stream.send.credit(increment).is_err() {
            let failure = Failure::Malformed("the window of the stream overflows");
            self.reset(id, Reason::FlowControlError, failure);
        }
        self.changed.push(id);
        Ok(())
    }
}
