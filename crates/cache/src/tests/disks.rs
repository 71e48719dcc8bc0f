//! Stores on disks: admission.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_disk::{Blocks, Layout, Options, Phase, Running, Step, Store, Writer};
use lacquer_storage::Arena;

use super::*;
use crate::disk::{Disk, OpenDisks};
use crate::locks::Mutex;

/// A device in memory.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    pub(super) fn with_store(size: u64) -> Self {
        let memory = Self(Arc::new(Mutex::new(vec![0; size as usize])));
        Layout::plan(size, 77, 1.0).and_then(|layout| Ok(layout.create(&memory)?)).expect("it has room");
        memory
    }
}

impl Blocks for Memory {
    fn size(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
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
        let store =
            Store::open(Box::new(memory.clone()), Options::default(), || T0).expect("there is a store");
        let running = Running::with_readers(Arc::clone(&store), None).expect("threads can be started");
        let disk = Disk {
            running: Arc::new(running),
            path: "memory".into(),
            stevedore: 0,
            failed: Box::new(|_| panic!("the device works")),
        };
        let mut disks = OpenDisks { disks: vec![disk], ..OpenDisks::default() };
        assert!(disks.past_bans.add(store.past()));
        let arena = Arena::anonymous(Some(64 << 20)).expect("memfd");
        let world = World::with_disks(arena, Vec::new(), disks, T0);
        store.recover();
        assert_eq!(store.phase(), Phase::Working);
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

    fn fetch(&self, key: u64) -> Arc<Object> {
        self.world.fill(key, 1000.0, |_| {})
    }

    fn hit(&self, key: u64) {
        assert!(matches!(self.world.lookup(key), Lookup::Hit(_)), "{key} is in memory");
    }

    /// Drops an object from memory, as eviction does.
    pub(super) fn evict(&self, object: &Object) {
        assert!(self.world.cache.kill(object));
    }
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
