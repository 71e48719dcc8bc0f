//! An HTTP/3 connection, from its handshake to its end.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lacquer_engine::h3::{Conn, Failure, Head, Stream};
use lacquer_engine::{Services, Sess};
use lacquer_h3::{Error, Reason};
use lacquer_http::SessClose;
use lacquer_net::deadlines::{Deadline, Idleness, Moment};
use lacquer_quic::{CloseReason, Connection, Dir, Event, StreamId};
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::control::Control;
use super::opening::{self, Opened};

/// The number of requests that are begun before other tasks run, and the number of those among them that wait for
/// something.
const REQUESTS: usize = 32;
const WAITING_REQUESTS: usize = 4;
/// The seconds without packets after which a client with open requests is asked whether it is there.
const KEEP_ALIVE: f64 = 10.0;
/// The bounds of the time for requests on their way after the last GOAWAY.
const LEAST_GRACE: Duration = Duration::from_millis(5);
const LONGEST_GRACE: Duration = Duration::from_millis(500);

/// A stream of a request.
struct Request {
    stream: Rc<Stream>,
    state: State,
    /// The time when the client has opened the stream.
    since: Moment,
}

enum State {
    /// The field section is incomplete.
    Opening,
    /// The field section refers to others that have not arrived.
    Blocked(Head),
    /// The request runs, or has ended.
    Started,
}

impl Request {
    fn is_opening(&self) -> bool {
        !matches!(self.state, State::Started)
    }
}

/// The way to the end of a connection whose worker is about to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    NotBegun,
    /// The client knows. Requests on their way are served.
    Announced,
    /// The last GOAWAY was sent. Further requests are rejected.
    Rejecting,
}

/// The event that the connection's deadline applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// A request.
    Request,
    /// The rest of a field section.
    Rest,
    /// Any packet of a client with open requests.
    Life,
}

/// The end of a connection.
#[derive(Clone, Copy)]
struct End {
    error: Error,
    close: SessClose,
    /// The client has closed the connection, or is gone.
    is_remote: bool,
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End { error, close: error.close(), is_remote: false }
    }
}

struct Session {
    conn: Rc<Conn>,
    control: Control,
    idle: Rc<Deadline>,
    awaited: Awaited,
    /// The time of the last request, or of its end.
    active: Moment,
    events: Vec<Event>,
    requests: HashMap<StreamId, Request>,
    drain: Pin<Box<dyn Future<Output = ()>>>,
    leave: Leave,
    has_requested: bool,
    /// The number of request streams that were accepted. The client opens them in their order.
    accepted: u64,
    /// The requests begun in this turn; one that waits counts more.
    begun: usize,
}

/// Serves the connection until its end. `events` were received with the handshake.
pub async fn serve(
    services: Rc<Services>,
    sess: Rc<Sess>,
    quic: Rc<Connection>,
    events: Vec<Event>,
) -> SessClose {
    let params = services.params();
    let idle = services.deadlines().add_deadline();
    let conn = Rc::new(Conn::new(services.clone(), sess, quic.clone(), &params));
    let control = match Control::open(&conn) {
        Ok(control) => control,
        Err(error) => {
            quic.close(error.code(), "the client must permit three unidirectional streams");
            return error.close();
        }
    };
    let mut session = Session {
        control,
        awaited: Awaited::Request,
        active: idle.now(),
        idle,
        events,
        requests: HashMap::new(),
        drain: Box::pin(async move { services.drain_begun().await }),
        leave: Leave::NotBegun,
        has_requested: false,
        accepted: 0,
        begun: 0,
        conn,
    };
    session.set_deadline();
    let end = poll_fn(|cx| session.poll(cx)).await;
    session.end(end).await;
    session.conn.finish();
    end.close
}

impl Session {
    /// Receives, handles and sends until there is nothing to do, or the connection ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.conn.quic.set_running(true);
        let polled = self.work(cx);
        let _ = self.conn.quic.send(cx);
        self.conn.quic.set_running(false);
        self.idle.poll_expired(cx);
        polled
    }

    fn work(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.leave == Leave::NotBegun && self.drain.as_mut().poll(cx).is_ready() {
            self.leave = Leave::Announced;
            self.control.announce_end();
        }
        if self.leave == Leave::Announced && self.conn.services.closes_idle() {
            self.leave = Leave::Rejecting;
            self.control.go_away();
        }
        self.conn.quic.receive(cx, &mut self.events);
        if let Err(end) = self.read_rest(cx).map_err(End::from).and_then(|()| self.handle_events(cx)) {
            return Poll::Ready(end);
        }
        if let Err(error) = self.accept_requests(cx).and_then(|()| self.control.flush()) {
            return Poll::Ready(error.into());
        }
        if let Some(error) = self.conn.error() {
            return Poll::Ready(error.into());
        }
        self.forget_ended();
        if self.idle.poll_expired(cx)
            && let Some(end) = self.expired()
        {
            return Poll::Ready(end);
        }
        self.set_deadline();
        Poll::Pending
    }

    /// Reads more of the streams of the protocol that had too much for the last turn.
    fn read_rest(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let effects = self.control.read_rest(cx)?;
        self.unblock(effects.has_inserted, cx)
    }

    fn handle_events(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let mut events = std::mem::take(&mut self.events);
        let mut outcome = Ok(());
        for event in events.drain(..) {
            outcome = outcome.and_then(|()| self.handle(event, cx));
        }
        self.events = events;
        outcome
    }

    fn handle(&mut self, event: Event, cx: &mut Context<'_>) -> Result<(), End> {
        match event {
            Event::Connected => {
                self.conn.sess.handshake().complete();
                Ok(())
            }
            Event::Opened(Dir::Bi) => Ok(()),
            Event::Opened(Dir::Uni) => {
                let effects = self.control.accept(cx)?;
                Ok(self.unblock(effects.has_inserted, cx)?)
            }
            Event::Readable(id) if id.dir() == Dir::Uni => {
                let effects = self.control.read(id, cx)?;
                Ok(self.unblock(effects.has_inserted, cx)?)
            }
            Event::Readable(id) => Ok(self.readable(id, cx)?),
            Event::Writable(id) => {
                if let Some(request) = self.requests.get(&id) {
                    request.stream.writable();
                }
                Ok(())
            }
            Event::Finished(id) => {
                self.conn.response_acknowledged(id);
                Ok(())
            }
            Event::Stopped(id, _) if self.control.is_own(id) => {
                Err(self.conn.log_fault(&self.conn.protocol.borrow().stopped()).into())
            }
            Event::Stopped(id, code) => Ok(self.stopped(id, code)?),
            Event::Closed(reason) => Err(self.closed(&reason)),
        }
    }

    /// Handles bytes, the end or a reset of a request stream.
    fn readable(&mut self, id: StreamId, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(request) = self.requests.get(&id) else { return Ok(()) };
        if matches!(request.state, State::Opening) {
            return self.try_open(id, cx);
        }
        let stream = request.stream.clone();
        match self.conn.quic.reset_received(id) {
            Some(code) => self.cancelled(&stream, code),
            None => {
                stream.readable();
                Ok(())
            }
        }
    }

    /// Handles a client that does not want the rest of a response. If its request is not accepted yet, that finds it out.
    fn stopped(&mut self, id: StreamId, code: u64) -> Result<(), Error> {
        if id.index() >= self.accepted {
            return Ok(());
        }
        self.conn.response_acknowledged(id);
        self.conn.quic.reset(id, Reason::RequestCancelled.code());
        let stream = self.requests.get(&id).map(|request| request.stream.clone());
        stream.map_or(Ok(()), |stream| self.cancelled(&stream, code))
    }

    /// Ends a request that the client has cancelled.
    fn cancelled(&mut self, stream: &Rc<Stream>, code: u64) -> Result<(), Error> {
        let is_first = stream.error().is_none();
        stream.kill(Error::Stream(Reason::of(code)));
        self.give_up(stream.id);
        if is_first { self.conn.charge_reset(stream.t_first) } else { Ok(()) }
    }

    /// Begins requests on the streams that the client has opened.
    fn accept_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        self.begun = 0;
        while self.begun < REQUESTS {
            let Some(id) = self.conn.quic.accept(Dir::Bi) else { return Ok(()) };
            self.accepted = id.index() + 1;
            if self.leave == Leave::Rejecting {
                self.reject(id);
                self.begun += 1;
                continue;
            }
            self.active = self.idle.now();
            self.has_requested = true;
            let stream = Stream::open(&self.conn, id, clock::real());
            let opened = self.conn.protocol.borrow_mut().open_request(id.into());
            let opened = if self.is_crowded() { Err(Error::Stream(Reason::RequestRejected)) } else { opened };
            if let Err(error) = opened {
                stream.reset(error);
                self.conn.protocol.borrow_mut().qpack.cancel(id.into());
                self.begun += 1;
                continue;
            }
            if self.conn.quic.is_stopped(id) {
                self.begun += 1;
                self.end_unwanted(&stream)?;
                continue;
            }
            self.requests.insert(id, Request { stream, state: State::Opening, since: self.idle.now() });
            self.try_open(id, cx)?;
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Ends a request whose response the client has refused before the request was accepted.
    fn end_unwanted(&mut self, stream: &Rc<Stream>) -> Result<(), Error> {
        stream.kill(Error::Stream(Reason::RequestCancelled));
        self.conn.protocol.borrow_mut().qpack.cancel(stream.id.into());
        self.conn.charge_reset(stream.t_first)
    }

    /// Rejects a request that arrives after the last GOAWAY, so that the client repeats it on another connection.
    fn reject(&self, id: StreamId) {
        self.conn.quic.reset(id, Reason::RequestRejected.code());
        self.conn.quic.stop(id, Reason::RequestRejected.code());
    }

    /// Returns whether so many requests are active, including reset ones, that no more should start.
    fn is_crowded(&self) -> bool {
        self.requests.len() >= 2 * self.conn.services.params().h2_max_concurrent_streams.max(50) as usize
    }

    /// Begins the request of a stream if its field section has arrived.
    fn try_open(&mut self, id: StreamId, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(request) = self.requests.get_mut(&id) else { return Ok(()) };
        let stream = request.stream.clone();
        let head = match &mut request.state {
            State::Started => return Ok(()),
            State::Blocked(_) => match std::mem::replace(&mut request.state, State::Opening) {
                State::Blocked(head) => Ok(head),
                State::Opening | State::Started => return Ok(()),
            },
            State::Opening => stream.head(),
        };
        let error = match head {
            Ok(head) => {
                // Frames that the request causes find it started.
                request.state = State::Started;
                match opening::begin(&stream, head, cx) {
                    Ok(Opened::Started { is_served }) => {
                        self.begun += if is_served { 1 } else { REQUESTS / WAITING_REQUESTS };
                        return Ok(());
                    }
                    Ok(Opened::Blocked(head)) => {
                        request.state = State::Blocked(head);
                        return Ok(());
                    }
                    Err(error) => {
                        request.state = State::Opening;
                        error
                    }
                }
            }
            Err(Failure::Blocked) => return Ok(()),
            Err(Failure::Fault(fault)) => self.conn.log_fault(&fault),
            Err(Failure::Reset(code)) => return self.cancelled(&stream, code),
            Err(Failure::Closed) => Error::Stream(Reason::RequestIncomplete),
        };
        if error.is_connection() { Err(error) } else { self.refuse(id, error) }
    }

    /// Resets a stream whose request was not started. Fails if there were too many of them.
    fn refuse(&mut self, id: StreamId, error: Error) -> Result<(), Error> {
        if let Some(request) = self.requests.get(&id) {
            request.stream.reset(error);
        }
        self.give_up(id);
        let counted = self.conn.protocol.borrow_mut().count_useless(clock::real());
        counted.map_err(|fault| self.conn.log_fault(&fault))
    }

    /// Forgets a stream if its request was not started. Others are forgotten when their requests end.
    fn give_up(&mut self, id: StreamId) {
        if self.requests.get(&id).is_some_and(Request::is_opening) {
            self.conn.protocol.borrow_mut().qpack.cancel(id.into());
            self.requests.remove(&id);
        }
    }

    /// Begins the requests that have waited for fields, and wakes those whose trailers have.
    fn unblock(&mut self, has_inserted: bool, cx: &mut Context<'_>) -> Result<(), Error> {
        if !has_inserted {
            return Ok(());
        }
        let ready: Vec<u64> = self.conn.protocol.borrow().qpack.unblocked().collect();
        for id in ready {
            let known = self.requests.iter().find(|(known, _)| u64::from(**known) == id);
            match known.map(|(id, request)| (*id, request)) {
                Some((id, request)) if request.is_opening() => self.try_open(id, cx)?,
                // Its trailers can be decoded.
                Some((_, request)) => request.stream.readable(),
                None => {}
            }
        }
        Ok(())
    }

    /// Forgets the requests that have ended.
    fn forget_ended(&mut self) {
        for id in self.conn.take_ended() {
            self.requests.remove(&id);
            self.active = self.idle.now();
        }
    }

    /// Returns the time since which a field section is incomplete, if one is.
    fn oldest_opening(&self) -> Option<Moment> {
        let opening = self.requests.values().filter(|request| request.is_opening());
        opening.map(|request| request.since).reduce(|a, b| if a.since(b) < 0.0 { a } else { b })
    }

    fn idle_limit(&self) -> f64 {
        self.conn.sess.idle_limit(&self.conn.services.params())
    }

    /// Sets the deadline for the next event.
    fn set_deadline(&mut self) {
        let limit = self.idle_limit();
        if let Some(since) = self.oldest_opening() {
            self.awaited = Awaited::Rest;
            self.idle.arm(since, limit);
        } else if self.requests.is_empty() && !self.conn.has_unacknowledged() {
            self.awaited = Awaited::Request;
            self.idle.arm(self.active, limit);
            self.idle.allow_shedding(if self.has_requested { Idleness::Kept } else { Idleness::Silent });
        } else {
            self.awaited = Awaited::Life;
            self.idle.arm(self.idle.now(), KEEP_ALIVE);
        }
    }

    /// Handles an expired deadline. Returns the end if it ends the connection.
    fn expired(&mut self) -> Option<End> {
        match self.awaited {
            Awaited::Life => {
                self.conn.quic.ping();
                None
            }
            Awaited::Request if !self.requests.is_empty() => None,
            Awaited::Rest
                if self
                    .oldest_opening()
                    .is_none_or(|since| self.idle.now().since(since) < self.idle_limit()) =>
            {
                None
            }
            Awaited::Rest => self.end_late_sections().err().map(End::from),
            Awaited::Request => {
                let close = match self.leave {
                    Leave::NotBegun => SessClose::RxCloseIdle,
                    Leave::Announced | Leave::Rejecting => SessClose::RespClose,
                };
                Some(End { close, ..Error::Connection(Reason::NoError).into() })
            }
        }
    }

    /// Resets the streams whose field sections are late. Fails, to end the connection, if nothing else has happened on
    /// it for as long.
    fn end_late_sections(&mut self) -> Result<(), Error> {
        self.conn.log(Tag::SessError, format_args!("H3: Hit timeout_idle in a header section"));
        let (now, limit) = (self.idle.now(), self.idle_limit());
        let is_active = self.conn.has_unacknowledged()
            || self.requests.values().any(|request| !request.is_opening())
            || now.since(self.active) < limit;
        if !is_active {
            return Err(Error::Connection(Reason::HeaderTimeout));
        }
        let is_late = |request: &Request| request.is_opening() && now.since(request.since) >= limit;
        let late: Vec<StreamId> =
            self.requests.iter().filter(|(_, request)| is_late(request)).map(|(id, _)| *id).collect();
        late.into_iter().try_for_each(|id| self.refuse(id, Error::Stream(Reason::HeaderTimeout)))
    }

    /// Returns the end of a connection that the client has closed, or that is lost.
    fn closed(&self, reason: &CloseReason) -> End {
        let (error, close) = match reason {
            CloseReason::Application(code) => (Reason::of(*code), SessClose::RemClose),
            CloseReason::Transport(_) | CloseReason::Reset | CloseReason::Local => {
                (Reason::NoError, SessClose::RemClose)
            }
            CloseReason::Idle => (Reason::NoError, SessClose::RxTimeout),
            CloseReason::Fault(text) | CloseReason::Handshake(text) => {
                self.conn.log(Tag::SessError, format_args!("QUIC: {text}"));
                (Reason::GeneralProtocolError, SessClose::RxJunk)
            }
        };
        End { error: Error::Connection(error), close, is_remote: true }
    }

    /// Closes the connection, and waits until no request of it is left.
    async fn end(&mut self, end: End) {
        let conn = self.conn.clone();
        self.idle.disarm();
        if !end.is_remote && end.error.reason() == Reason::NoError {
            self.control.go_away();
            let grace = (conn.quic.rtt() * 2).clamp(LEAST_GRACE, LONGEST_GRACE);
            let _ = tokio::time::timeout(grace, poll_fn(|cx| self.refuse_requests(cx))).await;
        }
        conn.fail(end.error);
        conn.log(Tag::Debug, format_args!("H3 CLEANUP {}", end.error.name()));
        self.requests.retain(|_, request| !request.is_opening());
        self.requests.values().for_each(|request| request.stream.kill(end.error));
        conn.sess.handshake().wake();
        if !end.is_remote {
            conn.quic.close(end.error.code(), end.error.text());
        }
        poll_fn(|cx| {
            self.conn.quic.receive(cx, &mut self.events);
            self.events.clear();
            let _ = self.conn.quic.send(cx);
            self.forget_ended();
            if self.requests.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Refuses requests that arrive after the last GOAWAY. Returns when the client has closed the connection.
    fn refuse_requests(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.conn.quic.receive(cx, &mut self.events);
        while let Some(id) = self.conn.quic.accept(Dir::Bi) {
            self.reject(id);
        }
        let is_closed = self.events.drain(..).any(|event| matches!(event, Event::Closed(_)));
        let _ = self.control.flush();
        let _ = self.conn.quic.send(cx);
        if is_closed { Poll::Ready(()) } else { Poll::Pending }
    }
}
