//! The number of connections that an origin was seen to serve at once. An origin with few threads leaves a connection
//! beyond them waiting until another is closed. So connections that rest must not cause one too many to be opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The connections of one origin. All reactors share it.
#[derive(Debug, Default)]
pub struct Capacity {
    /// Connections that are open or being opened.
    alive: Arc<AtomicU32>,
    /// Open connections on which at least one response came.
    served: Arc<AtomicU32>,
    /// The largest number that was served in this minute, and in the one before it.
    most: AtomicU32,
    most_before: AtomicU32,
    minute: AtomicU32,
}

/// Counts a connection for as long as it lives.
#[derive(Debug)]
pub struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Capacity {
    /// Counts a connection that is opened now.
    pub(crate) fn open(&self) -> Counted {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Counted(self.alive.clone())
    }

    /// Counts a connection that is opened now, unless there are as many as this.
    pub(crate) fn open_below(&self, limit: u32) -> Option<Counted> {
        let next = |alive| (alive < limit).then_some(alive + 1);
        let is_below = self.alive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        is_below.then(|| Counted(self.alive.clone()))
    }

    /// Counts a connection on which the first response came.
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

    /// Returns the largest number of connections that were served at once in this minute or the one before it.
    pub(crate) fn most(&self, minute: u32) -> u32 {
        let since = minute.saturating_sub(self.minute.load(Ordering::Relaxed));
        let before = self.most_before.load(Ordering::Relaxed);
        let last = self.most.load(Ordering::Relaxed);
        match since {
            0 => last.max(before),
            1 => last,
            _ => 0,
        }
    }

    /// Records that so many connections are served at once.
    pub(crate) fn saw(&self, served: u32, minute: u32) {
        let known = self.minute.fetch_max(minute, Ordering::Relaxed);
        if known < minute {
            let last = self.most.swap(0, Ordering::Relaxed);
            self.most_before.store(if minute - known == 1 { last } else { 0 }, Ordering::Relaxed);
        }
        self.most.fetch_max(served, Ordering::Relaxed);
    }

    /// Returns whether so many served connections are worth recording: an eighth more than are known, for finding out
    /// which of them are closed takes a look at each.
    pub(crate) fn is_news(&self, served: u32, minute: u32) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        self.minute.load(Ordering::Relaxed) < minute || served > most + most / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_two_minutes_counts() {
        let capacity = Capacity::default();
        let (first, second) = (capacity.serve(), capacity.serve());
        assert_eq!(capacity.served(), 2);
        capacity.saw(2, 7);
        drop(first);
        assert_eq!((capacity.served(), capacity.most(7), capacity.most(8), capacity.most(9)), (1, 2, 2, 0));
        assert!(!capacity.is_news(2, 7) && capacity.is_news(3, 7) && capacity.is_news(1, 8));
        capacity.saw(1, 8);
        assert_eq!((capacity.most(8), capacity.most(9), capacity.most(10)), (2, 1, 0));
        capacity.saw(1, 12);
        assert_eq!(capacity.most(12), 1);
        drop(second);
        assert_eq!(capacity.served(), 0);
    }

    #[test]
    fn connections_count_from_their_opening() {
        let capacity = Capacity::default();
        let first = capacity.open();
        let second = capacity.open_below(2);
        assert!(second.is_some() && capacity.open_below(2).is_none());
        drop(first);
        assert!(capacity.open_below(2).is_some());
        assert_eq!(capacity.alive(), 1);
    }
}
