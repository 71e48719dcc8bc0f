//! The end of fetches that nobody waits for: the client of a pass is gone, or the only reader of a private object has
//! stopped reading. A fetch checks for this wherever it waits for the origin, and ends in order from there.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use lacquer_cache::{Object, flag};
use lacquer_flow::interest::{self, Fetching};

use super::Fetch;
use super::events::FetchEvents;
use super::parts::Target;

/// Detects that nobody needs a fetch any more. It is made for one wait, because the purpose of the fetch may change.
pub struct Abandonment {
    events: Rc<FetchEvents>,
    /// The fetch is not for the cache, so it ends with its client.
    private: bool,
    /// The object that its only reader may stop reading.
    object: Option<Arc<Object>>,
}

impl Abandonment {
    fn is_due(&self) -> bool {
        (self.private && self.events.client_gone.get())
            || self.events.is_evicted()
            || self.object.as_ref().is_some_and(|object| object.is(flag::CANCEL))
    }

    /// Runs `work` until it is done; returns `None` if the fetch is abandoned before.
    ///
    /// While the request waits for the fetch, the request's task runs the fetch and wakes it. Later the reader wakes it
    /// when it leaves. The work comes pinned, because moving it would cost more than the check.
    pub async fn unless<F: Future>(&self, mut work: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| {
            if self.is_due() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            // An event before the waker was set did not wake the task.
            if self.watch(cx) && self.is_due() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// Registers the task to be woken by events outside of it. Returns false if there are none.
    fn watch(&self, cx: &Context<'_>) -> bool {
        let orphan = self.events.orphan.borrow();
        if self.object.is_none() && orphan.is_none() {
            return false;
        }
        if let Some(object) = &self.object {
            object.stored().watch_delivery(cx);
        }
        if let Some(orphan) = &*orphan {
            orphan.watch(cx);
        }
        true
    }
}

impl FetchEvents {
    /// Returns whether the fetch must give way to requests that have a client.
    fn is_evicted(&self) -> bool {
        self.orphan.borrow().as_ref().is_some_and(|orphan| orphan.is_evicted())
    }
}

impl Fetch {
    /// Returns whether the fetch is for its client alone.
    fn is_private(&self) -> bool {
        let fetch = Fetching {
            is_background: self.purpose.is_background,
            is_uncacheable: self.response.is_uncacheable,
            is_hit_for_miss: self.purpose.is_hitmiss,
            is_stored: self.product.object.is_some(),
        };
        let is_awaited = || matches!(&self.product.target, Target::Cache(busy) if busy.is_awaited());
        interest::ends_with_client(fetch, is_awaited)
    }

    /// Returns the detector for a wait that begins now.
    pub(super) fn abandonment(&self) -> Abandonment {
        Abandonment {
            events: self.waiter.events.clone(),
            private: self.is_private(),
            object: self.product.object.clone().filter(|_| self.response.is_uncacheable),
        }
    }

    /// Returns whether the client is gone, and nobody else needs the response or there is no room for it.
    pub(super) fn is_abandoned(&self) -> bool {
        let events = &self.waiter.events;
        events.is_evicted() || (events.client_gone.get() && self.is_private())
    }
}
