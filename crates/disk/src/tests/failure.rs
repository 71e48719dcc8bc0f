//! A device whose writes fail: purges that are answered afterwards hold after the next start.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::SimulatedDevice;
use crate::blocks::Blocks;
use crate::layout::{Layout, OpenError};
use crate::record::{Key, Meta, Parts};
use crate::running::Running;
use crate::state::{Content, Phase};
use crate::store::{Options, Owner, Store};
use crate::writer::Writer;

/// A device that refuses to write to a range while it is broken.
#[derive(Clone)]
struct Worn {
    device: SimulatedDevice,
    refused: Range<u64>,
    is_broken: Arc<AtomicBool>,
}

impl Blocks for Worn {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read(at, buffer)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_broken.load(Ordering::Relaxed) && self.refused.contains(&at) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.device.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }
}

struct Page;

const KEY: Key = [7; 24];

impl Content for Page {
    fn parts(&self) -> Parts<'_> {
        let meta = Meta { key: KEY, variant: 0, expires: 5000, ban: 1 };
        Parts { meta, descriptor: b"page", head: b"head", extra: &[], body_len: 4 }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let rest = &b"body"[from as usize..];
        window[..rest.len()].copy_from_slice(rest);
        rest.len()
    }
}

/// Records the report of a failure, and whether a purge was answered before it.
struct Reports {
    answered: Arc<AtomicBool>,
    is_invalid: Arc<parking_lot::Mutex<Option<bool>>>,
}

impl Owner for Reports {
    fn is_used(&self, _: &Key) -> bool {
        false
    }

    fn tags(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> bool {
        true
    }

    fn forget(&self, _: &Key) {}

    fn failed(&self, is_invalid: bool) {
        assert!(!self.answered.load(Ordering::Relaxed), "answered before the failure was handled");
        *self.is_invalid.lock() = Some(is_invalid);
    }
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Purges the object while the failed store was emptying a segment, and in a step of the journal. Returns whether the purge
/// was answered.
fn purge_emptying(store: &Arc<Store>) -> Arc<AtomicBool> {
    let answered = Arc::<AtomicBool>::default();
    store.state.lock().is_emptying = true;
    drop(store.purge(&KEY, Some(Box::new(Flag(Arc::clone(&answered))))));
    assert_eq!(store.state.lock().pending.count, 0, "nothing is recorded");
    let held = Arc::<AtomicBool>::default();
    store.state.lock().pending.holds.push(Box::new(Flag(Arc::clone(&held))));
    assert!(!store.journal_step() && held.load(Ordering::Relaxed));
    answered
}

/// Writes an object, breaks the device, and purges the object. Returns the report of the failure, and whether the next
/// start finds the object.
fn run(refused: impl Fn(&Layout) -> Range<u64>) -> (Option<bool>, bool) {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 5, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let worn = Worn { device, refused: refused(&layout), is_broken: Arc::default() };
    let open = || Store::open(Box::new(worn.clone()), Options::default(), || 1000.0);
    let store = open().expect("there is a store");
    let answered = Arc::new(AtomicBool::new(false));
    let is_invalid = Arc::default();
    store.set_owner(Box::new(Reports {
        answered: Arc::clone(&answered),
        is_invalid: Arc::clone(&is_invalid),
    }));
    store.recover();
    store.journal_step();
    let mut writer = Writer::new(Arc::clone(&store));
    drop(store.commit(Box::new(Page)));
    while writer.step() == crate::writer::Step::More {}
    writer.flush();
    assert!(store.may_have(&KEY));
    worn.is_broken.store(true, Ordering::Relaxed);
    drop(store.purge(&KEY, Some(Box::new(Flag(Arc::clone(&answered))))));
    assert!(!answered.load(Ordering::Relaxed));
    store.journal_step();
    assert!(answered.load(Ordering::Relaxed), "the answer goes out");
    assert_eq!(store.phase(), Phase::Failed);
    assert!(!store.may_have(&KEY));
    let failed = store.stats().write_errors.load(Ordering::Relaxed);
    drop(store.commit(Box::new(Page)));
    writer.step();
    writer.flush();
    assert!(
        !writer.is_dirty() && store.stats().write_errors.load(Ordering::Relaxed) == failed,
        "it is not used any more"
    );
    let later = purge_emptying(&store);
    assert!(later.load(Ordering::Relaxed), "a purge on a failed device is answered");
    worn.is_broken.store(false, Ordering::Relaxed);
    let next = match open() {
        Err(OpenError::Empty) => return (*is_invalid.lock(), false),
        next => next.expect("a store"),
    };
    next.recover();
    let reported = *is_invalid.lock();
    (reported, next.may_have(&KEY))
}

#[test]
fn a_purge_that_was_not_recorded_holds_after_the_next_start() {
    assert_eq!(run(|layout| 8192..layout.data()), (Some(true), false), "the journal is broken");
}

#[test]
fn a_device_that_cannot_be_made_invalid_is_reported() {
    assert_eq!(run(|layout| 0..layout.size()), (Some(false), true), "nothing can be written");
}

/// Leaves a store to another process, which fails to start, and purges the object. Returns the report of the failure, and
/// whether the next start finds the object.
fn leave(is_disowned: bool, is_broken: bool) -> (Option<bool>, bool) {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 5, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let worn = Worn { device, refused: 0..layout.size(), is_broken: Arc::default() };
    let open = || Store::open(Box::new(worn.clone()), Options::default(), || 1000.0).expect("a store");
    let store = open();
    let (answered, is_invalid) = (Arc::<AtomicBool>::default(), Arc::default());
    let reports = Reports { answered: Arc::clone(&answered), is_invalid: Arc::clone(&is_invalid) };
    store.set_owner(Box::new(reports));
    store.recover();
    drop(store.commit(Box::new(Page)));
    Writer::new(Arc::clone(&store)).close();
    while store.journal_step() {}
    let running = Running::without_threads(Arc::clone(&store));
    running.retire();
    assert_eq!((store.phase(), store.may_have(&KEY)), (Phase::Retired, false));
    worn.is_broken.store(is_broken, Ordering::Relaxed);
    if is_disowned {
        running.disown();
        running.disown();
        assert_eq!(store.phase(), Phase::Failed);
    }
    drop(store.purge(&KEY, Some(Box::new(Flag(Arc::clone(&answered))))));
    assert!(answered.load(Ordering::Relaxed));
    worn.is_broken.store(false, Ordering::Relaxed);
    let next = open();
    next.recover();
    let reported = *is_invalid.lock();
    (reported, next.may_have(&KEY))
}

#[test]
fn purges_after_a_handover_that_failed_hold_after_the_next_start() {
    assert_eq!(leave(false, false), (None, true), "the next process has the objects");
    assert_eq!(leave(true, false), (Some(true), false));
    assert_eq!(leave(true, true), (Some(false), true), "the caller must mark the store");
}
