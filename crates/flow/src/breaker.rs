//! Whether an origin is asked for a connection after attempts to connect have failed: a pause after some kinds of failures,
//! as in Varnish, and a circuit breaker, which opens after several failures in a row. Then there are no attempts for a
//! while, and after that one at a time, until one succeeds.
//!
//! Times are in seconds from any moment on.

/// The settings of the circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// The number of failures in a row that open it; with 0 it never opens.
    pub failures: u32,
    /// The longest time from the first of these failures to the last.
    pub period: f64,
    /// The time without attempts.
    pub pause: f64,
}

/// The recent failures to connect to an origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// The time of the first of them.
    since: f64,
    /// The time until which no attempt is made.
    until: f64,
    /// The time until which no attempt is made beside the one that the open breaker has allowed; 0 when that has ended.
    alone_until: f64,
    /// The error of the last failure.
    error: i32,
    is_open: bool,
}

impl Breaker {
    /// Returns the error with which an attempt is refused at this time, if it is.
    pub fn refusal(&self, now: f64) -> Option<i32> {
        (now < self.until.max(self.alone_until)).then_some(self.error)
    }

    /// Begins an attempt. Returns the error with which it is refused, if it is. If the breaker is open, no other attempt
    /// is made meanwhile, for `pause` seconds at most: this one may be given up.
    pub fn admit(&mut self, now: f64, pause: f64) -> Option<i32> {
        let refusal = self.refusal(now);
        if refusal.is_none() && self.is_open {
            self.alone_until = now + pause;
        }
        refusal
    }

    /// Records a failure with this error, after which Varnish would make no attempt for `holddown` seconds. Returns
    /// whether it opens the breaker.
    pub fn failed(&mut self, now: f64, error: i32, holddown: f64, rules: Rules) -> bool {
        if self.failures == 0 || now - self.since > rules.period {
            (self.failures, self.since) = (0, now);
        }
        self.failures = self.failures.saturating_add(1);
        self.alone_until = 0.0;
        let was_open = self.is_open;
        self.is_open = rules.failures != 0 && (was_open || self.failures >= rules.failures);
        let pause = if self.is_open { rules.pause.max(holddown) } else { holddown };
        if now + pause > self.until {
            (self.until, self.error) = (now + pause, error);
        }
        self.is_open && !was_open
    }

    /// Returns whether the breaker is open. It stays open until an attempt succeeds.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the time until which no attempt is made because the breaker is open; 0 if it is closed.
    pub fn open_until(&self) -> f64 {
        if self.is_open { self.until.max(self.alone_until) } else { 0.0 }
    }

    /// Records that an attempt has succeeded.
    pub fn connected(&mut self) {
        *self = Breaker::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { failures: 3, period: 10.0, pause: 5.0 };
    const OFF: Rules = Rules { failures: 0, ..RULES };

    #[test]
    fn some_failures_cause_a_pause_alone() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.admit(0.0, 5.0), None);
        for now in [0.0, 1.0, 2.0, 3.0, 4.0] {
            assert_eq!(breaker.admit(now, 5.0), None);
            assert!(!breaker.failed(now, 111, 0.25, OFF));
            assert_eq!((breaker.refusal(now + 0.24), breaker.refusal(now + 0.25)), (Some(111), None));
        }
        assert!(!breaker.failed(5.0, 110, 0.0, OFF));
        assert_eq!(breaker.refusal(5.0), None, "a failure without a pause");
        breaker.failed(6.0, 111, 0.25, OFF);
        breaker.failed(6.1, 110, 0.0, OFF);
        assert_eq!(breaker.refusal(6.2), Some(111), "it does not end the pause of another");
    }

    #[test]
    fn failures_in_a_row_open_the_breaker_and_one_success_closes_it() {
        let mut breaker = Breaker::default();
        assert!(!breaker.failed(0.0, 110, 0.0, RULES) && !breaker.failed(1.0, 110, 0.0, RULES));
        breaker.connected();
        assert!(!breaker.failed(2.0, 110, 0.0, RULES) && !breaker.failed(3.0, 110, 0.0, RULES));
        assert_eq!(breaker.refusal(3.0), None);
        assert!(breaker.failed(4.0, 110, 0.0, RULES));
        assert_eq!((breaker.admit(4.0, 5.0), breaker.admit(8.9, 5.0)), (Some(110), Some(110)));
        // One attempt, and no other one meanwhile.
        assert_eq!((breaker.admit(9.0, 5.0), breaker.admit(9.1, 5.0)), (None, Some(110)));
        assert!(!breaker.failed(10.0, 111, 0.25, RULES), "it stays open");
        assert_eq!((breaker.admit(14.9, 5.0), breaker.admit(15.0, 5.0)), (Some(111), None));
        assert_eq!((breaker.open_until(), breaker.is_open()), (20.0, true));
        // This one was given up, so the next one is made.
        assert_eq!((breaker.admit(19.9, 5.0), breaker.admit(20.0, 5.0)), (Some(111), None));
        breaker.connected();
        assert_eq!((breaker.admit(20.1, 5.0), breaker.admit(20.1, 5.0)), (None, None));
        assert!(!breaker.failed(21.0, 110, 0.0, RULES));
    }

    #[test]
    fn the_pause_begins_with_the_failure_of_an_attempt() {
        let mut breaker = Breaker::default();
        assert!((0..3).any(|_| breaker.failed(0.0, 110, 0.0, RULES)));
        assert_eq!((breaker.admit(5.0, 60.0), breaker.refusal(6.0)), (None, Some(110)));
        breaker.failed(7.0, 111, 0.25, RULES);
        assert_eq!(
            (breaker.refusal(11.9), breaker.refusal(12.0), breaker.open_until()),
            (Some(111), None, 12.0)
        );
    }

    #[test]
    fn failures_far_apart_do_not_open_it() {
        let mut breaker = Breaker::default();
        for now in [0.0, 6.0, 12.0, 18.0, 24.0] {
            assert!(!breaker.failed(now, 110, 0.0, RULES), "{now}");
        }
        // Those from 24 on are in a row.
        assert!(!breaker.failed(30.0, 110, 0.0, RULES) && breaker.failed(33.0, 110, 0.0, RULES));
    }

    #[test]
    fn a_breaker_that_is_turned_off_closes_with_the_next_failure() {
        let mut breaker = Breaker::default();
        assert!((0..3).any(|now| breaker.failed(f64::from(now), 110, 0.0, RULES)));
        assert!(!breaker.failed(9.0, 110, 0.0, OFF));
        assert_eq!((breaker.admit(9.0, 5.0), breaker.admit(9.0, 5.0)), (None, None));
    }
}
