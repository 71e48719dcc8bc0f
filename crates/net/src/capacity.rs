//! The number of connections that an origin was observed to serve at once. An origin with few threads lets a further
//! connection wait until another one is closed. The pool therefore does not open a connection beyond this number only
//! because the idle ones are resting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The connections of one origin. All reactors share it.
#[derive(Debug, Default)]
pub struct Capacity {
    /// Connections that are open or being opened.
    alive: Arc<AtomicU32>,
    /// Open connections on which at least one response arrived.
    served: Arc<AtomicU32>,
    /// The peak of `served` in the current minute, and in the one before it.
    peak: AtomicU32,
    previous_peak: AtomicU32,
    minute: AtomicU32,
}

/// A guard that counts one connection until it is dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Capacity {
    /// Counts a connection that is being opened.
    pub(crate) fn open(&self) -> Counted {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Counted(self.alive.clone())
    }

    /// Counts a connection that is being opened. Returns `None` if `limit` is reached.
    pub(crate) fn open_below(&self, limit: u32) -> Option<Counted> {
        let next = |alive| (alive < limit).then_some(alive + 1);
        let is_below = self.alive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        is_below.then(|| Counted(self.alive.clone()))
    }

    /// Counts a connection on which the first response arrived.
    pub(crate) fn serve(&self) -> Counted {
        self.served.fetch_add(1, Ordering::Relaxed);
        Counted(self.served.clone())
    }

    pub(crate) fn alive(&self) -> u32 {
        self.alive.load(Ordering::Relaxed)
    }

    pub(crate) fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    /// Returns the peak of served connections in this minute and the one before it.
    pub(crate) fn peak(&self, minute: u32) -> u32 {
        let since = minute.saturating_sub(self.minute.load(Ordering::Relaxed));
        let before = self.previous_peak.load(Ordering::Relaxed);
        let last = self.peak.load(Ordering::Relaxed);
        match since {
            0 => last.max(before),
            1 => last,
            _ => 0,
        }
    }

    /// Records a number of connections that are served at once.
    pub(crate) fn record(&self, served: u32, minute: u32) {
        let known = self.minute.fetch_max(minute, Ordering::Relaxed);
        if known < minute {
            let last = self.peak.swap(0, Ordering::Relaxed);
            self.previous_peak.store(if minute - known == 1 { last } else { 0 }, Ordering::Relaxed);
        }
        self.peak.fetch_max(served, Ordering::Relaxed);
    }

    /// Returns whether a count of served connections is worth recording: more than an eighth above the known peak, or
    /// the first in a minute. The caller then has to check each idle connection to find out which of them are closed,
    /// so small increases are ignored.
    pub(crate) fn is_worth_recording(&self, served: u32, minute: u32) -> bool {
        let peak = self.peak.load(Ordering::Relaxed);
        self.minute.load(Ordering::Relaxed) < minute || served > peak + peak / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_covers_two_minutes() {
        let capacity = Capacity::default();
        let (first, second) = (capacity.serve(), capacity.serve());
        assert_eq!(capacity.served(), 2);
        capacity.record(2, 7);
        drop(first);
        assert_eq!((capacity.served(), capacity.peak(7), capacity.peak(8), capacity.peak(9)), (1, 2, 2, 0));
        assert!(
            !capacity.is_worth_recording(2, 7)
                && capacity.is_worth_recording(3, 7)
                && capacity.is_worth_recording(1, 8)
        );
        capacity.record(1, 8);
        assert_eq!((capacity.peak(8), capacity.peak(9), capacity.peak(10)), (2, 1, 0));
        capacity.record(1, 12);
        assert_eq!(capacity.peak(12), 1);
        drop(second);
        assert_eq!(capacity.served(), 0);
    }

    #[test]
    fn connections_are_counted_until_dropped() {
        let capacity = Capacity::default();
        let first = capacity.open();
        let second = capacity.open_below(2);
        assert!(second.is_some() && capacity.open_below(2).is_none());
        drop(first);
        assert!(capacity.open_below(2).is_some());
        assert_eq!(capacity.alive(), 1);
    }
}
