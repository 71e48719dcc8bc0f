//! Tracks whether an origin can be trusted to send one response per request, in order.
//!
//! An origin is *suspected* for a time after it sent bytes that belong to no request; during that time none of its
//! connections carries a second request. The next reuse of a connection after that, and the first one ever, is on
//! trial.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lacquer_sources::clock::Instant;

use crate::capacity::{Capacity, Counted};
use crate::trial::{Stage, Trial, TrialGuard};
use crate::waiters::Waiters;

/// How many times a request waits for a connection to rest after a response without a body, although another
/// connection could be opened. An origin that serves one connection at a time would not respond on the other one. The
/// number bounds what this costs with all other origins.
const COURTESY_WAITS: u32 = 32;

/// The number of new connections that must stay quiet to clear an origin that may have sent a response before a
/// request.
const CHECKS: u32 = 8;
/// An expected close after fewer responses than this causes no rest before it.
const SHORTEST_LIFETIME: u32 = 8;
/// The maximum time for which a retired connection is watched.
const LONGEST_WATCH: Duration = Duration::from_secs(1);
/// New connections are not checked.
const UNCHECKED: u32 = 0;
/// New connections are not checked, because the surplus bytes had another cause.
const EXPLAINED: u32 = u32::MAX - 1;
/// All new connections are checked.
const ALL_CHECKED: u32 = u32::MAX;

/// Whether an origin sent a response before the first request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsolicited {
    No,
    Maybe,
    Yes,
    /// The connection was quiet before its first request, so the surplus came later.
    Refuted,
}

/// How long a retired connection is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Long enough for most responses to arrive.
    Long,
    /// Twice the time of the slowest response of the origin so far.
    Short,
}

/// The recorded behavior of one origin. All reactors share it.
#[derive(Debug)]
pub struct Trust {
    begun: Instant,
    faults: AtomicU32,
    /// Milliseconds after `begun`; 0 if the origin was never suspected.
    suspected_until: AtomicU64,
    trial: Arc<Trial>,
    waiters: Arc<Waiters>,
    capacity: Capacity,
    /// The check of new connections before their first request: one of the constants above, or the number of
    /// connections that are still to be checked.
    openings: AtomicU32,
    courtesy: AtomicU32,
    /// The time of the slowest response, in microseconds.
    slowest: AtomicU64,
    /// The number of responses after which the origin last closed a connection of its own accord.
    lifetime: AtomicU32,
}

impl Trust {
    pub(crate) fn new(now: Instant) -> Trust {
        Trust {
            begun: now,
            faults: AtomicU32::new(0),
            suspected_until: AtomicU64::new(0),
            trial: Arc::default(),
            waiters: Arc::default(),
            capacity: Capacity::default(),
            openings: AtomicU32::new(UNCHECKED),
            courtesy: AtomicU32::new(COURTESY_WAITS),
            slowest: AtomicU64::new(0),
            lifetime: AtomicU32::new(0),
        }
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a fault that puts the responses on all connections in doubt, and suspects the origin.
    pub fn fault(&self, now: Instant, period: Duration, unsolicited: Unsolicited) {
        self.suspect(now, period, unsolicited);
        self.faults.fetch_add(1, Ordering::Release);
    }

    /// Suspects the origin for `period`. A new trial follows.
    pub fn suspect(&self, now: Instant, period: Duration, unsolicited: Unsolicited) {
        let before = if self.is_suspected(now) { self.openings.load(Ordering::Relaxed) } else { UNCHECKED };
        let openings = match (before, unsolicited) {
            (_, Unsolicited::Yes) | (ALL_CHECKED, _) => ALL_CHECKED,
            (_, Unsolicited::Refuted) => EXPLAINED,
            (UNCHECKED, Unsolicited::Maybe) => CHECKS,
            (known, _) => known,
        };
        self.openings.store(openings, Ordering::Relaxed);
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        self.suspected_until.fetch_max(self.millis(now).saturating_add(period), Ordering::Relaxed);
        self.trial.reset();
        self.waiters.wake_all();
    }

    /// Returns the number of faults so far. The number wraps around.
    pub fn faults(&self) -> u32 {
        self.faults.load(Ordering::Acquire)
    }

    pub fn is_suspected(&self, now: Instant) -> bool {
        let until = self.suspected_until.load(Ordering::Relaxed);
        until != 0 && self.millis(now) < until
    }

    /// Returns whether a new connection must be quiet for a while before its first request is sent.
    pub fn checks_new_connections(&self, now: Instant) -> bool {
        let openings = self.openings.load(Ordering::Relaxed);
        openings != UNCHECKED && openings != EXPLAINED && self.is_suspected(now)
    }

    /// Records that a new connection was quiet before its first request.
    pub fn opened_quietly(&self) {
        let next = |openings| match openings {
            UNCHECKED | EXPLAINED | ALL_CHECKED => None,
            left => Some(left - 1),
        };
        let _ = self.openings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Records the time of a response, in microseconds.
    pub(crate) fn record_response_time(&self, micros: u64) {
        if micros > self.slowest.load(Ordering::Relaxed) {
            self.slowest.store(micros, Ordering::Relaxed);
        }
    }

    /// Records that the origin announced the end of a connection after this many responses.
    pub(crate) fn closed_after(&self, responses: u32) {
        self.lifetime.store(responses, Ordering::Relaxed);
    }

    /// Returns whether the origin is expected to close a connection after its next response. A shift must be detected
    /// before that.
    pub(crate) fn closes_soon(&self, responses: u32) -> bool {
        responses >= SHORTEST_LIFETIME && self.lifetime.load(Ordering::Relaxed) == responses.saturating_add(1)
    }

    /// Returns how long a retired connection is watched. While the origin is suspected there is one for each request,
    /// and the origin may serve only few at a time, so the short time covers no more than a missing response would
    /// take.
    pub(crate) fn watch_time(&self, watch: Watch, quiet: Duration) -> Duration {
        if watch == Watch::Long {
            return LONGEST_WATCH;
        }
        let slowest = Duration::from_micros(self.slowest.load(Ordering::Relaxed));
        slowest.saturating_mul(2).clamp(quiet.min(LONGEST_WATCH), LONGEST_WATCH)
    }

    /// Returns the requests that wait for a connection to this origin.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Returns the number of connections that the origin was observed to serve at once, up to the declared limit.
    pub(crate) fn capacity_limit(&self, declared: u32, now: Instant) -> u32 {
        self.capacity.peak(self.minute(now)).min(declared)
    }

    /// Returns whether the number of connections has reached that limit.
    pub(crate) fn is_full(&self, declared: u32, now: Instant) -> bool {
        self.capacity.alive() >= self.capacity_limit(declared, now)
    }

    /// Returns whether the number of connections has reached the limit in the backend's declaration.
    pub fn is_at_declared_limit(&self, declared: u32) -> bool {
        self.capacity.alive() >= declared
    }

    /// Counts a connection that is opened because no idle one is usable.
    pub fn open(&self) -> Counted {
        self.capacity.open()
    }

    /// Counts a connection that is opened so that others can rest. Returns `None` if the limit is reached.
    pub fn open_one_more(&self, declared: u32, now: Instant) -> Option<Counted> {
        self.capacity.open_below(self.capacity_limit(declared, now))
    }

    /// Returns the progress of the trial.
    pub(crate) fn trial(&self, now: Instant) -> Stage {
        self.trial.stage(|| self.millis(now))
    }

    /// Records that the origin closed an idle connection without a further byte.
    pub(crate) fn closed_cleanly(&self) {
        self.trial.closed();
    }

    /// Begins the trial with a connection. Returns `None` if another connection was faster.
    pub(crate) fn begin_trial(&self, now: Instant) -> Option<TrialGuard> {
        let began = self.trial.begin(self.millis(now));
        began.then(|| TrialGuard::new(self.trial.clone(), self.waiters.clone(), self.begun))
    }

    pub(crate) fn minute(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.begun).as_secs() / 60).unwrap_or(u32::MAX)
    }

    /// Returns whether the only request to this origin should wait until a connection has rested, although another
    /// could be opened. Uses up one of the waits that each origin is granted.
    pub fn take_courtesy_wait(&self) -> bool {
        self.courtesy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicion_ends_after_its_period() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let trust = Trust::new(begun);
        assert!(!trust.is_suspected(begun));
        trust.fault(after(10), Duration::from_mins(1), Unsolicited::No);
        assert!(!trust.checks_new_connections(after(11)));
        trust.fault(after(20), Duration::from_secs(1), Unsolicited::Yes);
        assert!(trust.checks_new_connections(after(60)) && !trust.checks_new_connections(after(70)));
        for (seconds, suspected) in [(10, true), (30, true), (69, true), (70, false), (500, false)] {
            assert_eq!(trust.is_suspected(after(seconds)), suspected, "after {seconds} s");
        }
        assert_eq!(trust.faults(), 2);
    }

    #[test]
    fn quiet_new_connections_end_the_check_of_new_connections() {
        let begun = Instant::now();
        let trust = Trust::new(begun);
        let fault = |first| trust.fault(begun, Duration::from_mins(1), first);
        let now = begun + Duration::from_secs(1);
        fault(Unsolicited::Maybe);
        for _ in 0..CHECKS {
            assert!(trust.checks_new_connections(now));
            trust.opened_quietly();
        }
        assert!(!trust.checks_new_connections(now), "it was cleared");
        fault(Unsolicited::Maybe);
        assert!(trust.checks_new_connections(now), "another fault starts the checks again");
        fault(Unsolicited::Yes);
        (0..=CHECKS).for_each(|_| trust.opened_quietly());
        assert!(trust.checks_new_connections(now));
        fault(Unsolicited::No);
        fault(Unsolicited::Refuted);
        assert!(trust.checks_new_connections(now));
    }

    #[test]
    fn surplus_with_another_cause_ends_the_check_of_new_connections() {
        let begun = Instant::now();
        let trust = Trust::new(begun);
        let now = begun + Duration::from_secs(1);
        for (first, checked) in
            [(Unsolicited::Maybe, true), (Unsolicited::Refuted, false), (Unsolicited::Maybe, false)]
        {
            trust.fault(begun, Duration::from_mins(1), first);
            assert_eq!(trust.checks_new_connections(now), checked, "{first:?}");
        }
        trust.fault(begun, Duration::from_mins(1), Unsolicited::Yes);
        assert!(trust.checks_new_connections(now));
    }

    #[test]
    fn the_number_of_courtesy_waits_is_limited() {
        let trust = Trust::new(Instant::now());
        assert!((0..COURTESY_WAITS).all(|_| trust.take_courtesy_wait()));
        assert!(!trust.take_courtesy_wait());
    }
}
