//! The state of a stream that its request and its connection share. The request reads its body here, and waits here
//! for its client to accept bytes of the response.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use lacquer_h3::request::{Body, Decoded, decode_trailers};
use lacquer_h3::{Error, Reason};
use lacquer_http::trailers::RequestTrailers;
use lacquer_quic::{StreamId, WriteError};
use lacquer_shm::Tag;
use lacquer_sources::clock::Instant;

use super::conn::Conn;
use super::receiving::{Failure, Head, Piece, Receiving};

/// The error of a stream that ended before its request. The reason is in [`Stream::error`].
#[derive(Clone, Copy, Debug)]
pub struct Gone;

pub struct Stream {
    pub id: StreamId,
    pub conn: Rc<Conn>,
    pub t_first: f64,
    error: Cell<Option<Error>>,
    receiving: RefCell<Receiving>,
    trailers: Cell<Trailers>,
    /// The client does not wait for more of the response: it was written, or the stream was reset.
    is_answered: Cell<bool>,
    wakers: Wakers,
    /// The time by which the response must be sent.
    pub send_by: Cell<Option<Instant>>,
    /// The parameter whose limit ended the response.
    limit_hit: Cell<Option<&'static str>>,
}

/// Wakers for the body, for room in the connection, and for the end of the stream.
#[derive(Default)]
struct Wakers {
    reader: RefCell<Option<Waker>>,
    sender: RefCell<Option<Waker>>,
    watcher: RefCell<Option<Waker>>,
}

/// The trailers of the request.
#[derive(Default)]
enum Trailers {
    #[default]
    None,
    /// Their section refers to fields that have not arrived.
    Blocked(Vec<u8>),
    Received(Box<RequestTrailers>),
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.borrow_mut().take() {
        waker.wake();
    }
}

impl Stream {
    pub fn open(conn: &Rc<Conn>, id: StreamId, t_first: f64) -> Rc<Stream> {
        let params = conn.services.params();
        // Encoded fields are hardly longer than decoded ones.
        let max_section = (params.h2_max_header_list_size as usize).max(params.http_req_size as usize) * 2;
        Rc::new(Stream {
            id,
            conn: conn.clone(),
            t_first,
            error: Cell::new(None),
            receiving: RefCell::new(Receiving::new(max_section)),
            trailers: Cell::default(),
            is_answered: Cell::new(false),
            wakers: Wakers::default(),
            send_by: Cell::new(None),
            limit_hit: Cell::new(None),
        })
    }

    /// Returns the error that ended the stream or the connection, if one did.
    pub fn error(&self) -> Option<Error> {
        self.error.get().or_else(|| self.conn.error())
    }

    fn fail(&self, error: Error) {
        if self.error.get().is_none() {
            self.error.set(Some(error));
        }
        wake(&self.wakers.reader);
        wake(&self.wakers.sender);
        wake(&self.wakers.watcher);
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

    /// Returns whether the response is fully written, or was cancelled.
    pub fn is_answered(&self) -> bool {
        self.is_answered.get()
    }

    /// Ends a stream that the client has cancelled, or whose connection ends.
    pub fn kill(&self, error: Error) {
        if self.error.get().is_none() {
            let (id, why) = (u64::from(self.id), error.name());
            self.conn.log(Tag::Debug, format_args!("H3: stream {id}: killed by {why}"));
        }
        self.end_both(error);
    }

    /// Resets the stream.
    pub fn reset(&self, error: Error) {
        let id = u64::from(self.id);
        self.conn.log(Tag::Debug, format_args!("H3: stream {id}: {}", error.text()));
        self.end_both(error);
    }

    /// Ends both directions of the stream.
    fn end_both(&self, error: Error) {
        self.is_answered.set(true);
        self.fail(error);
        self.conn.quic.reset(self.id, error.code());
        // Of a stream that is reset, the client acknowledges no response.
        self.conn.response_acknowledged(self.id);
        self.refuse_rest(error.code());
    }

    /// Refuses the rest of what the client sends, if it has not ended.
    fn refuse_rest(&self, code: u64) {
        if !self.receiving.borrow().has_ended() {
            self.conn.quic.stop(self.id, code);
        }
    }

    /// Handles an error: ends the connection, or resets the stream.
    pub fn end_by(&self, error: Error) {
        if error.is_connection() { self.conn.fail(error) } else { self.reset(error) }
    }

    /// Ends the stream when its request ends. A fetch that still forwards the body gets an error.
    pub fn close(&self) {
        if self.error.get().is_none() {
            self.refuse_rest(Reason::NoError.code());
        }
        let has_section = matches!(self.trailers.take(), Trailers::Blocked(_));
        if has_section || !self.receiving.borrow().has_ended() {
            // The trailers that may follow are never decoded.
            self.conn.protocol.borrow_mut().qpack.cancel(self.id.into());
        }
        self.is_answered.set(true);
        self.fail(Error::Stream(Reason::NoError));
        self.conn.leave(self.id);
    }

    // The request.

    /// Returns the field section of the request once it has arrived, or the failure that ends the stream.
    pub fn head(&self) -> Result<Head, Failure> {
        self.receiving.borrow_mut().head(&self.conn.quic, self.id)
    }

    /// Records the body that the head announces. Fails if the stream has ended without it.
    pub fn expect(&self, body: Body) -> Result<(), Error> {
        let mut receiving = self.receiving.borrow_mut();
        receiving.expect(body);
        receiving.check_end().map_err(|fault| self.conn.log_fault(&fault))
    }

    /// Wakes the reader of the body.
    pub fn readable(&self) {
        wake(&self.wakers.reader);
    }

    /// Waits for bytes of the body. Returns the number of bytes read; 0 at the end of the body.
    pub async fn read(&self, buffer: &mut [u8]) -> Result<usize, Gone> {
        std::future::poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, Gone>> {
        loop {
            if self.error().is_some() {
                return Poll::Ready(Err(Gone));
            }
            let piece = match self.trailers.take() {
                Trailers::Blocked(section) => Ok(Piece::Trailers(section)),
                trailers => {
                    self.trailers.set(trailers);
                    self.receiving.borrow_mut().body(&self.conn.quic, self.id, buffer)
                }
            };
            match piece {
                Ok(Piece::Bytes(n)) => return Poll::Ready(Ok(n)),
                Ok(Piece::End) => return Poll::Ready(Ok(0)),
                Ok(Piece::Trailers(section)) => {
                    if !self.receive_trailers(section) {
                        return self.wait_to_read(cx);
                    }
                }
                Err(Failure::Blocked) => return self.wait_to_read(cx),
                Err(failure) => self.end_reading(&failure),
            }
        }
    }

    /// Ends the stream after a failure to read it.
    fn end_reading(&self, failure: &Failure) {
        match failure {
            Failure::Blocked => {}
            Failure::Fault(fault) => self.end_by(self.conn.log_fault(fault)),
            Failure::Reset(code) => self.kill(Error::Stream(Reason::of(*code))),
            Failure::Closed => self.kill(Error::Stream(Reason::RequestIncomplete)),
        }
    }

    fn wait_to_read<R>(&self, cx: &Context<'_>) -> Poll<R> {
        *self.wakers.reader.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Decodes and keeps trailers. Returns false if they refer to fields that have not arrived.
    fn receive_trailers(&self, section: Vec<u8>) -> bool {
        let conn = &self.conn;
        let (id, limits) = (u64::from(self.id), conn.limits());
        let mut protocol = conn.protocol.borrow_mut();
        let decoded =
            decode_trailers(&mut protocol.qpack, id, &section, &limits, &mut |note| conn.note(&note));
        if matches!(decoded, Err(Error::Stream(_))) {
            protocol.qpack.cancel(id);
        }
        drop(protocol);
        conn.quic.wake();
        match decoded {
            Ok(Decoded::Done(trailers)) => self.trailers.set(Trailers::Received(trailers)),
            Ok(Decoded::Blocked) => {
                self.trailers.set(Trailers::Blocked(section));
                return false;
            }
            Err(error) => self.end_by(error),
        }
        true
    }

    /// Removes and returns the trailers that were received.
    pub fn take_trailers(&self) -> Option<Box<RequestTrailers>> {
        match self.trailers.take() {
            Trailers::Received(trailers) => Some(trailers),
            Trailers::None | Trailers::Blocked(_) => None,
        }
    }

    /// Returns whether the whole body was received and read.
    pub fn is_drained(&self) -> bool {
        self.receiving.borrow().has_ended()
    }

    /// Returns whether the client has sent all, and neither bytes nor trailers are left to read.
    pub fn is_exhausted(&self) -> bool {
        if self.error().is_some() {
            return false;
        }
        let is_at_end = self.receiving.borrow_mut().is_at_end(&self.conn.quic, self.id);
        is_at_end.unwrap_or_else(|failure| {
            self.end_reading(&failure);
            false
        })
    }

    /// Rejects a request that was not processed.
    pub fn refuse(&self) {
        if self.error().is_none() {
            self.reset(Error::Stream(Reason::RequestRejected));
        }
    }

    /// Resets a stream that ends out of order.
    pub fn cancel(&self) {
        self.reset(Error::Stream(Reason::RequestCancelled));
    }

    // The response.

    /// Writes bytes. Returns how many the connection has accepted, which is 0 if it is full.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Gone> {
        if self.error().is_some() {
            return Err(Gone);
        }
        match self.conn.quic.write(self.id, bytes) {
            Ok(n) => Ok(n),
            Err(WriteError::Blocked) => Ok(0),
            Err(WriteError::Closed) => {
                self.kill(Error::Stream(Reason::RequestCancelled));
                Err(Gone)
            }
        }
    }

    /// Wakes the writer of the response.
    pub fn writable(&self) {
        wake(&self.wakers.sender);
    }

    /// Waits until more can be written. Must be called after [`write`](Self::write) has accepted nothing.
    pub async fn wait_writable(&self) -> Result<(), Gone> {
        let mut has_waited = false;
        std::future::poll_fn(|cx| {
            if self.error().is_some() {
                return Poll::Ready(Err(Gone));
            }
            if std::mem::replace(&mut has_waited, true) && self.wakers.sender.borrow().is_none() {
                return Poll::Ready(Ok(()));
            }
            *self.wakers.sender.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Ends the response after all written bytes.
    pub fn finish(&self) -> Result<(), Gone> {
        if self.error().is_some() || self.conn.quic.finish(self.id).is_err() {
            return Err(Gone);
        }
        self.is_answered.set(true);
        self.conn.response_written(self.id);
        Ok(())
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
        self.conn.log(Tag::Debug, format_args!("H3: stream {}: Hit {limit}", u64::from(self.id)));
        self.reset(Error::Stream(Reason::RequestCancelled));
    }

    /// Returns the parameter whose limit ended the response, if one did.
    pub fn limit_hit(&self) -> Option<&'static str> {
        self.limit_hit.get()
    }
}
