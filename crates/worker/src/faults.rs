//! A panic while serving one request ends that request, not the worker; and what is rare stays out of the
//! way of what is not.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use lacquer_shm::Vxid;

use crate::reactor::Reactor;
use crate::turn::{Place, poll_within};

/// Runs a future; a panic inside it becomes its text. The future comes pinned, since moving one that
/// holds a whole request's steps costs more than running it. The watchdog sees it `at` this transaction and place.
pub async fn caught<F: Future>(
    reactor: &Reactor,
    at: (Vxid, Place),
    mut work: Pin<&mut F>,
) -> Result<F::Output, String> {
    let turn = &reactor.watched.turn;
    let mut poll = move |cx: &mut Context<'_>| poll_within(turn, at, work.as_mut(), cx);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(fault) => Poll::Ready(Err(text_of(&*fault))),
    })
    .await
}

/// A future on the heap, made out of line: what is large and seldom needed does not widen the frame of who is
/// polled all the time.
#[cold]
#[inline(never)]
pub fn apart<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
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
