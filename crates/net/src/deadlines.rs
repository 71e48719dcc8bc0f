//! Idle deadlines of a reactor's connections. A periodic sweep checks them; there is no timer for each.
//!
//! A connection is idle between any two requests, so a timer would be set and cancelled for every request. Here both
//! operations store a value in a cell. They count from the time of the last sweep, so they read no clock. A deadline
//! is queued for one future sweep and checked by that one. Thousands of idle connections cost nothing until then. The
//! price is precision: a connection may stay open for two sweep intervals longer than it should.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lacquer_sources::clock;

/// The time between sweeps. It bounds both the delay with which an expired deadline is noticed and the age of the
/// time that deadlines count from.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// A deadline is queued at most this many seconds ahead, so that entries of closed connections leave the queues soon.
const HORIZON: f64 = 10.0;
/// The sweep number of a deadline that is in no queue.
const NO_SWEEP: u64 = u64::MAX;

/// Returns the number of the last sweep before a time. Sweeps are numbered in sweep intervals of the clock.
fn sweep_before(at: f64) -> u64 {
    (at / SWEEP_INTERVAL.as_secs_f64()) as u64
}

fn time_of(sweep_number: u64) -> f64 {
    sweep_number as f64 * SWEEP_INTERVAL.as_secs_f64()
}

/// A time on the sweep clock, in seconds.
#[derive(Clone, Copy)]
pub struct Moment(f64);

impl Moment {
    /// Returns the seconds since an earlier moment.
    pub fn since(self, earlier: Moment) -> f64 {
        self.0 - earlier.0
    }
}

/// The state of a connection that decides whether it may be closed early when descriptors are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idleness {
    /// A request is being processed.
    Busy,
    /// It waits for a further request.
    Kept,
    /// It has never sent a request.
    Silent,
}

/// One connection's deadline.
pub struct Deadline {
    me: Weak<Deadline>,
    queues: Rc<Queues>,
    at: Cell<f64>,
    /// The time from which it counts.
    since: Cell<f64>,
    /// The number of the sweep that checks it.
    sweep_number: Cell<u64>,
    expired: Cell<bool>,
    idleness: Cell<Idleness>,
    waker: RefCell<Option<Waker>>,
}

impl Deadline {
    /// Returns the time of the last sweep.
    pub fn now(&self) -> Moment {
        Moment(self.queues.clock.get())
    }

    /// Sets the deadline to `seconds` after `since`. It never expires earlier.
    pub fn arm(&self, since: Moment, seconds: f64) {
        self.expired.set(false);
        self.idleness.set(Idleness::Busy);
        let at = since.0 + seconds.max(0.0) + SWEEP_INTERVAL.as_secs_f64();
        self.at.set(at);
        self.since.set(since.0);
        if time_of(self.sweep_number.get()) > at {
            self.queue(0);
        }
    }

    /// Queues the deadline for the last sweep before its time, but not before sweep `least`. An entry in an earlier
    /// queue becomes invalid.
    fn queue(&self, least: u64) {
        let sweep_number = sweep_before(self.at.get().min(self.queues.clock.get() + HORIZON)).max(least);
        self.sweep_number.set(sweep_number);
        self.queues.queued.borrow_mut().entry(sweep_number).or_default().push(self.me.clone());
    }

    /// Checks the deadline in the sweep that it was queued for.
    fn check(&self, now: f64) {
        self.sweep_number.set(NO_SWEEP);
        let at = self.at.get();
        if at <= now {
            self.expire();
        } else if at < f64::INFINITY {
            self.queue(sweep_before(now) + 1);
        }
    }

    fn expire(&self) {
        self.disarm();
        self.expired.set(true);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    pub fn disarm(&self) {
        self.at.set(f64::INFINITY);
        self.idleness.set(Idleness::Busy);
    }

    /// Marks the connection as one that [`Deadlines::shed`] may expire early. Arming or disarming removes the mark.
    pub fn allow_shedding(&self, idleness: Idleness) {
        self.idleness.set(idleness);
    }

    /// Returns whether the deadline has expired. Otherwise registers the task to be woken when it does.
    pub fn poll_expired(&self, cx: &Context<'_>) -> bool {
        if self.expired.get() {
            return true;
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        false
    }

    /// Returns the result of `work`, or `None` if it takes longer than `seconds` after `since`. Work that completes at
    /// once sets no deadline.
    pub async fn limit<T>(&self, since: Moment, seconds: f64, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut is_armed = false;
        let done = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if !std::mem::replace(&mut is_armed, true) => {
                self.arm(since, seconds);
                self.poll_expired(cx);
                Poll::Pending
            }
            Poll::Pending if self.poll_expired(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await;
        self.disarm();
        done
    }
}

/// The state that all deadlines of a reactor share.
struct Queues {
    /// The time of the last sweep.
    clock: Cell<f64>,
    queued: RefCell<BTreeMap<u64, Vec<Weak<Deadline>>>>,
}

/// All deadlines of one reactor.
pub struct Deadlines(Rc<Queues>);

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines::starting_at(clock::monotonic())
    }
}

impl Deadlines {
    fn starting_at(now: f64) -> Deadlines {
        Deadlines(Rc::new(Queues { clock: Cell::new(now), queued: RefCell::default() }))
    }

    pub fn add_deadline(&self) -> Rc<Deadline> {
        Rc::new_cyclic(|me| Deadline {
            me: me.clone(),
            queues: self.0.clone(),
            at: Cell::new(f64::INFINITY),
            since: Cell::new(f64::INFINITY),
            sweep_number: Cell::new(NO_SWEEP),
            expired: Cell::new(false),
            idleness: Cell::new(Idleness::Busy),
            waker: RefCell::new(None),
        })
    }

    fn sweep(&self, now: f64) {
        self.0.clock.set(now);
        let due = sweep_before(now);
        loop {
            let mut pending = self.0.queued.borrow_mut();
            let Some(first) = pending.first_entry().filter(|first| *first.key() <= due) else { return };
            let (sweep_number, entries) = first.remove_entry();
            drop(pending);
            let waiting = entries.iter().filter_map(Weak::upgrade);
            waiting
                .filter(|deadline| deadline.sweep_number.get() == sweep_number)
                .for_each(|deadline| deadline.check(now));
        }
    }

    /// Waits for the next sweep and performs it.
    pub async fn next_sweep(&self) {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        self.sweep(clock::monotonic());
    }

    /// Expires at most `most` connections of this idleness that have waited for at least `seconds`, in the order of their
    /// deadlines. Returns their number.
    pub fn shed(&self, idleness: Idleness, seconds: f64, most: usize) -> usize {
        let found = self.find_idle(idleness, self.0.clock.get() - seconds, most);
        for deadline in &found {
            deadline.expire();
        }
        found.len()
    }

    fn find_idle(&self, idleness: Idleness, since: f64, most: usize) -> Vec<Rc<Deadline>> {
        let queued = self.0.queued.borrow();
        let queued = queued
            .iter()
            .flat_map(|(sweep_number, queue)| queue.iter().map(move |entry| (*sweep_number, entry)));
        let fits = |(sweep_number, entry): (u64, &Weak<Deadline>)| {
            entry
                .upgrade()
                .filter(|found| found.sweep_number.get() == sweep_number && found.idleness.get() == idleness)
                .filter(|found| found.since.get() <= since)
        };
        queued.filter_map(fits).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(deadlines: &Deadlines) -> usize {
        deadlines.0.queued.borrow().values().map(Vec::len).sum()
    }

    #[test]
    fn deadlines_expire_soon_after_their_time_and_not_before() {
        let deadlines = Deadlines::starting_at(1000.0);
        let (soon, far) = (deadlines.add_deadline(), deadlines.add_deadline());
        let begun = soon.now();
        soon.arm(begun, 0.12);
        far.arm(begun, 600.0);
        for sweep in 1..20_000 {
            let passed = f64::from(sweep) * 0.05;
            deadlines.sweep(1000.0 + passed);
            for (deadline, seconds) in [(&soon, 0.12), (&far, 600.0)] {
                let expired = deadline.expired.get();
                assert!(!expired || passed >= seconds, "{passed}");
                assert!(expired || passed < seconds + 0.11, "{passed}");
            }
        }
        assert_eq!(waiting(&deadlines), 0);
    }

    #[test]
    fn idle_connections_are_shed() {
        let deadlines = Deadlines::starting_at(0.0);
        let all: Vec<_> = (0..6).map(|_| deadlines.add_deadline()).collect();
        for (n, deadline) in all.iter().enumerate() {
            deadline.arm(deadline.now(), 9.0 - n as f64);
            deadline.allow_shedding([Idleness::Busy, Idleness::Kept, Idleness::Silent][n % 3]);
        }
        let gone = || all.iter().map(|deadline| u8::from(deadline.expired.get())).collect::<Vec<_>>();
        assert_eq!(deadlines.shed(Idleness::Silent, 0.0, 1), 1);
        assert_eq!(gone(), [0, 0, 0, 0, 0, 1], "the one with the earliest deadline");
        assert_eq!(deadlines.shed(Idleness::Silent, 0.0, 8), 1);
        assert_eq!(gone(), [0, 0, 1, 0, 0, 1]);
        assert_eq!(deadlines.shed(Idleness::Kept, 1.0, 8), 0);
        deadlines.sweep(1.0);
        all[1].arm(all[1].now(), 8.0);
        all[1].allow_shedding(Idleness::Kept);
        assert_eq!(deadlines.shed(Idleness::Kept, 1.0, 8), 1);
        assert_eq!(gone(), [0, 0, 1, 0, 1, 1], "the other one had a request meanwhile");
        assert_eq!([Idleness::Kept, Idleness::Kept].map(|kind| deadlines.shed(kind, 0.0, 8)), [1, 0]);
        assert_eq!(gone(), [0, 1, 1, 0, 1, 1], "busy connections stay");
    }

    #[test]
    fn a_rearmed_deadline_is_queued_once_and_expires_on_time() {
        let deadlines = Deadlines::starting_at(0.0);
        let one = deadlines.add_deadline();
        for seconds in 0..9 {
            one.arm(one.now(), 1.0 + f64::from(seconds));
        }
        assert_eq!(waiting(&deadlines), 1, "a later time is found by the queued sweep");
        one.arm(one.now(), 0.5);
        deadlines.sweep(0.6);
        assert!(one.expired.get(), "an earlier time is queued again");
        one.arm(one.now(), 1.0);
        assert!(!one.expired.get());
        one.disarm();
        deadlines.sweep(20.0);
        assert!(!one.expired.get());
        one.arm(one.now(), 1.0);
        drop(one);
        deadlines.sweep(30.0);
        assert_eq!(waiting(&deadlines), 0, "a dropped deadline leaves the queue");
    }
}
