//! The task of a connection: sends what the protocol has to say, and passes on what arrives.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lacquer_h2::client::Limits;
use lacquer_sources::clock::Instant;
use tokio::time::Sleep;

use super::shared::Multiplexed;
use crate::capacity::Counted;
use crate::connection::facts_of;
use crate::endpoint::Endpoint;
use crate::rx_half::RxHalf;
use crate::stream::Stream;
use crate::tx_half::TxHalf;

/// The number of bytes to read at a time.
const READ: usize = 32 * 1024;
/// The number of reads after which other tasks run.
const TURN: usize = 8;

/// The owner of a connection's socket.
pub struct Driver {
    connection: Arc<Multiplexed>,
    tx: Arc<TxHalf>,
    rx: RxHalf,
    /// The beginning of a frame whose rest has not arrived.
    input: Vec<u8>,
    idle: Duration,
    /// The connection has no streams, and the time until its end runs.
    is_idle: bool,
}

/// Begins HTTP/2 on a stream that is connected to this endpoint. `list` is the maximum size of the fields of a response.
/// The connection ends when it has had no stream for `idle`.
pub fn begin(
    stream: Stream,
    endpoint: &Endpoint,
    alive: Counted,
    (list, idle): (u32, Duration),
) -> (Arc<Multiplexed>, Driver) {
    let facts = facts_of(&stream, endpoint);
    let (rx, tx) = stream.split();
    let tx = Arc::new(tx);
    let connection = Arc::new(Multiplexed::new(tx.clone(), facts, alive, Limits { list }));
    let driver = Driver { connection: connection.clone(), tx, rx, input: Vec::new(), idle, is_idle: false };
    (connection, driver)
}

impl Driver {
    /// Drives the connection to its end.
    pub async fn run(mut self) {
        let mut timer = pin!(tokio::time::sleep(self.idle));
        poll_fn(|cx| self.poll(cx, timer.as_mut())).await;
        // The farewell is of no use to an origin that does not read.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.tx.finish()).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<()> {
        self.connection.state().register_driver(cx);
        let received = self.receive(cx);
        // Then nothing wakes the task when more arrives.
        let was_clogged = self.connection.state().protocol.is_clogged();
        self.connection.wake_changed();
        self.follow_idleness(cx, timer.as_mut());
        if let Err(_gone) = self.send(cx) {
            self.connection.state().protocol.closed();
        }
        self.connection.wake_changed();
        let state = self.connection.state();
        if state.protocol.end().is_some() {
            return Poll::Ready(());
        }
        if received.is_ready() || was_clogged && !state.protocol.is_clogged() {
            // More may have arrived.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Receives what has arrived. Ready if there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURN {
            if self.connection.state().protocol.is_clogged() {
                // The replies would wait, too. Sending goes on once the socket has room.
                return Poll::Pending;
            }
            // A connection that waits has no buffer.
            if let Err(_gone) = ready!(self.rx.poll_readable(cx)) {
                self.connection.state().protocol.closed();
                return Poll::Ready(());
            }
            let had = self.input.len();
            self.input.resize(had + READ, 0);
            let read = self.rx.try_read(&mut self.input[had..]);
            self.input.truncate(had + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(1..) => {
                    let mut state = self.connection.state();
                    state.reads = state.reads.wrapping_add(1);
                    let used = state.protocol.receive(&self.input);
                    drop(state);
                    self.input.drain(..used);
                    if self.input.is_empty() {
                        self.input = Vec::new();
                    }
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Ok(0) | Err(_) => {
                    self.connection.state().protocol.closed();
                    return Poll::Ready(());
                }
            }
        }
        Poll::Ready(())
    }

    /// Sends the waiting output, as much as the socket takes.
    fn send(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let tx = &self.tx;
        loop {
            let mut state = self.connection.state();
            let output = state.protocol.output();
            if output.is_empty() {
                break;
            }
            match tx.try_write(output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => state.protocol.sent(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    drop(state);
                    match tx.poll_writable(cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Ok(()),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        match tx.poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// Ends the connection if it is not used for too long, or opens no further stream.
    fn follow_idleness(&mut self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) {
        let mut state = self.connection.state();
        if state.is_in_use() {
            self.is_idle = false;
            return;
        }
        if !std::mem::replace(&mut self.is_idle, true) {
            timer.as_mut().reset(Instant::now() + self.idle);
        }
        if state.is_left || !state.protocol.is_open() || timer.poll(cx).is_ready() {
            state.protocol.finish();
        }
    }
}
