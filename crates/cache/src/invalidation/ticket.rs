//! A future for the time when listeners have recorded an invalidation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

#[cfg(not(loom))]
use crate::locks::Mutex;
#[cfg(loom)]
use crate::locks::modeled::Mutex;

/// A future that is ready once all holds of it are dropped. Without a [`Hold`], it is ready at once and allocates no
/// memory.
#[derive(Debug, Default)]
#[must_use = "the answer to an invalidation goes out after its ticket is ready"]
pub struct Ticket(Option<Arc<Mutex<Holds>>>);

/// Delays a [`Ticket`] until this is dropped. It may be sent to another thread.
#[derive(Debug)]
#[must_use = "dropping it reports that the invalidation is recorded"]
pub struct Hold(Arc<Mutex<Holds>>);

#[derive(Debug, Default)]
struct Holds {
    count: usize,
    waker: Option<Waker>,
}

impl Ticket {
    /// Returns a hold, which delays the ticket until it is dropped.
    pub fn hold(&mut self) -> Hold {
        let holds = Arc::clone(self.0.get_or_insert_default());
        holds.lock().count += 1;
        Hold(holds)
    }

    /// Returns whether the ticket is ready.
    pub fn is_recorded(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| holds.lock().count == 0)
    }

    /// Blocks the thread until the ticket is ready. Reactors await it instead.
    pub fn wait(mut self) {
        if self.is_recorded() {
            return;
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut cx = Context::from_waker(&waker);
        while Pin::new(&mut self).poll(&mut cx).is_pending() {
            thread::park();
        }
    }
}

impl Future for Ticket {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(holds) = &self.0 else { return Poll::Ready(()) };
        let mut holds = holds.lock();
        if holds.count == 0 {
            return Poll::Ready(());
        }
        holds.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let waker = {
            let mut holds = self.0.lock();
            holds.count -= 1;
            if holds.count == 0 { holds.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Unparks a waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
