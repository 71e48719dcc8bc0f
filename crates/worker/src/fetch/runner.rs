//! Who runs fetches. A fetch runs within the task of the request that waits for it; only when that has
//! what it waits for, and the fetch has not ended, does it get a task of its own. Most answers are short
//! and there at once: they cost no task, no wake-up between tasks, and no memory, for a runner is kept
//! and runs one fetch after the other, with the same memory.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use lacquer_cache::Object;

use lacquer_params::Params;

use super::{Fetch, run};
use crate::admission::Orphan;
use crate::deadlines::Deadline;
use crate::reactor::Reactor;
use crate::req_body::ReqBody;
use crate::seat::Seat;
use crate::shared::Shared;
use crate::turn::{Place, in_turns};

/// What a fetch has to say to the request that waits for it.
#[derive(Default)]
pub struct News {
    /// The request's body is about to be read.
    pub reads_body: Cell<bool>,
    /// The request's body is not needed any more.
    pub body: Cell<Option<ReqBody>>,
    pub started: Cell<Option<Started>>,
    /// In the other direction: the request's client is gone.
    pub client_gone: Cell<bool>,
    /// The endpoint that the fetch is at.
    pub endpoint: Cell<u64>,
    /// Set once nobody waits for a fetch that goes on.
    pub orphan: RefCell<Option<Arc<Orphan>>>,
}

/// What becomes of the request's body.
pub enum BodyNews {
    Begun,
    Back(ReqBody),
}

/// There is something to deliver, or there will be nothing.
pub struct Started(pub Option<Arc<Object>>);

impl News {
    pub fn body(&self) -> Option<BodyNews> {
        if self.reads_body.take() {
            return Some(BodyNews::Begun);
        }
        self.body.take().map(BodyNews::Back)
    }

    pub fn started(&self) -> Option<Started> {
        self.started.take()
    }
}

#[derive(Default)]
struct Desk {
    next: Cell<Option<Seat<Fetch>>>,
    news: Rc<News>,
    done: Cell<bool>,
    /// Between two fetches.
    vacant: Cell<Option<Seat<Fetch>>>,
}

pub struct Runner {
    work: Pin<Box<dyn Future<Output = ()>>>,
    desk: Rc<Desk>,
    shared: Arc<Shared>,
    pub deadline: Rc<Deadline>,
    /// When the request's client is looked for.
    pub presence: Rc<Deadline>,
}

impl Runner {
    pub fn new(reactor: &Reactor, params: &Params) -> Runner {
        let desk = Rc::new(Desk::default());
        desk.vacant.set(Some(Seat::new(&reactor.shared.log, params)));
        let work = Box::pin(one_after_the_other(desk.clone()));
        Runner {
            work,
            desk,
            shared: reactor.shared.clone(),
            deadline: reactor.deadlines.enlist(),
            presence: reactor.deadlines.enlist(),
        }
    }

    /// Where the next fetch puts what it has to say.
    pub fn news(&self) -> Rc<News> {
        self.desk.news.clone()
    }

    /// For the next fetch.
    pub fn seat(&self) -> Seat<Fetch> {
        self.desk.vacant.take().unwrap_or_default()
    }

    /// Drops what nobody asked for: it may be the last to hold an object.
    fn forget(&self) {
        self.desk.news.reads_body.set(false);
        self.desk.news.body.set(None);
        self.desk.news.started.set(None);
        self.desk.news.orphan.take();
    }

    pub fn begin(&self, fetch: Seat<Fetch>) {
        self.desk.done.set(false);
        self.desk.news.client_gone.set(false);
        self.desk.next.set(Some(fetch));
    }

    /// Ready when the fetch has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.desk.done.get() {
            // It never ends: after a fetch it waits for the next.
            let _ = self.work.as_mut().poll(cx);
        }
        if self.desk.done.get() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Runs the fetch until it has this to say; `None` if it ends without.
    pub async fn until<T>(&mut self, news: impl Fn(&News) -> Option<T>) -> Option<T> {
        poll_fn(|cx| {
            if let Some(told) = news(&self.desk.news) {
                return Poll::Ready(Some(told));
            }
            let ended = self.poll(cx);
            match news(&self.desk.news) {
                Some(told) => Poll::Ready(Some(told)),
                None => ended.map(|()| None),
            }
        })
        .await
    }

    /// Goes as far as it can at once: with a connection at hand, the origin is asked when this returns.
    pub async fn set_out(&mut self) {
        poll_fn(|cx| Poll::Ready(self.poll(cx).is_ready())).await;
    }

    /// Tells the fetch that its client is gone, and lets it end if it is for nobody else.
    pub async fn abandon(&mut self) {
        self.desk.news.client_gone.set(true);
        self.set_out().await;
        if !self.desk.done.get() {
            let orphan = self.shared.admission.add_orphan(self.desk.news.endpoint.get());
            *self.desk.news.orphan.borrow_mut() = Some(orphan);
        }
    }

    /// The rest runs by itself.
    pub fn leave(mut self, reactor: &Rc<Reactor>) {
        if self.desk.done.get() {
            return self.rest(reactor);
        }
        let reactor = reactor.clone();
        tokio::task::spawn_local(async move {
            let work = pin!(poll_fn(|cx| self.poll(cx)));
            in_turns(&reactor.watched.turn, Place::Fetch, work).await;
            self.rest(&reactor);
            reactor.flush_if_due(crate::clock::real());
        });
    }

    fn rest(self, reactor: &Reactor) {
        self.forget();
        reactor.give_runner(self);
    }
}

async fn one_after_the_other(desk: Rc<Desk>) {
    loop {
        let mut seat = poll_fn(|_| desk.next.take().map_or(Poll::Pending, Poll::Ready)).await;
        if let Some(fetch) = seat.transaction() {
            run(fetch).await;
        }
        seat.vacate();
        desk.vacant.set(Some(seat));
        desk.done.set(true);
    }
}
