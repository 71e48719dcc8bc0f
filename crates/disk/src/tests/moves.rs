//! Large objects that were hit, and whose segments are needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_testing::Random;

use super::device::SimulatedDevice;
use super::page::key;
use crate::index::{Entry, variant};
use crate::layout::Layout;
use crate::record::{Key, Meta, Parts, fingerprint};
use crate::segment;
use crate::state::{Content, Phase};
use crate::store::{Candidate, Options, Owner, Store};
use crate::writer::{Step, Writer};

const SEGMENT: u64 = 256 << 10;
const SEGMENTS: u64 = 24;

/// A page whose bytes follow from its number.
struct Page {
    number: u64,
    variant: u32,
    len: u64,
}

fn byte(number: u64, at: u64) -> u8 {
    (number * 31 + at * 13 + at / 251) as u8
}

impl Content for Page {
    fn parts(&self) -> Parts<'_> {
        let meta = Meta { key: key(self.number), variant: self.variant, expires: 5000, ban: 1 };
        Parts { meta, descriptor: b"page", head: b"tag", extra: b"", body_len: self.len }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let len = window.len().min(self.len.saturating_sub(from) as usize);
        for (at, to) in (from..).zip(&mut window[..len]) {
            *to = byte(self.number, at);
        }
        len
    }
}

/// A cache that has nothing in memory. The head of a page is its tag.
struct Above;

impl Owner for Above {
    fn is_used(&self, _: &Key) -> bool {
        false
    }

    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
        each(head);
        true
    }

    fn forget(&self, _: &Key) {}

    fn failed(&self, _: bool) {}
}

struct World {
    device: SimulatedDevice,
    store: Arc<Store>,
    writer: Writer,
    next: u64,
}

impl World {
    fn new() -> World {
        let layout = Layout {
            id: 9,
            journal: 64 << 10,
            segment: SEGMENT,
            segments: SEGMENTS,
            created: 1.0,
            version: 1,
        };
        let device = SimulatedDevice::new(layout.size(), 3);
        layout.create(&device).expect("the device works");
        World::start(&device)
    }

    fn start(device: &SimulatedDevice) -> World {
        let open = Store::open(Box::new(device.clone()), Options::default(), || 1000.0);
        let store = open.expect("there is a store");
        store.set_owner(Box::new(Above));
        store.recover();
        World { device: device.clone(), writer: Writer::new(Arc::clone(&store)), store, next: 1000 }
    }

    fn commit(&self, number: u64, len: u64) {
        self.commit_variant(number, 0, len);
    }

    fn commit_variant(&self, number: u64, variant: u32, len: u64) {
        drop(self.store.commit(Box::new(Page { number, variant, len })));
    }

    fn write(&mut self) {
        while self.writer.step() == Step::More {}
        self.writer.flush();
        while self.store.journal_step() {}
    }

    /// Writes small pages that nobody requests.
    fn fill(&mut self, bytes: u64) {
        for _ in 0..bytes / 50_000 {
            self.next += 1;
            self.commit(self.next, 50_000);
            self.write();
        }
    }

    /// Reads a page, and counts a hit. Returns whether it is there.
    fn hit(&self, number: u64, len: u64) -> bool {
        let Some(candidate) = self.store.candidates(&key(number), 1000.0).into_iter().next() else {
            return false;
        };
        let Some(loaded) = self.store.load(&candidate, &key(number)) else { return false };
        assert_eq!(loaded.body_len(), len);
        let (body, mut window, mut at) = (loaded.body(), vec![0; 60_000], 0);
        while let Some(n) = body.read(at, &mut window).filter(|&n| n > 0) {
            assert!(
                (at..).zip(&window[..n]).all(|(at, &found)| found == byte(number, at)),
                "{number} at {at}"
            );
            at += n as u64;
        }
        self.store.hit(&candidate);
        at == len
    }
}

/// Stores pages that were hit, two in each of twelve segments, and holds these as responses do.
fn hold_half(w: &mut World) -> Vec<Candidate> {
    for number in 0..24 {
        w.commit(number, 100_000);
        w.write();
    }
    assert!((0..24).all(|number| w.hit(number, 100_000)));
    (0..24).flat_map(|number| w.store.candidates(&key(number), 1000.0)).collect()
}

/// The number of small pages that fill half of the segments.
const HALF: u64 = 48;

/// Writes small pages. Returns the most bytes that waited at a time.
fn fill_watched(w: &mut World, pages: u64) -> u64 {
    let mut most = 0;
    for _ in 0..pages {
        w.next += 1;
        w.commit(w.next, 60_000);
        while w.writer.step() == Step::More {
            most = most.max(w.store.queued_bytes());
        }
    }
    w.write();
    most
}

#[test]
fn segments_that_are_being_sent_are_left_with_their_objects() {
    let mut w = World::new();
    let held = hold_half(&mut w);
    let limit = SEGMENT / 2 + 70_000;
    let pinned = |w: &World| w.store.stats().pinned.load(Ordering::Relaxed);
    // The first time that the held segments are needed.
    let most = fill_watched(&mut w, HALF + HALF / 2);
    assert!(most < limit, "{most} bytes wait");
    assert_eq!(pinned(&w), 12);
    assert!((0..24).all(|number| w.hit(number, 100_000)), "they are found meanwhile");
    // The second time, they are dropped, but for what may be written again for one new segment.
    let most = fill_watched(&mut w, HALF);
    assert!(most < limit, "{most} bytes wait");
    assert_eq!(pinned(&w), 24);
    let left = (0..24).filter(|&number| w.hit(number, 100_000)).count();
    assert!((1..4).contains(&left), "{left} objects");
    drop(held);
    fill_watched(&mut w, 3 * HALF);
    assert_eq!(pinned(&w), 24, "all segments are used again");
}

#[test]
fn a_purge_of_an_object_in_a_segment_that_was_left_is_not_forgotten() {
    for is_by_tag in [false, true] {
        let mut w = World::new();
        let held = hold_half(&mut w);
        if is_by_tag {
            w.store.purge_tags([&b"tag"[..]].into_iter(), None);
        } else {
            (0..24).for_each(|number| drop(w.store.purge(&key(number), None)));
        }
        w.write();
        fill_watched(&mut w, HALF + HALF / 2);
        w.store.state.lock().pending.wants_checkpoint = true;
        while w.store.journal_step() {}
        assert!(w.store.stats().pinned.load(Ordering::Relaxed) >= 12);
        assert!((0..24).all(|number| !w.hit(number, 100_000)));
        let w = World::start(&w.device.restart());
        assert!((0..24).all(|number| !w.hit(number, 100_000)));
        drop(held);
    }
}

#[test]
fn segments_that_were_left_do_not_come_back_when_newer_ones_are_lost() {
    let mut w = World::new();
    let held = hold_half(&mut w);
    fill_watched(&mut w, HALF + HALF / 2);
    let w = World::start(&w.device.restart());
    assert!((0..24).all(|number| !w.hit(number, 100_000)));
    // This records which bans and purges are needed.
    while w.store.journal_step() {}
    let slots: Vec<u64> = w.store.state.lock().slots.iter().map(|slot| slot.epoch).collect();
    for (slot, _) in (0..).zip(slots).filter(|&(_, epoch)| epoch > SEGMENTS) {
        segment::wipe(w.store.layout(), &w.device, slot).expect("the device works");
    }
    let w = World::start(&w.device.restart());
    assert!((0..24).all(|number| !w.hit(number, 100_000)));
    drop(held);
}

/// Stores pages, two in each segment, and holds all segments as responses do.
fn hold_all(w: &mut World) -> Vec<Candidate> {
    for number in 0..2 * SEGMENTS {
        w.commit(number, 100_000);
        w.write();
    }
    (0..2 * SEGMENTS).flat_map(|number| w.store.candidates(&key(number), 1000.0)).collect()
}

fn has(w: &World, number: u64) -> bool {
    !w.store.candidates(&key(number), 1000.0).is_empty()
}

#[test]
fn objects_stay_while_all_segments_are_being_sent() {
    let mut w = World::new();
    let held = hold_all(&mut w);
    w.commit(100, 100_000);
    (0..10).for_each(|_| w.write());
    assert_eq!(w.store.queued_bytes() / 100_000, 1, "it waits");
    assert_eq!((0..2 * SEGMENTS).filter(|&number| has(&w, number)).count() as u64, 2 * SEGMENTS);
    drop(held);
    w.write();
    assert!(w.hit(100, 100_000));
    assert_eq!((0..2 * SEGMENTS).filter(|&number| has(&w, number)).count() as u64, 2 * SEGMENTS - 2);
}

/// Responses hold all segments, so that an object waits, and one whose parts are written one by one.
#[test]
fn what_waits_at_a_clean_end_does_not_bring_back_what_it_has_replaced() {
    for len in [100_000, 900_000] {
        let mut w = World::new();
        let held = hold_all(&mut w);
        w.commit(0, len);
        w.write();
        assert!(!w.store.state.lock().queue.is_empty(), "it waits");
        w.writer.close();
        // Another page is replaced before the thread ends.
        w.commit(2, 100_000);
        let World { device, store, writer, .. } = w;
        drop(writer);
        while store.journal_step() {}
        assert_eq!(store.phase(), Phase::Working);
        let w = World::start(&device.restart());
        let found: Vec<u64> = (0..4).filter(|&number| has(&w, number)).collect();
        assert_eq!(found, [1, 3], "{len} bytes");
        drop(held);
    }
}

#[test]
fn a_large_object_that_is_hit_stays() {
    let mut w = World::new();
    w.commit(0, 900_000);
    w.commit(1, 900_000);
    w.write();
    for round in 0..120 {
        w.fill(200_000);
        assert!(w.hit(0, 900_000), "round {round}");
    }
    assert!(!w.hit(1, 900_000), "nobody has requested it");
    let moved = w.store.stats().moved.load(Ordering::Relaxed);
    assert!((2..12).contains(&moved), "{moved} times");
    let mut w = World::start(&w.device.restart());
    assert!(w.hit(0, 900_000));
    w.fill(1_000_000);
    assert_eq!(w.store.objects(), w.store.index.len());
}

/// The object is found at each step of its move.
#[test]
fn an_object_that_is_moved_is_there_all_the_time() {
    let mut w = World::new();
    w.commit(0, 1_400_000);
    w.write();
    assert!(w.hit(0, 1_400_000));
    while w.store.stats().moved.load(Ordering::Relaxed) == 0 {
        w.next += 1;
        w.commit(w.next, 50_000);
        while w.writer.step() == Step::More {
            assert!(w.hit(0, 1_400_000), "after {} pages", w.next - 1000);
        }
    }
    w.write();
    assert!(w.hit(0, 1_400_000));
    // The old segments are used again.
    for _ in 0..60 {
        w.fill(100_000);
        w.hit(0, 1_400_000);
    }
    w.fill(14_000_000);
    let (used, all) = w.store.segments();
    assert!(used + 1 >= all, "{used} of {all} segments are used");
}

/// The segments of another variant of its key are used again during the move.
#[test]
fn another_variant_of_an_object_that_is_moved_leaves_the_index_with_its_segment() {
    let mut w = World::new();
    let (moved, other) = (variant(1, 1), variant(1, 2));
    w.commit_variant(0, moved, 1_400_000);
    w.commit_variant(0, other, 300_000);
    w.write();
    let found = w.store.candidates_of(&key(0), 1000.0, &[moved]);
    w.store.hit(&found[0]);
    drop(found);
    while w.store.stats().moved.load(Ordering::Relaxed) == 0 {
        w.fill(50_000);
    }
    w.write();
    let entries = w.store.index.get(fingerprint(&key(0)));
    let place = entries.iter().find(|entry| entry.variant == other).map(Entry::place);
    let epoch =
        |place| w.store.layout.slot_of(place).map(|slot| w.store.state.lock().slots[slot as usize].epoch);
    assert!(place.and_then(epoch).is_none_or(|epoch| epoch < SEGMENTS), "its segment was used again");
    assert!(entries.iter().any(|entry| entry.variant == moved));
}

/// Objects that are all hit do not make the store write them all the time.
#[test]
fn the_bytes_that_are_written_again_are_bounded() {
    let mut w = World::new();
    for number in 0..7 {
        w.commit(number, 700_000);
    }
    w.write();
    let before = w.store.stats().device_written_bytes.load(Ordering::Relaxed);
    let new = 40_000_000;
    for _ in 0..new / 100_000 {
        w.fill(100_000);
        for number in 0..7 {
            w.hit(number, 700_000);
        }
    }
    let written = w.store.stats().device_written_bytes.load(Ordering::Relaxed) - before;
    assert!(written < new * 22 / 10, "{written} bytes for {new}");
    assert!(w.store.stats().moved.load(Ordering::Relaxed) > 10);
}

#[test]
fn an_object_that_is_purged_while_it_is_moved_does_not_come_back() {
    for steps in 0..24 {
        for how in 0..4 {
            let mut w = World::new();
            w.commit(0, 900_000);
            w.write();
            assert!(w.hit(0, 900_000));
            while w.store.stats().moved.load(Ordering::Relaxed) == 0 {
                w.next += 1;
                w.commit(w.next, 50_000);
                while w.writer.step() == Step::More && w.store.stats().moved.load(Ordering::Relaxed) == 0 {}
            }
            for _ in 0..steps {
                w.writer.step();
            }
            let mut len = None;
            match how {
                0 => drop(w.store.purge(&key(0), None)),
                1 => w.store.purge_tags([&b"tag"[..]].into_iter(), None),
                2 => {
                    w.commit(0, 3000);
                    len = Some(3000);
                }
                _ => {
                    w.commit(0, 600_000);
                    len = Some(600_000);
                }
            }
            w.write();
            let is_there = |w: &World| len.map_or_else(|| w.hit(0, 900_000), |len| w.hit(0, len));
            assert_eq!(is_there(&w), len.is_some(), "{how} after {steps}");
            let mut w = World::start(&w.device.restart());
            assert_eq!(is_there(&w), len.is_some(), "{how} after {steps}");
            w.fill(8_000_000);
            assert_eq!(w.store.phase(), Phase::Working);
        }
    }
}

#[test]
fn a_cut_of_power_during_a_move_leaves_a_miss_or_the_object() {
    let mut kept = 0;
    for cut in 0..60 {
        let mut w = World::new();
        w.commit(0, 900_000);
        w.write();
        assert!(w.hit(0, 900_000));
        w.fill(4_300_000);
        w.device.cut_after(cut * 2);
        for _ in 0..20 {
            w.fill(50_000);
        }
        let w = World::start(&w.device.restart());
        kept += u32::from(w.hit(0, 900_000));
    }
    assert!(kept > 10, "{kept}");
}

#[test]
fn a_part_that_cannot_be_read_ends_the_move() {
    let mut w = World::new();
    w.commit(0, 900_000);
    w.write();
    assert!(w.hit(0, 900_000));
    w.device.flip(w.store.layout().data() + SEGMENT + 90_000, 3);
    for _ in 0..40 {
        w.fill(200_000);
    }
    assert!(!w.hit(0, 900_000));
    assert_eq!((w.store.phase(), w.store.stats().damaged.load(Ordering::Relaxed)), (Phase::Working, 1));
}

/// Requests for some popular and many other objects, large and small. Returns the hits among 1000 requests for large ones.
fn hits_of_large(has_moves: bool) -> u64 {
    let mut w = World::new();
    let mut random = Random(5);
    let len = |number: u64| if number.is_multiple_of(8) { 300_000 } else { 20_000 };
    let (mut hits, mut requests) = (0, 0);
    while requests < 1000 {
        // The chance of an object falls with its number.
        let number = (400_f64.powf(random.below(10_000) as f64 / 10_000.0) - 1.0) as u64;
        let is_large = number.is_multiple_of(8);
        let is_hit = w.hit(number, len(number));
        if is_large {
            requests += 1;
            hits += u64::from(is_hit);
        }
        if !is_hit {
            w.commit(number, len(number));
            loop {
                if !has_moves {
                    w.writer.moves.credit = 0;
                }
                if w.writer.step() != Step::More {
                    break;
                }
            }
            w.write();
        }
    }
    hits
}

#[test]
fn large_objects_that_are_hit_raise_the_hit_ratio() {
    let (with, without) = (hits_of_large(true), hits_of_large(false));
    println!("hits of large objects: {with} of 1000 if they are written again, {without} if not");
    assert!(with > without, "{with}, {without}");
}
