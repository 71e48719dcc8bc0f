//! The bound on the number of requests that wait at a time: for an origin, for another request's fetch, or for a body
//! that is still being fetched. Requests that the cache can serve at once need only the client's socket, and are not
//! bounded.
//!
//! The bound is a share of the process's descriptors, or the number of threads that Varnish would have. When it is
//! reached, fetches that nobody waits for end first. Such a fetch is called an orphan: its client has left, and it
//! continues only to fill the cache.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Waker};

use lacquer_params::Params;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The divisor of the descriptor limit. A waiting request uses two descriptors, for its client and its origin; the
/// third is left for other uses.
const SHARE: u64 = 3;
/// The longest wait in seconds for a permit, after which the request is rejected. Abandoned fetches end within
/// milliseconds.
const MAX_WAIT: f64 = 1.0;
/// The defaults of `thread_pool_max` and `thread_queue_limit`, by which changed values are recognized.
const POOL_MAX: u32 = 5000;
const QUEUE_LIMIT: u32 = 20;

/// The number of requests that may wait under the current parameters, and the handling of further requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    most: u64,
    /// The number of further requests that may wait for a permit.
    queue: u32,
    /// The bound comes from the thread parameters. A request that gets no permit is dropped, as in Varnish.
    is_threads: bool,
}

impl Bound {
    pub fn of(params: &Params, descriptors: u64) -> Bound {
        let share = match params.max_waiting {
            0 => (descriptors / SHARE).max(1),
            chosen => u64::from(chosen),
        };
        let pools = params.thread_pools.max(1);
        let threads = u64::from(params.thread_pool_max) * u64::from(pools);
        let is_chosen = params.thread_pool_max != POOL_MAX || params.thread_queue_limit != QUEUE_LIMIT;
        if is_chosen && threads <= share {
            let queue = params.thread_queue_limit.saturating_mul(pools);
            return Bound { most: threads, queue, is_threads: true };
        }
        let queue = u32::try_from(share.div_ceil(2)).unwrap_or(u32::MAX);
        Bound { most: share, queue, is_threads: false }
    }

    /// Returns the longest wait for a permit, in seconds.
    pub fn max_wait(self) -> f64 {
        if self.is_threads { f64::INFINITY } else { MAX_WAIT }
    }

    /// Returns whether a request that gets no permit is dropped; otherwise it receives a 503.
    pub fn drops(self) -> bool {
        self.is_threads
    }

    /// Returns the number of connections that one backend may have in use, so that a hanging backend leaves room for
    /// the others.
    pub fn per_backend(self) -> u32 {
        if self.is_threads {
            return u32::MAX;
        }
        u32::try_from((self.most - self.most / 4).max(1)).unwrap_or(u32::MAX)
    }
}

/// The counts of waiting requests, over all reactors.
///
/// A request is queued before it tries to take a permit, and a permit is returned before the queue is looked at. Both
/// counts are changed in one order for all threads (`SeqCst`), so at least one side sees the other, and no wake-up is
/// lost. A failed attempt does not change the counts, since it could make another one fail.
#[derive(Default)]
pub struct Admission {
    waiting: AtomicU64,
    queued: AtomicU32,
    freed: Notify,
    orphans: Mutex<Orphans>,
}

/// A permit to wait. Dropping it returns it.
pub struct Permit(Arc<Admission>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        if self.0.queued.load(Ordering::SeqCst) > 0 {
            self.0.freed.notify_one();
        }
    }
}

/// A place in the queue for a permit. Dropping it leaves the queue.
pub struct Queued<'a>(&'a Admission);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    /// Returns a permit if the bound is not reached.
    pub fn enter(self: &Arc<Self>, bound: Bound) -> Option<Permit> {
        // Requests in the queue go first.
        if self.queued.load(Ordering::Relaxed) > 0 { None } else { self.take(bound) }
    }

    fn take(self: &Arc<Self>, bound: Bound) -> Option<Permit> {
        let more = |waiting| (waiting < bound.most).then_some(waiting + 1);
        let taken = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.is_ok().then(|| Permit(self.clone()))
    }

    /// Returns a permit regardless of the bound, for a part of a request that was admitted already.
    pub fn force(self: &Arc<Self>) -> Permit {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Permit(self.clone())
    }

    /// Returns whether more than half of the bound is in use, so that clients of new requests are checked for
    /// presence.
    pub fn is_under_pressure(&self, bound: Bound) -> bool {
        2 * self.waiting() > bound.most
    }

    /// Returns a place in the queue, if the queue is not full. Evicts one orphan.
    pub fn queue(&self, bound: Bound) -> Option<Queued<'_>> {
        let queued = Queued(self);
        self.evict(None);
        (self.queued.fetch_add(1, Ordering::SeqCst) < bound.queue).then_some(queued)
    }

    /// Waits in the queue for a permit.
    pub async fn wait(self: &Arc<Self>, bound: Bound, _place: &Queued<'_>) -> Permit {
        loop {
            let freed = self.freed.notified();
            if let Some(permit) = self.take(bound) {
                // There may be a permit for the next request too.
                self.freed.notify_one();
                return permit;
            }
            freed.await;
        }
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn queued(&self) -> u64 {
        u64::from(self.queued.load(Ordering::Relaxed))
    }

    /// Records a fetch that continues without its client. It can be evicted for as long as the caller holds the
    /// orphan.
    pub fn add_orphan(&self, endpoint: u64) -> Arc<Orphan> {
        let orphan = Arc::new(Orphan { endpoint, evicted: AtomicBool::new(false), waker: Mutex::new(None) });
        if self.queued.load(Ordering::Relaxed) > 0 {
            orphan.evict();
        } else {
            self.orphans.lock().add(orphan.clone());
        }
        orphan
    }

    /// Evicts the oldest orphan, of this endpoint if one is given. Returns false if there is none.
    pub fn evict(&self, endpoint: Option<u64>) -> bool {
        let found = self.orphans.lock().take_oldest(endpoint);
        found.inspect(|orphan| orphan.evict()).is_some()
    }
}

/// A fetch that nobody waits for.
pub struct Orphan {
    endpoint: u64,
    evicted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Orphan {
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }

    /// Registers the fetch's task to be woken by an eviction.
    pub fn watch(&self, cx: &Context<'_>) {
        *self.waker.lock() = Some(cx.waker().clone());
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Orphans in the order of their age. Ended ones are swept when they may be the majority.
#[derive(Default)]
struct Orphans {
    all: VecDeque<Arc<Orphan>>,
    sweep_at: usize,
}

const SWEEP_MIN: usize = 64;

impl Orphans {
    fn add(&mut self, orphan: Arc<Orphan>) {
        if self.all.len() >= self.sweep_at {
            self.all.retain(is_running);
            self.sweep_at = SWEEP_MIN + 2 * self.all.len();
        }
        self.all.push_back(orphan);
    }

    fn take_oldest(&mut self, endpoint: Option<u64>) -> Option<Arc<Orphan>> {
        while self.all.front().is_some_and(|oldest| !is_running(oldest)) {
            self.all.pop_front();
        }
        let fits = |orphan: &Arc<Orphan>| {
            is_running(orphan) && endpoint.is_none_or(|endpoint| endpoint == orphan.endpoint)
        };
        let at = self.all.iter().position(fits)?;
        self.all.remove(at)
    }
}

/// Returns whether the fetch still holds the orphan.
fn is_running(orphan: &Arc<Orphan>) -> bool {
    Arc::strong_count(orphan) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(most: u64) -> Bound {
        Bound { most, queue: 1, is_threads: false }
    }

    #[test]
    fn the_bound_is_a_share_of_the_descriptors_unless_thread_parameters_are_set() {
        let defaults = Params::default();
        assert_eq!((defaults.thread_pool_max, defaults.thread_queue_limit), (POOL_MAX, QUEUE_LIMIT));
        let with = |change: fn(&mut Params)| {
            let mut params = defaults.clone();
            change(&mut params);
            let Bound { most, queue, is_threads } = Bound::of(&params, 1024);
            (most, queue, is_threads)
        };
        assert_eq!(with(|_| {}), (341, 171, false));
        assert_eq!(with(|p| p.max_waiting = 10), (10, 5, false));
        assert_eq!(with(|p| p.thread_pools = 1), (341, 171, false));
        assert_eq!(with(|p| p.thread_pool_max = 6), (12, 40, true));
        assert_eq!(
            with(|p| (p.thread_pools, p.thread_pool_max, p.thread_queue_limit) = (1, 6, 0)),
            (6, 0, true)
        );
        assert_eq!(with(|p| p.thread_pool_max = 6000), (341, 171, false));
        assert_eq!(with(|p| (p.thread_pool_max, p.max_waiting) = (50, 10)), (10, 5, false));
        assert_eq!(bound(341).per_backend(), 256);
        assert_eq!(bound(1).per_backend(), 1);
    }

    #[test]
    fn dropped_permits_can_be_used_again() {
        let admission = Arc::new(Admission::default());
        let first = admission.enter(bound(2));
        let second = admission.enter(bound(2));
        assert!(first.is_some() && second.is_some());
        assert!(admission.enter(bound(2)).is_none());
        let part = admission.force();
        assert_eq!(admission.waiting(), 3);
        drop((first, part));
        assert!(admission.enter(bound(2)).is_some());
        let place = admission.queue(bound(2));
        assert!(place.is_some() && admission.queue(bound(2)).is_none());
        assert!(admission.enter(bound(2)).is_none(), "queued requests go first");
        drop((second, place));
        assert_eq!((admission.waiting(), admission.queued()), (0, 0));
    }

    #[test]
    fn the_oldest_orphan_is_evicted_first() {
        let admission = Arc::new(Admission::default());
        let full = admission.enter(bound(1));
        let [ended, oldest, other] = [1, 1, 2].map(|endpoint| admission.add_orphan(endpoint));
        drop(ended);
        assert!(admission.evict(Some(2)) && other.is_evicted() && !oldest.is_evicted());
        assert!(!admission.evict(Some(2)));
        assert!(admission.enter(bound(1)).is_none() && !oldest.is_evicted());
        let place = admission.queue(bound(1));
        assert!(place.is_some() && oldest.is_evicted());
        assert!(admission.add_orphan(1).is_evicted(), "a request is queued");
        drop((full, place));
        for _ in 0..10_000 {
            drop(admission.add_orphan(1));
        }
        assert!(admission.orphans.lock().all.len() <= SWEEP_MIN);
    }
}
