//! The trust in an origin to keep the order of requests and responses.
//!
//! An origin is *suspected* for a time after it sent bytes that no request asked for; meanwhile none of its connections
//! carries a second request. The first second request after that, or at all, is on trial.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lacquer_sources::clock::Instant;

use crate::capacity::{Capacity, Counted};
use crate::trial::{Run, Stage, Trial};
use crate::waiters::Waiters;

/// The number of requests that wait after a response without a body although a connection could be opened. An origin
/// that serves one connection at a time would not answer on that one. All others pay for it only so often.
const COURTESY: u32 = 32;

/// The number of new connections that must be quiet to clear an origin that may have sent a response before a request.
const CHECKS: u32 = 8;
/// Connections that serve fewer responses take no rest before their end.
const SHORTEST_LIFETIME: u32 = 8;
/// No connection that is not used again is watched for longer than this.
const LONGEST_WATCH: Duration = Duration::from_secs(1);
/// No new connection is checked.
const FINE: u32 = 0;
/// The same, as surplus bytes were found to have another cause.
const EXPLAINED: u32 = u32::MAX - 1;
/// All new connections are checked.
const SPEAKS_FIRST: u32 = u32::MAX;

/// The judgement whether an origin sent a response before the first request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpokeFirst {
    No,
    Maybe,
    Yes,
    /// The connection was quiet before its first request: the origin sends more than it should afterwards.
    Refuted,
}

/// How long a connection is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Long enough for most responses to come.
    Long,
    /// As long as the origin took for its slowest response so far.
    Short,
}

/// Records the behaviour of one origin. All reactors share it.
#[derive(Debug)]
pub struct Trust {
    begun: Instant,
    faults: AtomicU32,
    /// Milliseconds after `begun`; 0 if there was no fault.
    suspected_until: AtomicU64,
    trial: Arc<Trial>,
    waiters: Arc<Waiters>,
    capacity: Capacity,
    /// The check of new connections before their first request: one of the numbers above, or the number of connections
    /// that are still to be checked.
    openings: AtomicU32,
    courtesy: AtomicU32,
    /// The microseconds that the slowest response took.
    slowest: AtomicU64,
    /// The number of responses after which it last closed a connection of its own accord.
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
            openings: AtomicU32::new(FINE),
            courtesy: AtomicU32::new(COURTESY),
            slowest: AtomicU64::new(0),
            lifetime: AtomicU32::new(0),
        }
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a fault for which responses on all connections are in doubt, and suspects the origin.
    pub fn fault(&self, now: Instant, period: Duration, spoke_first: SpokeFirst) {
        self.suspect(now, period, spoke_first);
        self.faults.fetch_add(1, Ordering::Release);
    }

    /// Suspects the origin for `period`. After that it has to prove itself again.
    pub fn suspect(&self, now: Instant, period: Duration, spoke_first: SpokeFirst) {
        let before = if self.is_suspected(now) { self.openings.load(Ordering::Relaxed) } else { FINE };
        let openings = match (before, spoke_first) {
            (_, SpokeFirst::Yes) | (SPEAKS_FIRST, _) => SPEAKS_FIRST,
            (_, SpokeFirst::Refuted) => EXPLAINED,
            (FINE, SpokeFirst::Maybe) => CHECKS,
            (known, _) => known,
        };
        self.openings.store(openings, Ordering::Relaxed);
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        self.suspected_until.fetch_max(self.millis(now).saturating_add(period), Ordering::Relaxed);
        self.trial.reset();
        self.waiters.wake_all();
    }

    /// Returns the number of faults so far; wraps around.
    pub fn faults(&self) -> u32 {
        self.faults.load(Ordering::Acquire)
    }

    pub fn is_suspected(&self, now: Instant) -> bool {
        let until = self.suspected_until.load(Ordering::Relaxed);
        until != 0 && self.millis(now) < until
    }

    /// Returns whether a new connection has to be quiet for a while before its first request is sent.
    pub fn may_speak_first(&self, now: Instant) -> bool {
        let openings = self.openings.load(Ordering::Relaxed);
        openings != FINE && openings != EXPLAINED && self.is_suspected(now)
    }

    /// Records that a new connection was quiet before its first request.
    pub fn opened_quietly(&self) {
        let next = |openings| match openings {
            FINE | EXPLAINED | SPEAKS_FIRST => None,
            left => Some(left - 1),
        };
        let _ = self.openings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Records that a response took so many microseconds.
    pub(crate) fn took(&self, micros: u64) {
        if micros > self.slowest.load(Ordering::Relaxed) {
            self.slowest.store(micros, Ordering::Relaxed);
        }
    }

    /// Records that the origin announced the end of a connection after so many responses.
    pub(crate) fn closed_after(&self, responses: u32) {
        self.lifetime.store(responses, Ordering::Relaxed);
    }

    /// Returns whether the origin is expected to close a connection after its next response. A shift has to show before.
    pub(crate) fn closes_soon(&self, responses: u32) -> bool {
        responses >= SHORTEST_LIFETIME && self.lifetime.load(Ordering::Relaxed) == responses.saturating_add(1)
    }

    /// Returns how long a connection is watched that is not used again. While the origin is suspected there is one for
    /// each request, and it may serve few at a time, so it is no longer than a response that is still missing would take.
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

    /// Returns the number of connections that the origin was seen to serve at once, up to the declared limit.
    pub(crate) fn capacity_limit(&self, declared: u32, now: Instant) -> u32 {
        self.capacity.most(self.minute(now)).min(declared)
    }

    /// Returns whether the number of connections has reached that limit.
    pub(crate) fn is_full(&self, declared: u32, now: Instant) -> bool {
        self.capacity.alive() >= self.capacity_limit(declared, now)
    }

    /// Returns whether there are as many connections as the origin may have by its declaration.
    pub fn has_all_of(&self, declared: u32) -> bool {
        self.capacity.alive() >= declared
    }

    /// Counts a connection that is opened because there is none to use.
    pub fn open(&self) -> Counted {
        self.capacity.open()
    }

    /// Counts a connection that is opened so that others can rest, unless the limit is reached.
    pub fn open_one_more(&self, declared: u32, now: Instant) -> Option<Counted> {
        self.capacity.open_below(self.capacity_limit(declared, now))
    }

    /// Returns the stage of the first reuse of a connection.
    pub(crate) fn trial(&self, now: Instant) -> Stage {
        self.trial.stage(|| self.millis(now))
    }

    /// The origin closed an idle connection, without a further byte.
    pub(crate) fn closed_in_order(&self) {
        self.trial.closed();
    }

    /// Begins the first reuse of a connection; `None` if another connection was faster.
    pub(crate) fn begin_trial(&self, now: Instant) -> Option<Run> {
        let began = self.trial.begin(self.millis(now));
        began.then(|| Run::new(self.trial.clone(), self.waiters.clone(), self.begun))
    }

    pub(crate) fn minute(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.begun).as_secs() / 60).unwrap_or(u32::MAX)
    }

    /// Decides whether the only request to this origin waits until a connection has rested, although another could be
    /// opened.
    pub fn is_courteous(&self) -> bool {
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
        trust.fault(after(10), Duration::from_mins(1), SpokeFirst::No);
        assert!(!trust.may_speak_first(after(11)));
        trust.fault(after(20), Duration::from_secs(1), SpokeFirst::Yes);
        assert!(trust.may_speak_first(after(60)) && !trust.may_speak_first(after(70)));
        for (seconds, suspected) in [(10, true), (30, true), (69, true), (70, false), (500, false)] {
            assert_eq!(trust.is_suspected(after(seconds)), suspected, "after {seconds} s");
        }
        assert_eq!(trust.faults(), 2);
    }

    #[test]
    fn doubt_about_openings_ends_after_some_that_were_quiet() {
        let begun = Instant::now();
        let trust = Trust::new(begun);
        let fault = |spoke| trust.fault(begun, Duration::from_mins(1), spoke);
        let now = begun + Duration::from_secs(1);
        fault(SpokeFirst::Maybe);
        for _ in 0..CHECKS {
            assert!(trust.may_speak_first(now));
            trust.opened_quietly();
        }
        assert!(!trust.may_speak_first(now), "it was cleared");
        fault(SpokeFirst::Maybe);
        assert!(trust.may_speak_first(now), "it may do so now and then");
        fault(SpokeFirst::Yes);
        (0..=CHECKS).for_each(|_| trust.opened_quietly());
        assert!(trust.may_speak_first(now));
        fault(SpokeFirst::No);
        fault(SpokeFirst::Refuted);
        assert!(trust.may_speak_first(now));
    }

    #[test]
    fn origins_that_add_responses_are_not_checked_for_ever() {
        let begun = Instant::now();
        let trust = Trust::new(begun);
        let now = begun + Duration::from_secs(1);
        for (spoke, checked) in
            [(SpokeFirst::Maybe, true), (SpokeFirst::Refuted, false), (SpokeFirst::Maybe, false)]
        {
            trust.fault(begun, Duration::from_mins(1), spoke);
            assert_eq!(trust.may_speak_first(now), checked, "{spoke:?}");
        }
        trust.fault(begun, Duration::from_mins(1), SpokeFirst::Yes);
        assert!(trust.may_speak_first(now));
    }

    #[test]
    fn requests_wait_out_of_courtesy_only_so_often() {
        let trust = Trust::new(Instant::now());
        assert!((0..COURTESY).all(|_| trust.is_courteous()));
        assert!(!trust.is_courteous());
    }
}
