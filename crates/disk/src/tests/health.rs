//! Devices whose reads fail or do not end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::device::SimulatedDevice;
use crate::blocks::Blocks;
use crate::health::{Event, Operation, Reason};
use crate::journal::Ban;
use crate::layout::Layout;
use crate::record::{Key, Meta, Parts};
use crate::running::Running;
use crate::state::{Content, Phase};
use crate::store::{Options, Owner, Store};
use crate::writer::{Step, Writer};

/// A device with failing reads and reads that wait.
#[derive(Clone)]
struct Ill {
    device: SimulatedDevice,
    /// The number of reads that fail next.
    failing: Arc<AtomicU32>,
    /// The number of writes that fail next, and of those that wait.
    failing_writes: Arc<AtomicU32>,
    waiting: Arc<AtomicU32>,
    /// Whether reads wait, and writes.
    stall: Arc<(Mutex<bool>, Condvar)>,
    write_stall: Arc<(Mutex<bool>, Condvar)>,
}

impl Ill {
    fn new() -> Self {
        let layout =
            Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 5, created: 1.0, version: 1 };
        let device = SimulatedDevice::new(layout.size(), 1);
        layout.create(&device).expect("the device works");
        Self {
            device,
            failing: Arc::default(),
            failing_writes: Arc::default(),
            waiting: Arc::default(),
            stall: Arc::default(),
            write_stall: Arc::default(),
        }
    }

    fn open(&self) -> Arc<Store> {
        Store::open(Box::new(self.clone()), Options::default(), || 1000.0).expect("there is a store")
    }

    /// Opens the store and reads the index.
    fn start(&self) -> Arc<Store> {
        let store = self.open();
        store.recover();
        while store.journal_step() {}
        store
    }

    fn set_stalled(&self, is_stalled: bool) {
        *self.stall.0.lock() = is_stalled;
        self.stall.1.notify_all();
    }

    fn set_write_stalled(&self, is_stalled: bool) {
        *self.write_stall.0.lock() = is_stalled;
        self.write_stall.1.notify_all();
    }

    fn wait_to_write(&self) {
        let mut is_stalled = self.write_stall.0.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while *is_stalled {
            self.write_stall.1.wait(&mut is_stalled);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Blocks for Ill {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut is_stalled = self.stall.0.lock();
        while *is_stalled {
            self.stall.1.wait(&mut is_stalled);
        }
        fail_if_any(&self.failing)?;
        self.device.read(at, buffer)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        fail_if_any(&self.failing_writes)?;
        self.wait_to_write();
        self.device.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.wait_to_write();
        self.device.sync()
    }
}

/// Fails, and counts down, if a number is not 0.
fn fail_if_any(number: &AtomicU32) -> io::Result<()> {
    let take = |left: u32| left.checked_sub(1);
    let is_any = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
    if is_any { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
}

struct Page(u8);

fn key(number: u8) -> Key {
    [number; 24]
}

impl Content for Page {
    fn parts(&self) -> Parts<'_> {
        let meta = Meta { key: key(self.0), variant: 0, expires: 5000, ban: 1 };
        Parts { meta, descriptor: b"page", head: b"head", extra: &[], body_len: 4 }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let rest = &b"body"[from as usize..];
        window[..rest.len()].copy_from_slice(rest);
        rest.len()
    }
}

/// Stores pages, and ends their segment.
fn fill(store: &Arc<Store>, pages: std::ops::Range<u8>) {
    let mut writer = Writer::new(Arc::clone(store));
    pages.for_each(|page| drop(store.commit(Box::new(Page(page)))));
    while writer.step() == Step::More {}
    writer.close();
}

fn is_read(store: &Arc<Store>, page: u8) -> bool {
    let key = key(page);
    store.candidates(&key, 1000.0).iter().any(|candidate| store.load(candidate, &key).is_some())
}

#[test]
fn a_store_that_is_out_of_use_does_not_count_as_crowded() {
    for retires in [false, true] {
        let ill = Ill::new();
        let options = Options { queue: 1, ..Options::default() };
        let store = Store::open(Box::new(ill.clone()), options, || 1000.0).expect("there is a store");
        store.recover();
        (0..3).for_each(|page| drop(store.commit(Box::new(Page(page)))));
        assert!(store.is_crowded());
        if retires {
            store.retire();
        } else {
            store.fail(Vec::new(), Reason::Write);
        }
        assert!(!store.is_crowded());
    }
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Purges a page. Returns the flag that is set when the answer goes out.
fn begin_purge(store: &Arc<Store>, page: u8) -> Arc<AtomicBool> {
    let answered = Arc::new(AtomicBool::new(false));
    drop(store.purge(&key(page), Some(Box::new(Flag(Arc::clone(&answered))))));
    answered
}

/// Purges a page. Returns whether the answer went out.
fn purge(store: &Arc<Store>, page: u8) -> bool {
    let answered = begin_purge(store, page);
    while store.journal_step() {}
    answered.load(Ordering::Relaxed)
}

fn counts(store: &Store) -> [u64; 4] {
    let stats = store.stats();
    [&stats.read_errors, &stats.write_errors, &stats.damaged, &stats.slow]
        .map(|count| count.load(Ordering::Relaxed))
}

#[test]
fn an_object_that_cannot_be_read_is_a_miss() {
    let ill = Ill::new();
    let store = ill.start();
    fill(&store, 1..4);
    ill.failing.store(1, Ordering::Relaxed);
    assert_eq!([1, 2, 3, 1].map(|page| is_read(&store, page)), [false, true, true, false]);
    assert_eq!(counts(&store), [1, 0, 0, 0]);
    let (events, lost) = store.take_events();
    let is_meant =
        |event: &Event| matches!(event, Event::Failed { operation: Operation::Read, at, .. } if *at > 0);
    assert!(events.len() == 1 && is_meant(&events[0]) && lost == 0, "{events:?}");
    assert!(events[0].to_string().contains("Input/output error"), "{}", events[0]);
    assert_eq!(store.phase(), Phase::Working);
    while store.journal_step() {}
    // The next start does not find it either: there may be an older object of its key.
    assert_eq!([1, 2, 3].map(|page| is_read(&ill.start(), page)), [false, true, true]);
}

#[test]
fn a_segment_that_may_be_outdated_does_not_come_back() {
    let ill = Ill::new();
    // One segment for each page. The last one is in the place of the first.
    (1..7).for_each(|page| fill(&ill.start(), page..page + 1));
    let found = |store: &Arc<Store>| (1..7).filter(|&page| is_read(store, page)).collect::<Vec<u8>>();
    assert_eq!(found(&ill.start()), [2, 3, 4, 5, 6]);
    // The one that cannot be read, that of page 5, may be the seventh: then that of page 2 is not in use.
    let store = ill.open();
    // The first failure concerns a header of the newest segments, which are then read again with the others.
    ill.failing.store(2, Ordering::Relaxed);
    store.recover();
    assert_eq!(found(&store), [3, 4, 6]);
    assert!(purge(&store, 2));
    assert_eq!(found(&ill.start()), [3, 4, 6]);
}

#[test]
fn a_damaged_object_is_reported() {
    let ill = Ill::new();
    let store = ill.start();
    fill(&store, 1..3);
    let place = store.candidates(&key(1), 1000.0)[0].entry.place();
    ill.device.flip(place + 20, 3);
    assert_eq!([1, 2].map(|page| is_read(&store, page)), [false, true]);
    assert_eq!(counts(&store), [0, 0, 1, 0]);
    assert_eq!(store.take_events().0, [Event::Damaged { at: place }]);
}

#[test]
fn a_device_whose_reads_fail_is_taken_out() {
    let ill = Ill::new();
    let store = ill.start();
    fill(&store, 1..40);
    ill.failing.store(9, Ordering::Relaxed);
    let read = |pages: std::ops::Range<u8>| pages.filter(|&page| is_read(&store, page)).count();
    assert_eq!(read(1..10), 0);
    assert_eq!((store.phase(), read(10..20)), (Phase::Working, 10));
    ill.failing.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(read(20..30), 0);
    assert_eq!(store.phase(), Phase::Failed);
    assert_eq!(store.take_events().0.last(), Some(&Event::TakenOut(Reason::Reads)));
    assert!(purge(&store, 35));
    ill.failing.store(0, Ordering::Relaxed);
    let next = ill.start();
    assert_eq!((next.phase(), next.objects()), (Phase::Working, 0));
}

#[test]
fn one_failure_in_two_hundred_reads_is_borne() {
    let ill = Ill::new();
    let store = ill.start();
    fill(&store, 1..250);
    for page in 1..=30 {
        ill.failing.store(1, Ordering::Relaxed);
        assert!(!is_read(&store, page));
        (50..249).for_each(|page| assert!(is_read(&store, page)));
    }
    assert_eq!(store.phase(), Phase::Working);
}

/// The store is not asked for objects while a read does not end.
#[test]
fn a_device_that_stalls_has_nothing_until_it_responds() {
    let ill = Ill::new();
    let store = ill.start();
    fill(&store, 1..3);
    ill.set_stalled(true);
    thread::scope(|scope| {
        let read = scope.spawn(|| is_read(&store, 1));
        wait_until_reading(&store);
        (0..3).for_each(|_| store.watch_step());
        assert!(store.may_have(&key(2)), "too early");
        (0..3).for_each(|_| store.watch_step());
        assert!(!store.may_have(&key(2)) && store.candidates(&key(2), 1000.0).is_empty());
        assert!(store.figures().is_stalled);
        ill.set_stalled(false);
        assert!(read.join().expect("it ends"), "a slow read is a read");
    });
    store.watch_step();
    assert!(store.may_have(&key(2)) && is_read(&store, 2) && !store.figures().is_stalled);
    assert_eq!(counts(&store), [0, 0, 0, 1]);
    let (events, _) = store.take_events();
    assert!(
        matches!(events[..], [Event::Slow { operation: Operation::Read, .. }, Event::Responds]),
        "{events:?}"
    );
}

/// Waits until the read of a page has begun.
fn wait_until_reading(store: &Store) {
    while store.health.operations() == 0 {
        thread::yield_now();
    }
}

struct Reports(Arc<Mutex<Option<bool>>>);

impl Owner for Reports {
    fn is_used(&self, _: &Key) -> bool {
        false
    }

    fn tags(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> bool {
        true
    }

    fn forget(&self, _: &Key) {}

    fn failed(&self, is_invalid: bool) {
        *self.0.lock() = Some(is_invalid);
    }
}

/// Sets the owner of a store. Returns what it is told about the end of the device's use.
fn reported_by(store: &Store) -> Arc<Mutex<Option<bool>>> {
    let reported = Arc::default();
    store.set_owner(Box::new(Reports(Arc::clone(&reported))));
    reported
}

/// Nothing is written to it: that might not end either.
#[test]
fn a_device_that_never_responds_is_taken_out() {
    let ill = Ill::new();
    let store = ill.start();
    let reported = reported_by(&store);
    fill(&store, 1..3);
    ill.set_stalled(true);
    thread::scope(|scope| {
        scope.spawn(|| is_read(&store, 1));
        wait_until_reading(&store);
        (0..121).for_each(|_| store.watch_step());
        assert_eq!((store.phase(), *reported.lock()), (Phase::Failed, Some(false)));
        assert!(purge(&store, 2), "the answer goes out");
        ill.set_stalled(false);
    });
    assert_eq!(store.take_events().0.last(), Some(&Event::TakenOut(Reason::Stall)));
}

/// Purges are not answered while a write does not end, and are when the device is taken out: its objects are not used again.
#[test]
fn a_device_that_never_writes_is_taken_out() {
    let ill = Ill::new();
    let store = ill.start();
    let reported = reported_by(&store);
    fill(&store, 1..5);
    while store.journal_step() {}
    ill.set_write_stalled(true);
    let first = begin_purge(&store, 1);
    thread::scope(|scope| {
        let journal = scope.spawn(|| while store.journal_step() {});
        wait_until_reading(&store);
        // One waits for the write in progress, and one for the next.
        let (second, third) = (begin_purge(&store, 1), begin_purge(&store, 2));
        let seen = || (store.phase(), *reported.lock(), [&first, &second, &third].map(is_set));
        (0..179).for_each(|_| store.watch_step());
        let before = seen();
        store.watch_step();
        let (after, later) = (seen(), begin_purge(&store, 3));
        let is_answered = is_set(&later);
        ill.set_write_stalled(false);
        journal.join().expect("it ends");
        assert_eq!(before, (Phase::Working, None, [false; 3]));
        assert_eq!(after, (Phase::Failed, Some(false), [true; 3]));
        assert!(is_answered, "at once");
    });
    assert!(!is_read(&store, 4));
    assert_eq!((store.phase(), counts(&store)), (Phase::Failed, [0, 0, 0, 1]));
    assert_eq!(store.take_events().0.last(), Some(&Event::TakenOut(Reason::WriteStall)));
}

/// The device fails, and then the write that makes its contents invalid does not end.
#[test]
fn a_device_that_hangs_after_it_has_failed_is_given_up() {
    for fails in [Fails::Reads, Fails::Journal, Fails::ReadsDuringMark] {
        let ill = Ill::new();
        let store = ill.start();
        let reported = reported_by(&store);
        fill(&store, 1..40);
        while store.journal_step() {}
        ill.set_write_stalled(true);
        thread::scope(|scope| {
            let first = begin_purge(&store, 1);
            match fails {
                Fails::Journal => ill.failing_writes.store(1, Ordering::Relaxed),
                Fails::Reads | Fails::ReadsDuringMark => ill.failing.store(u32::MAX, Ordering::Relaxed),
            }
            if fails == Fails::ReadsDuringMark {
                // The blocks with the superblock are read first.
                ill.failing.store(0, Ordering::Relaxed);
                scope.spawn(|| store.mark_journal());
                wait_until_reading(&store);
                wait_for(|| ill.waiting.load(Ordering::Relaxed) == 1);
                ill.failing.store(u32::MAX, Ordering::Relaxed);
            }
            let failing = scope.spawn(|| match fails {
                Fails::Journal => store.journal_step(),
                Fails::Reads | Fails::ReadsDuringMark => (2..39).any(|page| is_read(&store, page)),
            });
            wait_for(|| !store.works());
            let second = begin_purge(&store, 35);
            let seen = || (store.phase(), *reported.lock(), [&first, &second].map(is_set));
            (0..19).for_each(|_| store.watch_step());
            let before = seen();
            store.watch_step();
            let (after, has_ended) = (seen(), failing.is_finished());
            ill.set_write_stalled(false);
            failing.join().expect("it ends");
            assert_eq!(before, (Phase::Failing, None, [false; 2]), "{fails:?}");
            assert_eq!(after, (Phase::Failed, Some(false), [true; 2]), "{fails:?}");
            assert!(!has_ended, "{fails:?}: the write has ended");
        });
        assert_eq!((store.phase(), *reported.lock()), (Phase::Failed, Some(false)), "{fails:?}, later");
        let reason = if fails == Fails::Journal { Reason::Write } else { Reason::Reads };
        let taken_out = |event: &&Event| matches!(event, Event::TakenOut(_));
        let events = store.take_events().0;
        assert_eq!(events.iter().filter(taken_out).collect::<Vec<_>>(), [&Event::TakenOut(reason)]);
    }
}

/// The operations that fail before a write does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    Reads,
    Journal,
    /// The superblocks are being written then.
    ReadsDuringMark,
}

fn is_set(flag: &Arc<AtomicBool>) -> bool {
    flag.load(Ordering::Relaxed)
}

/// A segment that could not be read at a start is not found by the next one: purges did not concern it.
#[test]
fn a_purged_object_in_an_unreadable_segment_does_not_come_back() {
    // The first reads of a start are those of the headers, then come those of the summaries.
    for failing in 1..12 {
        let ill = Ill::new();
        fill(&ill.start(), 1..4);
        let store = ill.open();
        ill.failing.store(failing, Ordering::Relaxed);
        store.recover();
        ill.failing.store(0, Ordering::Relaxed);
        while store.journal_step() {}
        let is_known = is_read(&store, 1);
        assert!(purge(&store, 1));
        assert!(!is_read(&store, 1));
        // A page that was written afterwards is found, and no other.
        let is_working = store.phase() == Phase::Working;
        fill(&store, 9..10);
        let next = ill.start();
        assert!(!is_read(&next, 1), "{failing} failing reads");
        assert_eq!(is_read(&next, 2), is_known, "{failing} failing reads");
        assert_eq!(is_read(&next, 9), is_working, "{failing} failing reads");
    }
}

/// Many events of a disk that fails do not fill the memory.
#[test]
fn events_are_bounded() {
    let ill = Ill::new();
    let store = ill.start();
    fill(&store, 1..250);
    for page in 1..250 {
        if let Some(candidate) = store.candidates(&key(page), 1000.0).first() {
            ill.device.flip(candidate.entry.place() + 20, 3);
        }
    }
    assert_eq!((1..250).filter(|&page| is_read(&store, page)).count(), 0);
    let (events, lost) = store.take_events();
    assert_eq!((events.len(), lost), (100, 149));
    assert_eq!((store.take_events().0.len(), store.phase()), (0, Phase::Working));
}

/// The headers of segments are damaged. Their objects are misses, and their log positions are not used again.
#[test]
fn a_segment_with_a_damaged_header_is_lost_and_reported() {
    for epoch in 1..5 {
        for at in [0, 9, 20] {
            let ill = Ill::new();
            // One segment for each page.
            (1..5).for_each(|page| fill(&ill.start(), page..page + 1));
            let layout = *ill.open().layout();
            let segment = layout.segment_at(layout.slot(epoch));
            ill.device.flip(segment + at, 2);
            let store = ill.start();
            let found: Vec<u8> = (1..5).filter(|&page| is_read(&store, page)).collect();
            let expected: Vec<u8> = (1..5).filter(|&page| u64::from(page) != epoch).collect();
            assert_eq!(found, expected);
            assert_eq!((store.phase(), store.stats().lost.load(Ordering::Relaxed)), (Phase::Working, 1));
            let events = store.take_events().0;
            let is_meant = |event: &Event| matches!(event, Event::Lost { at, .. } if *at == segment);
            assert!(events.iter().any(is_meant), "{events:?}");
            // Later objects are written and found, and the lost one stays away.
            assert!(store.state.lock().epoch >= 4, "its log positions are used again");
            fill(&store, 9..10);
            let next = ill.start();
            assert!(is_read(&next, 9) && !is_read(&next, epoch as u8));
            assert_eq!(next.stats().lost.load(Ordering::Relaxed), 0);
        }
    }
}

/// A segment cannot be read when it is to be used again.
#[test]
fn a_segment_that_cannot_be_read_when_it_is_needed_is_lost_and_used_again() {
    let ill = Ill::new();
    let store = ill.start();
    // One segment for each page. The store has five.
    (1..6).for_each(|page| fill(&store, page..page + 1));
    ill.failing.store(1, Ordering::Relaxed);
    (6..8).for_each(|page| fill(&store, page..page + 1));
    assert_eq!((store.phase(), store.stats().lost.load(Ordering::Relaxed)), (Phase::Working, 1));
    let found = |store: &Arc<Store>| (1..8).filter(|&page| is_read(store, page)).collect::<Vec<u8>>();
    assert_eq!((found(&store), store.objects()), (vec![3, 4, 5, 6, 7], 5));
    assert_eq!(found(&ill.start()), [3, 4, 5, 6, 7]);
}

/// A write that hangs at the end of the threads is observed, and does not delay the end for ever.
#[test]
fn a_device_that_never_writes_at_the_end_is_taken_out() {
    // With an object, the segment is not written. Without one, the mark of the journal is not.
    for has_object in [true, false] {
        let ill = Ill::new();
        let store = ill.open();
        let reported = reported_by(&store);
        let running = Running::start(Arc::clone(&store)).expect("threads can be started");
        wait_for(|| store.phase() == Phase::Working && store.state.lock().pending.count == 0);
        let answered = begin_ban(&store);
        wait_for(|| answered.load(Ordering::Relaxed));
        ill.set_write_stalled(true);
        if has_object {
            drop(store.commit(Box::new(Page(1))));
        }
        let (is_watched, has_ended) = thread::scope(|scope| {
            let end = scope.spawn(|| running.retire());
            wait_for(|| store.is_ending());
            // The thread that observes the device may have been about to count once more.
            let first = store.health.ticks();
            let is_watched = may_wait_for(|| store.health.ticks() >= first + 3);
            let has_ended = may_wait_for(|| {
                store.watch_step();
                end.is_finished()
            });
            ill.set_write_stalled(false);
            (is_watched, has_ended)
        });
        assert!(is_watched && has_ended, "{has_object}: {is_watched}, {has_ended}");
        assert_eq!((store.phase(), *reported.lock()), (Phase::Failed, Some(false)), "{has_object}");
    }
}

/// Returns whether a condition becomes true within a long time.
fn may_wait_for(condition: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    condition()
}

fn wait_for(condition: impl Fn() -> bool) {
    assert!(may_wait_for(condition));
}

/// Records a ban. Returns the flag that is set when the answer goes out.
fn begin_ban(store: &Store) -> Arc<AtomicBool> {
    let answered = Arc::new(AtomicBool::new(false));
    let words = ["obj.status", "==", "200"].map(Vec::from).to_vec();
    store.ban(Ban { number: 2, time: 1.0, words }, Some(Box::new(Flag(Arc::clone(&answered)))));
    answered
}
