//! Stores on disks: admission, and purges by tags.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lacquer_disk::{Blocks, Layout, Options, Phase, Running, Step, Store, Writer};
use lacquer_storage::{Arena, UnusedFiles};

use super::*;
use crate::bans::LurkerParams;
use crate::disk::{Disk, DiskObject, OpenDisks};
use crate::locks::Mutex;
use crate::slab::key_of;

/// A device in memory, whether its reads wait, and how many do.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>, Arc<AtomicU32>);

impl Memory {
    pub(super) fn with_store(size: u64) -> Self {
        let memory = Self(Arc::new(Mutex::new(vec![0; size as usize])), Arc::default(), Arc::default());
        Layout::plan(size, 77, 1.0).and_then(|layout| Ok(layout.create(&memory)?)).expect("it has room");
        memory
    }

    /// Changes the contents of the device.
    pub(super) fn change(&self, change: impl FnOnce(&mut [u8])) {
        change(&mut self.0.lock());
    }

    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.1.store(is_blocked, Ordering::SeqCst);
    }

    /// Waits until reads wait, for a minute at most.
    pub(super) fn wait_for_reads(&self) {
        let began = std::time::Instant::now();
        while self.2.load(Ordering::SeqCst) == 0 {
            assert!(began.elapsed() < Duration::from_mins(1), "no read has begun");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Blocks for Memory {
    fn size(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.2.fetch_add(1, Ordering::SeqCst);
        while self.1.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.2.fetch_sub(1, Ordering::SeqCst);
        buffer.copy_from_slice(&self.0.lock()[at as usize..at as usize + buffer.len()]);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.lock()[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A cache over a store, whose writer and journal run step by step.
pub(super) struct DiskWorld {
    pub(super) world: World,
    pub(super) store: Arc<Store>,
    writer: Writer,
}

impl DiskWorld {
    pub(super) fn new(memory: &Memory) -> Self {
        Self::in_front_of(memory, 64 << 20)
    }

    /// Returns a cache with `limit` bytes of memory.
    fn in_front_of(memory: &Memory, limit: u64) -> Self {
        Self::over(memory, Arena::anonymous(Some(limit)).expect("memfd"))
    }

    /// Returns a cache that takes over the objects in an arena.
    pub(super) fn over(memory: &Memory, arena: Arc<Arena>) -> Self {
        let w = Self::starting(memory, arena, Options::default());
        w.store.recover();
        assert_eq!(w.store.phase(), Phase::Working);
        w
    }

    /// Returns a cache over a store of whose queue few objects have room.
    fn crowded(memory: &Memory) -> Self {
        let options = Options { queue: 100_000, ..Options::default() };
        let w = Self::starting(memory, Arena::anonymous(Some(64 << 20)).expect("memfd"), options);
        w.store.recover();
        w
    }

    /// Returns a cache over a store whose index is not read yet.
    fn starting(memory: &Memory, arena: Arc<Arena>, options: Options) -> Self {
        let store = Store::open(Box::new(memory.clone()), options, || T0).expect("there is a store");
        let blocked = Arc::clone(&memory.1);
        let running = Running::with_readers(Arc::clone(&store), None).expect("threads can be started");
        let disk = Disk {
            running: Arc::new(running),
            path: "memory".into(),
            stevedore: 0,
            failed: Box::new(move |_| assert!(blocked.load(Ordering::SeqCst), "the device works")),
        };
        let mut disks = OpenDisks { disks: vec![disk], ..OpenDisks::default() };
        assert!(disks.past_bans.add(store.past()));
        let world = World::with_disks(arena, Vec::new(), disks, T0);
        world.cache.recover().expect("memory");
        let writer = Writer::new(Arc::clone(&store));
        Self { world, store, writer }
    }

    /// Writes everything.
    pub(super) fn settle(&mut self) {
        while self.writer.step() == Step::More {}
        self.writer.flush();
        while self.store.journal_step() {}
    }

    fn postponed(&self) -> u64 {
        self.store.stats().postponed.load(Ordering::Relaxed)
    }

    pub(super) fn fetch(&self, key: u64) -> Arc<Object> {
        self.world.fill(key, 1000.0, |_| {})
    }

    /// Fetches an object with a body of 30 kB.
    fn fetch_long(&self, key: u64) -> Arc<Object> {
        let object = self.world.object(1000.0, |_| {}, &vec![7; 30_000]);
        self.busy(key).publish(&object);
        object
    }

    fn refused(&self) -> u64 {
        self.store.stats().refused.load(Ordering::Relaxed)
    }

    fn written(&self) -> u64 {
        self.store.stats().written.load(Ordering::Relaxed)
    }

    fn hit(&self, key: u64) {
        assert!(matches!(self.world.lookup(key), Lookup::Hit(_)), "{key} is in memory");
    }

    /// Fetches an object whose head has these tags, separated by blanks.
    fn fetch_tagged(&self, key: u64, words: &str) -> Arc<Object> {
        let head: &'static str = format!("Foo: bar\nxkey: {words}").leak();
        let tags = words.split(' ').map(|word| self.world.cache.tag(word.as_bytes())).collect();
        self.publish(key, head, tags)
    }

    fn publish(&self, key: u64, head: &'static str, tags: Vec<Tag>) -> Arc<Object> {
        let object = self.world.object(1000.0, |spec| spec.head = head.as_bytes(), b"body");
        drop(self.busy(key).publish_tagged(&object, tags));
        object
    }

    pub(super) fn busy(&self, key: u64) -> Busy {
        match self.world.lookup_with(key, |args| args.always_miss = true) {
            Lookup::Miss { busy, .. } => busy,
            other => panic!("{other:?}"),
        }
    }

    /// Reads an object from the disk.
    pub(super) fn read(&self, key: u64) -> Option<Box<DiskObject>> {
        let predict = |vary: &[u8]| Some(vary.to_vec());
        let mut search = self.world.cache.search_disks(&digest(key), self.world.now.get(), &predict)?;
        let mut reading = pin!(search.read_next(None)?);
        loop {
            match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(found) => return found,
                Poll::Pending => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Publishes an object from the disk. Returns whether it is in memory then.
    pub(super) fn publish_read(&self, key: u64, found: Box<DiskObject>) -> bool {
        let mut log = |_: &str| {};
        self.busy(key).publish_from_disk(*found, &mut Nuke::new(50, &mut log)).is_ok()
    }

    /// Returns whether a request finds an object, in memory or on the disk.
    fn finds(&self, key: u64) -> bool {
        matches!(self.world.lookup(key), Lookup::Hit(_))
            || self.read(key).is_some_and(|found| self.publish_read(key, found))
    }

    fn purge_tag(&self, number: u64, purge: Purge) -> Purging {
        let action = Action::PurgeTags { tags: words(&[number]), purge };
        let event = Invalidation::new(action, T0, Reason::Tags, Source::Request { vxid: 1 });
        self.world.cache.invalidate(event, Arrival::Local)
    }

    /// Drops an object from memory, as eviction does.
    pub(super) fn evict(&self, object: &Object) {
        assert!(self.world.cache.kill(object));
    }
}

#[test]
fn a_large_object_may_evict_any_number_of_small_ones_that_the_disk_has() {
    let mut w = DiskWorld::in_front_of(&Memory::with_store(32 << 20), 4 << 20);
    for key in 0..4000 {
        w.world.fill(key, 1000.0, |spec| spec.head = &[b':'; 900]);
        if key % 100 == 0 {
            w.settle();
        }
    }
    w.settle();
    assert!(w.world.try_object(1000.0, |_| {}, &vec![0; 2 << 20]).is_ok());
    assert!(w.world.stat("n_lru_nuked") > 500, "{}", w.world.stat("n_lru_nuked"));
    assert_eq!(w.world.stat("n_lru_limited"), 0);
}

#[test]
fn objects_are_written_at_once_by_default() {
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    (0..100).for_each(|n| drop(w.fetch(n)));
    w.settle();
    assert_eq!((w.store.objects(), w.postponed()), (100, 0));
}

#[test]
fn a_flood_of_different_urls_writes_nothing() {
    let count = 1_000_000;
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    w.world.cache.set_disk_admission(2);
    for n in 0..count {
        let object = w.fetch(n);
        if n % 1000 == 0 {
            w.settle();
        }
        w.evict(&object);
    }
    w.settle();
    assert_eq!((w.store.objects(), w.postponed()), (0, count));
    for counter in [&w.store.stats().device_written_bytes, &w.store.stats().journaled] {
        assert_eq!(counter.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn the_second_request_writes_the_object() {
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    w.world.cache.set_disk_admission(2);
    // A hit in memory. Further ones have no effect.
    (0..10).for_each(|n| drop(w.fetch(n)));
    w.settle();
    assert_eq!((w.store.objects(), w.postponed()), (0, 10));
    for _ in 0..3 {
        (0..5).for_each(|n| w.hit(n));
        w.settle();
        assert_eq!(w.store.objects(), 5);
    }
    assert_eq!(w.store.stats().written.load(Ordering::Relaxed), 5);
    // A second fetch, after the object has left memory.
    let object = w.fetch(100);
    w.evict(&object);
    w.settle();
    assert_eq!(w.store.objects(), 5);
    let object = w.fetch(100);
    w.settle();
    assert_eq!(w.store.objects(), 6);
    // An object on the disk is replaced at once.
    w.evict(&object);
    w.fetch(100);
    w.settle();
    assert_eq!((w.store.objects(), w.postponed()), (6, 11));
    // The parameter can change.
    w.world.cache.set_disk_admission(1);
    w.fetch(200);
    w.settle();
    assert_eq!(w.store.objects(), 7);
}

#[test]
fn a_hit_does_not_write_an_object_that_was_purged_softly_or_replaced() {
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    w.world.cache.set_disk_admission(2);
    let soft = Purge::Soft { ttl: 100.0, grace: None, keep: None };
    w.fetch(1);
    w.world.cache.purge(1, soft, T0);
    w.hit(1);
    w.settle();
    assert_eq!(w.store.objects(), 0, "a purged object is not written");
    w.fetch(2);
    w.hit(2);
    w.settle();
    assert_eq!(w.store.objects(), 1);
    w.world.cache.purge(2, Purge::Hard, T0);
    w.settle();
    assert_eq!(w.store.objects(), 0);
}

const SOFT: Purge = Purge::Soft { ttl: 100.0, grace: None, keep: None };

#[test]
fn objects_keep_their_tags_on_the_disk() {
    let memory = Memory::with_store(16 << 20);
    let mut w = DiskWorld::new(&memory);
    for n in 0..20 {
        w.fetch_tagged(n, if n % 2 == 0 { "tag0 tag9" } else { "tag1 tag9" });
    }
    w.fetch(100);
    w.settle();
    assert_eq!(w.store.objects(), 21);
    for round in 0..2 {
        // After a start, all objects are on the disk alone.
        let mut w = DiskWorld::new(&memory);
        assert!((0..20).filter(|n| n % 4 != 2).all(|n| w.finds(n) == (n % 2 == 1 || round == 0)));
        assert!(w.finds(100));
        let expected = if round == 0 { (3, 30, 15) } else { (2, 20, 10) };
        let [tags, entries, objects] = w.world.cache.tag_stats().read();
        assert_eq!((tags, entries, objects), expected, "they are in the index of tags");
        // A purge reaches those in memory and those on the disk.
        let in_memory = if round == 0 { 5 } else { 0 };
        assert_eq!(w.world.cache.purge_tags(&[0], Purge::Hard, T0), in_memory);
        w.settle();
        assert!((0..20).all(|n| w.finds(n) == (n % 2 == 1)));
    }
    // It does not reach what is published later.
    let mut w = DiskWorld::new(&memory);
    w.fetch_tagged(0, "tag0");
    w.settle();
    let w = DiskWorld::new(&memory);
    assert!(w.finds(0) && !w.finds(2) && w.finds(1));
    assert_eq!(w.world.cache.purge_tags(&[9], Purge::Hard, T0), 1);
    assert!(w.finds(0) && !w.finds(1) && !w.finds(3));
}

#[test]
fn the_answer_to_a_purge_by_tags_waits_for_the_journal() {
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    w.fetch_tagged(1, "tag1");
    w.settle();
    let mut purging = w.purge_tag(1, Purge::Hard);
    let ticket = purging.ticket();
    assert_eq!(purging.finish(&w.world.cache), 1);
    assert!(!ticket.is_recorded());
    while w.store.journal_step() {}
    assert!(ticket.is_recorded());
}

#[test]
fn an_object_that_was_read_before_a_purge_by_tags_is_not_published_after_it() {
    let memory = Memory::with_store(16 << 20);
    let mut w = DiskWorld::new(&memory);
    w.fetch_tagged(1, "tag1 tag2");
    w.fetch_tagged(2, "tag3");
    w.settle();
    let w = DiskWorld::new(&memory);
    let (first, second) = (w.read(1).expect("it is there"), w.read(2).expect("it is there"));
    assert_eq!(w.world.cache.purge_tags(&[2], Purge::Hard, T0), 0);
    assert!(!w.publish_read(1, first));
    assert!(w.publish_read(2, second));
    assert_eq!(w.world.cache.tag_stats().read(), [1, 1, 1]);
}

#[test]
fn an_object_that_a_purge_by_tags_has_not_reached_is_not_written() {
    for purge in [Purge::Hard, SOFT] {
        let memory = Memory::with_store(16 << 20);
        let mut w = DiskWorld::new(&memory);
        w.world.cache.set_disk_admission(2);
        // More than one group.
        (0..200).for_each(|n| drop(w.fetch_tagged(n, "tag1")));
        let mut purging = w.purge_tag(1, purge);
        assert_eq!(purging.step(&w.world.cache, &|| true), None, "it is not complete");
        // All that are left are requested again, and some are fetched again.
        let left = (0..200).filter(|&n| matches!(w.world.lookup(n), Lookup::Hit(_))).count();
        assert!(if purge == Purge::Hard { left == 136 } else { left == 200 });
        (300..310).for_each(|n| drop(w.fetch_tagged(n, "tag1")));
        w.settle();
        assert_eq!(w.store.objects(), 0);
        purging.finish(&w.world.cache);
        // From now on, new objects are written.
        (300..310).for_each(|n| w.hit(n));
        w.fetch_tagged(400, "tag1");
        w.hit(400);
        (0..200).for_each(|n| drop(w.world.lookup(n)));
        w.settle();
        assert_eq!(w.store.objects(), 11);
        let w = DiskWorld::new(&memory);
        assert!((0..200).all(|n| !w.finds(n)) && (300..310).all(|n| w.finds(n)) && w.finds(400));
    }
}

#[test]
fn an_object_is_written_only_if_its_head_has_its_tags() {
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    let tag = |word: &[u8]| w.world.cache.tag(word);
    w.publish(1, "Foo: bar", vec![tag(b"tag1")]);
    w.publish(2, "xkey: tag1", vec![tag(b"tag1"), tag(b"tag2")]);
    w.publish(3, "xkey: tag1 tag2 tag1", vec![tag(b"tag1"), tag(b"tag2")]);
    w.settle();
    assert_eq!(w.store.objects(), 1);
    assert!(w.store.may_have(&key_of(&digest(3))));
}

#[test]
fn data_of_filters_is_checked_when_it_is_read() {
    let memory = Memory::with_store(16 << 20);
    let mut w = DiskWorld::new(&memory);
    w.fetch(1);
    w.world.fill(2, 1000.0, |spec| spec.extra = b"not what a filter writes");
    w.settle();
    assert_eq!(w.store.objects(), 2);
    let w = DiskWorld::new(&memory);
    assert!(w.finds(1) && !w.finds(2));
}

/// The worker was killed before the newer of two objects was written, which expire in the same second.
#[test]
fn an_object_of_the_last_worker_is_written_if_the_disk_has_a_similar_one() {
    const SIZE: u64 = 16 << 20;
    let memory = Memory::with_store(16 << 20);
    let arena = UnusedFiles::new().and_then(|files| files.open(SIZE)).expect("memory");
    let mut w = DiskWorld::over(&memory, Arc::clone(&arena));
    let (older, other) = (w.fetch(1), w.fetch(2));
    w.settle();
    let newer = w.world.fill(1, 1000.0, |spec| spec.t_origin += 0.3);
    assert_eq!(newer.expires().floor(), older.expires().floor());

    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    let mut w = DiskWorld::over(&memory, next);
    w.hit(1);
    w.hit(2);
    let found = |w: &DiskWorld, key| w.read(key).map(|found| found.descriptor.vxid);
    let began = std::time::Instant::now();
    while found(&w, 1) != Some(newer.vxid()) {
        assert!(began.elapsed() < Duration::from_secs(20), "it was not written");
        w.settle();
    }
    assert_eq!(found(&w, 2), Some(other.vxid()));
    assert_eq!(w.store.stats().written.load(Ordering::Relaxed), 1, "the other one is there");
}

#[test]
fn an_object_that_had_no_room_is_written_when_it_is_requested_again() {
    let mut w = DiskWorld::crowded(&Memory::with_store(16 << 20));
    (0..5).for_each(|n| drop(w.fetch_long(n)));
    assert_eq!(w.refused(), 2, "three have room");
    // Hits do not ask again while there is none.
    for _ in 0..1000 {
        (0..5).for_each(|n| w.hit(n));
    }
    assert_eq!(w.refused(), 2);
    w.settle();
    assert_eq!(w.store.objects(), 3);
    for _ in 0..3 {
        (0..5).for_each(|n| w.hit(n));
        w.settle();
    }
    assert_eq!((w.store.objects(), w.refused(), w.written()), (5, 2, 5));
}

/// Its parts are of no use without a head.
#[test]
fn a_body_that_has_moved_to_the_disk_and_was_refused_is_not_passed_again() {
    let mut w = DiskWorld::crowded(&Memory::with_store(16 << 20));
    let (object, mut writer) = w.world.begin(&ObjectSpec { head: &[b':'; 900], ..w.world.spec(1000.0) });
    w.busy(0).publish(&object);
    (0..8).for_each(|_| w.world.write(&mut writer, &[7; 4096]));
    let mut spill = w.world.cache.begin_spill(&digest(0), &object, &writer).expect("the disk works");
    (1..1000).take_while(|_| w.refused() == 0).for_each(|key| drop(w.fetch(key)));
    spill.finish(writer.len());
    drop(w.world.cache.finish(object, writer));
    assert_eq!(w.refused(), 2);
    for _ in 0..3 {
        w.settle();
        w.hit(0);
    }
    assert_eq!(w.refused(), 2);
    assert!(w.read(0).is_none());
}

/// A front table would count all hits of an object.
#[test]
fn an_object_that_is_to_be_written_is_in_no_front_table() {
    let mut w = DiskWorld::crowded(&Memory::with_store(16 << 20));
    let mut front = FrontTable::new(64);
    let mut hit = |w: &DiskWorld, key| {
        let found = with_args(
            w.world.now.get(),
            &Request::default(),
            |_| {},
            |args| front.lookup(&w.world.cache, &digest(key), args, None),
        );
        let Lookup::Hit(object) = found else { panic!("{key} is in memory") };
        object.is_local()
    };
    (0..4).for_each(|n| drop(w.fetch_long(n)));
    assert!((0..10).all(|_| !hit(&w, 3)), "it waits for room");
    w.settle();
    hit(&w, 3);
    w.settle();
    assert_eq!((w.store.objects(), w.written()), (4, 4));
    assert!((0..3).any(|_| hit(&w, 3)));
}

#[test]
fn an_object_that_has_left_the_disk_before_its_first_hit_is_written_at_that() {
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    // Twice what the disk has room for. One is hit while it is there, and one has another variant.
    for n in 0..1000 {
        w.fetch_long(n);
        w.settle();
        if n == 5 {
            w.hit(4);
        }
    }
    assert!(w.read(3).is_none() && w.read(990).is_some());
    let before = w.written();
    for _ in 0..3 {
        w.hit(3);
        w.hit(990);
        w.settle();
    }
    assert!(w.read(3).is_some());
    assert_eq!(w.written(), before + 1, "the disk has the other one");
}

/// The previous process has left an object in memory, which the disk does not have.
#[test]
fn an_object_that_is_hit_while_the_index_is_read_is_written_later() {
    const SIZE: u64 = 16 << 20;
    let memory = Memory::with_store(16 << 20);
    let arena = UnusedFiles::new().and_then(|files| files.open(SIZE)).expect("memory");
    let w = DiskWorld::over(&memory, Arc::clone(&arena));
    w.fetch(1);
    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    let mut w = DiskWorld::starting(&memory, next, Options::default());
    let mut front = FrontTable::new(64);
    let mut hit = |w: &DiskWorld| {
        with_args(
            w.world.now.get(),
            &Request::default(),
            |_| {},
            |args| matches!(front.lookup(&w.world.cache, &digest(1), args, None), Lookup::Hit(_)),
        )
    };
    assert!((0..5).all(|_| hit(&w)));
    w.store.recover();
    assert!(hit(&w));
    w.settle();
    assert_eq!(w.store.objects(), 1);
}

/// The lurker does not visit objects that are on a disk alone.
#[test]
fn an_object_on_the_disk_stays_banned_after_the_lurker_has_tested_the_ban() {
    let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
    let object = w.fetch(1);
    w.settle();
    w.evict(&object);
    w.world.cache.ban(&["obj.http.foo", "==", "bar"], T0);
    let eager = LurkerParams { sleep: 0.01, age: 0.0, batch: 8, cutoff: 0 };
    for _ in 0..2 {
        w.world.tick(1.0);
        w.world.cache.lurk(w.world.now.get(), eager, &mut |_| {}, &mut |_| {});
    }
    let found = w.read(1).expect("it is on the disk");
    assert!(w.publish_read(1, found));
    assert_eq!(outcome(&w.world.lookup(1)), Outcome::Miss(None));
}

#[test]
fn an_object_that_is_not_found_or_ends_earlier_replaces_none_in_memory() {
    let w = DiskWorld::new(&Memory::with_store(16 << 20));
    let object = w.fetch(1);
    for ttl in [0.0, 10.0] {
        let newer = w.world.object(ttl, |spec| spec.timers.grace = 10.0, b"error");
        w.busy(1).publish(&newer);
    }
    w.world.tick(100.0);
    assert_eq!(outcome(&w.world.lookup(1)), Outcome::Hit(object.vxid()));
}
