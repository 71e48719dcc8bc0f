//! Bodies that are written while they are fetched.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::device::SimulatedDevice;
use crate::layout::Layout;
use crate::part_stream::PartStream;
use crate::record::{Key, Meta, Parts};
use crate::report::report;
use crate::state::{Content, Phase};
use crate::store::{Options, Store};
use crate::stream::PartSource;
use crate::writer::{Step, Writer};

const SEGMENT: u64 = 256 << 10;
const LEN: u64 = 700_001;

thread_local! {
    /// The time of the test.
    static NOW: Cell<f64> = const { Cell::new(1000.0) };
}

fn byte(at: u64) -> u8 {
    (at * 13 + at / 251 + at / 65_536 * 5) as u8
}

fn key() -> Key {
    [7; 24]
}

/// A fetch. Bytes leave its memory when they were written.
#[derive(Default)]
struct Fetch {
    written: AtomicU64,
    is_stopped: AtomicBool,
    /// The memory was dropped.
    is_gone: AtomicBool,
}

struct Memory(Arc<Fetch>);

impl PartSource for Memory {
    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        if from < self.0.written.load(Ordering::Relaxed) || self.0.is_gone.load(Ordering::Relaxed) {
            return 0;
        }
        let n = window.len().min(9000);
        for (at, to) in (from..).zip(&mut window[..n]) {
            *to = byte(at);
        }
        n
    }

    fn written(&self, to: u64) {
        self.0.written.store(to, Ordering::Relaxed);
    }

    fn stopped(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// The object without its body.
struct Head(u64);

impl Content for Head {
    fn parts(&self) -> Parts<'_> {
        Parts { meta: meta(), descriptor: b"d", head: b"head", extra: b"", body_len: self.0 }
    }

    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        panic!("its body was written before")
    }
}

fn meta() -> Meta {
    Meta { key: key(), variant: 0, expires: 5000, ban: 1 }
}

/// An object of another key, with or without a body in memory.
struct Other {
    number: u8,
    len: u64,
}

impl Other {
    fn meta(&self) -> Meta {
        Meta { key: [self.number; 24], ..meta() }
    }
}

impl Content for Other {
    fn parts(&self) -> Parts<'_> {
        Parts { meta: self.meta(), descriptor: b"d", head: b"head", extra: b"", body_len: self.len }
    }

    fn read(&self, _: u64, window: &mut [u8]) -> usize {
        window.fill(1);
        window.len()
    }
}

struct World {
    device: SimulatedDevice,
    store: Arc<Store>,
    writer: Writer,
}

impl World {
    fn new() -> World {
        let layout =
            Layout { id: 9, journal: 64 << 10, segment: SEGMENT, segments: 16, created: 1.0, version: 1 };
        let device = SimulatedDevice::new(layout.size(), 3);
        layout.create(&device).expect("the device works");
        World::start(&device)
    }

    fn start(device: &SimulatedDevice) -> World {
        let open = Store::open(Box::new(device.clone()), Options::default(), || NOW.get());
        let store = open.expect("there is a store");
        store.recover();
        World { device: device.clone(), writer: Writer::new(Arc::clone(&store)), store }
    }

    fn restart(&mut self) {
        *self = World::start(&self.device.restart());
    }

    fn begin(&self) -> (Arc<PartStream>, Arc<Fetch>) {
        let fetch = Arc::<Fetch>::default();
        let stream = self.store.begin_stream(meta(), Box::new(Memory(Arc::clone(&fetch))));
        (stream.expect("the device works"), fetch)
    }

    fn write(&mut self) {
        while self.writer.step() == Step::More {}
        self.writer.flush();
        while self.store.journal_step() {}
    }

    /// Pushes a body to its end.
    fn push(&self, stream: &Arc<PartStream>, len: u64) {
        let part = self.store.part_len();
        (0..len.div_ceil(part)).for_each(|n| stream.push(part.min(len - n * part)));
    }

    /// Returns whether the object is there and has its bytes.
    fn has(&self, len: u64) -> bool {
        let found = self.store.candidates(&key(), 1000.0).into_iter().next();
        let Some(loaded) = found.and_then(|found| self.store.load(&found, &key())) else { return false };
        assert_eq!((loaded.fields().head, loaded.body_len()), (&b"head"[..], len));
        let (body, mut window, mut at) = (loaded.body(), vec![0; 30_000], 0);
        while let Some(n) = body.read(at, &mut window).filter(|&n| n > 0) {
            assert!((at..).zip(&window[..n]).all(|(at, &found)| found == byte(at)), "at {at}");
            at += n as u64;
        }
        at == len
    }
}

fn check(stream: &PartStream, to: u64) {
    let mut window = vec![0; 50_000];
    let mut at = 0;
    while let Some(n) = stream.read(at, &mut window).filter(|&n| n > 0) {
        assert!((at..).zip(&window[..n]).all(|(at, &found)| found == byte(at)), "at {at}");
        at += n as u64;
    }
    assert_eq!(at, to);
}

#[test]
fn a_body_is_read_while_it_is_written_and_stored_at_its_end() {
    let part = World::new().store.part_len();
    for len in [1, part - 1, part, part + 1, 5 * part, LEN, 4 * SEGMENT] {
        let mut w = World::new();
        let (stream, fetch) = w.begin();
        let mut pushed = 0;
        while pushed < len {
            let next = part.min(len - pushed);
            stream.push(next);
            pushed += next;
            w.write();
            assert_eq!(fetch.written.load(Ordering::Relaxed), pushed, "a lone part does not wait");
            check(&stream, pushed);
        }
        assert!(!w.has(len));
        drop(w.store.commit_streamed(Box::new(Head(len)), &stream));
        w.write();
        assert!(w.has(len) && !fetch.is_stopped.load(Ordering::Relaxed), "{len}");
        w.restart();
        assert!(w.has(len), "{len}");
        let found = report(&w.device, true, 1000.0, &mut |_, _| {}).expect("a store");
        assert_eq!((found.objects, found.damaged.len()), (1, 0));
    }
}

#[test]
fn parts_that_were_not_written_prevent_the_object() {
    for missing in 0..3 {
        let mut w = World::new();
        let (stream, fetch) = w.begin();
        w.push(&stream, LEN - u64::from(missing == 0));
        match missing {
            0 => {}
            1 => stream.stop(),
            _ => fetch.is_gone.store(true, Ordering::Relaxed),
        }
        drop(w.store.commit_streamed(Box::new(Head(LEN)), &stream));
        w.write();
        assert!(!w.has(LEN), "{missing}");
        assert_eq!(fetch.is_stopped.load(Ordering::Relaxed), missing > 0);
        w.restart();
        assert!(!w.has(LEN), "{missing}");
    }
}

#[test]
fn a_fetch_that_fails_leaves_segments_that_are_used_again() {
    let mut w = World::new();
    for round in 0..30 {
        let (stream, _) = w.begin();
        w.push(&stream, LEN);
        if round % 2 == 0 {
            w.write();
        }
        drop(stream);
    }
    let (stream, _) = w.begin();
    w.push(&stream, LEN);
    drop(w.store.commit_streamed(Box::new(Head(LEN)), &stream));
    w.write();
    assert!(w.has(LEN));
    assert_eq!(w.store.stats().pinned.load(Ordering::Relaxed), 0);
}

/// Objects whose parts fill the device wait for room for their heads, which only their own end would make.
#[test]
fn objects_that_occupy_all_segments_do_not_stop_the_writer() {
    let mut w = World::new();
    let streams: Vec<_> = (10..30)
        .map(|number| {
            let head = Other { number, len: LEN };
            let stream = w.store.begin_stream(head.meta(), Box::new(Memory(Arc::default())));
            let stream = stream.expect("the device works");
            w.push(&stream, LEN);
            (head, stream)
        })
        .collect();
    w.write();
    for (head, stream) in streams {
        drop(w.store.commit_streamed(Box::new(head), &stream));
    }
    let small = Other { number: 99, len: 1000 };
    let is_there = |w: &World| !w.store.candidates(&[99; 24], 1000.0).is_empty();
    drop(w.store.commit(Box::new(small)));
    w.write();
    assert!(!is_there(&w), "the test needs a device without room");
    for _ in 0..6 {
        NOW.set(NOW.get() + 10.0);
        w.write();
    }
    assert!(is_there(&w));
    assert!(w.store.stats().refused.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_purge_during_the_fetch_does_not_take_parts_from_its_readers() {
    let mut w = World::new();
    let (stream, fetch) = w.begin();
    w.push(&stream, LEN / 2 / w.store.part_len() * w.store.part_len());
    drop(w.store.purge(&key(), None));
    w.write();
    check(&stream, fetch.written.load(Ordering::Relaxed));
    assert!(fetch.written.load(Ordering::Relaxed) > 300_000);
}

#[test]
fn a_purge_between_the_commit_and_the_head_removes_the_object() {
    for steps in 0..20 {
        let mut w = World::new();
        let (stream, _) = w.begin();
        w.push(&stream, LEN);
        drop(w.store.commit_streamed(Box::new(Head(LEN)), &stream));
        (0..steps).for_each(|_| {
            w.writer.step();
        });
        drop(w.store.purge(&key(), None));
        w.write();
        assert!(!w.has(LEN), "{steps}");
        w.restart();
        assert!(!w.has(LEN), "{steps}");
    }
}

#[test]
fn a_device_that_fails_stops_the_stream() {
    for cut in 0..14 {
        let mut w = World::new();
        let (stream, fetch) = w.begin();
        w.device.cut_after(cut);
        for _ in 0..6 {
            stream.push(w.store.part_len());
            w.write();
        }
        assert_eq!(w.store.phase() == Phase::Failed, w.device.is_off());
        assert_eq!(fetch.is_stopped.load(Ordering::Relaxed), w.device.is_off(), "{cut}");
        assert_eq!(stream.is_stopped(), w.device.is_off());
        if w.device.is_off() {
            assert!(w.store.begin_stream(meta(), Box::new(Memory(fetch))).is_none());
            stream.push(w.store.part_len());
        }
    }
}

#[test]
fn an_end_during_the_fetch_leaves_nothing_to_find() {
    for cut in 0..20 {
        let mut w = World::new();
        let (stream, _) = w.begin();
        w.device.cut_after(cut);
        w.push(&stream, LEN);
        drop(w.store.commit_streamed(Box::new(Head(LEN)), &stream));
        w.write();
        let is_off = w.device.is_off();
        w.restart();
        let is_there = w.has(LEN);
        assert!(is_there || is_off, "{cut}");
        assert!(is_there || w.store.candidates(&key(), 1000.0).is_empty(), "{cut}");
    }
}

#[test]
fn a_stream_holds_its_segments() {
    let mut w = World::new();
    let (stream, fetch) = w.begin();
    w.push(&stream, LEN);
    w.write();
    for _ in 0..40 {
        let (other, _) = w.begin();
        w.push(&other, LEN);
        w.write();
    }
    check(&stream, LEN);
    assert!(w.store.stats().pinned.load(Ordering::Relaxed) > 3);
    // Its first segments have left the store.
    drop(w.store.commit_streamed(Box::new(Head(LEN)), &stream));
    w.write();
    assert!(!w.has(LEN) && !fetch.is_stopped.load(Ordering::Relaxed));
}
