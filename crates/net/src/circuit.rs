//! The circuit breaker of an endpoint, and its state for those that select backends. Reading the state takes no lock, and
//! no clock while the breaker is closed.

use std::sync::atomic::{AtomicU64, Ordering};

use lacquer_flow::breaker::{Breaker, Rules};
use lacquer_sources::clock::{self, Instant};
use parking_lot::Mutex;

use crate::connect_error::ConnectError;

#[derive(Debug)]
pub(crate) struct Circuit {
    /// The time from which the breaker counts.
    created: Instant,
    breaker: Mutex<Breaker>,
    /// The time until which the open breaker refuses attempts, as the bits of an `f64`; 0 if it is closed.
    open_until: AtomicU64,
    /// The time when it last opened or closed, as the bits of an `f64`; 0 if it never did.
    changed: AtomicU64,
}

impl Circuit {
    pub(crate) fn new() -> Circuit {
        let (open_until, changed) = (AtomicU64::new(0), AtomicU64::new(0));
        Circuit { created: Instant::now(), breaker: Mutex::default(), open_until, changed }
    }

    /// Returns the seconds since it was created.
    fn age(&self) -> f64 {
        Instant::now().saturating_duration_since(self.created).as_secs_f64()
    }

    /// Begins an attempt, or fails if none is made. An attempt that an open breaker allows is the only one for `alone`
    /// seconds, unless its end is recorded before.
    pub(crate) fn admit(&self, alone: f64) -> Result<(), ConnectError> {
        self.change(|breaker, now| match breaker.admit(now, alone) {
            Some(errno) => Err(ConnectError::held_down(errno, breaker.is_open())),
            None => Ok(()),
        })
    }

    /// Records a failure. Returns whether it opens the breaker.
    pub(crate) fn failed(&self, error: i32, holddown: f64, rules: Rules) -> bool {
        self.change(|breaker, now| breaker.failed(now, error, holddown, rules))
    }

    /// Records that an attempt has succeeded.
    pub(crate) fn connected(&self) {
        self.change(|breaker, _| breaker.connected());
    }

    fn change<T>(&self, change: impl FnOnce(&mut Breaker, f64) -> T) -> T {
        let mut breaker = self.breaker.lock();
        let was_open = breaker.is_open();
        let changed = change(&mut breaker, self.age());
        if was_open || breaker.is_open() {
            self.open_until.store(breaker.open_until().to_bits(), Ordering::Relaxed);
        }
        if was_open != breaker.is_open() {
            self.changed.store(clock::real().to_bits(), Ordering::Relaxed);
        }
        changed
    }

    /// Returns whether an attempt would be refused, by the breaker or because of one recent failure.
    pub(crate) fn is_held_down(&self) -> bool {
        self.breaker.lock().refusal(self.age()).is_some()
    }

    /// Returns whether the breaker is open and refuses attempts. It is false when the next attempt is allowed.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        let until = self.open_until.load(Ordering::Relaxed);
        until != 0 && self.age() < f64::from_bits(until)
    }

    /// Returns the error of the last failure, if the breaker is open and refuses attempts.
    pub(crate) fn open_error(&self) -> Option<i32> {
        if self.is_open() { self.breaker.lock().refusal(self.age()) } else { None }
    }

    /// Returns the time when the breaker last opened or closed; 0 if it never did.
    pub(crate) fn changed(&self) -> f64 {
        f64::from_bits(self.changed.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { failures: 2, period: 10.0, pause: 5.0 };

    #[tokio::test(start_paused = true)]
    async fn it_is_open_until_the_next_attempt_is_allowed() {
        let circuit = Circuit::new();
        let pass = |seconds| tokio::time::advance(std::time::Duration::from_secs_f64(seconds));
        assert!(!circuit.failed(111, 0.25, RULES));
        assert!(circuit.is_held_down() && !circuit.is_open() && circuit.changed() == 0.0);
        assert!(circuit.failed(111, 0.25, RULES));
        assert!(circuit.is_held_down() && circuit.is_open() && circuit.changed() > 0.0);
        assert_eq!((circuit.open_error(), circuit.admit(5.0).is_err()), (Some(111), true));
        pass(5.1).await;
        assert!(!circuit.is_open() && circuit.open_error().is_none());
        assert!(circuit.admit(5.0).is_ok());
        assert!(circuit.is_open() && circuit.admit(5.0).is_err(), "while the one attempt is made");
        assert!(!circuit.failed(110, 0.0, RULES) && circuit.is_open());
        pass(5.1).await;
        assert!(circuit.admit(5.0).is_ok());
        circuit.connected();
        assert!(!circuit.is_open() && circuit.admit(5.0).is_ok());
    }
}
