//! Drivers of fetches. A fetch runs within the task of the request that waits for it. It gets a task of its own only
//! when the request has the object it waits for and the fetch has not ended. Most responses are short and complete at
//! once. They cost no task, no wake-up between tasks, and no memory, because a driver is kept and runs one fetch after
//! the other with the same memory.

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
use crate::services::Services;
use crate::shared::Shared;
use crate::transaction_slot::TransactionSlot;
use crate::activity::{Place, track_polls};

#[derive(Default)]
struct Mailbox {
    next: Cell<Option<TransactionSlot<Fetch>>>,
    events: Rc<FetchEvents>,
    done: Cell<bool>,
    /// The slot, between two fetches.
    vacant: Cell<Option<TransactionSlot<Fetch>>>,
}

/// A driver. It stays at its address and is passed on by it.
pub struct FetchDriver(Box<Inside>);

struct Inside {
    work: Pin<Box<dyn Future<Output = ()>>>,
    mailbox: Rc<Mailbox>,
    shared: Arc<Shared>,
    deadline: Rc<Deadline>,
    /// The deadline at which the request's client is checked.
    presence: Rc<Deadline>,
}

impl FetchDriver {
    /// Returns a driver for the next fetch: a spare one, or a new one.
    pub fn take(services: &Services) -> FetchDriver {
        let spare = services.take_fetch().and_then(|spare| spare.downcast().ok());
        spare.map_or_else(|| FetchDriver::new(services, &services.params()), FetchDriver)
    }

    pub fn new(services: &Services, params: &Params) -> FetchDriver {
        let mailbox = Rc::new(Mailbox::default());
        mailbox.vacant.set(Some(TransactionSlot::new(services.log(), params)));
        let work = Box::pin(one_after_the_other(mailbox.clone()));
        FetchDriver(Box::new(Inside {
            work,
            mailbox,
            shared: services.shared().clone(),
            deadline: services.deadlines().enlist(),
            presence: services.deadlines().enlist(),
        }))
    }

    /// Erases its type, for the reactor's pool.
    pub fn hide(self) -> Box<dyn Any> {
        self.0
    }

    /// Returns the fetch's own deadline.
    pub fn deadline(&self) -> Rc<Deadline> {
        self.0.deadline.clone()
    }

    /// Returns the deadline at which the request's client is checked.
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

    /// Drops events that nobody took. They may hold the last reference to an object.
    fn forget(&self) {
        self.0.mailbox.events.reads_body.set(false);
        self.0.mailbox.events.body.set(None);
        self.0.mailbox.events.started.set(None);
        self.0.mailbox.events.orphan.take();
    }

    pub fn begin(&self, fetch: TransactionSlot<Fetch>) {
        self.0.mailbox.done.set(false);
        self.0.mailbox.events.client_gone.set(false);
        self.0.mailbox.next.set(Some(fetch));
    }

    /// Runs the fetch. Ready when it has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.0.mailbox.done.get() {
            // The future never ends: after a fetch it waits for the next.
            let _ = self.0.work.as_mut().poll(cx);
        }
        if self.0.mailbox.done.get() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Runs the fetch until it has this event; returns `None` if it ends without.
    pub async fn until<T>(&mut self, events: impl Fn(&FetchEvents) -> Option<T>) -> Option<T> {
        poll_fn(|cx| {
            if let Some(told) = events(&self.0.mailbox.events) {
                return Poll::Ready(Some(told));
            }
            let ended = self.poll(cx);
            match events(&self.0.mailbox.events) {
                Some(told) => Poll::Ready(Some(told)),
                None => ended.map(|()| None),
            }
        })
        .await
    }

    /// Runs the fetch as far as possible without waiting. With an idle connection, the request has been sent
    /// when this returns.
    pub async fn advance(&mut self) {
        poll_fn(|cx| Poll::Ready(self.poll(cx).is_ready())).await;
    }

    /// Records that the client is gone, and lets the fetch end if nobody else needs it.
    pub async fn abandon(&mut self) {
        self.0.mailbox.events.client_gone.set(true);
        self.advance().await;
        if !self.0.mailbox.done.get() {
            let orphan = self.0.shared.admission().add_orphan(self.0.mailbox.events.endpoint.get());
            *self.0.mailbox.events.orphan.borrow_mut() = Some(orphan);
        }
    }

    /// Lets the rest of the fetch run as a task of its own.
    pub fn detach(mut self, services: &Rc<Services>) {
        if self.0.mailbox.done.get() {
            return self.recycle(services);
        }
        let services = services.clone();
        tokio::task::spawn_local(async move {
            let work = pin!(poll_fn(|cx| self.poll(cx)));
            track_polls(services.activity(), Place::Fetch, work).await;
            self.recycle(&services);
            services.flush_if_due(clock::real());
        });
    }

    fn recycle(self, services: &Services) {
        self.forget();
        services.give_fetch(self.hide());
    }
}

async fn one_after_the_other(mailbox: Rc<Mailbox>) {
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
