//! Containment of panics: a panic in a request ends that request, not the worker. Also a helper that keeps rare,
//! large futures out of frequent ones.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use lacquer_shm::Vxid;

use crate::activity::{Work, poll_within};
use crate::services::Services;

/// Runs a future. Returns the text of the panic if it panics. The future is passed pinned, because moving one that
/// contains all steps of a request costs more than running it. The watchdog attributes the time to the transaction
/// and the work in `at`.
pub async fn caught<F: Future>(
    services: &Services,
    at: (Vxid, Work),
    mut work: Pin<&mut F>,
) -> Result<F::Output, String> {
    let activity = services.activity();
    let mut poll = move |cx: &mut Context<'_>| poll_within(activity, at, work.as_mut(), cx);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(fault) => Poll::Ready(Err(text_of(&*fault))),
    })
    .await
}

/// Creates a future on the heap, out of line, so that a large and rare future does not enlarge the stack frame of a
/// caller that is polled often.
#[cold]
#[inline(never)]
pub fn boxed_cold<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}

fn text_of(fault: &(dyn Any + Send)) -> String {
    if let Some(text) = fault.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = fault.downcast_ref::<String>() {
        text.clone()
    } else {
        "no text".to_owned()
    }
}
