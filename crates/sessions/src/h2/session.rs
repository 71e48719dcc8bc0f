//! An HTTP/2 connection, from its first frame to its end.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use lacquer_engine::client::Req;
use lacquer_engine::h2::{Conn, Flush, FrameQuota, Stream};
use lacquer_engine::{Timeout, TransactionSlot};
use lacquer_h2::frame::{self, FrameHeader, Kind};
use lacquer_h2::{Error, Reason};
use lacquer_http::SessClose;
use lacquer_net::Rx;
use lacquer_net::deadlines::{Deadline, Idleness, Moment};
use lacquer_net::linger::linger;
use lacquer_params::Params;
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::handover::Handover;
use super::opening::Opening;
use super::receive::Receiver;
use crate::stream_request;

/// The number of bytes to read at a time. Longer frames extend the buffer.
const READ: usize = 16 * 1024 + frame::HEADER_LEN;

/// The largest stream id: a GOAWAY with it refuses no stream.
const LAST_STREAM: u32 = u32::MAX >> 1;

/// The longest lingering close in seconds after a GOAWAY without error.
const GRACE: f64 = 0.1;

/// The bytes that were read and not parsed yet.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn unparsed(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the header of the next frame, if the whole frame was read.
    fn frame(&self) -> Option<FrameHeader> {
        FrameHeader::read(self.unparsed()).filter(|header| header.total_len() <= self.end - self.start)
    }

    /// Returns the free space to read into. It has room for at least the rest of the incomplete frame.
    fn free_space(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        let frame = FrameHeader::read(self.unparsed()).map_or(0, |header| header.total_len());
        let least = (self.start + frame).max(self.end + 1);
        if least > self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let wanted = READ.max(frame);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Takes the reactor's shared buffer, for as long as the task runs.
    fn take(&mut self, spare: &Cell<Vec<u8>>) {
        if self.bytes.is_empty() {
            self.bytes = spare.take();
        }
    }

    /// Returns the shared buffer if it is empty, so that a connection that waits for a frame holds no memory for it.
    fn give(&mut self, spare: &Cell<Vec<u8>>) {
        if self.is_empty() {
            let Buffer { bytes, .. } = std::mem::take(self);
            if bytes.len() == READ {
                spare.set(bytes);
            }
        }
    }
}

/// The event that the connection's deadline applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Nothing,
    Frame,
    /// The rest of a header block, or of a frame other than DATA.
    Rest,
    /// The client's progress in receiving the bytes that wait for it.
    Progress,
}

/// The frames that wait because the socket is full.
#[derive(Clone, Copy)]
struct Blocked {
    since: Moment,
    /// The number of bytes that the socket will have accepted once all of them are sent.
    goal: u64,
}

struct Session {
    conn: Rc<Conn>,
    rx: Rx,
    idle: Rc<Deadline>,
    buffer: Buffer,
    receiver: Receiver,
    quota: FrameQuota,
    awaited: Awaited,
    /// The time when the last frame was received.
    active: Moment,
    /// The time when the incomplete header block or frame began.
    begun: Option<Moment>,
    /// The number of bytes that the socket had accepted when the deadline was set.
    taken: u64,
    blocked: Option<Blocked>,
    /// The client has shut down its sending side.
    client_is_done: bool,
}

/// Serves the connection until its end. A request that was received with the upgrade from HTTP/1 becomes the first
/// stream's.
pub async fn serve(handover: Handover, upgraded: Option<super::Upgrade>) -> SessClose {
    let Handover { services, sess, tx, rx, idle } = handover;
    let params = services.params();
    let conn = match upgraded {
        Some(ref upgrade) => upgrade.conn.clone(),
        None => Rc::new(Conn::new(services, sess, tx, &params)),
    };
    conn.log(Tag::Debug, format_args!("H2: Got pu PRISM"));
    let mut session = Session {
        receiver: Receiver::new(&conn),
        rx,
        buffer: Buffer::default(),
        quota: FrameQuota::default(),
        awaited: Awaited::Nothing,
        active: idle.now(),
        idle,
        begun: None,
        taken: 0,
        blocked: None,
        client_is_done: false,
        conn,
    };
    let conn = session.conn.clone();
    conn.queue(|out| frame::write_settings(out, conn.settings()));
    let mut first = upgraded.map(|upgrade| upgrade.slot);
    let error = std::future::poll_fn(|cx| {
        if let Some(slot) = first.take() {
            session.begin_upgraded(slot, cx);
        }
        session.poll(cx)
    })
    .await;
    session.end(error).await;
    conn.finish();
    error.close()
}

impl Drop for Session {
    fn drop(&mut self) {
        self.conn.release_streams();
    }
}

impl Session {
    fn begin_upgraded(&mut self, mut slot: TransactionSlot<Req>, cx: &mut Context<'_>) {
        let Some(req) = slot.transaction() else { return };
        let stream = Opening::first(&self.conn, req);
        self.quota.count_request(stream_request::start(stream, slot, cx));
    }

    /// Reads, handles and writes frames until there is nothing to do, or the connection ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let services = self.conn.services().clone();
        self.conn.set_running(true);
        self.buffer.take(services.http2().buffers().input());
        let polled = self.work(cx);
        self.follow_handshake();
        self.quota.release();
        self.buffer.give(services.http2().buffers().input());
        self.conn.set_running(false);
        if polled.is_pending() {
            self.conn.register(cx);
            // The deadline is already set. Polling it registers the task to be woken.
            self.idle.poll_expired(cx);
        }
        polled
    }

    /// Wakes the requests that wait for the end of the handshake, if it has come.
    fn follow_handshake(&self) {
        let handshake = self.conn.sess().handshake();
        if handshake.is_pending() && !self.conn.tx().is_handshaking() {
            handshake.complete();
        }
    }

    fn work(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if self.awaited != Awaited::Nothing
            && self.idle.poll_expired(cx)
            && let Some(error) = self.expired()
        {
            return Poll::Ready(error);
        }
        self.announce_end();
        let has_quota = self.quota.poll_refill(cx).is_ready();
        loop {
            if has_quota && let Err(error) = self.handle_frames(cx) {
                return Poll::Ready(error);
            }
            let flushed = self.conn.poll_flush(cx);
            if let Some(error) = self.conn.error() {
                return Poll::Ready(error);
            }
            if self.conn.is_clogged() {
                // Do not read from a client that does not receive the frames sent to it.
                self.set_deadline(flushed);
                return Poll::Pending;
            }
            if !has_quota {
                return Poll::Pending;
            }
            if self.quota.is_used_up() {
                // The client does not cause this wait, so no deadline applies.
                self.idle.disarm();
                self.awaited = Awaited::Nothing;
                self.quota.enqueue(self.conn.services().http2().quota_queue(), cx);
                return Poll::Pending;
            }
            if self.buffer.frame().is_some() {
                continue;
            }
            match self.rx.poll_read(cx, self.buffer.free_space()) {
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.buffer.end += n;
                    self.receiver.read_at(clock::real());
                }
                Poll::Ready(_) => return Poll::Ready(self.eof()),
                Poll::Pending => {
                    self.set_deadline(flushed);
                    return Poll::Pending;
                }
            }
        }
    }

    /// Tells the client that the connection will end soon, if the worker is about to stop. Requests that are on their
    /// way are still answered (RFC 9113 section 6.8).
    fn announce_end(&self) {
        if self.conn.services().is_draining() && !self.conn.conduct().begin_leaving() {
            self.conn.queue(|out| frame::goaway(out, LAST_STREAM, Reason::NoError.code()));
        }
    }

    /// Handles the frames that were read, while there is room for the frames that they cause.
    fn handle_frames(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        while !self.quota.is_used_up()
            && let Some(header) = self.buffer.frame()
            && !self.conn.is_clogged()
        {
            self.quota.count_frame();
            self.active = self.idle.now();
            let from = self.buffer.start + frame::HEADER_LEN;
            self.buffer.start += header.total_len();
            let payload = &self.buffer.bytes[from..self.buffer.start];
            let outcome = self.receiver.frame(&header, payload, &mut self.quota, cx);
            if !self.receiver.is_in_block() {
                self.begun = None;
            }
            outcome?;
        }
        let begun = FrameHeader::read(self.buffer.unparsed());
        // DATA frames have no deadline here: the request limits the rate of its body.
        let is_data = begun.is_some_and(|header| header.kind() == Some(Kind::Data));
        if self.receiver.is_in_block() || !(self.buffer.is_empty() || is_data) {
            self.begun.get_or_insert(self.idle.now());
        } else {
            // The bytes read so far may not reveal yet whether the frame is DATA.
            self.begun = None;
        }
        match begun {
            Some(header) if header.len > self.conn.settings().max_frame_size => {
                Err(self.receiver.frame_too_long())
            }
            _ => Ok(()),
        }
    }

    /// Sets the deadline for the next event.
    fn set_deadline(&mut self, flushed: Flush) {
        let awaited = match flushed {
            Flush::Blocked => Awaited::Progress,
            _ if self.receiver.is_in_block() || self.begun.is_some() && self.has_active_requests() => {
                Awaited::Rest
            }
            _ if self.has_active_requests() => Awaited::Nothing,
            _ => Awaited::Frame,
        };
        if awaited != Awaited::Progress {
            self.blocked = None;
        }
        let params = self.conn.services().params();
        match awaited {
            Awaited::Nothing => self.idle.disarm(),
            Awaited::Progress => self.expect_progress(&params),
            Awaited::Rest => {
                let begun = self.begun.unwrap_or(self.active);
                self.idle.arm(begun, self.conn.sess().idle_limit(&params));
            }
            Awaited::Frame => {
                self.idle.arm(self.active, self.conn.sess().idle_limit(&params));
                let has_requested = self.conn.conduct().highest() > 0;
                self.idle.allow_shedding(if has_requested { Idleness::Kept } else { Idleness::Silent });
            }
        }
        self.awaited = awaited;
    }

    /// Sets the deadline for the client to receive some bytes (`idle_send_timeout`), and to receive all bytes that
    /// wait now (`send_timeout`).
    fn expect_progress(&mut self, params: &Params) {
        let (now, taken) = (self.idle.now(), self.conn.taken());
        if self.blocked.is_none_or(|blocked| taken >= blocked.goal) {
            self.blocked = Some(Blocked { since: now, goal: taken + self.conn.gathered() as u64 });
        } else if self.awaited == Awaited::Progress && self.taken == taken {
            return;
        }
        self.taken = taken;
        let limit = clock::limit(self.conn.sess().send_idle_limit(params));
        self.idle.arm(now, limit.min(self.blocked_left(params)));
    }

    /// Returns the seconds left for the client to receive all bytes that waited when the socket became full.
    fn blocked_left(&self, params: &Params) -> f64 {
        let total = clock::limit(self.conn.sess().timeout(Timeout::Send, params));
        self.blocked.map_or(total, |blocked| total - self.idle.now().since(blocked.since))
    }

    /// Returns whether requests are active. A request whose head is incomplete does not count.
    fn has_active_requests(&self) -> bool {
        self.conn.streams() > usize::from(self.receiver.is_opening())
    }

    /// Handles an expired deadline. Returns the error if it ends the connection.
    fn expired(&mut self) -> Option<Error> {
        let awaited = std::mem::replace(&mut self.awaited, Awaited::Nothing);
        match awaited {
            Awaited::Nothing => None,
            Awaited::Progress => {
                if self.blocked_left(&self.conn.services().params()) <= 0.0 {
                    self.conn.stalled("send_timeout");
                } else if self.conn.taken() == self.taken {
                    self.conn.stalled("idle_send_timeout");
                }
                // Otherwise, a stream has sent bytes meanwhile.
                self.conn.error()
            }
            Awaited::Rest if self.begun.is_none() => None,
            Awaited::Rest => {
                let what = if self.receiver.is_in_block() { "header block" } else { "frame" };
                self.conn.log(Tag::SessError, format_args!("H2: Hit timeout_idle in a {what}"));
                Some(Error::Connection(Reason::HeaderTimeout))
            }
            Awaited::Frame if self.has_active_requests() => None,
            Awaited::Frame => Some(Error::Connection(Reason::NoError)),
        }
    }

    fn eof(&mut self) -> Error {
        self.client_is_done = true;
        let frame = if self.buffer.is_empty() { "complete" } else { "partial" };
        let goaway = u8::from(self.conn.conduct().has_goaway());
        let text = format_args!("H2: HTC eof (Unexpected end of input) frame={frame} goaway={goaway}");
        self.conn.log(Tag::Debug, text);
        Error::Connection(Reason::NoError)
    }

    /// Sends GOAWAY, and waits until no request of this connection is left.
    async fn end(&mut self, error: Error) {
        let conn = self.conn.clone();
        self.quota = FrameQuota::default();
        let sends_goaway = error.sends_goaway();
        if sends_goaway {
            conn.queue(|out| frame::goaway(out, conn.conduct().highest(), error.code()));
        }
        conn.fail(error);
        Stream::each(&conn, |stream| stream.kill(error));
        conn.sess().handshake().wake();
        self.receiver.abandon();
        let limit = conn.sess().send_idle_limit(&conn.services().params());
        let limit = clock::seconds(clock::limit(limit));
        let flushed = std::future::poll_fn(|cx| {
            conn.register(cx);
            match conn.poll_flush(cx) {
                Flush::Done => Poll::Ready(()),
                _ => Poll::Pending,
            }
        });
        let _ = tokio::time::timeout(limit, flushed).await;
        if sends_goaway && !self.client_is_done {
            let most = conn.services().params().lingering_close;
            let seconds = if error == Error::Connection(Reason::NoError) { most.min(GRACE) } else { most };
            linger(conn.tx(), &mut self.rx, &self.idle, seconds).await;
        }
        std::future::poll_fn(|cx| {
            conn.register(cx);
            if conn.streams() > 0 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_parsed_regardless_of_how_the_bytes_are_split() {
        let mut wire = Vec::new();
        for len in [0, 8, 20_000, 1, 16_384, 40_000, 3] {
            wire.extend_from_slice(&FrameHeader::new(Kind::Data, 0, 1, len).bytes());
            wire.extend((0..len).map(|at| at as u8));
        }
        for step in [1, 7, 9, 1000, 16_393, 30_000] {
            let (mut buffer, mut seen, mut rest) = (Buffer::default(), Vec::new(), &wire[..]);
            while !rest.is_empty() {
                let space = buffer.free_space();
                assert!(!space.is_empty());
                let n = step.min(space.len()).min(rest.len());
                space[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                buffer.end += n;
                while let Some(header) = buffer.frame() {
                    seen.extend_from_slice(&buffer.unparsed()[..header.total_len()]);
                    buffer.start += header.total_len();
                }
            }
            assert!(seen == wire, "in steps of {step}");
            buffer.give(&Cell::default());
            assert_eq!(buffer.bytes.capacity(), 0);
        }
    }
}
