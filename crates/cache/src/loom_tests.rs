//! A ticket, in every order of execution: it is ready once all holds are dropped, and its task does not sleep forever.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Notify;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::invalidation::Ticket;

/// Wakes the thread that waits for it.
struct Wakeup(Notify);

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

#[test]
fn a_ticket_is_ready_once_all_holds_are_dropped() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3));
    builder.check(|| {
        let (mut ticket, recorded) = (Ticket::default(), Arc::new(AtomicUsize::new(0)));
        let listeners: Vec<_> = (0..2)
            .map(|_| {
                let (hold, recorded) = (ticket.hold(), recorded.clone());
                thread::spawn(move || {
                    recorded.fetch_add(1, Ordering::Relaxed);
                    drop(hold);
                })
            })
            .collect();
        let wakeup = Arc::new(Wakeup(Notify::new()));
        let waker = Waker::from(wakeup.clone());
        while let Poll::Pending = Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)) {
            wakeup.0.wait();
        }
        assert_eq!(recorded.load(Ordering::Relaxed), 2, "it is ready before an invalidation is recorded");
        listeners.into_iter().for_each(|listener| listener.join().expect("no panic"));
    });
}
