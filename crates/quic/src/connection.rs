//! A connection, driven by the task that serves it: [`Connection::receive`] handles the packets that have arrived, and
//! [`Connection::send`] sends what follows from them and from writes to streams.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lacquer_sources::clock;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, Dir, EndpointEvent, StreamEvent, StreamId, Transmit, VarInt,
};

use crate::core::Core;
use crate::error::{ReadError, WriteError};
use crate::event::{CloseReason, Event};
use crate::handshakes::Handshake;
use crate::mailbox::Mailbox;
use crate::settings::send_window;
use crate::timer::Timer;
use crate::tls_session::HandshakeFacts;

/// The maximum number of datagrams in one call of the system, and of calls before other tasks run.
const SEGMENTS: usize = 16;
const CALLS: usize = 8;

/// Packets that the socket did not accept.
struct Unsent {
    transmit: Transmit,
    bytes: Vec<u8>,
}

pub struct Connection {
    core: Rc<Core>,
    handle: ConnectionHandle,
    state: RefCell<quinn_proto::Connection>,
    mailbox: Rc<Mailbox>,
    timer: RefCell<Timer>,
    unsent: RefCell<Option<Unsent>>,
    /// The most bytes of responses that are held until the client has acknowledged them.
    most_unacknowledged: u64,
    /// The share in the limits of handshakes, until the handshake ends in any way.
    counted: Cell<Option<Handshake>>,
    /// The handshake is not complete. If it fails, it never is.
    is_handshaking: Cell<bool>,
    /// The client has proved its address before the handshake.
    is_validated: bool,
    is_closed_here: Cell<bool>,
    is_drained: Cell<bool>,
}

fn now() -> Instant {
    clock::Instant::now().into_std()
}

fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

/// The admission of a client, whose handshake begins.
pub(crate) struct Admitted {
    pub handshake: Handshake,
    /// The client has proved its address.
    pub is_validated: bool,
}

impl Connection {
    /// Creates a connection in its handshake.
    pub(crate) fn new(
        core: &Rc<Core>,
        (handle, state): (ConnectionHandle, quinn_proto::Connection),
        most_unacknowledged: u64,
        admitted: Admitted,
    ) -> Rc<Connection> {
        Rc::new(Connection {
            mailbox: core.add(handle),
            core: core.clone(),
            handle,
            state: RefCell::new(state),
            timer: RefCell::new(Timer::new()),
            unsent: RefCell::default(),
            most_unacknowledged,
            counted: Cell::new(Some(admitted.handshake)),
            is_handshaking: Cell::new(true),
            is_validated: admitted.is_validated,
            is_closed_here: Cell::new(false),
            is_drained: Cell::new(false),
        })
    }

    // The task that serves the connection.

    /// Handles the packets that have arrived and the timers that have expired. Adds the events that follow. The task is
    /// woken when there is more.
    pub fn receive(&self, cx: &Context<'_>, events: &mut Vec<Event>) {
        self.mailbox.register(cx);
        let mut packets = Vec::new();
        self.mailbox.take(&mut packets);
        let has_packets = !packets.is_empty();
        let mut state = self.state.borrow_mut();
        for packet in packets {
            state.handle_event(packet);
        }
        if is_due(&mut state) {
            if has_packets {
                // The library changes some timers only when it sends what follows from packets. Packets are handled before
                // timers, so that an acknowledgment in time is not found to be late.
                drop(state);
                self.transmit(cx);
                state = self.state.borrow_mut();
            }
            if is_due(&mut state) {
                state.handle_timeout(now());
            }
        }
        let congestion_window = state.congestion_state().window();
        state.set_send_window(send_window(congestion_window, self.most_unacknowledged));
        while let Some(event) = state.poll() {
            if matches!(event, quinn_proto::Event::Connected) {
                self.is_handshaking.set(false);
            }
            events.extend(translate(event));
        }
        if !state.is_handshaking() {
            self.counted.take();
        }
    }

    /// Sends the packets that are due. Returns ready once the connection has ended and needs no more packets.
    pub fn send(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.transmit(cx);
        self.report(cx);
        if self.is_drained.get() {
            return Poll::Ready(());
        }
        let due = self.state.borrow_mut().poll_timeout();
        self.timer.borrow_mut().poll(cx, due);
        Poll::Pending
    }

    /// Waits until a closed connection needs no more packets: it repeats its last packet to a client that has not
    /// received it (RFC 9000 section 10.2).
    pub async fn drained(&self) {
        let mut events = Vec::new();
        std::future::poll_fn(|cx| {
            self.receive(cx, &mut events);
            events.clear();
            self.send(cx)
        })
        .await;
    }

    fn transmit(&self, cx: &Context<'_>) {
        if let Some(unsent) = self.unsent.take()
            && !self.core.socket.send(&unsent.transmit, &unsent.bytes)
        {
            return self.wait_writable(unsent, cx);
        }
        let segments = self.core.socket.segments().min(SEGMENTS);
        for _ in 0..CALLS {
            let unsent = self.core.with_output(|output| {
                let transmit = self.state.borrow_mut().poll_transmit(now(), segments, output)?;
                let is_sent = self.core.socket.send(&transmit, output);
                Some((!is_sent).then(|| Unsent { transmit, bytes: output.clone() }))
            });
            match unsent {
                None => return,
                Some(None) => {}
                Some(Some(unsent)) => return self.wait_writable(unsent, cx),
            }
        }
        cx.waker().wake_by_ref();
    }

    fn wait_writable(&self, unsent: Unsent, cx: &Context<'_>) {
        self.unsent.replace(Some(unsent));
        self.core.wait_writable(cx);
    }

    /// Exchanges events with the endpoint.
    fn report(&self, cx: &Context<'_>) {
        let mut replies: Vec<ConnectionEvent> = Vec::new();
        while let Some(event) = self.state.borrow_mut().poll_endpoint_events() {
            if self.is_drained.get() {
                // The handle may be that of another connection.
                continue;
            }
            if event.is_drained() {
                self.is_drained.set(true);
                self.core.remove(self.handle);
            }
            replies.extend(self.core.report(self.handle, event));
        }
        if !replies.is_empty() {
            let mut state = self.state.borrow_mut();
            for reply in replies {
                state.handle_event(reply);
            }
            cx.waker().wake_by_ref();
        }
    }

    /// Wakes the task, because something is to be sent.
    pub fn wake(&self) {
        self.mailbox.wake();
    }

    /// Sets whether the task is running and sends before it waits, so that it need not be woken.
    pub fn set_running(&self, is_running: bool) {
        self.mailbox.set_running(is_running);
    }

    /// Closes the connection with a code of HTTP/3. Nothing is read or written any more.
    pub fn close(&self, reason: u64, text: &str) {
        self.state.borrow_mut().close(now(), code(reason), Bytes::copy_from_slice(text.as_bytes()));
        self.is_closed_here.set(true);
        self.counted.take();
        self.wake();
    }

    /// Returns whether this side has closed the connection: until it is drained, the client is told again.
    pub fn is_closed_here(&self) -> bool {
        self.is_closed_here.get()
    }

    /// Sends a packet that the client acknowledges, so that neither side takes the connection for lost.
    pub fn ping(&self) {
        self.state.borrow_mut().ping();
    }

    // Facts.

    pub fn remote(&self) -> SocketAddr {
        self.state.borrow().remote_address()
    }

    /// Returns the address of this side. Its IP address is unspecified if the system does not report it.
    pub fn local(&self) -> SocketAddr {
        let bound = self.core.socket.local();
        let ip: Option<IpAddr> = self.state.borrow().local_ip();
        SocketAddr::new(ip.unwrap_or(bound.ip()), bound.port())
    }

    /// Returns the descriptor of the endpoint's socket, for the log.
    pub fn raw_fd(&self) -> RawFd {
        self.core.socket.raw_fd()
    }

    /// Returns whether the handshake is not complete. That of a connection that ends before never is.
    pub fn is_handshaking(&self) -> bool {
        self.is_handshaking.get()
    }

    /// Returns whether the client has proved its address before the handshake.
    pub fn is_validated(&self) -> bool {
        self.is_validated
    }

    /// Returns the facts about the handshake, once the client's first message has been handled.
    pub fn handshake_facts(&self) -> Option<HandshakeFacts> {
        let facts = self.state.borrow().crypto_session().handshake_data()?;
        facts.downcast().ok().map(|facts| *facts)
    }

    pub fn rtt(&self) -> Duration {
        self.state.borrow().rtt()
    }

    // Streams.

    /// Returns whether the client does not want what this side sends on a stream that the client has opened.
    pub fn is_stopped(&self, id: StreamId) -> bool {
        !matches!(self.state.borrow_mut().send_stream(id).stopped(), Ok(None))
    }

    /// Returns the next stream that the client has opened.
    pub fn accept(&self, dir: Dir) -> Option<StreamId> {
        self.state.borrow_mut().streams().accept(dir)
    }

    /// Opens a stream to the client; `None` if it allows no more.
    pub fn open_uni(&self) -> Option<StreamId> {
        self.state.borrow_mut().streams().open(Dir::Uni)
    }

    /// Reads the next bytes of a stream, at most `most`. Returns `None` at its end.
    pub fn read(&self, id: StreamId, most: usize) -> Result<Option<Bytes>, ReadError> {
        let mut state = self.state.borrow_mut();
        let mut stream = state.recv_stream(id);
        let mut chunks = stream.read(true).map_err(|_| ReadError::Closed)?;
        let read = match chunks.next(most) {
            Ok(Some(chunk)) => Ok(Some(chunk.bytes)),
            Ok(None) => Ok(None),
            Err(quinn_proto::ReadError::Blocked) => Err(ReadError::Blocked),
            Err(quinn_proto::ReadError::Reset(code)) => Err(ReadError::Reset(code.into_inner())),
        };
        let opens_windows = chunks.finalize().should_transmit();
        drop(state);
        if opens_windows {
            self.wake();
        }
        read
    }

    /// Returns the code with which the client has reset a stream, once.
    pub fn reset_received(&self, id: StreamId) -> Option<u64> {
        let received = self.state.borrow_mut().recv_stream(id).received_reset().ok()??;
        Some(received.into_inner())
    }

    /// Refuses the rest of what the client sends on a stream.
    pub fn stop(&self, id: StreamId, reason: u64) {
        if self.state.borrow_mut().recv_stream(id).stop(code(reason)).is_ok() {
            self.wake();
        }
    }

    /// Writes bytes to a stream. Returns how many were accepted.
    pub fn write(&self, id: StreamId, bytes: &[u8]) -> Result<usize, WriteError> {
        let written = self.state.borrow_mut().send_stream(id).write(bytes);
        match written {
            Ok(n) => {
                self.wake();
                Ok(n)
            }
            Err(quinn_proto::WriteError::Blocked) => Err(WriteError::Blocked),
            Err(quinn_proto::WriteError::Stopped(_) | quinn_proto::WriteError::ClosedStream) => {
                Err(WriteError::Closed)
            }
        }
    }

    /// Ends a stream after all written bytes.
    pub fn finish(&self, id: StreamId) -> Result<(), WriteError> {
        self.state.borrow_mut().send_stream(id).finish().map_err(|_| WriteError::Closed)?;
        self.wake();
        Ok(())
    }

    /// Ends what this side sends on a stream at once.
    pub fn reset(&self, id: StreamId, reason: u64) {
        if self.state.borrow_mut().send_stream(id).reset(code(reason)).is_ok() {
            self.wake();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_drained.get() {
            self.core.remove(self.handle);
            self.core.report(self.handle, EndpointEvent::drained());
        }
    }
}

/// Returns whether a timer has expired.
fn is_due(state: &mut quinn_proto::Connection) -> bool {
    state.poll_timeout().is_some_and(|due| due <= now())
}

/// Returns the event for whoever serves the connection.
fn translate(event: quinn_proto::Event) -> Option<Event> {
    Some(match event {
        quinn_proto::Event::Connected => Event::Connected,
        quinn_proto::Event::ConnectionLost { reason } => Event::Closed(CloseReason::of(&reason)),
        quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => Event::Opened(dir),
        quinn_proto::Event::Stream(StreamEvent::Readable { id }) => Event::Readable(id),
        quinn_proto::Event::Stream(StreamEvent::Writable { id }) => Event::Writable(id),
        quinn_proto::Event::Stream(StreamEvent::Finished { id }) => Event::Finished(id),
        quinn_proto::Event::Stream(StreamEvent::Stopped { id, error_code }) => {
            Event::Stopped(id, error_code.into_inner())
        }
        _ => return None,
    })
}
