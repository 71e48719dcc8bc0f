//! Abandonment of fetches that nobody needs: the client of a pass is gone, or the only reader of a private object has
//! stopped reading. A fetch checks for this at every wait for the origin, and ends in an orderly way.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use lacquer_cache::{Object, flag};
use lacquer_flow::interest::{self, Fetching};
use lacquer_flow::retry::Exchange;
use lacquer_http::SessClose;

use super::Fetch;
use super::connection::OriginConnection;
use super::events::FetchEvents;
use super::parts::Target;

/// Detects that a fetch is no longer needed. Created for one wait, because the purpose of the fetch may change.
pub struct Abandonment {
    events: Rc<FetchEvents>,
    /// The response is not for the cache, so the fetch ends with its client.
    private: bool,
    /// The object that is being stored, if it is private, so that its only reader may stop reading, or if the fetch is an
    /// orphan.
    object: Option<Arc<Object>>,
}

impl Abandonment {
    fn is_due(&self) -> bool {
        (self.private && self.events.client_gone.get())
            || self.events.is_evicted(self.object.as_deref())
            || self.object.as_ref().is_some_and(|object| object.is(flag::CANCEL))
    }

    /// Runs `work` to completion. Returns `None` if the fetch is abandoned first.
    ///
    /// While the request waits for the fetch, the request's task polls the fetch, and wakes it. Later, the reader
    /// wakes it when it leaves. `work` is passed pinned, because moving it would cost more than the check.
    pub async fn unless<F: Future>(&self, mut work: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| {
            if self.is_due() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            // An event that came before the waker was registered has not woken the task.
            if self.watch(cx) && self.is_due() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// Registers the task to be woken by abandonment from outside. Returns false if nothing outside can abandon the
    /// fetch.
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
    /// Returns whether the fetch must end to make room for requests that have a client. One whose object other requests have
    /// found is no longer an orphan. `stored` is the object that is being stored, if any.
    fn is_evicted(&self, stored: Option<&Object>) -> bool {
        let mut orphan = self.orphan.borrow_mut();
        orphan.take_if(|_| stored.is_some_and(|object| object.hits() > 0));
        orphan.as_ref().is_some_and(|orphan| orphan.is_evicted())
    }
}

impl Fetch {
    /// Returns whether only the client needs the response. `stored` is the object that is being stored, if any.
    fn is_private(&self, stored: Option<&Arc<Object>>) -> bool {
        let fetch = Fetching {
            is_background: self.purpose.is_background,
            is_uncacheable: self.response.is_uncacheable,
            is_hit_for_miss: self.purpose.is_hitmiss,
            is_stored: stored.is_some(),
        };
        interest::ends_with_client(fetch, || self.is_awaited_by_others())
    }

    /// Returns whether other requests wait for the response.
    pub(super) fn is_awaited_by_others(&self) -> bool {
        matches!(&self.product.target, Target::Cache(busy) if busy.is_awaited())
    }

    /// Returns the detector for a wait that starts now. `stored` is the object that is being stored, if any.
    pub(super) fn abandonment(&self, stored: Option<&Arc<Object>>) -> Abandonment {
        let events = self.waiter.events.clone();
        // Nobody can find an object whose fetch becomes an orphan later.
        let is_watched = self.response.is_uncacheable || events.orphan.borrow().is_some();
        let object = stored.filter(|_| is_watched).cloned();
        Abandonment { events, private: self.is_private(stored), object }
    }

    /// Returns whether the client is gone and nobody else needs the response, or whether the fetch was evicted.
    pub(super) fn is_abandoned(&self, stored: Option<&Arc<Object>>) -> bool {
        let events = &self.waiter.events;
        events.is_evicted(stored.map(|object| &**object))
            || (events.client_gone.get() && self.is_private(stored))
    }

    /// Closes the connection during the exchange, because nobody waits for the response.
    pub(super) fn abandon(&mut self, connection: &mut OriginConnection) -> Exchange {
        self.log_abandoned();
        connection.must_close(SessClose::RemClose);
        Exchange::Failed
    }
}
