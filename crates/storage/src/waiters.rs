//! The tasks that wait for a body: its readers, and its writer.
//!
//! Each new piece wakes all readers, and most of them register again at once. A registration therefore takes no search: the
//! reader remembers its place in the list, which is valid until the list is emptied.

use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use crate::sync::{AtomicBool, AtomicU64, Mutex, fence};

#[derive(Debug, Default)]
struct Tasks {
    /// `None` for readers that have left.
    readers: Vec<Option<Waker>>,
    /// The places of readers that have left.
    free: Vec<usize>,
    writer: Option<Waker>,
    /// The writer's task, while it waits for the device.
    mover: Option<Waker>,
}

/// The tasks that wait for a body.
#[derive(Debug)]
pub(crate) struct Waiters {
    has_readers: AtomicBool,
    /// The number of times that the readers were woken. Changed with the tasks locked.
    epoch: AtomicU64,
    tasks: Mutex<Tasks>,
}

/// A reader's place in the list, if it has registered.
#[derive(Debug, Default)]
pub(crate) struct Registration(Option<(u64, usize)>);

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { has_readers: AtomicBool::new(false), epoch: AtomicU64::new(0), tasks: Mutex::default() }
    }

    /// Registers a reader, which must then test its condition. The registration [ends](Self::end_registration) when the
    /// reader waits no more.
    pub(crate) fn add_reader(&self, registration: &mut Registration, cx: &Context<'_>) {
        {
            let mut tasks = self.tasks.lock();
            let epoch = self.epoch.load(Ordering::Relaxed);
            let Tasks { readers, free, .. } = &mut *tasks;
            match registration.0.filter(|&(registered, _)| registered == epoch) {
                Some((_, place)) => match &mut readers[place] {
                    Some(waker) => waker.clone_from(cx.waker()),
                    empty => *empty = Some(cx.waker().clone()),
                },
                None => {
                    let place = free.pop().unwrap_or(readers.len());
                    if place == readers.len() {
                        readers.push(None);
                    }
                    readers[place] = Some(cx.waker().clone());
                    registration.0 = Some((epoch, place));
                }
            }
            self.has_readers.store(true, Ordering::SeqCst);
        }
        // This fence pairs with the one in `wake_readers`. Each side stores, passes its fence and then loads; so at
        // least one of the two loads sees the store of the other side. Without the fences both may miss it, and the
        // reader would sleep forever.
        fence(Ordering::SeqCst);
    }

    /// Removes a reader from the list, if it was not woken since it registered.
    pub(crate) fn end_registration(&self, registration: &mut Registration) {
        let Some((epoch, place)) = registration.0.take() else { return };
        // A reader that was woken sees it here, or below.
        if self.epoch.load(Ordering::Relaxed) != epoch {
            return;
        }
        let mut tasks = self.tasks.lock();
        if self.epoch.load(Ordering::Relaxed) == epoch {
            let gone = tasks.readers[place].take();
            tasks.free.push(place);
            drop(tasks);
            drop(gone);
        }
    }

    pub(crate) fn wake_readers(&self) {
        fence(Ordering::SeqCst);
        if self.has_readers.load(Ordering::SeqCst) {
            let readers = {
                let mut tasks = self.tasks.lock();
                self.has_readers.store(false, Ordering::SeqCst);
                self.epoch.fetch_add(1, Ordering::Relaxed);
                tasks.free.clear();
                std::mem::take(&mut tasks.readers)
            };
            readers.into_iter().flatten().for_each(Waker::wake);
        }
    }

    /// Registers the writer, which waits for its reader.
    pub(crate) fn set_writer(&self, cx: &Context<'_>) {
        self.tasks.lock().writer = Some(cx.waker().clone());
    }

    pub(crate) fn wake_writer(&self) {
        let writer = self.tasks.lock().writer.take();
        if let Some(waker) = writer {
            waker.wake();
        }
    }

    /// Registers the writer, which waits for the device.
    pub(crate) fn set_mover(&self, cx: &Context<'_>) {
        self.tasks.lock().mover = Some(cx.waker().clone());
    }

    pub(crate) fn wake_mover(&self) {
        let mover = self.tasks.lock().mover.take();
        if let Some(waker) = mover {
            waker.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    /// Counts its wake-ups.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn tasks(n: usize) -> Vec<(Arc<Count>, Waker)> {
        let task = |_| {
            let count = Arc::new(Count::default());
            (Arc::clone(&count), Waker::from(count))
        };
        (0..n).map(task).collect()
    }

    #[test]
    fn readers_are_listed_once_and_woken_once() {
        let (waiters, tasks) = (Waiters::new(), tasks(3));
        let cx = |n: usize| Context::from_waker(&tasks[n].1);
        let woken = || [0, 1, 2].map(|n: usize| tasks[n].0.0.load(Ordering::Relaxed));
        let mut places: [Registration; 2] = Default::default();
        for _ in 0..3 {
            waiters.add_reader(&mut places[0], &cx(0));
            waiters.add_reader(&mut places[1], &cx(1));
        }
        assert_eq!(waiters.tasks.lock().readers.len(), 2);
        waiters.add_reader(&mut places[1], &cx(2));
        waiters.wake_readers();
        assert_eq!(woken(), [1, 0, 1], "the second one is read by another task now");
        waiters.wake_readers();
        assert_eq!(woken(), [1, 0, 1]);
        waiters.add_reader(&mut places[1], &cx(2));
        waiters.add_reader(&mut places[0], &cx(0));
        assert_eq!(waiters.tasks.lock().readers.len(), 2);
        waiters.end_registration(&mut places[1]);
        waiters.wake_readers();
        assert_eq!(woken(), [2, 0, 1], "a reader that has left is not woken");
        waiters.end_registration(&mut places[0]);
        assert!(waiters.tasks.lock().free.is_empty(), "its place is gone already");
    }

    #[test]
    fn readers_that_come_and_go_occupy_no_more_memory() {
        let (waiters, tasks) = (Waiters::new(), tasks(1));
        let cx = Context::from_waker(&tasks[0].1);
        let mut stays = Registration::default();
        for _ in 0..1000 {
            let mut goes = Registration::default();
            waiters.add_reader(&mut goes, &cx);
            waiters.add_reader(&mut stays, &cx);
            waiters.end_registration(&mut goes);
        }
        let listed = waiters.tasks.lock();
        assert_eq!((listed.readers.len(), listed.free.len()), (2, 1));
    }
}
