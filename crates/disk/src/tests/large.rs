//! Objects larger than a segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::SimulatedDevice;
use super::page::key;
use crate::blocks::{BLOCK, Blocks, read_around};
use crate::layout::{FIRST_VERSION, Layout, VERSION};
use crate::read::StoredBody;
use crate::record::{Key, Meta, Parts, encode_large, large_record_len, part_len};
use crate::report::report;
use crate::state::{Content, Phase};
use crate::store::{Candidate, Options, Owner, Store};
use crate::writer::{Step, Writer};

const SEGMENT: u64 = 256 << 10;
const LARGE: u64 = 700_000;

/// A page whose bytes follow from its number and version.
#[derive(Clone)]
struct Page {
    number: u64,
    version: u64,
    len: u64,
    /// The length at which its body ends, although a longer one was promised.
    ends_at: u64,
    head: &'static str,
}

fn byte(number: u64, version: u64, at: u64) -> u8 {
    (number * 31 + version * 7 + at * 13 + at / 251 + at / 65_536 * 5) as u8
}

impl Content for Page {
    fn parts(&self) -> Parts<'_> {
        let meta = Meta { key: key(self.number), variant: 0, expires: 5000, ban: 1 };
        let head = self.head.as_bytes();
        Parts { meta, descriptor: b"large", head, extra: b"extra", body_len: self.len }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let len = window.len().min(9000).min(self.ends_at.saturating_sub(from) as usize);
        for (at, to) in (from..).zip(&mut window[..len]) {
            *to = byte(self.number, self.version, at);
        }
        len
    }
}

/// The cache above. The words of a head are the tags.
struct Above {
    forgotten: Arc<AtomicU64>,
}

impl Owner for Above {
    /// Those with low numbers are not, so that they leave.
    fn is_used(&self, key: &Key) -> bool {
        *key != self::key(0)
    }

    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
        head.split(|&byte| byte == b' ').filter(|tag| !tag.is_empty()).for_each(each);
        true
    }

    fn forget(&self, key: &Key) {
        if *key == self::key(0) {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn failed(&self, _: bool) {}
}

struct World {
    device: SimulatedDevice,
    store: Arc<Store>,
    writer: Writer,
    forgotten: Arc<AtomicU64>,
}

fn device() -> SimulatedDevice {
    let layout =
        Layout { id: 9, journal: 64 << 10, segment: SEGMENT, segments: 16, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 3);
    layout.create(&device).expect("the device works");
    device
}

impl World {
    fn new() -> World {
        World::start(&device())
    }

    fn start(device: &SimulatedDevice) -> World {
        let options = Options { queue: 64 << 10, ..Options::default() };
        let store = Store::open(Box::new(device.clone()), options, || 1000.0).expect("there is a store");
        let forgotten = Arc::<AtomicU64>::default();
        store.set_owner(Box::new(Above { forgotten: Arc::clone(&forgotten) }));
        store.recover();
        World { device: device.clone(), writer: Writer::new(Arc::clone(&store)), store, forgotten }
    }

    fn restart(&mut self) {
        *self = World::start(&self.device.restart());
    }

    fn commit(&self, number: u64, version: u64, len: u64) {
        drop(self.store.commit(Box::new(Page { number, version, len, ends_at: len, head: "" })));
    }

    fn write(&mut self) {
        while self.writer.step() == Step::More {}
        self.writer.flush();
        while self.store.journal_step() {}
    }

    fn steps(&mut self, count: u64) {
        for _ in 0..count {
            self.writer.step();
        }
    }

    /// Writes small objects, which the next ones replace.
    fn fill(&mut self, bytes: u64) {
        for n in 0..bytes / 50_000 {
            self.commit(1000 + n % 50, n, 50_000);
            self.write();
        }
    }

    fn candidate(&self, number: u64) -> Option<Candidate> {
        self.store.candidates(&key(number), 1000.0).into_iter().next()
    }

    fn body(&self, number: u64) -> Option<(StoredBody, u64)> {
        let loaded = self.store.load(&self.candidate(number)?, &key(number))?;
        assert_eq!((loaded.fields().descriptor, loaded.fields().extra), (&b"large"[..], &b"extra"[..]));
        Some((loaded.body(), loaded.body_len()))
    }

    /// Reads an object, whose version is returned. `None` if there is none, or it is damaged.
    fn read(&self, number: u64) -> Option<u64> {
        let (body, len) = self.body(number)?;
        let mut first = [0];
        body.read(0, &mut first)?;
        let version = (0..100).find(|&version| byte(number, version, 0) == first[0]).expect("a version");
        (read_all(&body, number, version, len) == len).then_some(version)
    }
}

/// Reads a body and checks its bytes. Returns the number of bytes until the first that cannot be read.
fn read_all(body: &StoredBody, number: u64, version: u64, len: u64) -> u64 {
    let (mut window, mut at) = (vec![0; 30_000], 0);
    while let Some(n) = body.read(at, &mut window) {
        if n == 0 {
            assert_eq!(at, len, "the body has its length");
            break;
        }
        for (at, &found) in (at..).zip(&window[..n]) {
            assert_eq!(found, byte(number, version, at), "byte {at} of {number}");
        }
        at += n as u64;
    }
    at
}

#[test]
fn large_objects_are_read_as_they_were_written() {
    let part = part_len(World::new().store.layout());
    for len in [SEGMENT - 16_000, SEGMENT, 4 * part - 1, 4 * part, 4 * part + 1, LARGE, SEGMENT * 4] {
        let mut w = World::new();
        w.commit(0, 1, len);
        w.write();
        for _ in 0..2 {
            let (body, length) = w.body(0).expect("it is there");
            assert_eq!(length, len);
            assert_eq!(read_all(&body, 0, 1, len), len);
            for at in [0, 1, part - 1, part, part + 1, len / 2, len - 1] {
                let mut window = [0; 3];
                let n = body.read(at, &mut window).expect("it is sound");
                assert!(n > 0 && (0..n).all(|i| window[i] == byte(0, 1, at + i as u64)), "{at} of {len}");
            }
            assert_eq!(body.read(len, &mut [0; 3]), Some(0));
            assert_eq!(body.read(u64::MAX, &mut [0; 3]), Some(0));
            w.restart();
        }
        let found = report(&w.device, true, 1000.0, &mut |_, _| {}).expect("a store");
        assert_eq!((found.objects, found.damaged.len(), found.purged), (1, 0, 0));
        assert!(found.bytes >= len && found.bytes < len + len / 500 + 2000, "{} of {len}", found.bytes);
    }
}

#[test]
fn a_range_reads_only_what_it_needs() {
    let mut w = World::new();
    w.commit(0, 1, LARGE);
    w.write();
    let (body, _) = w.body(0).expect("it is there");
    let before = w.store.stats().read_bytes.load(Ordering::Relaxed);
    assert!(body.read(500_000, &mut [0; 100]).is_some());
    assert!(w.store.stats().read_bytes.load(Ordering::Relaxed) - before <= 32 << 10);
}

#[test]
fn objects_that_are_too_large_are_refused_and_replace_older_ones() {
    let mut w = World::new();
    for len in [4 * SEGMENT + 1, u64::MAX / 2, u64::MAX] {
        w.commit(0, 1, LARGE);
        w.write();
        assert_eq!(w.read(0), Some(1));
        w.commit(0, 2, len);
        w.write();
        assert_eq!(w.read(0), None, "{len}");
        w.restart();
        assert_eq!(w.read(0), None, "{len}");
    }
}

#[test]
fn the_version_rises_before_the_first_part() {
    let mut w = World::new();
    let version = |w: &World| Layout::open(&w.device).expect("a store").version;
    w.commit(1, 1, 10_000);
    w.write();
    assert_eq!(version(&w), FIRST_VERSION);
    w.commit(0, 1, LARGE);
    assert_eq!((w.writer.step(), version(&w)), (Step::More, VERSION));
    w.write();
    w.restart();
    assert_eq!((version(&w), w.read(0), w.read(1)), (VERSION, Some(1), Some(1)));
}

#[test]
fn an_end_while_a_large_object_is_written_leaves_a_miss_or_all_of_it() {
    let (mut complete, mut old) = (0, 0);
    for cut in 0..60 {
        for has_old in [false, true] {
            let mut w = World::new();
            if has_old {
                w.commit(0, 1, LARGE / 2);
                w.write();
            }
            w.device.cut_after(cut);
            w.commit(0, 2, LARGE);
            for n in 0..10 {
                w.commit(1 + n, 1, 20_000);
                w.steps(3);
                if n % 4 == 0 {
                    w.writer.flush();
                }
            }
            w.write();
            let is_off = w.device.is_off();
            w.restart();
            match w.read(0) {
                Some(2) => complete += 1,
                Some(1) => old += 1,
                other => {
                    assert_eq!(other, None);
                    assert!(is_off, "it is complete");
                    assert!(w.candidate(0).is_none(), "cut {cut}: it was damaged");
                }
            }
        }
    }
    assert!(complete > 10 && old > 10, "{complete}, {old}");
}

#[test]
fn a_flipped_bit_ends_the_reading_before_a_wrong_byte() {
    let mut w = World::new();
    w.commit(0, 1, LARGE);
    w.write();
    let at = w.store.layout().data();
    let mut shortest = u64::MAX;
    for n in 0..60 {
        let w = World::start(&w.device.restart());
        w.device.flip(at + 100 + n * 15_000, n as u8);
        let Some((body, len)) = w.body(0) else { continue };
        let read = read_all(&body, 0, 1, len);
        shortest = shortest.min(read);
        if read < len {
            assert_eq!(w.read(0), None, "it has left the index");
            let w = World::start(&w.device.restart());
            w.body(0);
        }
        // The next flip is the only one.
        w.device.flip(at + 100 + n * 15_000, n as u8);
    }
    assert!(shortest < LARGE / 2, "{shortest}");
}

#[test]
fn a_head_that_lists_other_places_is_never_believed() {
    let mut w = World::new();
    w.commit(0, 1, LARGE);
    w.write();
    let candidate = w.candidate(0).expect("it is there");
    let layout = *w.store.layout();
    let page = Page { number: 0, version: 1, len: LARGE, ends_at: LARGE, head: "" };
    let count = LARGE.div_ceil(part_len(&layout)) as usize;
    let own = candidate.log;
    let places =
        [0, 1, 64, own, own + 64, own - 64, SEGMENT, u64::MAX, u64::MAX - SEGMENT, 17 * SEGMENT, 1 << 62];
    let before = w.device.restart();
    for place in places {
        let device = before.restart();
        let list = vec![place; count];
        let mut record = vec![0; large_record_len(&layout, &page.parts()) as usize];
        encode_large(&layout, own, &page.parts(), &list, &mut record);
        let at = candidate.entry.place();
        let (mut blocks, from) = read_around(&device, at, record.len() as u64).expect("it can be read");
        blocks.bytes_mut()[from..from + record.len()].copy_from_slice(&record);
        device.write(at / BLOCK * BLOCK, blocks.bytes()).expect("it can be written");
        device.sync().expect("it works");
        let w = World::start(&device);
        assert_eq!(w.read(0), None, "{place}");
        assert_eq!(w.store.phase(), Phase::Working);
    }
}

#[test]
fn a_large_object_leaves_when_a_segment_of_it_is_used_again() {
    let mut w = World::new();
    w.commit(0, 1, LARGE);
    w.write();
    let mut gone_at = None;
    for round in 0..60 {
        w.fill(200_000);
        match (w.read(0), gone_at) {
            (Some(version), None) => assert_eq!(version, 1),
            (None, None) => gone_at = Some(round),
            (found, Some(_)) => assert_eq!(found, None),
        }
    }
    assert!(gone_at.is_some_and(|round| round > 8), "{gone_at:?}");
    assert!(w.forgotten.load(Ordering::Relaxed) > 0, "the cache is told");
    w.restart();
    assert_eq!(w.read(0), None);
    // Its head is still there, in a segment that was begun later.
    let mut w = World::new();
    w.commit(0, 1, LARGE);
    w.write();
    while w.candidate(0).is_some_and(|candidate| w.store.load(&candidate, &key(0)).is_some()) {
        w.fill(100_000);
    }
    w.restart();
    assert_eq!(w.read(0), None);
    let found = report(&w.device, true, 1000.0, &mut |_, _| {}).expect("a store");
    assert_eq!(found.damaged, [0; 0]);
}

#[test]
fn a_body_that_is_read_stays_until_its_end() {
    let mut w = World::new();
    w.commit(0, 1, LARGE);
    w.write();
    let (body, len) = w.body(0).expect("it is there");
    w.fill(20_000_000);
    assert_eq!(w.read(0), None, "it has left the index");
    assert_eq!(read_all(&body, 0, 1, len), len);
    let pinned = w.store.stats().pinned.load(Ordering::Relaxed);
    assert!(pinned > 3, "{pinned}");
    drop(body);
    w.fill(10_000_000);
    let later = w.store.stats().pinned.load(Ordering::Relaxed);
    w.fill(10_000_000);
    assert_eq!(w.store.stats().pinned.load(Ordering::Relaxed), later);
}

#[test]
fn a_large_object_can_be_purged_and_replaced_while_it_is_written() {
    for steps in 1..16 {
        for how in 0..4 {
            let mut w = World::new();
            w.commit(0, 1, 300_000);
            w.write();
            let page = Page { number: 0, version: 2, len: LARGE, ends_at: LARGE, head: "red blue" };
            drop(w.store.commit(Box::new(page)));
            assert_eq!(w.read(0), None, "the old one is replaced");
            w.steps(steps);
            match how {
                0 => drop(w.store.purge(&key(0), None)),
                1 => w.store.purge_tags([&b"blue"[..]].into_iter(), None),
                2 => w.commit(0, 3, 1000),
                _ => w.commit(0, 3, LARGE + 1),
            }
            w.write();
            let expected = if how < 2 { None } else { Some(3) };
            assert_eq!(w.read(0), expected, "{how} after {steps}");
            w.restart();
            assert_eq!(w.read(0), expected, "{how} after {steps}");
        }
    }
}

#[test]
fn a_body_that_ends_early_is_not_stored() {
    for ends_at in [0, 1, 65_504, 100_000, LARGE - 1] {
        let mut w = World::new();
        w.commit(0, 1, 1000);
        w.write();
        drop(w.store.commit(Box::new(Page { number: 0, version: 2, len: LARGE, ends_at, head: "" })));
        w.steps(1);
        w.commit(1, 1, 1000);
        w.write();
        w.restart();
        assert_eq!((w.read(0), w.read(1)), (None, Some(1)), "{ends_at}");
    }
}

#[test]
fn other_objects_do_not_wait_for_a_large_one() {
    let mut w = World::new();
    w.commit(0, 1, LARGE);
    w.writer.step();
    w.writer.step();
    w.commit(1, 1, 20_000);
    w.commit(2, 1, LARGE);
    for _ in 0..4 {
        w.writer.step();
    }
    w.writer.flush();
    assert_eq!((w.read(1), w.read(0)), (Some(1), None));
    w.commit(3, 1, 60_000);
    w.write();
    assert_eq!((w.read(0), w.read(3)), (Some(1), Some(1)));
    // No more than one large object waits, beside what the queue has room for.
    assert_eq!(w.read(2), None);
    assert!(w.store.stats().refused.load(Ordering::Relaxed) > 0);
}
