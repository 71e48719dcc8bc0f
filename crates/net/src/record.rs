//! The history of one origin connection: the last proof that its responses were in step with its requests, the rest
//! that it takes before the next request, and the cached objects that were received over it.
//!
//! An unsolicited response shifts all later responses by one. The shift cannot be detected while the origin still
//! works on the previous request. So a connection should rest after each response, for longer than that response
//! took: a late response then arrives as surplus bytes. Most rests are cut short where they would cost the origin
//! more connections than it was observed to serve. A connection in steady use rests in full for a twentieth of the
//! time; it rests at once if a response came much earlier than others or sooner than all before it.

use std::collections::VecDeque;
use std::time::Duration;

use lacquer_sources::clock::Instant;

use crate::capacity::Counted;
use crate::response_times::ResponseTimes;
use crate::trial::TrialGuard;
use crate::trust::Unsolicited;

/// The maximum number of objects that are recorded for one connection.
const MOST_OBJECTS: usize = 1024;
/// A connection that rested this recently need not rest again.
const SHORTEST_USE: Duration = Duration::from_secs(1);
/// After a rest, a connection is used for about this many times the length of the rest.
const USE_FOR_REST: u32 = 20;
/// If the response on trial came early, the trial ends after this many times the required silence.
const SILENCES_IF_EARLY: u32 = 3;
/// The maximum length of a rest.
const LONGEST_REST: Duration = Duration::from_millis(500);
/// The same after an early response.
const LONGEST_REST_IF_EARLY: Duration = Duration::from_secs(1);

/// The identity of a cached object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedObject {
    /// Its slot in the cache.
    pub slot_id: u32,
    pub vxid: u64,
    /// The number by which stores on disks find it; 0 if there are none.
    pub fingerprint: u64,
}

/// A cached object that was received over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub object: CachedObject,
    /// The object was the first response of its connection.
    pub is_first: bool,
}

/// A completed exchange: a response that was read to its end.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The response has no body by the rules of HTTP: the request was HEAD, or the status is 204 or 304.
    pub is_bodyless: bool,
    /// Microseconds from the request to the head of the response.
    pub took: u64,
    pub object: Option<CachedObject>,
}

/// How long a connection rests after a response, and how firmly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The rest is taken in full, even if another connection must be opened.
    Must(Duration),
    /// The rest is taken in full; where no connection may be opened, requests wait for its end.
    Prove(Duration),
    /// The rest is cut short where no connection may be opened.
    Should(Duration),
}

#[derive(Debug)]
pub struct Record {
    /// Counts the connection as open until it is retired.
    alive: Option<Counted>,
    /// Counts the connection as served from the first response on.
    served: Option<Counted>,
    /// Present while this is the first connection of its origin that is reused.
    trial: Option<TrialGuard>,
    responses: u32,
    /// The time when the connection must next rest in full; set after its first response.
    due: Instant,
    /// The same after an early response.
    due_if_early: Instant,
    times: ResponseTimes,
    is_bodyless: bool,
    is_in_step: bool,
    /// The connection was watched before its first request, and no bytes arrived.
    began_quietly: bool,
    received: VecDeque<Received>,
    /// The number of objects at the end of `received` that arrived since the last proof.
    unproven: usize,
}

impl Record {
    pub(crate) fn new(now: Instant, alive: Counted) -> Record {
        Record { alive: Some(alive), ..Record::of_stream(now) }
    }

    /// Creates the record of a stream, whose connection is counted elsewhere.
    pub(crate) fn of_stream(now: Instant) -> Record {
        Record {
            alive: None,
            served: None,
            trial: None,
            responses: 0,
            due: now,
            due_if_early: now,
            times: ResponseTimes::default(),
            is_bodyless: false,
            is_in_step: true,
            began_quietly: false,
            received: VecDeque::new(),
            unproven: 0,
        }
    }

    pub(crate) fn add(&mut self, exchange: &Exchange) {
        if let Some(object) = exchange.object {
            if self.received.len() >= MOST_OBJECTS {
                self.received.pop_front();
            }
            self.received.push_back(Received { object, is_first: self.responses == 0 });
            self.unproven = (self.unproven + 1).min(MOST_OBJECTS);
        }
        self.responses = self.responses.saturating_add(1);
        self.times.add(exchange.took);
        self.is_bodyless = exchange.is_bodyless;
        self.is_in_step = false;
    }

    /// Records that the connection was quiet for `idle`. Returns whether that proves that it is in step.
    pub(crate) fn was_quiet(&mut self, idle: Duration, quiet: Duration, now: Instant) -> bool {
        let silence = self.required_silence(quiet);
        let proves = idle >= silence;
        if proves {
            self.unproven = 0;
            self.is_in_step = true;
            self.due = now + self.time_of_use(silence);
        }
        proves
    }

    /// Returns whether a silence has proved that the next response belongs to the next request.
    pub fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns how long the connection is used after a rest. The result is up to a quarter below the maximum, so that
    /// connections that were opened together do not rest together.
    fn time_of_use(&self, rest: Duration) -> Duration {
        let longest = SHORTEST_USE.max(rest.min(LONGEST_REST_IF_EARLY) * USE_FOR_REST);
        let noise = (self.times.took() as u32).wrapping_add(self.responses).wrapping_mul(0x9E37_79B9);
        longest * (1024 - (noise >> 24)) / 1024
    }

    /// Returns whether the last response had no body by the rules of HTTP.
    pub fn was_bodyless(&self) -> bool {
        self.is_bodyless
    }

    /// Records that the connection was watched before its first request, and no bytes arrived.
    pub fn begins_quietly(&mut self) {
        self.began_quietly = true;
    }

    /// Returns whether the first response may have been sent before its request, so that all responses are shifted by
    /// one. Bytes after a response without a body have a more likely cause.
    pub fn unsolicited(&self) -> Unsolicited {
        match (self.began_quietly, self.is_bodyless) {
            (true, _) => Unsolicited::Refuted,
            (false, true) => Unsolicited::No,
            (false, false) => Unsolicited::Maybe,
        }
    }

    /// Returns the objects that belong to other requests if the connection was out of step when it was closed, after
    /// `idle` without a byte.
    pub fn unproven_after(&self, idle: Duration, quiet: Duration) -> impl Iterator<Item = Received> + '_ {
        (idle < self.required_silence(quiet)).then(|| self.unproven()).into_iter().flatten()
    }

    /// Returns the objects that arrived since the last proof, except the first response of the connection.
    pub(crate) fn unproven(&self) -> impl Iterator<Item = Received> + '_ {
        self.received.iter().rev().take(self.unproven).copied().filter(|received| !received.is_first)
    }

    /// Stops counting the connection as open and served: it carries no further request.
    pub(crate) fn retire(&mut self) {
        (self.alive, self.served, self.trial) = (None, None, None);
    }

    /// Returns how long the connection must stay quiet to prove that no response is missing.
    fn required_silence(&self, quiet: Duration) -> Duration {
        self.times.required_silence().max(quiet)
    }

    /// Decides how long the connection rests after its last response. There is no rest if `quiet` is 0. `is_last`
    /// means that the origin will close the connection after its next response, so there is no later opportunity to
    /// rest.
    pub(crate) fn rest(&mut self, quiet: Duration, now: Instant, is_last: bool) -> Rest {
        if quiet.is_zero() {
            return Rest::Should(Duration::ZERO);
        }
        let (silence, outlier_delay, is_early) =
            (self.required_silence(quiet), self.times.outlier_delay(), self.times.is_early());
        if self.responses <= 1 {
            self.due = now + self.time_of_use(quiet);
        }
        let is_due = is_last
            || self.unproven >= MOST_OBJECTS
            || now >= if is_early { self.due_if_early } else { self.due };
        let longest = if is_early { LONGEST_REST_IF_EARLY } else { LONGEST_REST };
        let rest = silence.max(outlier_delay.unwrap_or_default()).min(longest);
        if is_due {
            self.due = now + rest + self.time_of_use(rest);
            if is_early {
                self.due_if_early = self.due;
            }
        }
        match (self.is_bodyless, is_due || outlier_delay.is_some()) {
            (true, true) => Rest::Must(rest),
            (true, false) => Rest::Must(quiet),
            (false, true) => Rest::Prove(rest),
            (false, false) => Rest::Should(rest),
        }
    }

    /// Counts the connection as served, unless it is already counted.
    pub(crate) fn count(&mut self, serve: impl FnOnce() -> Counted) {
        self.served.get_or_insert_with(serve);
    }

    pub(crate) fn begin_trial(&mut self, run: TrialGuard) {
        self.trial = Some(run);
    }

    /// Ends the trial, if there is one, after the required silence from now on.
    pub(crate) fn end_trial(&mut self, quiet: Duration) {
        if let Some(run) = self.trial.take() {
            // An early response may be unsolicited, and an origin under load sends the real response late.
            let silences = if self.times.is_early() { SILENCES_IF_EARLY } else { 1 };
            run.end(self.required_silence(quiet) * silences);
        }
    }

    /// Returns the number of responses.
    pub fn responses(&self) -> u32 {
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
        Exchange {
            is_bodyless: false,
            took: millis * 1000,
            object: Some(CachedObject { slot_id: 7, vxid, fingerprint: 0 }),
        }
    }

    #[test]
    fn the_rest_depends_on_response_and_history() {
        let begun = Instant::now();
        // Milliseconds that the response took and that passed since the one before; bodyless; expected rest.
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

    /// A correct origin loses a twentieth of a connection's time, however slow it is.
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
    fn a_silence_longer_than_a_response_is_a_proof() {
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

    /// An unsolicited response is quick, and the real one arrives as late as the others did.
    #[test]
    fn a_short_silence_after_an_early_response_is_no_proof() {
        let begun = Instant::now();
        let mut record = new_record(begun);
        record.add(&exchange(1600, 1));
        record.add(&exchange(10, 2));
        assert_eq!(record.rest(QUIET, begun, false), Rest::Prove(LONGEST_REST_IF_EARLY));
        assert!(matches!(record.rest(QUIET, begun, false), Rest::Should(_)), "not so soon again");
        assert!(!record.was_quiet(Duration::from_millis(1600), QUIET, begun));
        assert!(record.was_quiet(Duration::from_millis(2100), QUIET, begun));
        (3..44).for_each(|vxid| record.add(&exchange(10, vxid)));
        assert!(record.was_quiet(QUIET, QUIET, begun), "quick responses are normal again");
    }

    #[test]
    fn objects_are_unproven_until_the_next_proof() {
        let begun = Instant::now();
        let mut record = new_record(begun);
        let unproven = |record: &Record, millis| {
            record
                .unproven_after(Duration::from_millis(millis), QUIET)
                .map(|found| found.object.vxid)
                .collect::<Vec<_>>()
        };
        (1..4).for_each(|vxid| record.add(&exchange(1, vxid)));
        assert_eq!(unproven(&record, 10), [3, 2], "the first is not");
        assert_eq!(unproven(&record, 50), [0; 0]);
        record.was_quiet(QUIET, QUIET, begun);
        record.add(&exchange(1, 4));
        assert_eq!(unproven(&record, 10), [4]);
    }

    #[test]
    fn only_the_latest_objects_are_recorded() {
        let mut record = new_record(Instant::now());
        for vxid in 0..2000 {
            record.add(&exchange(1, vxid));
        }
        let all: Vec<u64> = record.received().map(|received| received.object.vxid).collect();
        assert_eq!((all.len(), all[0], all[1023]), (1024, 976, 1999));
        assert!(record.received().all(|received| !received.is_first));
    }
}
