//! Turns of connections with many frames. A connection whose turn is over continues after those before it in the queue
//! had theirs. One connection of the queue runs at a time, and between two the reactor serves all others. If each were
//! woken at once, a client with many connections would make the others wait for a turn of all of them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The number of frames in a turn.
const FRAMES: u32 = 1000;
/// The number of frames that a request counts for: if it was answered at once, and if it has to wait.
const SERVED: u32 = 20;
const BEGUN: u32 = 250;

type Permit = OwnedSemaphorePermit;

/// The queue of a reactor's connections.
pub struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Arc::new(Semaphore::new(1)))
    }
}

/// A connection's turn.
#[derive(Default)]
pub struct Turn {
    left: u32,
    next: Option<Pin<Box<dyn Future<Output = Result<Permit, AcquireError>>>>>,
    /// Present during a turn from the queue. The others of the queue wait until it ends.
    permit: Option<Permit>,
}

impl Turn {
    /// Begins a turn, unless the connection waits for it.
    pub fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(next) = &mut self.next {
            // This fails only if the semaphore is closed, which it never is.
            self.permit = ready!(next.as_mut().poll(cx)).ok();
            self.next = None;
        }
        self.left = FRAMES;
        Poll::Ready(())
    }

    /// Ends the turn, because nothing is left to do.
    pub fn end(&mut self) {
        drop(self.permit.take());
    }

    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    pub fn count_frame(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    pub fn count_request(&mut self, is_served: bool) {
        self.left = self.left.saturating_sub(if is_served { SERVED } else { BEGUN });
    }

    /// Ends the turn, and joins the end of the queue for the next one.
    pub fn wait_for_next(&mut self, turns: &Turns, cx: &Context<'_>) {
        self.end();
        self.next = Some(Box::pin(turns.0.clone().acquire_owned()));
        cx.waker().wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn who_had_a_turn_goes_behind_those_who_wait() {
        let (turns, cx) = (Turns::default(), &mut Context::from_waker(Waker::noop()));
        let [mut first, mut second] = [Turn::default(), Turn::default()];
        for turn in [&mut first, &mut second] {
            assert!(turn.poll_begin(cx).is_ready(), "the first turn waits for nobody");
            turn.wait_for_next(&turns, cx);
        }
        for _ in 0..3 {
            assert!(first.poll_begin(cx).is_ready());
            assert!(second.poll_begin(cx).is_pending(), "one at a time");
            first.wait_for_next(&turns, cx);
            assert!(first.poll_begin(cx).is_pending(), "others come first");
            std::mem::swap(&mut first, &mut second);
        }
        assert!(first.poll_begin(cx).is_ready());
        first.end();
        assert!(second.poll_begin(cx).is_ready(), "who has nothing to do holds up nobody");
    }

    #[test]
    fn requests_that_wait_make_a_turn_short() {
        let cx = &mut Context::from_waker(Waker::noop());
        for (is_served, most) in [(true, 50), (false, 4)] {
            let mut turn = Turn::default();
            assert!(turn.poll_begin(cx).is_ready());
            let count = std::iter::repeat_with(|| turn.count_request(is_served)).take(most - 1).count();
            assert!(!turn.is_over(), "after {count}");
            turn.count_request(is_served);
            assert!(turn.is_over());
        }
    }
}
