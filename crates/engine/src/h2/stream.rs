//! The state of a stream that its request and its connection share. The request reads its body here, and waits here
//! for windows. The connection's task adds the body bytes that the client sends.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use lacquer_h2::frame::{self, FrameHeader};
use lacquer_h2::request::Body;
use lacquer_h2::stream::{State, Stream as Protocol};
use lacquer_h2::{Error, Fault, Reason};
use lacquer_http::trailers::RequestTrailers;
use lacquer_shm::Tag;
use lacquer_sources::clock::{self, Instant};

use super::conn::{Conn, StreamEntry};
use super::receive_buffer::ReceiveBuffer;

/// The error of a stream that ended before its request. The reason is in [`Stream::error`].
#[derive(Clone, Copy, Debug)]
pub struct Gone;

pub struct Stream {
    id: u32,
    conn: Rc<Conn>,
    /// The time when the stream was opened.
    opened: f64,
    error: Cell<Option<Error>>,
    /// The client has reset the stream.
    cancelled: Cell<bool>,
    /// The state of the stream according to the protocol.
    proto: RefCell<Protocol>,
    /// The stream is counted as open.
    counted: Cell<bool>,
    received: RefCell<Option<ReceiveBuffer>>,
    wakers: Wakers,
    /// The time by which the response must be sent.
    send_by: Cell<Option<Instant>>,
    /// The parameter whose limit ended the response.
    limit_hit: Cell<Option<&'static str>>,
    /// The stream is a tunnel, which has its own limits.
    is_tunnel: Cell<bool>,
}

/// Wakers for the body, for a window, and for the end of the stream.
#[derive(Default)]
struct Wakers {
    reader: RefCell<Option<Waker>>,
    sender: RefCell<Option<Waker>>,
    watcher: RefCell<Option<Waker>>,
}

/// Counts a stream that waits for a window.
struct Waiting<'c>(&'c Conn);

impl Waiting<'_> {
    fn new(conn: &Conn) -> Waiting<'_> {
        conn.count_waiting(1);
        Waiting(conn)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count_waiting(-1);
    }
}

impl StreamEntry for Stream {
    fn wake(&self) {
        for waker in [&self.wakers.reader, &self.wakers.sender, &self.wakers.watcher] {
            if let Some(waker) = waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}

impl Stream {
    /// Opens a stream, and adds it to the connection's list.
    pub fn open(conn: &Rc<Conn>, id: u32, opened: f64) -> Rc<Stream> {
        let stream = Rc::new(Stream {
            id,
            conn: conn.clone(),
            opened,
            error: Cell::new(None),
            cancelled: Cell::new(false),
            proto: RefCell::new(Protocol::open(
                id,
                conn.settings().initial_window_size,
                conn.client_settings().initial_window_size,
            )),
            counted: Cell::new(true),
            received: RefCell::default(),
            wakers: Wakers::default(),
            send_by: Cell::new(None),
            limit_hit: Cell::new(None),
            is_tunnel: Cell::new(false),
        });
        conn.enter(id, stream.clone());
        stream
    }

    /// Returns the connection's stream with this id.
    pub fn find(conn: &Conn, id: u32) -> Option<Rc<Stream>> {
        let stream: Rc<dyn Any> = conn.stream(id)?;
        stream.downcast().ok()
    }

    /// Calls `work` with each of the connection's streams.
    pub fn each(conn: &Conn, mut work: impl FnMut(&Stream)) {
        conn.each_stream(|stream| {
            let stream: &dyn Any = stream;
            stream.downcast_ref().into_iter().for_each(&mut work);
        });
    }

    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub fn conn(&self) -> &Rc<Conn> {
        &self.conn
    }

    /// Returns the time when the stream was opened.
    pub fn opened(&self) -> f64 {
        self.opened
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.conn.tx().as_fd()
    }

    /// Returns the error that ended the stream or the connection, if one did.
    pub fn error(&self) -> Option<Error> {
        self.error.get().or_else(|| self.conn.error())
    }

    pub fn fail(&self, error: Error) {
        if self.error.get().is_none() {
            self.error.set(Some(error));
        }
        self.wake();
    }

    /// Waits until the stream or the connection has ended.
    pub async fn gone(&self) {
        std::future::poll_fn(|cx| {
            if self.error().is_some() {
                return Poll::Ready(());
            }
            *self.wakers.watcher.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Removes the stream from the count of open streams.
    pub fn uncount_open(&self) {
        if self.counted.replace(false) {
            self.conn.conduct().close_one();
        }
    }

    /// Returns whether the response is fully queued, or was cancelled.
    pub fn is_answered(&self) -> bool {
        !self.counted.get()
    }

    /// Ends the stream when its request ends. A client that still sends its body is told that the rest is not needed (RFC
    /// 9113 section 8.1). A fetch that still forwards the body gets an error.
    pub fn close(&self) {
        if self.is_answered() && self.error().is_none() && !self.has_ended() {
            self.conn.reset_stream(self.id, Error::Stream(Reason::NoError));
        }
        self.uncount_open();
        self.fail(Error::Stream(Reason::StreamClosed));
        self.received.borrow_mut().take();
        self.conn.leave(self.id);
    }

    /// Ends a stream that the client has reset.
    pub fn cancel(&self, error: Error) {
        self.cancelled.set(true);
        self.kill(error);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    /// Ends a stream that the client has reset, or whose connection ends.
    pub fn kill(&self, error: Error) {
        let state = self.state().number();
        self.conn.log(Tag::Debug, format_args!("KILL st={} state={state} sched=1", self.id));
        self.uncount_open();
        self.fail(error);
    }

    /// Resets the stream.
    pub fn reset(&self, error: Error) {
        self.fail(error);
        self.uncount_open();
        self.conn.reset_stream(self.id, error);
    }

    // The frames of the client.

    /// Returns the state of the stream according to the protocol.
    pub fn state(&self) -> State {
        self.proto.borrow().state
    }

    /// Records the body that the head of the request announces.
    pub fn expect(&self, body: Body) {
        self.proto.borrow_mut().expect(body);
    }

    /// Checks a DATA frame with this number of body bytes, and charges it to the stream's window.
    pub fn charge_data(&self, header: &FrameHeader, bytes: usize, end: bool) -> Result<(), Fault> {
        self.proto.borrow_mut().data(header, bytes, end)
    }

    /// Checks trailers, which end the body, and keeps them for its reader.
    pub fn receive_trailers(&self, trailers: Box<RequestTrailers>) -> Result<(), Fault> {
        self.proto.borrow_mut().trailers(trailers)
    }

    /// Removes and returns the trailers that were received.
    pub fn take_trailers(&self) -> Option<Box<RequestTrailers>> {
        self.proto.borrow_mut().take_trailers()
    }

    /// Adds the client's credit for body bytes, and wakes the tasks that wait for it.
    pub fn add_credit(&self, increment: u32) -> Result<(), Error> {
        let credited = self.proto.borrow_mut().send.credit(increment);
        if credited.is_ok() {
            self.wake();
        }
        credited
    }

    /// Changes the window by the difference that the client's new settings make.
    pub fn follow_settings(&self, window_delta: i64) {
        let mut proto = self.proto.borrow_mut();
        if proto.follows_settings() {
            proto.send.adjust(window_delta);
        }
    }

    // The request's body.

    pub fn has_ended(&self) -> bool {
        self.state() >= State::HalfClosedRemote
    }

    /// Records that the client has sent the whole request.
    pub fn end(&self) {
        if let Some(received) = self.received.borrow_mut().as_mut() {
            received.end();
        }
        self.wake();
    }

    /// Stores a piece of the body until the request reads it. Returns false if there is no storage.
    pub fn buffer_body(&self, data: &[u8], end: bool) -> bool {
        let mut received = self.received.borrow_mut();
        if received.is_none() {
            let first = if end { data.len() } else { super::receive_buffer::PIECE };
            *received = ReceiveBuffer::begin(self.conn.services(), first);
        }
        let kept = received.as_mut().is_some_and(|received| received.append(self.conn.services(), data));
        drop(received);
        self.wake();
        kept
    }

    /// Returns the number of body bytes that were received and not yet read.
    pub fn buffered(&self) -> u64 {
        self.received.borrow().as_ref().map_or(0, ReceiveBuffer::buffered)
    }

    /// Waits for bytes of the body. Returns the number of bytes read; 0 at the end of the body.
    pub async fn read(&self, buffer: &mut [u8]) -> Result<usize, Gone> {
        std::future::poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, Gone>> {
        if self.error().is_some() {
            return Poll::Ready(Err(Gone));
        }
        let n = self.received.borrow_mut().as_mut().map_or(0, |received| received.read(buffer));
        if n > 0 {
            self.extend_window();
            return Poll::Ready(Ok(n));
        }
        if self.has_ended() {
            self.received.borrow_mut().take();
            return Poll::Ready(Ok(0));
        }
        *self.wakers.reader.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns whether the whole body was received and read.
    pub fn is_drained(&self) -> bool {
        self.has_ended() && self.buffered() == 0
    }

    /// Returns whether the client has sent all, and neither bytes nor trailers are left to read.
    pub fn is_exhausted(&self) -> bool {
        self.is_drained() && !self.proto.borrow().has_trailers()
    }

    /// Extends the client's window by the bytes that were read, and by padding.
    pub fn extend_window(&self) {
        let size = self.conn.settings().initial_window_size;
        let more = self.proto.borrow_mut().refill(self.buffered(), size);
        if more > 0 {
            self.conn.queue(|out| frame::window_update(out, self.id, more));
        }
    }

    /// Rejects a request that was not processed.
    pub fn refuse(&self) {
        if self.error().is_none() {
            self.reset(Error::Stream(Reason::RefusedStream));
        }
    }

    // The response.

    /// Lifts the limits of responses from a stream that becomes a tunnel.
    pub fn begin_tunnel(&self) {
        self.is_tunnel.set(true);
    }

    /// Sets the time by which the response must be sent.
    pub fn limit_response(&self, by: Option<Instant>) {
        self.send_by.set(by);
    }

    /// Waits until both windows are open.
    pub async fn open_window(&self) -> Result<(), Gone> {
        if self.error().is_some() {
            return Err(Gone);
        }
        if self.credit() == 0 {
            Box::pin(self.wait_for_window()).await?;
        }
        Ok(())
    }

    /// Takes up to `wanted` bytes of credit from both windows.
    pub fn take_window(&self, wanted: usize) -> usize {
        let taken = self.credit().min(wanted);
        self.proto.borrow_mut().send.charge(taken);
        self.conn.charge(taken);
        taken
    }

    /// Returns unused credit to the windows.
    pub fn return_window(&self, unused: usize) {
        if unused > 0 {
            self.proto.borrow_mut().send.adjust(unused as i64);
            self.conn.refund(unused);
        }
    }

    /// Returns the number of bytes for which both windows are open.
    pub fn credit(&self) -> usize {
        self.proto.borrow().send.available().min(self.conn.credit())
    }

    /// Waits until both windows are open, or the stream has ended.
    async fn wait_for_credit(&self) -> Result<(), Gone> {
        std::future::poll_fn(|cx| {
            if self.error().is_some() {
                return Poll::Ready(Err(Gone));
            }
            if self.credit() > 0 {
                return Poll::Ready(Ok(()));
            }
            *self.wakers.sender.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    async fn wait_for_window(&self) -> Result<(), Gone> {
        if self.is_tunnel.get() {
            return self.wait_for_credit().await;
        }
        let _waiting = Waiting::new(&self.conn);
        let max_wait = clock::limit(self.conn.services().params().h2_window_timeout);
        let by = Instant::now() + clock::seconds(max_wait);
        let until = self.send_by.get().map_or(by, |send_by| send_by.min(by));
        let opened = tokio::time::timeout_at(until, self.wait_for_credit()).await.is_ok();
        if !opened && self.error().is_none() {
            if Instant::now() >= by { self.refuse_window() } else { self.expire("send_timeout") }
        }
        if self.error().is_some() { Err(Gone) } else { Ok(()) }
    }

    /// Fails if the client has exceeded the time for the whole response.
    pub fn check_time(&self) -> Result<(), Gone> {
        if self.send_by.get().is_none_or(|by| Instant::now() < by) {
            return Ok(());
        }
        self.expire("send_timeout");
        Err(Gone)
    }

    /// Ends a response that has exceeded the time limit of this parameter.
    pub fn expire(&self, limit: &'static str) {
        self.limit_hit.set(Some(limit));
        self.conn.log(Tag::Debug, format_args!("H2: stream {}: Hit {limit}", self.id));
        self.reset(Error::Stream(Reason::Cancel));
    }

    /// Ends a response whose client does not open a window in time.
    fn refuse_window(&self) {
        let (id, conn) = (self.id, &self.conn);
        self.limit_hit.set(Some("h2_window_timeout"));
        conn.log(Tag::Debug, format_args!("H2: stream {id}: Hit h2_window_timeout"));
        if conn.is_bankrupt() {
            conn.log(Tag::SessError, format_args!("H2: window bankrupt"));
            self.fail(Error::Connection(Reason::Bankrupt));
            return conn.fail(Error::Connection(Reason::Bankrupt));
        }
        self.reset(Error::Stream(Reason::BrokeWindow));
    }

    /// Returns the parameter whose limit ended the response, if one did.
    pub fn limit_hit(&self) -> Option<&'static str> {
        self.limit_hit.get()
    }
}
