//! The share of handshakes in a reactor's time. A step of a handshake takes from 0.1 ms to several milliseconds, and a
//! flood of them would delay all other connections. After a millisecond of such steps, the next one waits until the
//! reactor has served everything else that is ready.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lacquer_sources::clock::Instant;
use tokio::sync::Semaphore;

/// The time for handshakes between two rounds of other work.
const BUDGET: Duration = Duration::from_millis(1);

/// The turns of a reactor's handshakes.
pub struct HandshakeTurns {
    /// The right to do a step, which is granted in the order of requests.
    turn: Semaphore,
    /// The nanoseconds spent since the last round of other work.
    spent: AtomicU64,
}

impl Default for HandshakeTurns {
    fn default() -> Self {
        HandshakeTurns { turn: Semaphore::new(1), spent: AtomicU64::default() }
    }
}

impl HandshakeTurns {
    /// Runs a step of a handshake when it is its turn.
    pub async fn run<R>(&self, step: impl FnOnce() -> R) -> R {
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await;
        let begun = Instant::now();
        let result = step();
        let took = begun.elapsed().as_nanos() as u64;
        let spent = self.spent.load(Ordering::Relaxed).saturating_add(took);
        if u128::from(spent) < BUDGET.as_nanos() {
            self.spent.store(spent, Ordering::Relaxed);
        } else {
            tokio::task::yield_now().await;
            self.spent.store(0, Ordering::Relaxed);
        }
        result
    }
}
