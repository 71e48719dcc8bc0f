//! Idle deadlines of a reactor's connections, checked in turns instead of by one timer each.
//!
//! A connection is idle between any two requests, so a timer would be set and cancelled for every request. Here both
//! are a store into a cell, and the time is that of the last sweep: no clock is read. A deadline is in the queue of one
//! turn and is checked when that turn comes. Thousands of idle connections cost nothing until then. The price is
//! precision: a connection may stay open for two sweep intervals longer than it should.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lacquer_sources::clock;

/// The time between sweeps: the delay with which a deadline may be noticed, and the largest age of the time
/// that it counts from.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// No turn is planned further ahead than this, in seconds, so that closed connections leave the queues soon.
const HORIZON: f64 = 10.0;
/// The turn of a deadline that is in no queue.
const NO_TURN: u64 = u64::MAX;

/// Returns the last turn before a time. Turns are counted in sweep intervals.
fn turn_before(at: f64) -> u64 {
    (at / SWEEP_INTERVAL.as_secs_f64()) as u64
}

fn time_of(turn: u64) -> f64 {
    turn as f64 * SWEEP_INTERVAL.as_secs_f64()
}

/// A moment of the sweeps' clock, in seconds.
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
    /// A request is at work.
    Busy,
    /// It waits for a request after others.
    Kept,
    /// It has never sent a request.
    Silent,
}

/// One connection's deadline.
pub struct Deadline {
    me: Weak<Deadline>,
    queues: Rc<Queues>,
    at: Cell<f64>,
    /// The turn in which it is checked.
    turn: Cell<u64>,
    expired: Cell<bool>,
    idleness: Cell<Idleness>,
    waker: RefCell<Option<Waker>>,
}

impl Deadline {
    /// Returns the time of the last sweep.
    pub fn now(&self) -> Moment {
        Moment(self.queues.clock.get())
    }

    /// Sets the deadline to so many seconds after a moment. It never expires earlier.
    pub fn arm(&self, since: Moment, seconds: f64) {
        self.expired.set(false);
        self.idleness.set(Idleness::Busy);
        let at = since.0 + seconds.max(0.0) + SWEEP_INTERVAL.as_secs_f64();
        self.at.set(at);
        if time_of(self.turn.get()) > at {
            self.queue(0);
        }
    }

    /// Puts the deadline into the queue of the last turn before its time, but of none before `least`. Its
    /// entry in an earlier queue becomes invalid.
    fn queue(&self, least: u64) {
        let turn = turn_before(self.at.get().min(self.queues.clock.get() + HORIZON)).max(least);
        self.turn.set(turn);
        self.queues.turns.borrow_mut().entry(turn).or_default().push(self.me.clone());
    }

    /// Checks the deadline when its turn has come.
    fn look(&self, now: f64) {
        self.turn.set(NO_TURN);
        let at = self.at.get();
        if at <= now {
            self.expire();
        } else if at < f64::INFINITY {
            self.queue(turn_before(now) + 1);
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

    /// Allows the deadline to be brought forward, until it is armed or disarmed; see [`Deadlines::shed`].
    pub fn offer(&self, idleness: Idleness) {
        self.idleness.set(idleness);
    }

    /// Returns whether the time is over. Otherwise the task is woken when it is.
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

    /// Returns the result of the work, or `None` if there is none within so many seconds after a moment.
    pub async fn limit<T>(&self, since: Moment, seconds: f64, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        self.arm(since, seconds);
        let done = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.poll_expired(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await;
        self.disarm();
        done
    }
}

/// State that a reactor's deadlines share.
struct Queues {
    /// Returns the time of the last sweep.
    clock: Cell<f64>,
    turns: RefCell<BTreeMap<u64, Vec<Weak<Deadline>>>>,
}

/// All deadlines of one reactor.
pub struct Deadlines(Rc<Queues>);

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines::beginning(clock::monotonic())
    }
}

impl Deadlines {
    fn beginning(now: f64) -> Deadlines {
        Deadlines(Rc::new(Queues { clock: Cell::new(now), turns: RefCell::default() }))
    }

    pub fn enlist(&self) -> Rc<Deadline> {
        Rc::new_cyclic(|me| Deadline {
            me: me.clone(),
            queues: self.0.clone(),
            at: Cell::new(f64::INFINITY),
            turn: Cell::new(NO_TURN),
            expired: Cell::new(false),
            idleness: Cell::new(Idleness::Busy),
            waker: RefCell::new(None),
        })
    }

    fn sweep(&self, now: f64) {
        self.0.clock.set(now);
        let due = turn_before(now);
        loop {
            let mut turns = self.0.turns.borrow_mut();
            let Some(first) = turns.first_entry().filter(|first| *first.key() <= due) else { return };
            let (turn, queue) = first.remove_entry();
            drop(turns);
            let waiting = queue.iter().filter_map(Weak::upgrade);
            waiting.filter(|deadline| deadline.turn.get() == turn).for_each(|deadline| deadline.look(now));
        }
    }

    /// Waits for the next turn and checks its deadlines.
    pub async fn next_turn(&self) {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        self.sweep(clock::monotonic());
    }

    /// Expires at most so many idle connections, the next to expire first. Returns their number.
    pub fn shed(&self, idleness: Idleness, most: usize) -> usize {
        let found = self.find_idle(idleness, most);
        for deadline in &found {
            deadline.expire();
        }
        found.len()
    }

    fn find_idle(&self, idleness: Idleness, most: usize) -> Vec<Rc<Deadline>> {
        let turns = self.0.turns.borrow();
        let queued = turns.iter().flat_map(|(turn, queue)| queue.iter().map(move |entry| (*turn, entry)));
        let fits = |(turn, entry): (u64, &Weak<Deadline>)| {
            entry.upgrade().filter(|found| found.turn.get() == turn && found.idleness.get() == idleness)
        };
        queued.filter_map(fits).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(deadlines: &Deadlines) -> usize {
        deadlines.0.turns.borrow().values().map(Vec::len).sum()
    }

    #[test]
    fn deadlines_expire_soon_after_their_time_and_not_before() {
        let deadlines = Deadlines::beginning(1000.0);
        let (soon, far) = (deadlines.enlist(), deadlines.enlist());
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
    fn idle_connections_give_way() {
        let deadlines = Deadlines::beginning(0.0);
        let all: Vec<_> = (0..6).map(|_| deadlines.enlist()).collect();
        for (n, deadline) in all.iter().enumerate() {
            deadline.arm(deadline.now(), 9.0 - n as f64);
            deadline.offer([Idleness::Busy, Idleness::Kept, Idleness::Silent][n % 3]);
        }
        let gone = || all.iter().map(|deadline| u8::from(deadline.expired.get())).collect::<Vec<_>>();
        assert_eq!(deadlines.shed(Idleness::Silent, 1), 1);
        assert_eq!(gone(), [0, 0, 0, 0, 0, 1], "the one whose time is over first");
        assert_eq!(deadlines.shed(Idleness::Silent, 8), 1);
        assert_eq!(gone(), [0, 0, 1, 0, 0, 1]);
        assert_eq!([Idleness::Kept, Idleness::Kept].map(|kind| deadlines.shed(kind, 8)), [2, 0]);
        assert_eq!(gone(), [0, 1, 1, 0, 1, 1], "who is busy stays");
    }

    #[test]
    fn what_is_armed_again_is_found_once_and_early_enough() {
        let deadlines = Deadlines::beginning(0.0);
        let one = deadlines.enlist();
        for seconds in 0..9 {
            one.arm(one.now(), 1.0 + f64::from(seconds));
        }
        assert_eq!(waiting(&deadlines), 1, "later is seen when its turn comes");
        one.arm(one.now(), 0.5);
        deadlines.sweep(0.6);
        assert!(one.expired.get(), "sooner is not missed");
        one.arm(one.now(), 1.0);
        assert!(!one.expired.get());
        one.disarm();
        deadlines.sweep(20.0);
        assert!(!one.expired.get());
        one.arm(one.now(), 1.0);
        drop(one);
        deadlines.sweep(30.0);
        assert_eq!(waiting(&deadlines), 0, "who is gone is forgotten");
    }
}
