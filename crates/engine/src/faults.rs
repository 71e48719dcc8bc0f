//! Contains panics: one in a request ends that request, not the worker. Also keeps rare, large futures out of
//! frequent ones.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use lacquer_shm::Vxid;

use crate::services::Services;
use crate::activity::{Place, poll_within};

/// Runs a future and returns the text of a panic inside it. The future comes pinned, because moving one that holds all
/// steps of a request costs more than running it. The watchdog sees it `at` this transaction and place.
pub async fn caught<F: Future>(
    services: &Services,
    at: (Vxid, Place),
    mut work: Pin<&mut F>,
) -> Result<F::Output, String> {
    let turn = services.activity();
    let mut poll = move |cx: &mut Context<'_>| poll_within(turn, at, work.as_mut(), cx);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(fault) => Poll::Ready(Err(text_of(&*fault))),
    })
    .await
}

/// Makes a future on the heap, out of line. A large and rare future then does not enlarge the stack frame of
/// one that is polled often.
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
