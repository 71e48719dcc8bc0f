//! The state of a connection that its streams and its driver share. It is used on one reactor, so its lock is free.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lacquer_h2::client::{Connection, Limits};
use lacquer_sources::clock;
use parking_lot::{Mutex, MutexGuard};

use crate::capacity::Counted;
use crate::facts::Facts;

/// The socket below. The driver alone sends and receives.
pub(super) type Socket = Arc<dyn AsFd + Send + Sync>;

/// A connection with many streams.
pub struct Multiplexed {
    pub(super) socket: Socket,
    facts: Facts,
    /// Counts the connection as open.
    _alive: Counted,
    state: Mutex<State>,
}

pub(super) struct State {
    pub protocol: Connection,
    /// The number of streams that are about to be opened.
    pub reserved: u32,
    /// It gets no further streams, and ends after the last one.
    pub is_left: bool,
    /// Other requests than the one that has opened the connection get streams.
    pub is_shared: bool,
    /// The number of times that bytes have arrived.
    pub reads: u32,
    waiting: BTreeMap<u32, Waiting>,
    driver: Option<Waker>,
    /// The task that waits for the settings of the origin.
    settings: Option<Waker>,
}

/// The tasks that wait for a stream.
#[derive(Default)]
struct Waiting {
    read: Option<Waker>,
    write: Option<Waker>,
}

/// Registers the task, unless it is registered already.
fn register(slot: &mut Option<Waker>, cx: &Context<'_>) {
    if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *slot = Some(cx.waker().clone());
    }
}

impl Multiplexed {
    /// Begins HTTP/2 on a socket.
    pub(super) fn new(socket: Socket, facts: Facts, alive: Counted, limits: Limits) -> Multiplexed {
        let protocol = Connection::new(limits);
        let state = State {
            protocol,
            reserved: 0,
            is_left: false,
            is_shared: false,
            reads: 0,
            waiting: BTreeMap::new(),
            driver: None,
            settings: None,
        };
        Multiplexed { socket, facts, _alive: alive, state: Mutex::new(state) }
    }

    /// Returns the facts about the connection.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns whether further requests may get streams, if `needs_shared` only of a shared connection. None do once `is_over` holds for the number of streams and the
    /// age of the connection.
    pub(super) fn is_usable(&self, is_over: &dyn Fn(u32, f64) -> bool, needs_shared: bool) -> bool {
        let state = self.state();
        let opened = state.protocol.opened().saturating_add(state.reserved);
        if !state.is_left && is_over(opened, self.facts.age(clock::real())) {
            drop(state);
            self.leave();
            return false;
        }
        (state.is_shared || !needs_shared) && !state.is_left
    }

    /// Opens no further streams, and ends the connection after the last one.
    pub(super) fn leave(&self) {
        self.state().is_left = true;
        self.wake_driver();
    }

    /// Waits until the origin has announced its settings, or the connection has ended.
    pub(super) async fn has_settings(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.has_settings() {
                return Poll::Ready(());
            }
            register(&mut state.settings, cx);
            Poll::Pending
        })
        .await;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes the driver, which sends the waiting output.
    pub(super) fn wake_driver(&self) {
        let driver = self.state().driver.clone();
        driver.into_iter().for_each(Waker::wake);
    }

    /// Wakes the tasks that wait for streams that have changed, or for the settings.
    pub(super) fn wake_changed(&self) {
        let mut woken = Vec::new();
        {
            let mut state = self.state();
            for id in state.protocol.take_changed() {
                if let Some(waiting) = state.waiting.remove(&id) {
                    woken.extend([waiting.read, waiting.write].into_iter().flatten());
                }
            }
            if state.settings.is_some() && state.has_settings() {
                woken.extend(state.settings.take());
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

impl State {
    pub fn wait_to_read(&mut self, id: u32, cx: &Context<'_>) {
        register(&mut self.waiting.entry(id).or_default().read, cx);
    }

    pub fn wait_to_write(&mut self, id: u32, cx: &Context<'_>) {
        register(&mut self.waiting.entry(id).or_default().write, cx);
    }

    pub fn register_driver(&mut self, cx: &Context<'_>) {
        register(&mut self.driver, cx);
    }

    /// Ends the use of a stream.
    pub fn release(&mut self, id: u32) {
        self.waiting.remove(&id);
        self.protocol.release(id);
    }

    fn has_settings(&self) -> bool {
        self.protocol.has_settings() || self.protocol.end().is_some()
    }

    pub fn is_in_use(&self) -> bool {
        self.reserved > 0 || self.protocol.is_in_use()
    }
}
