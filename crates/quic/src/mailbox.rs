//! The packets that an endpoint has received for a connection, until its task handles them.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

use quinn_proto::ConnectionEvent;

/// The number of packets that wait for a connection. The others are lost.
const WAITING: usize = 1024;

/// A connection's packets, and its task.
#[derive(Default)]
pub struct Mailbox {
    events: RefCell<Vec<ConnectionEvent>>,
    waker: RefCell<Option<Waker>>,
    /// The task is running, so it need not be woken.
    is_running: Cell<bool>,
}

impl Mailbox {
    /// Adds a packet, and wakes the connection's task.
    pub fn push(&self, event: ConnectionEvent) {
        let mut events = self.events.borrow_mut();
        if events.len() < WAITING {
            events.push(event);
            drop(events);
            self.wake();
        }
    }

    /// Moves all packets to `taken`.
    pub fn take(&self, taken: &mut Vec<ConnectionEvent>) {
        taken.append(&mut self.events.borrow_mut());
    }

    pub fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    pub fn wake(&self) {
        if !self.is_running.get()
            && let Some(waker) = self.waker.borrow_mut().take()
        {
            waker.wake();
        }
    }

    pub fn set_running(&self, is_running: bool) {
        self.is_running.set(is_running);
    }
}
