//! A pool of memory for reuse, within the limits of the parameters for memory pools.

use std::cell::RefCell;
use std::collections::VecDeque;

use lacquer_params::PoolParam;
use lacquer_shm::vsc::LocalMempool;
use lacquer_sources::clock::{self, Instant};

/// Spare items of one kind. The item that was returned last is taken first, because it is likely to be in the
/// processor's cache.
pub struct RecyclePool<T>(RefCell<VecDeque<(Instant, T)>>);

impl<T> Default for RecyclePool<T> {
    fn default() -> Self {
        RecyclePool(RefCell::default())
    }
}

impl<T> RecyclePool<T> {
    pub fn take(&self, count: &LocalMempool) -> Option<T> {
        count.live.add(1);
        count.allocs.add(1);
        let taken = self.0.borrow_mut().pop_back().map(|(_, one)| one);
        if taken.is_some() {
            count.recycle.add(1);
            count.pool.sub(1);
        } else {
            count.randry.add(1);
        }
        taken
    }

    /// Returns an item to the pool, or drops it if the pool is full. `now` may be slightly old.
    pub fn give(&self, one: T, now: Instant, limits: PoolParam, count: &LocalMempool) {
        count.live.sub(1);
        count.frees.add(1);
        let mut kept = self.0.borrow_mut();
        if kept.len() < limits.max_pool as usize {
            kept.push_back((now, one));
            count.pool.add(1);
        } else {
            count.surplus.add(1);
        }
    }

    /// Drops spare items that exceed `max_pool` or are too old, and creates items up to `min_pool`.
    pub fn tidy(&self, now: Instant, limits: PoolParam, count: &LocalMempool, mut make: impl FnMut() -> T) {
        let mut kept = self.0.borrow_mut();
        while kept.len() > limits.max_pool as usize {
            kept.pop_front();
            count.surplus.add(1);
            count.pool.sub(1);
        }
        let age = clock::seconds(limits.max_age);
        while kept.len() > limits.min_pool as usize
            && kept.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) > age)
        {
            kept.pop_front();
            count.timeout.add(1);
            count.pool.sub(1);
        }
        while kept.len() < limits.min_pool as usize {
            kept.push_front((now, make()));
            count.pool.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_stays_within_its_limits() {
        let (spares, count, now) = (RecyclePool::default(), LocalMempool::default(), Instant::now());
        let limits = |min_pool, max_pool, max_age| PoolParam { min_pool, max_pool, max_age };
        spares.tidy(now, limits(9, 10, 10.0), &count, || 0);
        assert_eq!(count.pool.pending(), 9);
        spares.tidy(now, limits(5, 8, 10.0), &count, || 0);
        assert_eq!((count.pool.pending(), count.surplus.pending()), (8, 1));
        spares.tidy(now + clock::seconds(2.0), limits(1, 8, 1.0), &count, || 0);
        assert_eq!((count.pool.pending(), count.timeout.pending()), (1, 7));
        assert_eq!(spares.take(&count), Some(0));
        assert_eq!(spares.take(&count), None);
        spares.give(1, now, limits(1, 1, 1.0), &count);
        spares.give(2, now, limits(1, 1, 1.0), &count);
        assert_eq!((count.live.pending(), count.pool.pending()), (0, 1));
    }
}
