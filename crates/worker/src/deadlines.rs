//! Idle deadlines of a reactor's connections, looked at in turns instead of one timer each.
//!
//! A connection is idle between any two requests, so a timer would be set and taken back for every
//! request. Here both are a store into a cell, and the time is that of the last sweep: no clock is read.
//! The price is precision: a connection may stay two sweeps' intervals longer than it should.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock;

/// How late a deadline may be noticed, and how old the time may be that it is counted from.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// A moment of the sweeps' clock, in seconds.
#[derive(Clone, Copy)]
pub struct Moment(f64);

/// One connection's deadline.
pub struct Deadline {
    clock: Rc<Cell<f64>>,
    at: Cell<f64>,
    expired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Deadline {
    /// The time of the last sweep.
    pub fn now(&self) -> Moment {
        Moment(self.clock.get())
    }

    /// Runs out so many seconds after a moment, never earlier.
    pub fn arm(&self, since: Moment, seconds: f64) {
        self.expired.set(false);
        self.at.set(since.0 + seconds.max(0.0) + SWEEP_INTERVAL.as_secs_f64());
    }

    pub fn disarm(&self) {
        self.at.set(f64::INFINITY);
    }

    /// Whether the time is over; else the task is woken when it is.
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

    /// What the work gives; `None` if it gives nothing within so many seconds after a moment.
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

/// All deadlines of one reactor.
pub struct Deadlines {
    clock: Rc<Cell<f64>>,
    all: RefCell<Vec<Weak<Deadline>>>,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { clock: Rc::new(Cell::new(clock::monotonic())), all: RefCell::default() }
    }
}

impl Deadlines {
    pub fn enlist(&self) -> Rc<Deadline> {
        let deadline = Rc::new(Deadline {
            clock: self.clock.clone(),
            at: Cell::new(f64::INFINITY),
            expired: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.all.borrow_mut().push(Rc::downgrade(&deadline));
        deadline
    }

    fn sweep(&self, now: f64) {
        self.clock.set(now);
        self.all.borrow_mut().retain(|entry| {
            let Some(deadline) = entry.upgrade() else { return false };
            if deadline.at.get() <= now {
                deadline.disarm();
                deadline.expired.set(true);
                if let Some(waker) = deadline.waker.borrow().as_ref() {
                    waker.wake_by_ref();
                }
            }
            true
        });
    }

    pub async fn keep_sweeping(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.sweep(clock::monotonic());
        }
    }
}
