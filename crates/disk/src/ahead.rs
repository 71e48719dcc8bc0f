//! Reads ahead on several threads, and passes the results on in order.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, scope};

/// The stack of each thread, in bytes.
const STACK: usize = 256 << 10;

/// Calls `read` for each item on `threads` threads, and passes each result to `take` on this thread, in the order of the
/// items. At most two results for each thread wait. Ends at the first error of `take`. With one thread, everything
/// happens on this one.
pub(crate) fn in_order<T: Sync, R: Send, E>(
    items: &[T],
    threads: usize,
    read: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.min(items.len());
    if threads < 2 {
        return items.iter().try_for_each(|item| take(item, read(item)));
    }
    let read = &read;
    scope(|scope| {
        let start = |first: usize| -> Option<Receiver<R>> {
            let (results, receiver) = sync_channel(1);
            let work = move || {
                for item in items.iter().skip(first).step_by(threads) {
                    if results.send(read(item)).is_err() {
                        return;
                    }
                }
            };
            let builder = Builder::new().name("disk-recover".to_owned()).stack_size(STACK);
            builder.spawn_scoped(scope, work).is_ok().then_some(receiver)
        };
        let receivers: Vec<_> = (0..threads).map(start).collect();
        items.iter().zip(receivers.iter().cycle()).try_for_each(|(item, receiver)| {
            // A thread that did not start, or has ended, leaves its items to this one.
            let result = receiver.as_ref().and_then(|results| results.recv().ok());
            take(item, result.unwrap_or_else(|| read(item)))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::current;

    use super::*;

    #[test]
    fn results_come_in_order_on_the_calling_thread() {
        for (items, threads) in [(0, 4), (1, 4), (3, 4), (1000, 1), (1000, 7), (1000, 64)] {
            let items: Vec<usize> = (0..items).collect();
            let (caller, mut seen) = (current().id(), Vec::new());
            let double = |item: &usize| {
                assert_eq!(current().id() == caller, threads.min(items.len()) < 2);
                item * 2
            };
            let take = |item: &usize, result: usize| {
                assert_eq!((current().id(), result), (caller, item * 2));
                seen.push(*item);
                Ok::<_, ()>(())
            };
            in_order(&items, threads, double, take).unwrap();
            assert_eq!(seen, items);
        }
    }

    #[test]
    fn the_first_error_ends_the_reads() {
        let (items, reads) = ((0..10_000).collect::<Vec<usize>>(), AtomicUsize::new(0));
        let count = |_: &usize| reads.fetch_add(1, Ordering::Relaxed);
        let fail = |item: &usize, _| if *item == 5 { Err(()) } else { Ok(()) };
        assert!(in_order(&items, 8, count, fail).is_err());
        assert!(reads.load(Ordering::Relaxed) < 100);
    }
}
