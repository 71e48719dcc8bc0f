//! Detects that an HTTP/1 client has disconnected. The check makes no system call, because the reactor reports when a
//! connection is closed.
//!
//! A client that only shuts down its sending side (`nc -N`) looks like one that has closed its connection. Before the
//! response begins, the first byte of the response is sent as a probe, see [`ClientSocket`]. After that, only the
//! next piece of the response could be a probe; then the client of a pass counts as gone after `half_close_timeout`.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lacquer_params::Params;
use lacquer_sources::clock;

use crate::{ClientSocket, TxHalf};

/// The time between a client's shutdown of its sending side and the first probe. Most responses begin sooner.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// How a client is treated that has shut down its sending side, or closed its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClosed {
    /// No part of its response was sent: it is probed, the first time after this pause.
    Probe(Duration),
    /// It counts as gone after `half_close_timeout`.
    Limit,
    /// It is served until its connection is broken.
    Serve,
}

impl HalfClosed {
    /// Returns the treatment of a client whose request waits. If `is_included`, the response of the enclosing page
    /// has begun. If `private`, no other client uses the result of the work. If `urgent`, the first probe is sent at
    /// once.
    pub fn of_waiting(is_included: bool, private: bool, urgent: bool) -> HalfClosed {
        match (is_included, private) {
            (false, _) => HalfClosed::Probe(if urgent { Duration::ZERO } else { FIRST_PAUSE }),
            (true, true) => HalfClosed::Limit,
            (true, false) => HalfClosed::Serve,
        }
    }
}

/// The policy that decides when a client counts as gone.
#[derive(Clone, Copy, Debug)]
pub struct DisconnectPolicy {
    /// Seconds after the client has shut down its sending side; `None` if disconnects are ignored.
    half_closed: Option<f64>,
}

impl DisconnectPolicy {
    pub fn of(params: &Params) -> DisconnectPolicy {
        DisconnectPolicy { half_closed: params.cancel_abandoned.then_some(params.half_close_timeout) }
    }

    /// Returns the seconds after which a client that shut down its sending side counts as gone; `None` for never.
    pub fn half_closed(self) -> Option<f64> {
        self.half_closed
    }

    /// Runs `work` to completion. Returns `None` if the HTTP/1 client is gone before that.
    pub async fn while_connected<T>(
        self,
        tx: &ClientSocket,
        private: bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let treatment = if private { HalfClosed::Limit } else { HalfClosed::Serve };
        unless(pin!(work), self.disconnected(tx, treatment)).await
    }

    /// Waits until the HTTP/1 client is gone.
    pub async fn disconnected(self, tx: &ClientSocket, treatment: HalfClosed) {
        let Some(seconds) = self.half_closed else { return std::future::pending().await };
        tx.peer_shut_down().await;
        if seconds <= 0.0 {
            return;
        }
        // Boxed because timers are large and seldom needed here.
        match treatment {
            HalfClosed::Probe(pause) if seconds.is_finite() => Box::pin(probe_until_gone(tx, pause)).await,
            HalfClosed::Limit => {
                let _ = Box::pin(tokio::time::timeout(clock::seconds(seconds), tx.broken())).await;
            }
            HalfClosed::Probe(_) | HalfClosed::Serve => tx.broken().await,
        }
    }
}

/// Probes a client until it is gone. Each pause is longer than the one before.
async fn probe_until_gone(tx: &ClientSocket, mut pause: Duration) {
    loop {
        if is_broken_within(tx, pause).await {
            return;
        }
        match tx.send_ahead() {
            Ok(true) => pause = FIRST_PAUSE.max(2 * pause),
            Ok(false) => return tx.broken().await,
            Err(_) => return,
        }
    }
}

async fn is_broken_within(tx: &TxHalf, pause: Duration) -> bool {
    !pause.is_zero() && tokio::time::timeout(pause, tx.broken()).await.is_ok()
}

/// Runs `work` to completion. Returns `None` if `end` completes first. `end` is polled only while `work` is pending.
/// `work` is passed pinned, because it may be large.
pub async fn unless<F: Future>(mut work: Pin<&mut F>, end: impl Future<Output = ()>) -> Option<F::Output> {
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return Some(done);
    }
    let mut end = pin!(end);
    // The work was just polled with the same waker.
    let mut polled = true;
    poll_fn(|cx| {
        if !std::mem::take(&mut polled)
            && let Poll::Ready(done) = work.as_mut().poll(cx)
        {
            return Poll::Ready(Some(done));
        }
        end.as_mut().poll(cx).map(|()| None)
    })
    .await
}
