//! The history of one origin connection: the last proof that it was in step with its requests, its rest
//! before the next one, and the cached objects that came over it.
//!
//! A response that nobody asked for shifts all later responses by one. Such a shift cannot be seen while the
//! origin still works on the request before, so a connection should rest after each response, longer than that took: a
//! late response then shows as surplus bytes. Most rests are cut short where they would cost the origin more
//! connections than it was seen to serve. A connection in steady use rests in full for a twentieth of its time, at once if
//! a response came much earlier than others or sooner than all before it.

use std::collections::VecDeque;
use std::time::Duration;

use lacquer_sources::clock::Instant;

use crate::capacity::Counted;
use crate::pace::Pace;
use crate::trial::Run;
use crate::trust::SpokeFirst;

/// The largest number of objects that are remembered for one connection.
const MOST_OBJECTS: usize = 1024;
/// A connection that rested this recently need not do so again.
const SHORTEST_USE: Duration = Duration::from_secs(1);
/// A connection is used at least so many times as long as it rested before.
const USE_FOR_REST: u32 = 20;
/// A trial ends after so many times the silence that proves something, if the response came early.
const PROOFS_IF_EARLY: u32 = 3;
/// Nobody waits for longer than this for a rest to end.
const LONGEST_REST: Duration = Duration::from_millis(500);
/// The same after a response that came early.
const LONGEST_REST_IF_EARLY: Duration = Duration::from_secs(1);

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
    /// A rest that is taken in full; requests wait for its end where no connection may be opened.
    Prove(Duration),
    /// A rest that is cut short where no connection may be opened.
    Should(Duration),
}

#[derive(Debug)]
pub struct Record {
    /// Counts the connection as open, until it is retired.
    alive: Option<Counted>,
    /// Counts the connection as served, from the first response on.
    served: Option<Counted>,
    /// It is the first connection of its origin that is used again.
    trial: Option<Run>,
    responses: u32,
    /// When the connection has to take a rest in full; decided after its first response.
    due: Instant,
    /// The same after a response that came early.
    due_if_early: Instant,
    pace: Pace,
    is_bodyless: bool,
    is_in_step: bool,
    /// It was watched before its first request, and quiet.
    began_quietly: bool,
    received: VecDeque<Received>,
    /// The number of objects at the end of `received` that came since the last proof.
    unproven: usize,
}

impl Record {
    pub(crate) fn new(now: Instant, alive: Counted) -> Record {
        Record {
            alive: Some(alive),
            served: None,
            trial: None,
            responses: 0,
            due: now,
            due_if_early: now,
            pace: Pace::default(),
            is_bodyless: false,
            is_in_step: true,
            began_quietly: false,
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
        self.is_in_step = false;
    }

    /// Records that the connection was quiet for `idle`. Returns whether that was long enough for a proof.
    pub(crate) fn was_quiet(&mut self, idle: Duration, quiet: Duration, now: Instant) -> bool {
        let proof = self.proof(quiet);
        let proves = idle >= proof;
        if proves {
            self.unproven = 0;
            self.is_in_step = true;
            self.due = now + self.time_of_use(proof);
        }
        proves
    }

    /// Returns whether a silence has proved that the next response is that to the next request.
    pub fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns how long the connection is used after a rest: up to a quarter less than it may be, so that connections
    /// which were opened together do not rest together.
    fn time_of_use(&self, rest: Duration) -> Duration {
        let longest = SHORTEST_USE.max(rest.min(LONGEST_REST_IF_EARLY) * USE_FOR_REST);
        let noise = (self.pace.took() as u32).wrapping_add(self.responses).wrapping_mul(0x9E37_79B9);
        longest * (1024 - (noise >> 24)) / 1024
    }

    /// Returns whether the last response had no body by rule.
    pub fn was_bodyless(&self) -> bool {
        self.is_bodyless
    }

    /// Records that the connection was watched before its first request, and quiet.
    pub fn begins_quietly(&mut self) {
        self.began_quietly = true;
    }

    /// Returns whether the first response may have been sent before its request, so that all are shifted by one. Bytes
    /// after a response without a body have a likelier cause.
    pub fn spoke_first(&self) -> SpokeFirst {
        match (self.began_quietly, self.is_bodyless) {
            (true, _) => SpokeFirst::Refuted,
            (false, true) => SpokeFirst::No,
            (false, false) => SpokeFirst::Maybe,
        }
    }

    /// Returns the objects that are another request's if the connection was out of step when it was closed, after
    /// `idle` time without a byte.
    pub fn doubtful(&self, idle: Duration, quiet: Duration) -> impl Iterator<Item = Received> + '_ {
        (idle < self.proof(quiet)).then(|| self.unproven()).into_iter().flatten()
    }

    /// Returns the objects that came since the last proof, but for the first response.
    pub(crate) fn unproven(&self) -> impl Iterator<Item = Received> + '_ {
        self.received.iter().rev().take(self.unproven).copied().filter(|received| !received.is_first)
    }

    /// Ends the counts of the connection as one that the origin serves: it carries no further request.
    pub(crate) fn retire(&mut self) {
        (self.alive, self.served, self.trial) = (None, None, None);
    }

    /// Returns the time that the connection must stay quiet to prove that no response is missing.
    fn proof(&self, quiet: Duration) -> Duration {
        self.pace.proof().max(quiet)
    }

    /// Decides how long the connection rests after its last response. No rest at all if `quiet` is 0. `is_last`: there
    /// will be no later time for it, because the origin closes the connection after its next response.
    pub(crate) fn rest(&mut self, quiet: Duration, now: Instant, is_last: bool) -> Rest {
        if quiet.is_zero() {
            return Rest::Should(Duration::ZERO);
        }
        let (proof, strange, is_early) = (self.proof(quiet), self.pace.strange(), self.pace.is_early());
        if self.responses <= 1 {
            self.due = now + self.time_of_use(quiet);
        }
        let is_due = is_last
            || self.unproven >= MOST_OBJECTS
            || now >= if is_early { self.due_if_early } else { self.due };
        let longest = if is_early { LONGEST_REST_IF_EARLY } else { LONGEST_REST };
        let rest = proof.max(strange.unwrap_or_default()).min(longest);
        if is_due {
            self.due = now + rest + self.time_of_use(rest);
            if is_early {
                self.due_if_early = self.due;
            }
        }
        match (self.is_bodyless, is_due || strange.is_some()) {
            (true, true) => Rest::Must(rest),
            (true, false) => Rest::Must(quiet),
            (false, true) => Rest::Prove(rest),
            (false, false) => Rest::Should(rest),
        }
    }

    /// Counts the connection as one that the origin serves, if it was not counted before.
    pub(crate) fn count(&mut self, serve: impl FnOnce() -> Counted) {
        self.served.get_or_insert_with(serve);
    }

    pub(crate) fn begin_trial(&mut self, run: Run) {
        self.trial = Some(run);
    }

    /// Ends the trial, if there is one, as soon as a silence from now on proves something.
    pub(crate) fn end_trial(&mut self, quiet: Duration) {
        if let Some(run) = self.trial.take() {
            // An early response may be unsolicited, and an origin under load sends its own response late.
            let proofs = if self.pace.is_early() { PROOFS_IF_EARLY } else { 1 };
            run.end(self.proof(quiet) * proofs);
        }
    }

    /// Returns the number of responses.
    pub(crate) fn responses(&self) -> u32 {
        self.responses
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
        // Milliseconds the response took and since the one before, bodyless; rest.
        let (must, prove, should) = (Rest::Must, Rest::Prove, Rest::Should);
        let cases: [(_, _, _, fn(_) -> _, _); 8] = [
            (1, 10, false, should, 50),
            (1, 10, true, must, 50),
            (1, 1001, false, prove, 50),
            (100, 10, false, should, 150),
            (100, 10, true, must, 50),
            (100, 1001, true, must, 150),
            (600, 10, false, should, 500),
            (9000, 9000, false, prove, 500),
        ];
        for (took, since, bodyless, kind, rest) in cases {
            let mut record = new_record(begun);
            record.add(&exchange(took, 1));
            record.rest(QUIET, begun, false);
            record.add(&Exchange { is_bodyless: bodyless, ..exchange(took, 2) });
            let now = begun + Duration::from_millis(since);
            assert_eq!(record.rest(Duration::ZERO, now, false), should(Duration::ZERO));
            let found = record.rest(QUIET, now, false);
            assert_eq!(found, kind(Duration::from_millis(rest)), "{took} {since} {bodyless}");
        }
    }

    /// An origin that sends no more than it should loses a twentieth of a connection's time, however slow it is.
    #[test]
    fn steady_use_rests_for_a_twentieth_of_the_time() {
        for millis in [1, 20, 100, 2000] {
            let begun = Instant::now();
            let mut record = new_record(begun);
            let (mut now, mut rested) = (begun, Duration::ZERO);
            while now < begun + Duration::from_mins(10) {
                now += Duration::from_millis(millis);
                record.add(&exchange(millis, 1));
                if let Rest::Prove(rest) = record.rest(QUIET, now, false) {
                    now += rest;
                    rested += rest;
                    record.was_quiet(rest, QUIET, now);
                }
            }
            let share = rested.as_secs_f64() / (now - begun).as_secs_f64();
            assert!((0.03..0.07).contains(&share), "{millis} ms: {share}");
        }
    }

    #[test]
    fn a_quiet_time_proves_when_it_is_longer_than_a_response() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(5);
        let mut record = new_record(begun);
        record.add(&exchange(100, 1));
        assert!(matches!(record.rest(QUIET, begun, false), Rest::Should(_)));
        record.add(&exchange(100, 2));
        assert!(!record.was_quiet(Duration::from_millis(149), QUIET, later));
        assert!(matches!(record.rest(QUIET, later, false), Rest::Prove(_)));
        assert!(matches!(record.rest(QUIET, later, false), Rest::Should(_)), "it has just rested");
        assert!(record.was_quiet(Duration::from_millis(150), QUIET, later));
    }

    /// An unsolicited response is quick, and the right one comes as late as others did.
    #[test]
    fn an_early_response_after_slow_ones_proves_nothing() {
        let begun = Instant::now();
        let mut record = new_record(begun);
        record.add(&exchange(1600, 1));
        record.add(&exchange(10, 2));
        assert_eq!(record.rest(QUIET, begun, false), Rest::Prove(LONGEST_REST_IF_EARLY));
        assert!(matches!(record.rest(QUIET, begun, false), Rest::Should(_)), "not so soon again");
        assert!(!record.was_quiet(Duration::from_millis(1600), QUIET, begun));
        assert!(record.was_quiet(Duration::from_millis(2100), QUIET, begun));
        (3..44).for_each(|vxid| record.add(&exchange(10, vxid)));
        assert!(record.was_quiet(QUIET, QUIET, begun), "it is quick again");
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
        assert_eq!(doubtful(&record, 50), [0; 0]);
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
