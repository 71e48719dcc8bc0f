//! A body with one writer and one reader, and readers that wait for memory, in every order of execution: none sleeps
//! forever, and readers get complete data.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use loom::sync::Notify;
use loom::thread;

use crate::*;

/// Wakes the thread that waits for it.
#[derive(Debug)]
struct Wakeup(Notify);

impl Wakeup {
    fn new() -> Arc<Self> {
        Arc::new(Self(Notify::new()))
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3));
    builder.check(test);
}

fn begin(expected: Option<u64>) -> (Arc<Stored>, BodyWriter) {
    let arena = Arena::anonymous(Some(64 << 10)).expect("memory");
    let sizes = ChunkSizes { first: 2, max: 2 };
    let parts = Parts { head: &[b"head"], extra: &[] };
    let (stored, writer) = Stored::begin(&arena, parts, expected, sizes, true).expect("room");
    (Arc::new(stored), writer)
}

fn read_all(stored: &Stored) -> (Vec<u8>, BodyState) {
    let wakeup = Wakeup::new();
    test_reader::read_all(stored, &Waker::from(wakeup.clone()), || wakeup.0.wait())
}

#[test]
fn a_reader_gets_all_bytes_and_the_end() {
    model(|| {
        let (stored, mut writer) = begin(None);
        let reader = thread::spawn({
            let stored = stored.clone();
            move || read_all(&stored)
        });
        assert_eq!(writer.write(b"a"), Ok(1));
        writer.finish();
        assert_eq!(reader.join().expect("no panic"), (b"a".to_vec(), BodyState::Complete));
    });
}

#[test]
fn a_reader_is_woken_by_a_failure() {
    model(|| {
        let (stored, mut writer) = begin(Some(4));
        let reader = thread::spawn({
            let stored = stored.clone();
            move || read_all(&stored)
        });
        assert_eq!(writer.write(b"ab"), Ok(2));
        drop(writer);
        assert_eq!(reader.join().expect("no panic"), (b"ab".to_vec(), BodyState::Failed));
    });
}

#[test]
fn a_reader_wakes_the_writer_that_waits_for_it() {
    model(|| {
        let (stored, mut writer) = begin(None);
        assert_eq!(writer.write(b"a"), Ok(1));
        let reader = thread::spawn({
            let stored = stored.clone();
            move || stored.delivered(1, true)
        });
        let wakeup = Wakeup::new();
        let waker = Waker::from(wakeup.clone());
        let mut cx = Context::from_waker(&waker);
        while writer.poll_transit(1, &mut cx).is_pending() {
            wakeup.0.wait();
        }
        reader.join().expect("no panic");
        writer.finish();
    });
}

/// A device that passes its loads to another thread.
#[derive(Debug)]
struct ThreadedDevice {
    load: loom::sync::Mutex<Option<Load>>,
    wakeup: Arc<Wakeup>,
}

impl Extent for Arc<ThreadedDevice> {
    fn load(&self, load: Load) {
        *self.load.lock().expect("no panic") = Some(load);
        self.wakeup.0.notify();
    }
}

#[test]
fn a_reader_gets_bytes_that_another_thread_loads() {
    for fails in [false, true] {
        model(move || {
            let device =
                Arc::new(ThreadedDevice { load: loom::sync::Mutex::new(None), wakeup: Wakeup::new() });
            let arena = Arena::anonymous(Some(64 << 10)).expect("memory");
            let parts = Parts { head: &[b"head"], extra: &[] };
            let extent = Box::new(Arc::clone(&device));
            let stored = Arc::new(Stored::on_device(&arena, parts, 1, extent).expect("room"));
            let reader = thread::spawn({
                let stored = stored.clone();
                move || read_all(&stored)
            });
            let mut load = loop {
                let asked = device.load.lock().expect("no panic").take();
                match asked {
                    Some(load) => break load,
                    None => device.wakeup.0.wait(),
                }
            };
            let wanted = if fails {
                load.fail();
                (Vec::new(), BodyState::Failed)
            } else {
                load.window()[0] = b'a';
                load.advance(1);
                load.finish();
                (b"a".to_vec(), BodyState::Complete)
            };
            assert_eq!(reader.join().expect("no panic"), wanted);
        });
    }
}

/// Completes the load that a reader on another thread requests.
fn serve_load(device: &ThreadedDevice) {
    let mut load = loop {
        let asked = device.load.lock().expect("no panic").take();
        match asked {
            Some(load) => break load,
            None => device.wakeup.0.wait(),
        }
    };
    load.window()[0] = b'a';
    load.advance(1);
    load.finish();
}

/// Another thread frees the memory for parts, while a reader finds none. A reader that was first in the queue leaves
/// without using it.
#[test]
fn a_reader_gets_memory_that_another_thread_frees() {
    const ALL: u32 = 1 << 20;
    for is_second in [false, true] {
        model(move || {
            let device =
                Arc::new(ThreadedDevice { load: loom::sync::Mutex::new(None), wakeup: Wakeup::new() });
            let arena = Arena::anonymous(Some(64 << 10)).expect("memory");
            let on_device = || {
                let (parts, extent) = (Parts { head: &[b"head"], extra: &[] }, Box::new(Arc::clone(&device)));
                Arc::new(Stored::on_device(&arena, parts, 1, extent).expect("room"))
            };
            let (first, stored) = (on_device(), on_device());
            arena.parts().add(ALL);
            let mut wait = first.wait(0);
            if is_second {
                assert!(wait.poll(&Context::from_waker(Waker::noop())).is_pending());
            }
            let reader = thread::spawn({
                let stored = stored.clone();
                move || read_all(&stored)
            });
            arena.parts().sub(ALL);
            arena.parts().wake();
            drop(wait);
            serve_load(&device);
            assert_eq!(reader.join().expect("no panic"), (b"a".to_vec(), BodyState::Complete));
        });
    }
}
