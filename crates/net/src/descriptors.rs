//! The reserve of file descriptors. Client connections leave enough of them for the service itself: accepting, the
//! link to the manager, the log, new programs.
//!
//! The kernel assigns the lowest free number to each new descriptor, so a high number means that nearly all numbers
//! below it are in use. No descriptors need to be counted.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use lacquer_params::Params;
use tokio::sync::Notify;

/// The default reserve is the limit divided by `PART`, within these bounds.
const PART: u64 = 16;
const LEAST: u64 = 16;
const MOST: u64 = 256;
/// Seconds for which idle clients that have sent requests are spared. New clients become idle within this time.
const SPARED_FOR: f64 = 0.25;

/// The descriptor limit of this process, and the calls to free descriptors.
pub struct Descriptors {
    limit: u64,
    /// The number of times that a reactor found few descriptors, and that it found none.
    few: AtomicU64,
    none: AtomicU64,
    /// The time until which clients that have sent requests are spared, in milliseconds of the monotonic clock.
    spared_until: AtomicU64,
    called: Notify,
}

/// The urgency of a need for descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Few are left: clients that never sent a request may be closed.
    Soon,
    /// None are left: clients that have been idle for a while may be closed, too.
    Urgent,
}

/// The number of calls so far, by urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    few: u64,
    none: u64,
}

impl Calls {
    /// Returns the most urgent call since `before`.
    pub fn since(self, before: Calls) -> Option<Need> {
        if self.none == before.none {
            (self.few != before.few).then_some(Need::Soon)
        } else {
            Some(Need::Urgent)
        }
    }
}

/// The descriptor numbers at which the process takes measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// From here on, idle connections are closed to free descriptors.
    pub crowded: RawFd,
    /// From here on, new clients wait.
    pub clients: RawFd,
    /// From here on, no connections to origins are opened.
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

    /// Requests all reactors to close idle connections.
    pub fn call(&self, need: Need) {
        let calls = if need == Need::Urgent { &self.none } else { &self.few };
        calls.fetch_add(1, Ordering::Relaxed);
        self.called.notify_waiters();
    }

    /// Waits for the next call.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// Records that clients that never sent a request were closed. While any reactor has such clients, the other
    /// clients are spared.
    pub fn spare_kept(&self, now: f64) {
        self.spared_until.fetch_max(millis(now + SPARED_FOR), Ordering::Relaxed);
    }

    /// Returns whether idle clients that have sent requests may be closed.
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
    fn the_reserve_is_a_fraction_of_the_limit() {
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
    fn clients_with_requests_are_spared_while_silent_ones_remain() {
        let descriptors = Descriptors::new(128);
        assert!(descriptors.may_close_kept(0.0), "none was closed");
        descriptors.spare_kept(10.0);
        descriptors.spare_kept(9.9);
        assert_eq!([10.0, 10.2, 10.25].map(|now| descriptors.may_close_kept(now)), [false, false, true]);
    }
}
