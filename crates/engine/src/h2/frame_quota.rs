//! Frame quotas of connections. A connection that has used up its quota continues after the connections before it in
//! a queue have used theirs. Only one connection of the queue runs at a time, and between two of them the reactor
//! runs all other tasks. If each of them were woken at once, a client with many connections could make the others
//! wait for a quota of each.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The number of frames in a quota.
const FRAMES: u32 = 1000;
/// The cost of a request in frames, if it was served at once.
const SERVED: u32 = 20;
/// The cost of a request in frames, if it has to wait.
const BEGUN: u32 = 250;

type Permit = OwnedSemaphorePermit;

/// The queue of a reactor's connections that have used up their quota.
pub struct QuotaQueue(Arc<Semaphore>);

impl Default for QuotaQueue {
    fn default() -> QuotaQueue {
        QuotaQueue(Arc::new(Semaphore::new(1)))
    }
}

/// A connection's quota of frames.
#[derive(Default)]
pub struct FrameQuota {
    left: u32,
    next: Option<Pin<Box<dyn Future<Output = Result<Permit, AcquireError>>>>>,
    /// Present while a quota from the queue is in use. The other connections of the queue wait until it is released.
    permit: Option<Permit>,
}

impl FrameQuota {
    /// Refills the quota. Pending while the connection is in the queue.
    pub fn poll_refill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(next) = &mut self.next {
            // This fails only if the semaphore is closed, which it never is.
            self.permit = ready!(next.as_mut().poll(cx)).ok();
            self.next = None;
        }
        self.left = FRAMES;
        Poll::Ready(())
    }

    /// Lets the next connection of the queue run, because this one has nothing left to do.
    pub fn release(&mut self) {
        drop(self.permit.take());
    }

    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }

    pub fn count_frame(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    pub fn count_request(&mut self, is_served: bool) {
        self.left = self.left.saturating_sub(if is_served { SERVED } else { BEGUN });
    }

    /// Joins the end of the queue for the next quota.
    pub fn enqueue(&mut self, queue: &QuotaQueue, cx: &Context<'_>) {
        self.release();
        self.next = Some(Box::pin(queue.0.clone().acquire_owned()));
        cx.waker().wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_used_up_quota_moves_a_connection_to_the_end_of_the_queue() {
        let (queue, cx) = (QuotaQueue::default(), &mut Context::from_waker(Waker::noop()));
        let [mut first, mut second] = [FrameQuota::default(), FrameQuota::default()];
        for quota in [&mut first, &mut second] {
            assert!(quota.poll_refill(cx).is_ready(), "the first quota is available at once");
            quota.enqueue(&queue, cx);
        }
        for _ in 0..3 {
            assert!(first.poll_refill(cx).is_ready());
            assert!(second.poll_refill(cx).is_pending(), "only one connection runs at a time");
            first.enqueue(&queue, cx);
            assert!(first.poll_refill(cx).is_pending(), "others are ahead in the queue");
            std::mem::swap(&mut first, &mut second);
        }
        assert!(first.poll_refill(cx).is_ready());
        first.release();
        assert!(second.poll_refill(cx).is_ready(), "an idle connection does not block the queue");
    }

    #[test]
    fn requests_that_wait_use_up_more_of_the_quota() {
        let cx = &mut Context::from_waker(Waker::noop());
        for (is_served, most) in [(true, 50), (false, 4)] {
            let mut quota = FrameQuota::default();
            assert!(quota.poll_refill(cx).is_ready());
            let count = std::iter::repeat_with(|| quota.count_request(is_served)).take(most - 1).count();
            assert!(!quota.is_used_up(), "after {count}");
            quota.count_request(is_served);
            assert!(quota.is_used_up());
        }
    }
}
