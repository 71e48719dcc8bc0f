//! Drivers of fetches. A fetch runs in the task of the request that waits for it. It moves to a task of its own only
//! when the request has its object and the fetch has not ended. Most responses are short and complete at once, and
//! need no task, no wake-up between tasks, and no allocation: a driver is recycled, and runs one fetch after another
//! in the same memory.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use lacquer_net::deadlines::Deadline;
use lacquer_params::Params;
use lacquer_sources::clock;

use super::Fetch;
use super::events::FetchEvents;
use super::run::run;
use crate::activity::{Work, track_polls};
use crate::services::Services;
use crate::shared::Shared;
use crate::transaction_slot::TransactionSlot;

#[derive(Default)]
struct Mailbox {
    next: Cell<Option<TransactionSlot<Fetch>>>,
    events: Rc<FetchEvents>,
    done: Cell<bool>,
    /// The slot, while no fetch runs.
    vacant: Cell<Option<TransactionSlot<Fetch>>>,
}

/// The driver of a fetch. Boxed, so that it can be moved without moving the future inside.
pub struct FetchDriver(Box<Inner>);

struct Inner {
    work: Pin<Box<dyn Future<Output = ()>>>,
    mailbox: Rc<Mailbox>,
    shared: Arc<Shared>,
    deadline: Rc<Deadline>,
    /// The deadline that schedules checks whether the request's client is still there.
    presence: Rc<Deadline>,
}

impl FetchDriver {
    /// Returns a driver for the next fetch: a recycled driver, or a new one.
    pub fn take(services: &Services) -> FetchDriver {
        let spare = services.take_fetch().and_then(|spare| spare.downcast().ok());
        spare.map_or_else(|| FetchDriver::new(services, &services.params()), FetchDriver)
    }

    pub fn new(services: &Services, params: &Params) -> FetchDriver {
        let mailbox = Rc::new(Mailbox::default());
        mailbox.vacant.set(Some(TransactionSlot::new(services.log(), params)));
        let work = Box::pin(run_fetches(mailbox.clone()));
        FetchDriver(Box::new(Inner {
            work,
            mailbox,
            shared: services.shared().clone(),
            deadline: services.deadlines().add_deadline(),
            presence: services.deadlines().add_deadline(),
        }))
    }

    /// Erases the type, for the reactor's pool.
    pub fn into_any(self) -> Box<dyn Any> {
        self.0
    }

    /// Returns the fetch's own deadline.
    pub fn deadline(&self) -> Rc<Deadline> {
        self.0.deadline.clone()
    }

    /// Returns the deadline that schedules checks whether the request's client is still there.
    pub fn presence(&self) -> Rc<Deadline> {
        self.0.presence.clone()
    }

    /// Returns the events of the next fetch.
    pub fn events(&self) -> Rc<FetchEvents> {
        self.0.mailbox.events.clone()
    }

    /// Returns the slot for the next fetch.
    pub fn slot(&self) -> TransactionSlot<Fetch> {
        self.0.mailbox.vacant.take().unwrap_or_default()
    }

    /// Drops events that were not received. They may contain the last reference to an object.
    fn clear_events(&self) {
        self.0.mailbox.events.reads_body.set(false);
        self.0.mailbox.events.body.set(None);
        self.0.mailbox.events.started.set(None);
        self.0.mailbox.events.trailers.take();
        self.0.mailbox.events.interim.take();
        self.0.mailbox.events.handshake.take();
        self.0.mailbox.events.upgraded.set(None);
        self.0.mailbox.events.ended.set(None);
        self.0.mailbox.events.orphan.take();
    }

    pub fn begin(&self, fetch: TransactionSlot<Fetch>) {
        self.0.mailbox.done.set(false);
        self.0.mailbox.events.client_gone.set(false);
        self.0.mailbox.next.set(Some(fetch));
    }

    /// Polls the fetch. Ready when it has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.0.mailbox.done.get() {
            // The future never ends: after a fetch it waits for the next one.
            let _ = self.0.work.as_mut().poll(cx);
        }
        if self.0.mailbox.done.get() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Runs the fetch until it sends an event that `events` selects. Returns `None` if it ends without one.
    pub async fn until<T>(&mut self, events: impl Fn(&FetchEvents) -> Option<T>) -> Option<T> {
        poll_fn(|cx| {
            if let Some(event) = events(&self.0.mailbox.events) {
                return Poll::Ready(Some(event));
            }
            let ended = self.poll(cx);
            match events(&self.0.mailbox.events) {
                Some(event) => Poll::Ready(Some(event)),
                None => ended.map(|()| None),
            }
        })
        .await
    }

    /// Waits for something else while the fetch runs. The events of the fetch are kept.
    pub async fn run_during<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        poll_fn(|cx| {
            let _ = self.poll(cx);
            other.as_mut().poll(cx)
        })
        .await
    }

    /// Polls the fetch once. If an idle connection is available, the request has been sent when this returns.
    pub async fn advance(&mut self) {
        poll_fn(|cx| Poll::Ready(self.poll(cx).is_ready())).await;
    }

    /// Records that the client is gone. The fetch then ends, unless others need the response.
    pub async fn abandon(&mut self) {
        self.0.mailbox.events.client_gone.set(true);
        self.advance().await;
        if !self.0.mailbox.done.get() {
            let orphan = self.0.shared.admission().add_orphan(self.0.mailbox.events.endpoint.get());
            *self.0.mailbox.events.orphan.borrow_mut() = Some(orphan);
        }
    }

    /// Runs the rest of the fetch in a task of its own.
    pub fn detach(mut self, services: &Rc<Services>) {
        if self.0.mailbox.done.get() {
            return self.recycle(services);
        }
        let services = services.clone();
        tokio::task::spawn_local(async move {
            let work = pin!(poll_fn(|cx| self.poll(cx)));
            track_polls(services.activity(), Work::Fetch, work).await;
            self.recycle(&services);
            services.flush_if_due(clock::real());
        });
    }

    fn recycle(self, services: &Services) {
        self.clear_events();
        services.give_fetch(self.into_any());
    }
}

async fn run_fetches(mailbox: Rc<Mailbox>) {
    loop {
        let mut slot = poll_fn(|_| mailbox.next.take().map_or(Poll::Pending, Poll::Ready)).await;
        if let Some(fetch) = slot.transaction() {
            run(fetch).await;
        }
        slot.vacate();
        mailbox.vacant.set(Some(slot));
        mailbox.done.set(true);
    }
}
