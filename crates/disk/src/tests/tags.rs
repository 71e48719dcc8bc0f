//! Purges by tags.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::SimulatedDevice;
use super::page::{Page, key};
use crate::layout::{FIRST_VERSION, Layout, VERSION};
use crate::record::Key;
use crate::state::Phase;
use crate::store::{Options, Owner, Store};
use crate::writer::{Step, Writer};

/// The cache above, which may be gone.
struct Tags {
    is_gone: Arc<AtomicBool>,
    are_used: bool,
}

impl Owner for Tags {
    fn is_used(&self, _: &Key) -> bool {
        self.are_used
    }

    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
        head.split(|&byte| byte == b' ').filter(|tag| !tag.is_empty()).for_each(each);
        !self.is_gone.load(Ordering::Relaxed)
    }

    fn forget(&self, _: &Key) {}

    fn failed(&self, _: bool) {}
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct World {
    device: SimulatedDevice,
    store: Arc<Store>,
    writer: Writer,
    is_gone: Arc<AtomicBool>,
}

fn device(segments: u64) -> SimulatedDevice {
    let layout = Layout { id: 9, journal: 64 << 10, segment: 256 << 10, segments, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 3);
    layout.create(&device).expect("the device works");
    device
}

impl World {
    /// Opens the store, whose index is not read yet.
    fn open(device: &SimulatedDevice, are_used: bool) -> World {
        let options = Options { queue: u64::MAX, ..Options::default() };
        let store = Store::open(Box::new(device.clone()), options, || 1000.0).expect("there is a store");
        let is_gone = Arc::<AtomicBool>::default();
        store.set_owner(Box::new(Tags { is_gone: Arc::clone(&is_gone), are_used }));
        World { device: device.clone(), writer: Writer::new(Arc::clone(&store)), store, is_gone }
    }

    fn start(device: &SimulatedDevice) -> World {
        let world = World::open(device, true);
        world.store.recover();
        world
    }

    /// Cuts the power, and opens the store again.
    fn restart(&mut self) {
        *self = World::start(&self.device.restart());
    }

    fn commit(&self, number: u64, tags: &'static str) {
        drop(self.store.commit(Box::new(Page { number, head: tags, len: 1000 })));
    }

    fn purge(&self, tag: &str) -> Arc<AtomicBool> {
        let answered = Arc::new(AtomicBool::new(false));
        let hold = Box::new(Flag(Arc::clone(&answered)));
        self.store.purge_tags([tag.as_bytes()].into_iter(), Some(hold));
        answered
    }

    fn write(&mut self) {
        while self.writer.step() == Step::More {}
        self.writer.flush();
        while self.store.journal_step() {}
    }

    fn has(&self, number: u64) -> bool {
        let key = key(number);
        let candidates = self.store.candidates(&key, 1000.0);
        candidates.iter().any(|candidate| self.store.load(candidate, &key).is_some())
    }

    fn found(&self) -> Vec<u64> {
        (0..20).filter(|&number| self.has(number)).collect()
    }
}

#[test]
fn purges_by_tags_reach_objects_in_every_state() {
    let mut w = World::start(&device(5));
    w.commit(0, "a b");
    w.commit(1, "b");
    w.commit(2, "");
    w.write();
    // In the buffer, and in the queue.
    w.commit(3, "a");
    w.commit(4, "c");
    w.writer.step();
    w.writer.step();
    w.commit(5, "c a");
    w.commit(6, "c");
    assert!(!w.purge("a").load(Ordering::Relaxed), "it is not recorded yet");
    // Later objects are not concerned.
    w.commit(7, "a");
    w.write();
    assert_eq!(w.found(), [1, 2, 4, 6, 7]);
    w.commit(0, "a b");
    w.write();
    w.restart();
    assert_eq!(w.found(), [0, 1, 2, 4, 6, 7]);
    w.purge("b");
    w.write();
    assert_eq!(w.found(), [2, 4, 6, 7]);
    w.restart();
    assert_eq!(w.found(), [2, 4, 6, 7]);
    assert_eq!(w.store.objects(), 4, "they left the index");
}

#[test]
fn an_answered_purge_holds_at_the_next_start_wherever_the_power_is_cut() {
    for purges in [1, 2] {
        for cut in 0..30 {
            let mut w = World::start(&device(5));
            w.commit(0, "a");
            w.commit(1, "b");
            w.write();
            w.device.cut_after(cut);
            let mut answered = Vec::new();
            for tag in ["a", "b"].into_iter().take(purges) {
                answered.push(w.purge(tag));
                while w.store.journal_step() {}
            }
            let is_answered = |n: usize| answered.get(n).is_some_and(|it| it.load(Ordering::Relaxed));
            // A store that has failed answers, because the next start is to find it empty. Here the power is off.
            let promised: Vec<u64> =
                (0..2).filter(|&n| w.store.phase() == Phase::Working && is_answered(n as usize)).collect();
            w.restart();
            let found = w.found();
            assert!(
                promised.iter().all(|number| !found.contains(number)),
                "{promised:?} of {found:?}, cut {cut}"
            );
            assert!(purges == 2 || found.contains(&1), "cut {cut}: another's object was lost");
        }
    }
}

#[test]
fn purges_while_the_index_is_read_hold() {
    let mut w = World::start(&device(5));
    w.commit(0, "a");
    w.commit(1, "b");
    w.write();
    for is_cut in [false, true] {
        let mut w = World::open(&w.device.restart(), true);
        let answered = w.purge("a");
        w.commit(2, "a");
        w.store.journal_step();
        w.store.recover();
        if is_cut && answered.load(Ordering::Relaxed) {
            w.restart();
            assert_eq!(w.found(), [1]);
            continue;
        }
        w.write();
        assert!(answered.load(Ordering::Relaxed));
        assert_eq!(w.found(), [1, 2]);
        w.restart();
        assert_eq!(w.found(), [1, 2]);
    }
}

#[test]
fn the_version_rises_with_the_first_purge_by_a_tag() {
    let mut w = World::start(&device(5));
    let version = |w: &World| Layout::open(&w.device).expect("a store").version;
    w.commit(0, "a");
    w.commit(1, "z");
    drop(w.store.purge(&key(3), None));
    w.write();
    assert!(w.purge("y").load(Ordering::Relaxed), "no object has it");
    w.write();
    assert_eq!(version(&w), FIRST_VERSION);
    let answered = w.purge("z");
    w.write();
    assert!(answered.load(Ordering::Relaxed));
    assert_eq!(version(&w), VERSION);
    w.restart();
    assert_eq!((version(&w), w.found()), (VERSION, vec![0]));
}

#[test]
fn objects_that_are_written_again_stay_purged() {
    let mut w = World::start(&device(5));
    for number in 0..10 {
        w.commit(number, if number % 2 == 0 { "even" } else { "odd" });
    }
    w.write();
    let purged = w.purge("even");
    w.write();
    assert!(purged.load(Ordering::Relaxed));
    // All objects are in use: those that are left are written again and again.
    for number in 100..2500 {
        drop(w.store.commit(Box::new(Page { number, head: "other", len: 2000 })));
        if number % 50 == 0 {
            w.write();
        }
        if number % 700 == 0 {
            w.restart();
        }
        assert!((0..10).step_by(2).all(|number| !w.has(number)), "{number}");
    }
    w.restart();
    assert!((0..10).step_by(2).all(|number| !w.has(number)));
    assert!(w.found().iter().all(|number| number % 2 == 1));
    // Purges that concern nothing any more leave the journal.
    for _ in 0..3 {
        w.restart();
        w.write();
    }
    assert!(w.store.state.lock().live.tags.is_empty());
}

#[test]
fn a_long_queue_keeps_the_purges_that_it_needs() {
    let mut w = World::start(&device(5));
    // Twice as much as the store has room for waits before the object.
    for number in 100..120 {
        drop(w.store.commit(Box::new(Page { number, head: "", len: 100_000 })));
    }
    w.commit(1, "a");
    w.commit(2, "b");
    w.purge("a");
    while w.writer.step() == Step::More {
        w.store.state.lock().pending.wants_checkpoint = true;
        w.store.journal_step();
    }
    w.write();
    assert_eq!(w.found(), [2]);
    w.restart();
    assert_eq!(w.found(), [2]);
}

#[test]
fn objects_whose_tags_are_not_known_are_not_used() {
    let mut w = World::start(&device(5));
    w.commit(0, "a");
    w.write();
    w.is_gone.store(true, Ordering::Relaxed);
    assert_eq!(w.found(), [0; 0]);
    w.commit(1, "a");
    w.write();
    w.is_gone.store(false, Ordering::Relaxed);
    assert_eq!(w.found(), [0]);
}

#[test]
fn a_journal_full_of_tags_drops_the_objects() {
    let mut w = World::start(&device(5));
    w.commit(0, "a");
    w.write();
    for round in 0..40 {
        let words: Vec<String> = (0..100).map(|n| format!("tag-{round}-{n}")).collect();
        w.commit(10 + round, words.join(" ").leak());
        w.store.purge_tags(words.iter().map(String::as_bytes), None);
        w.write();
        w.commit(1, "b");
        w.write();
    }
    assert_eq!(w.store.phase(), Phase::Working);
    assert!(w.store.stats().cleared.load(Ordering::Relaxed) > 0);
    w.commit(2, "c");
    w.write();
    w.restart();
    assert!(!w.has(0) && w.has(2));
}

/// Returns the number of purges by tags that the journal must keep.
fn recorded(store: &Store) -> usize {
    store.state.lock().live.tags.len()
}

/// Purges tags that no object has.
fn purge_unknown(w: &mut World, count: u32) {
    for first in (0..count).step_by(1000) {
        let words = (first..first + 1000).map(u32::to_be_bytes);
        let some: Vec<[u8; 4]> = words.collect();
        let answered = Arc::new(AtomicBool::new(false));
        let hold = Box::new(Flag(Arc::clone(&answered)));
        w.store.purge_tags(some.iter().map(<[u8; 4]>::as_slice), Some(hold));
        while w.store.journal_step() {}
        let is_due = w.store.phase() != Phase::Recovering;
        assert!(answered.load(Ordering::Relaxed) || !is_due);
    }
}

#[test]
fn purges_of_tags_that_no_object_has_do_not_fill_the_journal() {
    let mut w = World::start(&device(5));
    w.commit(0, "a b");
    w.commit(1, "b");
    w.write();
    w.commit(2, "c");
    let written = |w: &World| w.store.stats().device_written_bytes.load(Ordering::Relaxed);
    let (journaled, bytes) = (w.store.stats().journaled.load(Ordering::Relaxed), written(&w));
    purge_unknown(&mut w, 1_000_000);
    assert_eq!((recorded(&w.store), w.store.stats().cleared.load(Ordering::Relaxed)), (0, 0));
    assert!(
        w.store.stats().journaled.load(Ordering::Relaxed) < journaled + 10 && written(&w) < bytes + 100_000
    );
    // Objects in every state are purged, and stay so.
    assert!(!w.purge("a").load(Ordering::Relaxed) && !w.purge("c").load(Ordering::Relaxed));
    w.write();
    assert_eq!(w.found(), [1]);
    w.restart();
    assert_eq!(w.found(), [1]);
    // The segment had no summary, and the tags of its objects are known.
    purge_unknown(&mut w, 20_000);
    assert!(recorded(&w.store) <= 2, "{}", recorded(&w.store));
    w.purge("b");
    w.write();
    w.restart();
    assert!(w.found().is_empty());
}

#[test]
fn tags_are_known_after_a_clean_end_and_while_the_index_is_read() {
    let mut w = World::start(&device(5));
    w.commit(0, "a");
    w.commit(1, "b");
    w.write();
    w.writer.close();
    w = World::open(&w.device.restart(), true);
    // The index is not read yet: all purges are recorded.
    purge_unknown(&mut w, 1000);
    w.purge("a");
    w.store.recover();
    w.write();
    assert_eq!((w.found(), recorded(&w.store)), (vec![1], 1));
    purge_unknown(&mut w, 20_000);
    w.restart();
    assert_eq!((w.found(), recorded(&w.store)), (vec![1], 1));
    w.purge("b");
    w.write();
    w.restart();
    assert!(w.found().is_empty());
}

#[test]
fn tags_are_forgotten_when_their_objects_have_left() {
    let mut w = World::open(&device(5), false);
    w.store.recover();
    w.commit(0, "a");
    w.write();
    let may_have = |w: &World, tag: &[u8]| {
        let tag = twox_hash::XxHash3_64::oneshot_with_seed(w.store.layout().id, tag);
        w.store.state.lock().known_tags.may_have(tag)
    };
    assert!(may_have(&w, b"a") && !may_have(&w, b"b"));
    for number in 1..4000 {
        let tag = format!("tag{number}").leak();
        drop(w.store.commit(Box::new(Page { number, head: tag, len: 1000 })));
        w.write();
    }
    assert!(!may_have(&w, b"a") && !may_have(&w, b"tag10") && may_have(&w, b"tag3999"));
}
