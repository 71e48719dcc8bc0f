//! The tasks that wait for a body: its readers, and its writer.

use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use crate::sync::{AtomicBool, Mutex, fence};

#[derive(Debug, Default)]
struct Tasks {
    readers: Vec<Waker>,
    writer: Option<Waker>,
    /// The writer's task, while it waits for the device.
    mover: Option<Waker>,
}

/// The tasks that wait for a body.
#[derive(Debug)]
pub(crate) struct Waiters {
    has_readers: AtomicBool,
    tasks: Mutex<Tasks>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { has_readers: AtomicBool::new(false), tasks: Mutex::default() }
    }

    /// Registers a reader, which must then test its condition.
    pub(crate) fn add_reader(&self, cx: &Context<'_>) {
        {
            let mut tasks = self.tasks.lock();
            if !tasks.readers.iter().any(|waker| waker.will_wake(cx.waker())) {
                tasks.readers.push(cx.waker().clone());
            }
            self.has_readers.store(true, Ordering::SeqCst);
        }
        // This fence pairs with the one in `wake_readers`. Each side stores, passes its fence and then loads; so at
        // least one of the two loads sees the store of the other side. Without the fences both may miss it, and the
        // reader would sleep forever.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn wake_readers(&self) {
        fence(Ordering::SeqCst);
        if self.has_readers.load(Ordering::SeqCst) {
            let readers = {
                let mut tasks = self.tasks.lock();
                self.has_readers.store(false, Ordering::SeqCst);
                std::mem::take(&mut tasks.readers)
            };
            readers.into_iter().for_each(Waker::wake);
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
