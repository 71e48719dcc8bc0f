//! The history of one origin connection: the last proof that it was in step with its requests, its rest
//! before the next one, and the cached objects that came over it.
//!
//! An unsolicited response shifts all later responses by one. Such a shift is invisible while the origin still works on
//! the request before. So a connection rests after each response, for longer than that response took: a late response
//! then shows as surplus bytes. If the last response came much earlier than those before, it may be the unsolicited
//! one, and the connection rests as long as those took. Where rests cost too many connections, it rests only now and
//! then.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::capacity::Counted;
use crate::pace::Pace;
use crate::trust::SpokeFirst;

/// The largest number of objects that are remembered for one connection.
const MOST_OBJECTS: usize = 1024;
/// A connection that was quiet this recently needs no further rest: up to a quarter of it less, so that connections
/// which were opened together do not rest together.
const PROOF_LASTS: Duration = Duration::from_secs(1);

/// A cached object that came over a connection, named by its place in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub place: u32,
    pub vxid: u64,
    /// The object was the first response of its connection.
    pub is_first: bool,
}

/// A response that was read to its end.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The response has no body by rule: it answers HEAD, or its status is 204 or 304.
    pub is_bodyless: bool,
    /// Microseconds from the request to the response's head.
    pub took: u64,
    /// Place and transaction of the cached object.
    pub object: Option<(u32, u64)>,
}

/// The rest of a connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// A rest that is taken whatever it costs.
    Must(Duration),
    /// A rest that shows whether a response is missing. A connection in steady use takes it now and then, and each
    /// connection to an unproven origin does. Requests wait for its end for a while.
    Prove(Duration),
    /// A rest that is taken only where more connections may be opened.
    Should(Duration),
}

#[derive(Debug)]
pub struct Record {
    _alive: Counted,
    /// Counts the connection as served, from the first response on.
    served: Option<Counted>,
    /// The connection is the first of its origin that is used again.
    is_on_trial: bool,
    responses: u32,
    /// When the connection was opened, or last stayed quiet for long enough.
    proven: Instant,
    proof_lasts: Duration,
    pace: Pace,
    is_bodyless: bool,
    received: VecDeque<Received>,
    /// The number of objects at the end of `received` that came since the last proof.
    unproven: usize,
}

impl Record {
    pub(crate) fn new(now: Instant, alive: Counted) -> Record {
        Record {
            _alive: alive,
            served: None,
            is_on_trial: false,
            responses: 0,
            proven: now,
            proof_lasts: PROOF_LASTS,
            pace: Pace::default(),
            is_bodyless: false,
            received: VecDeque::new(),
            unproven: 0,
        }
    }

    pub(crate) fn add(&mut self, exchange: &Exchange) {
        if let Some((place, vxid)) = exchange.object {
            if self.received.len() >= MOST_OBJECTS {
                self.received.pop_front();
            }
            self.received.push_back(Received { place, vxid, is_first: self.responses == 0 });
            self.unproven = (self.unproven + 1).min(MOST_OBJECTS);
        }
        self.responses = self.responses.saturating_add(1);
        self.pace.add(exchange.took);
        self.is_bodyless = exchange.is_bodyless;
    }

    /// Records that the connection was quiet for `idle`. Returns whether that was long enough for a proof.
    pub(crate) fn was_quiet(&mut self, idle: Duration, quiet: Duration, now: Instant) -> bool {
        let proves = idle >= self.proof(quiet);
        if proves {
            self.proven = now;
            self.unproven = 0;
            self.proof_lasts = PROOF_LASTS.saturating_sub(self.spread());
        }
        proves
    }

    /// Returns a time below a quarter of a second that differs between connections.
    fn spread(&self) -> Duration {
        let noise = (self.pace.took() as u32).wrapping_add(self.responses).wrapping_mul(0x9E37_79B9);
        Duration::from_millis((noise >> 24).into())
    }

    /// Returns whether the only response may have been sent before its request. Bytes after a response without a
    /// body have a likelier cause.
    pub(crate) fn spoke_first(&self) -> SpokeFirst {
        if self.responses <= 1 && !self.is_bodyless { SpokeFirst::Maybe } else { SpokeFirst::No }
    }

    /// Returns the objects that are another request's if the connection was out of step when it was closed, after
    /// `idle` time without a byte.
    pub fn doubtful(&self, idle: Duration, quiet: Duration) -> impl Iterator<Item = Received> + '_ {
        let doubtful = if idle >= self.proof(quiet) { 0 } else { self.unproven };
        self.received.iter().rev().take(doubtful).copied().filter(|received| !received.is_first)
    }

    /// Returns the time that the connection must stay quiet to prove that no response is missing.
    fn proof(&self, quiet: Duration) -> Duration {
        self.pace.proof().max(quiet)
    }

    /// Returns the rest of the connection after its last response. There is none if `quiet` is 0.
    pub(crate) fn rest(&self, origin_is_proven: bool, quiet: Duration, now: Instant) -> Rest {
        if quiet.is_zero() {
            Rest::Should(Duration::ZERO)
        } else if now.saturating_duration_since(self.proven) > self.proof_lasts
            || self.pace.hides_longer_than(PROOF_LASTS)
        {
            Rest::Prove(self.proof(quiet))
        } else if self.is_bodyless {
            Rest::Must(quiet)
        } else if !origin_is_proven {
            Rest::Prove(quiet)
        } else if let Some(rest) = self.pace.strange() {
            Rest::Prove(rest)
        } else {
            Rest::Should(self.proof(quiet))
        }
    }

    /// Counts the connection as one that the origin serves, if it was not counted before.
    pub(crate) fn count(&mut self, serve: impl FnOnce() -> Counted) {
        self.served.get_or_insert_with(serve);
    }

    pub(crate) fn begin_trial(&mut self) {
        self.is_on_trial = true;
    }

    /// Ends the trial. Returns false if there was none.
    pub(crate) fn end_trial(&mut self) -> bool {
        std::mem::take(&mut self.is_on_trial)
    }

    pub fn received(&self) -> impl Iterator<Item = Received> + '_ {
        self.received.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;

    const QUIET: Duration = Duration::from_millis(50);

    fn new_record(now: Instant) -> Record {
        Record::new(now, Capacity::default().open())
    }

    fn exchange(millis: u64, vxid: u64) -> Exchange {
        Exchange { is_bodyless: false, took: millis * 1000, object: Some((7, vxid)) }
    }

    #[test]
    fn rest_follows_from_response_and_history() {
        let begun = Instant::now();
        // Milliseconds the response took and since the last proof, bodyless, origin proven; rest.
        let (must, prove, should) = (Rest::Must, Rest::Prove, Rest::Should);
        let cases: [(_, _, _, _, fn(_) -> _, _); 9] = [
            (1, 10, false, true, should, 50),
            (1, 10, true, true, must, 50),
            (1, 10, false, false, prove, 50),
            (1, 1001, false, true, prove, 50),
            (100, 10, false, true, should, 200),
            (100, 10, true, true, must, 50),
            (100, 1001, true, false, prove, 200),
            (600, 10, false, true, should, 500),
            (9000, 9000, false, true, prove, 500),
        ];
        for (took, since, bodyless, proven, kind, rest) in cases {
            let mut record = new_record(begun);
            record.add(&Exchange { is_bodyless: bodyless, ..exchange(took, 1) });
            let now = begun + Duration::from_millis(since);
            let found = record.rest(proven, QUIET, now);
            assert_eq!(found, kind(Duration::from_millis(rest)), "{took} {since} {bodyless} {proven}");
            assert_eq!(record.rest(proven, Duration::ZERO, now), should(Duration::ZERO));
        }
    }

    #[test]
    fn a_quiet_time_proves_when_it_is_longer_than_a_response() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(5);
        let mut record = new_record(begun);
        record.add(&exchange(100, 1));
        assert!(!record.was_quiet(Duration::from_millis(199), QUIET, later));
        assert!(matches!(record.rest(true, QUIET, later), Rest::Prove(_)));
        assert!(record.was_quiet(Duration::from_millis(200), QUIET, later));
        assert!(matches!(record.rest(true, QUIET, later), Rest::Should(_)));
    }

    /// An unsolicited response is quick, and the right one comes as late as others did.
    #[test]
    fn an_early_response_after_slow_ones_proves_nothing() {
        let begun = Instant::now();
        let mut record = new_record(begun);
        record.add(&exchange(1600, 1));
        record.add(&exchange(10, 2));
        assert!(!record.was_quiet(Duration::from_millis(1600), QUIET, begun));
        let Rest::Prove(rest) = record.rest(true, QUIET, begun) else { panic!("it must rest") };
        assert!(rest > Duration::from_millis(1600));
        (3..24).for_each(|vxid| record.add(&exchange(10, vxid)));
        assert!(matches!(record.rest(true, QUIET, begun), Rest::Should(_)), "it is quick again");
    }

    #[test]
    fn objects_are_doubtful_until_the_next_proof() {
        let begun = Instant::now();
        let mut record = new_record(begun);
        let doubtful = |record: &Record, millis| {
            record.doubtful(Duration::from_millis(millis), QUIET).map(|found| found.vxid).collect::<Vec<_>>()
        };
        (1..4).for_each(|vxid| record.add(&exchange(1, vxid)));
        assert_eq!(doubtful(&record, 10), [3, 2], "the first is not");
        assert_eq!(doubtful(&record, 50), []);
        record.was_quiet(QUIET, QUIET, begun);
        record.add(&exchange(1, 4));
        assert_eq!(doubtful(&record, 10), [4]);
    }

    #[test]
    fn the_latest_objects_are_remembered() {
        let mut record = new_record(Instant::now());
        for vxid in 0..2000 {
            record.add(&exchange(1, vxid));
        }
        let all: Vec<u64> = record.received().map(|received| received.vxid).collect();
        assert_eq!((all.len(), all[0], all[1023]), (1024, 976, 1999));
        assert!(record.received().all(|received| !received.is_first));
    }
}
