//! A connection in memory: both ends, and the bytes between them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::file_part::FilePart;
use crate::negotiated::Negotiated;
use crate::peek::{Peeked, PeerState, SAMPLE};

/// Gives an end a descriptor of `/dev/null`, for code that queries the kernel about a socket.
macro_rules! impl_as_fd {
    ($($end:ident)*) => {
        $(impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                static NULL: LazyLock<File> =
                    LazyLock::new(|| File::open("/dev/null").expect("/dev/null can be opened"));
                NULL.as_fd()
            }
        })*
    };
}

impl_as_fd! { Near Rx Tx }

/// One direction of a connection, with the bytes in flight.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// The writer has shut down this direction.
    is_ended: bool,
    /// The reader has closed its end.
    is_unread: bool,
}

impl Pipe {
    fn take(&mut self, buf: &mut [u8]) -> usize {
        let n = buf.len().min(self.bytes.len());
        let (front, back) = self.bytes.as_slices();
        let (of_front, of_back) = buf[..n].split_at_mut(n.min(front.len()));
        of_front.copy_from_slice(&front[..of_front.len()]);
        of_back.copy_from_slice(&back[..of_back.len()]);
        self.bytes.drain(..n);
        n
    }
}

/// The write buffer of the engine's end, between the engine and the direction to the peer.
#[derive(Default)]
struct WriteBuffer {
    bytes: VecDeque<u8>,
    /// The engine waits until some of the bytes are passed on.
    is_flushing: bool,
    /// The farewell was sent.
    has_ended: bool,
    /// The engine waited for the peer although it had not flushed the bytes.
    was_forgotten: bool,
}

struct State {
    to_engine: Pipe,
    to_peer: Pipe,
    buffer: WriteBuffer,
    limits: Limits,
    is_reset: bool,
    /// Closing the engine's end resets the connection.
    resets: bool,
    wakers: Vec<Waker>,
}

/// The limits of a connection, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum in flight in one direction.
    pub window: usize,
    /// The maximum that the engine reads or writes at a time.
    pub step: usize,
    /// The size of the engine's write buffer; 0 for a transport without one, such as a socket.
    pub buffer: usize,
    /// The engine may send parts of files.
    pub sends_files: bool,
}

impl State {
    fn register(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }

    fn wake_all(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn reset(&mut self) {
        self.is_reset = true;
        self.to_peer.bytes.clear();
        self.buffer.bytes.clear();
        self.wake_all();
    }

    /// Passes on bytes of the write buffer, as many as the window allows.
    fn pass_on(&mut self) {
        let n = self.buffer.bytes.len().min(self.free_space(|state| &state.to_peer));
        if self.to_peer.is_unread && !self.buffer.bytes.is_empty() {
            self.reset();
        } else if n > 0 {
            self.to_peer.bytes.extend(self.buffer.bytes.drain(..n));
            self.wake_all();
        }
    }

    fn free_space(&self, pipe: fn(&State) -> &Pipe) -> usize {
        self.limits.window.saturating_sub(pipe(self).bytes.len())
    }

    /// Returns whether a read by the engine would complete at once.
    fn is_readable(&self) -> bool {
        !self.to_engine.bytes.is_empty() || self.has_peer_ended()
    }

    fn is_writable(&self) -> bool {
        self.is_reset || self.to_peer.is_unread || self.writable() > 0
    }

    /// Returns the number of bytes that a write would accept.
    fn writable(&self) -> usize {
        match self.limits.buffer {
            0 => self.free_space(|state| &state.to_peer),
            size => size.saturating_sub(self.buffer.bytes.len()),
        }
    }

    /// Makes room for a write by the engine.
    fn make_room(&mut self) {
        if !self.is_writable() {
            self.pass_on();
        }
    }

    fn has_peer_ended(&self) -> bool {
        self.to_engine.is_ended || self.is_reset
    }
}

type Shared = Arc<Mutex<State>>;

async fn when(state: &Shared, ready: impl Fn(&State) -> bool) {
    std::future::poll_fn(|cx| poll_when(state, cx, &ready)).await;
}

fn poll_when(state: &Shared, cx: &Context<'_>, ready: impl Fn(&State) -> bool) -> Poll<()> {
    let mut state = state.lock();
    if ready(&state) {
        return Poll::Ready(());
    }
    state.register(cx);
    Poll::Pending
}

/// The addresses of a connection's ends.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub engine: SocketAddr,
    pub peer: SocketAddr,
}

/// The engine's end. Dropping it closes the connection.
pub struct Near {
    state: Shared,
    ends: Ends,
    negotiated: Negotiated,
}

impl Drop for Near {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.resets || !state.to_engine.bytes.is_empty() {
            state.reset();
        }
        state.to_peer.is_ended = true;
        state.to_engine.is_unread = true;
        state.wake_all();
    }
}

/// The receiving half of the engine's end.
pub struct Rx(Arc<Near>);

/// The sending half of the engine's end. Dropping it shuts down that direction.
pub struct Tx {
    near: Option<Arc<Near>>,
    state: Shared,
}

impl Near {
    /// Returns the connection as one whose transport has negotiated this.
    #[must_use]
    pub fn with_negotiated(mut self, negotiated: Negotiated) -> Near {
        self.negotiated = negotiated;
        self
    }

    pub(crate) fn negotiated(&self) -> Negotiated {
        self.negotiated.clone()
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.ends.engine
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.ends.peer
    }

    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        read(&self.state, buf)
    }

    pub(crate) fn poll_readable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        poll_readable(&self.state, cx)
    }

    pub(crate) fn split(self) -> (Rx, Tx) {
        let state = self.state.clone();
        let near = Arc::new(self);
        (Rx(near.clone()), Tx { near: Some(near), state })
    }

    pub(crate) async fn write_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            std::future::poll_fn(|cx| poll_writable(&self.state, cx)).await?;
            match write(&self.state, buf) {
                Ok(n) => buf = &buf[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        std::future::poll_fn(|cx| poll_flush(&self.state, cx)).await
    }
}

fn poll_writable(state: &Shared, cx: &Context<'_>) -> Poll<io::Result<()>> {
    let mut state = state.lock();
    state.make_room();
    if state.is_writable() {
        return Poll::Ready(Ok(()));
    }
    state.buffer.is_flushing = true;
    state.register(cx);
    Poll::Pending
}

/// Passes on bytes of the write buffer without waiting. Returns whether none is left.
fn try_flush(state: &mut State) -> io::Result<bool> {
    if state.limits.buffer == 0 {
        return Ok(true);
    }
    state.pass_on();
    if state.is_reset {
        return Err(Errno::CONNRESET.into());
    }
    state.buffer.is_flushing = !state.buffer.bytes.is_empty();
    Ok(!state.buffer.is_flushing)
}

fn poll_flush(state: &Shared, cx: &Context<'_>) -> Poll<io::Result<()>> {
    let mut state = state.lock();
    if try_flush(&mut state)? {
        return Poll::Ready(Ok(()));
    }
    state.register(cx);
    Poll::Pending
}

/// Passes on all bytes of the write buffer, then the farewell, which takes the room of a byte.
fn poll_finish(state: &Shared, cx: &Context<'_>) -> Poll<io::Result<()>> {
    std::task::ready!(poll_flush(state, cx))?;
    let mut state = state.lock();
    if state.limits.buffer == 0 || state.buffer.has_ended {
        return Poll::Ready(Ok(()));
    }
    if state.free_space(|state| &state.to_peer) == 0 {
        state.register(cx);
        return Poll::Pending;
    }
    state.buffer.has_ended = true;
    state.wake_all();
    Poll::Ready(Ok(()))
}

fn write(state: &Shared, buf: &[u8]) -> io::Result<usize> {
    let mut state = state.lock();
    if state.is_reset {
        return Err(Errno::CONNRESET.into());
    }
    if state.to_peer.is_ended || state.buffer.has_ended {
        return Err(Errno::PIPE.into());
    }
    if state.to_peer.is_unread {
        // As with TCP, the write succeeds, and then the closed peer responds with a reset.
        state.reset();
        return Ok(buf.len());
    }
    state.make_room();
    let n = buf.len().min(state.writable()).min(state.limits.step);
    if n == 0 && !buf.is_empty() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    if state.limits.buffer > 0 {
        state.buffer.bytes.extend(&buf[..n]);
        state.buffer.is_flushing = false;
    } else {
        state.to_peer.bytes.extend(&buf[..n]);
        state.wake_all();
    }
    Ok(n)
}

fn read(state: &Shared, buf: &mut [u8]) -> io::Result<usize> {
    let mut state = state.lock();
    let most = state.limits.step.min(buf.len());
    let n = state.to_engine.take(&mut buf[..most]);
    if n > 0 {
        state.wake_all();
        return Ok(n);
    }
    match (state.is_reset, state.to_engine.is_ended) {
        (true, _) => Err(Errno::CONNRESET.into()),
        (false, true) => Ok(0),
        (false, false) => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn poll_readable(state: &Shared, cx: &Context<'_>) -> Poll<io::Result<()>> {
    let readable = poll_when(state, cx, State::is_readable);
    if readable.is_pending() {
        let buffer = &mut state.lock().buffer;
        buffer.was_forgotten |= !buffer.bytes.is_empty() && !buffer.is_flushing;
    }
    readable.map(Ok)
}

impl Rx {
    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        read(&self.0.state, buf)
    }

    pub(crate) fn peek(&self) -> Peeked {
        let mut state = self.0.state.lock();
        let waiting = state.to_engine.bytes.make_contiguous();
        if !waiting.is_empty() {
            return Peeked::of(&waiting[..waiting.len().min(SAMPLE)]);
        }
        match (state.is_reset, state.to_engine.is_ended) {
            (true, _) => Peeked::Broken,
            (false, true) => Peeked::Closed,
            (false, false) => Peeked::Quiet,
        }
    }

    pub(crate) fn poll_readable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        poll_readable(&self.0.state, cx)
    }

    pub(crate) fn reunite(self, tx: Tx) -> Option<Near> {
        tx.forget();
        Arc::into_inner(self.0)
    }
}

impl Tx {
    pub(crate) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        write(&self.state, buf)
    }

    pub(crate) fn sends_files(&self) -> bool {
        let Limits { buffer, sends_files, .. } = self.state.lock().limits;
        sends_files && buffer == 0
    }

    /// Reads as many bytes of the file as the connection has room for, and writes them.
    pub(crate) fn send_file(&self, part: &mut impl FilePart) -> io::Result<usize> {
        let most = {
            let state = self.state.lock();
            if !state.is_writable() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let free =
                if state.to_peer.is_unread { usize::MAX } else { state.free_space(|state| &state.to_peer) };
            free.min(state.limits.step).min(part.len())
        };
        let mut bytes = vec![0; most];
        let n = part.read(&mut bytes)?;
        write(&self.state, &bytes[..n])
    }

    pub(crate) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let Limits { window, step, buffer, .. } = self.state.lock().limits;
        let most = step.min(if buffer == 0 { window } else { buffer });
        let mut bytes = Vec::new();
        for buf in bufs {
            let n = buf.len().min(most - bytes.len());
            bytes.extend_from_slice(&buf[..n]);
        }
        write(&self.state, &bytes)
    }

    pub(crate) fn poll_writable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        poll_writable(&self.state, cx)
    }

    /// Returns the number of bytes in the write buffer.
    pub(crate) fn held(&self) -> usize {
        self.state.lock().buffer.bytes.len()
    }

    pub(crate) fn try_flush(&self) -> io::Result<()> {
        try_flush(&mut self.state.lock()).map(drop)
    }

    pub(crate) fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        poll_flush(&self.state, cx)
    }

    pub(crate) fn poll_finish(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        poll_finish(&self.state, cx)
    }

    pub(crate) async fn peer_shut_down(&self) {
        when(&self.state, State::has_peer_ended).await;
    }

    pub(crate) async fn broken(&self) {
        when(&self.state, |state| state.is_reset).await;
    }

    pub(crate) fn peer(&self) -> PeerState {
        let state = self.state.lock();
        match (state.is_reset, state.to_engine.is_ended) {
            (true, _) => PeerState::Broken,
            (false, true) => PeerState::ShutDown,
            (false, false) => PeerState::Open,
        }
    }

    pub(crate) fn shutdown(&self) {
        let mut state = self.state.lock();
        state.to_peer.is_ended = true;
        state.wake_all();
    }

    /// Makes closing the connection reset it.
    pub(crate) fn close_by_reset(&self) {
        self.state.lock().resets = true;
    }

    /// Drops the half without shutting it down.
    pub(crate) fn forget(mut self) {
        self.near = None;
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if self.near.is_some() {
            self.shutdown();
        }
    }
}

/// The world's end. Dropping it closes the connection.
pub struct Peer(Shared);

/// Creates a connection between the engine and the world.
pub fn connection(limits: Limits, ends: Ends) -> (Near, Peer) {
    let state = State {
        to_engine: Pipe::default(),
        to_peer: Pipe::default(),
        buffer: WriteBuffer::default(),
        limits,
        is_reset: false,
        resets: false,
        wakers: Vec::new(),
    };
    let state = Arc::new(Mutex::new(state));
    (Near { state: state.clone(), ends, negotiated: Negotiated::default() }, Peer(state))
}

impl Peer {
    /// Reads the available bytes; waits until there is at least one. Returns 0 at the end of the stream.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let is_ready =
            |state: &State| !state.to_peer.bytes.is_empty() || state.to_peer.is_ended || state.is_reset;
        when(&self.0, is_ready).await;
        let mut state = self.0.lock();
        let n = state.to_peer.take(buf);
        if n > 0 {
            state.wake_all();
        } else if state.is_reset {
            return Err(Errno::CONNRESET.into());
        }
        Ok(n)
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let is_ready = |state: &State| {
                state.is_reset || state.to_engine.is_unread || state.free_space(|state| &state.to_engine) > 0
            };
            when(&self.0, is_ready).await;
            let mut state = self.0.lock();
            if state.to_engine.is_unread {
                state.reset();
            }
            if state.is_reset {
                return Err(Errno::CONNRESET.into());
            }
            let (now, rest) = bytes.split_at(bytes.len().min(state.free_space(|state| &state.to_engine)));
            state.to_engine.bytes.extend(now);
            state.wake_all();
            bytes = rest;
        }
        Ok(())
    }

    /// Shuts down the direction to the engine.
    pub fn shutdown(&self) {
        let mut state = self.0.lock();
        state.to_engine.is_ended = true;
        state.wake_all();
    }

    pub fn reset(self) {
        self.0.lock().reset();
    }

    /// Returns whether the engine has closed its end.
    pub fn is_closed(&self) -> bool {
        let state = self.0.lock();
        state.to_engine.is_unread || state.is_reset
    }

    /// Returns whether the engine has sent the farewell.
    pub fn has_farewell(&self) -> bool {
        self.0.lock().buffer.has_ended
    }

    /// Returns whether the engine has ended its direction without the farewell that this connection requires. A reset
    /// does not count.
    pub fn is_cut(&self) -> bool {
        let state = self.0.lock();
        state.limits.buffer > 0 && state.to_peer.is_ended && !state.buffer.has_ended && !state.is_reset
    }

    /// Returns whether the engine has waited for this peer without flushing bytes for it.
    pub fn was_forgotten(&self) -> bool {
        self.0.lock().buffer.was_forgotten
    }

    pub fn set_limits(&self, limits: Limits) {
        let mut state = self.0.lock();
        state.limits = limits;
        state.wake_all();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if !state.to_peer.bytes.is_empty() {
            state.reset();
        }
        state.to_peer.is_unread = true;
        state.to_engine.is_ended = true;
        state.wake_all();
    }
}
