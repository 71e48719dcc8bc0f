//! Idle deadlines of a reactor's connections, looked at in turns instead of one timer each.
//!
//! A connection is idle between any two requests, so a timer would be set and taken back for every
//! request. Here both are a store into a cell; a sweep finds those that have run out. The price is
//! precision: a connection may stay a sweep's interval longer than it should.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// How late a deadline may be noticed.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// One connection's deadline.
#[derive(Default)]
pub struct Deadline {
    at: Cell<Option<Instant>>,
    expired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Deadline {
    pub fn arm(&self, at: Instant) {
        self.expired.set(false);
        self.at.set(Some(at));
    }

    pub fn disarm(&self) {
        self.at.set(None);
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

    /// What the work gives; `None` if it gives nothing in time.
    pub async fn limit<T>(&self, at: Instant, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        self.arm(at);
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
#[derive(Default)]
pub struct Deadlines(RefCell<Vec<Weak<Deadline>>>);

impl Deadlines {
    pub fn enlist(&self) -> Rc<Deadline> {
        let deadline = Rc::new(Deadline::default());
        self.0.borrow_mut().push(Rc::downgrade(&deadline));
        deadline
    }

    fn sweep(&self, now: Instant) {
        self.0.borrow_mut().retain(|entry| {
            let Some(deadline) = entry.upgrade() else { return false };
            if deadline.at.get().is_some_and(|at| at <= now) {
                deadline.at.set(None);
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
            self.sweep(Instant::now());
        }
    }
}
