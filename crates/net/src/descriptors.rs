//! Descriptors in reserve: connections of clients leave enough for the service itself (accepting, the link to the
//! manager, the log, new programs).
//!
//! The kernel gives each new descriptor the lowest free number, so a high number means that nearly all numbers below it
//! are in use. Nothing needs to be counted.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use lacquer_params::Params;
use tokio::sync::Notify;

/// The default reserve: this part of all descriptors, within these bounds.
const PART: u64 = 16;
const LEAST: u64 = 16;
const MOST: u64 = 256;
/// The seconds for which idle clients that sent requests are spared. The newest clients count as idle within this time.
const SPARED_FOR: f64 = 0.25;

/// The limit of this process, and the calls for descriptors.
pub struct Descriptors {
    limit: u64,
    /// Counts of the times when a reactor found few descriptors, and when it found none.
    few: AtomicU64,
    none: AtomicU64,
    /// The time until which clients that sent requests are spared, in milliseconds of the monotonic clock.
    spared_until: AtomicU64,
    called: Notify,
}

/// The urgency of a need for descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// There are few: clients that never sent a request may be closed.
    Soon,
    /// There are none: all idle clients may be closed.
    Urgent,
}

/// The calls for descriptors so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    few: u64,
    none: u64,
}

impl Calls {
    /// Returns the most urgent call since then.
    pub fn since(self, before: Calls) -> Option<Need> {
        if self.none == before.none {
            (self.few != before.few).then_some(Need::Soon)
        } else {
            Some(Need::Urgent)
        }
    }
}

/// The descriptor numbers from which on certain work stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Idle connections are closed to make room.
    pub crowded: RawFd,
    /// New clients wait.
    pub clients: RawFd,
    /// No connections to origins are made.
    pub origins: RawFd,
}

impl Descriptors {
    pub fn new(limit: u64) -> Descriptors {
        Descriptors {
            limit,
            few: AtomicU64::new(0),
            none: AtomicU64::new(0),
            spared_until: AtomicU64::new(0),
            called: Notify::new(),
        }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn marks(&self, params: &Params) -> Marks {
        marks(self.limit, u64::from(params.descriptor_reserve))
    }

    /// Asks all reactors to close idle connections.
    pub fn call(&self, need: Need) {
        let calls = if need == Need::Urgent { &self.none } else { &self.few };
        calls.fetch_add(1, Ordering::Relaxed);
        self.called.notify_waiters();
    }

    /// Waits for the next call.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// Records that clients that never sent a request were closed. As long as any reactor has such clients, the others
    /// are spared.
    pub fn spare_kept(&self, now: f64) {
        self.spared_until.fetch_max(millis(now + SPARED_FOR), Ordering::Relaxed);
    }

    /// Returns whether idle clients that sent requests may be closed.
    pub fn may_close_kept(&self, now: f64) -> bool {
        millis(now) >= self.spared_until.load(Ordering::Relaxed)
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> Calls {
        Calls { few: self.few.load(Ordering::Relaxed), none: self.none.load(Ordering::Relaxed) }
    }
}

fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

fn marks(limit: u64, chosen: u64) -> Marks {
    let reserve = if chosen == 0 { (limit / PART).clamp(LEAST, MOST) } else { chosen };
    let reserve = reserve.min(limit / 2);
    let below = |n: u64| RawFd::try_from(limit.saturating_sub(n)).unwrap_or(RawFd::MAX);
    Marks { crowded: below(reserve + reserve / 2), clients: below(reserve), origins: below(reserve / 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_part_of_all() {
        let numbers = |limit, chosen| {
            let Marks { crowded, clients, origins } = marks(limit, chosen);
            (crowded, clients, origins)
        };
        assert_eq!(numbers(1024, 0), (928, 960, 992));
        assert_eq!(numbers(128, 0), (104, 112, 120));
        assert_eq!(numbers(1 << 20, 0), ((1 << 20) - 384, (1 << 20) - 256, (1 << 20) - 128));
        assert_eq!(numbers(1024, 100), (874, 924, 974));
        assert_eq!(numbers(20, 100), (5, 10, 15));
        assert_eq!(numbers(u64::MAX, 0).0, RawFd::MAX);
    }

    #[test]
    fn clients_that_asked_stay_while_others_can_go() {
        let descriptors = Descriptors::new(128);
        assert!(descriptors.may_close_kept(0.0), "none was closed");
        descriptors.spare_kept(10.0);
        descriptors.spare_kept(9.9);
        assert_eq!([10.0, 10.2, 10.25].map(|now| descriptors.may_close_kept(now)), [false, false, true]);
    }
}
