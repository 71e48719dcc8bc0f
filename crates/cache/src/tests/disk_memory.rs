//! Objects in memory before a disk: the memory of reads, objects that were replaced or purged while they are moved, and a disk
//! that does not respond.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lacquer_disk::{Owner, Phase};
use lacquer_storage::UnusedFiles;

use super::disks::{DiskWorld, Memory};
use super::*;
use crate::disk::MOST_BEGINNINGS;
use crate::disk::owner::CacheOwner;
use crate::object::flag;
use crate::slab::key_of;

/// Waits until a byte of an object's body is in memory.
fn load(object: &Object, at: u64) {
    let mut more = pin!(object.more(at));
    while more.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Stores objects whose bodies are read in pieces, and returns a cache that has none of them in memory.
fn with_long_objects(memory: &Memory, count: u64) -> DiskWorld {
    let mut w = DiskWorld::new(memory);
    let body: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
    for key in 0..count {
        let object = w.world.object(1000.0, |_| {}, &body);
        w.busy(key).publish(&object);
        w.settle();
        w.evict(&object);
    }
    DiskWorld::new(memory)
}

fn object_of(w: &DiskWorld, key: u64) -> Arc<Object> {
    match w.world.lookup(key) {
        Lookup::Hit(object) => object.to_shared(),
        other => panic!("{other:?}"),
    }
}

/// HEAD, a 304 and ranges need none of the bytes that were read with the head.
#[test]
fn the_beginnings_of_bodies_that_nobody_reads_are_bounded() {
    let w = with_long_objects(&Memory::with_store(64 << 20), 100);
    let count = || w.world.cache.disks.beginnings(0).map(|(_, beginnings)| beginnings.count());
    for key in 0..100 {
        let found = w.read(key).expect("it is on the disk");
        assert!(w.publish_read(key, found));
        assert_eq!(count(), Some(MOST_BEGINNINGS.min(key as usize + 1)));
    }
    // A reader of another part does not need it, and that of the first part uses it.
    for (key, at) in [(99, 200_000), (98, 0), (2, 0)] {
        load(&object_of(&w, key), at);
        assert!(object_of(&w, key).chunk_at(at).is_some());
    }
    assert_eq!(count(), Some(MOST_BEGINNINGS - 2));
}

#[test]
fn objects_on_a_disk_leave_memory_for_their_segments_when_no_response_uses_them() {
    let w = with_long_objects(&Memory::with_store(16 << 20), 2);
    for key in 0..2 {
        let found = w.read(key).expect("it is on the disk");
        assert!(w.publish_read(key, found));
    }
    let in_memory = w.fetch(10);
    let let_go = |disk, key| {
        let owner = CacheOwner { cache: Arc::downgrade(&w.world.cache), disk };
        owner.let_go(&key_of(&digest(key)))
    };
    let is_hit = |key| matches!(w.world.lookup(key), Lookup::Hit(_));
    let held = object_of(&w, 0);
    assert!(!let_go(0, 0) && Arc::ptr_eq(&held, &object_of(&w, 0)), "a response uses it");
    drop(held);
    assert!(!let_go(1, 0) && is_hit(0), "it is on another disk");
    assert!(let_go(0, 0) && !is_hit(0), "it was hit");
    assert!(!let_go(0, 1) && !is_hit(1), "it was not");
    assert!(w.read(0).is_some() && w.read(1).is_some(), "they are on the disk");
    let vxid = in_memory.vxid();
    drop(in_memory);
    assert!(!let_go(0, 10));
    assert_eq!(object_of(&w, 10).vxid(), vxid, "its body is in memory");
}

#[test]
fn an_object_that_was_replaced_is_not_found_when_the_new_one_has_left_memory() {
    let memory = Memory::with_store(16 << 20);
    let mut w = DiskWorld::new(&memory);
    let fetch = |w: &DiskWorld, vary: &'static [u8]| {
        w.world.tick(1.0);
        w.world.fill(1, 1000.0, |spec| spec.vary = vary)
    };
    let of = |value: &'static str| {
        move |vary: &[u8]| vary.is_empty() || vary.strip_prefix(b"lang=") == Some(value.as_bytes())
    };
    let find = |w: &DiskWorld, value| {
        let matches = of(value);
        with_args(
            w.world.now.get(),
            &Request::default(),
            |args| args.vary = &matches,
            |args| outcome(&w.world.cache.lookup(&digest(1), args, None)),
        )
    };
    let (english, german) = (fetch(&w, b"lang=en"), fetch(&w, b"lang=de"));
    assert_eq!(find(&w, "en"), Outcome::Hit(english.vxid()));
    let newer = fetch(&w, b"lang=en");
    w.settle();
    assert_eq!(w.world.stat("n_superseded"), 1);
    w.evict(&newer);
    assert_eq!(find(&w, "en"), Outcome::Miss(None));
    assert_eq!(find(&w, "de"), Outcome::Hit(german.vxid()), "it is another variant");
    assert_eq!(w.store.objects(), 2);
    // An object that varies by other names may match the same requests.
    let all = fetch(&w, b"");
    w.settle();
    assert_eq!((w.world.stat("n_superseded"), w.store.objects()), (2, 1));
    w.evict(&all);
    assert_eq!(find(&w, "de"), Outcome::Miss(None));
}

#[test]
fn an_object_whose_body_is_being_fetched_replaces_none() {
    let w = DiskWorld::new(&Memory::with_store(16 << 20));
    let older = w.fetch(1);
    let (object, mut writer) = w.world.begin(&w.world.spec(1000.0));
    w.busy(1).publish(&object);
    w.world.write(&mut writer, b"bytes");
    assert!(!older.is(flag::DYING));
    w.world.cache.finish(object, writer);
    assert!(older.is(flag::DYING));
}

#[test]
fn objects_whose_bodies_are_on_a_disk_that_does_not_respond_are_misses() {
    let memory = Memory::with_store(16 << 20);
    let w = with_long_objects(&memory, 3);
    for key in 0..3 {
        let found = w.read(key).expect("it is on the disk");
        assert!(w.publish_read(key, found));
    }
    let in_memory = w.fetch(10);
    let is_hit = |key| matches!(w.world.lookup(key), Lookup::Hit(_));
    assert!(is_hit(0) && is_hit(1) && is_hit(10));
    let object = object_of(&w, 0);
    let ends_blocked = |is_long: bool| {
        memory.set_blocked(true);
        let mut more = pin!(object.more(200_000 - u64::from(is_long) * 50_000));
        assert!(more.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        memory.wait_for_reads();
        (0..6).for_each(|_| w.store.watch_step());
        assert_eq!([0, 1, 10].map(is_hit), [false, false, true]);
        if is_long {
            (0..120).for_each(|_| w.store.watch_step());
        }
        memory.set_blocked(false);
    };
    ends_blocked(false);
    while !w.store.responds() {
        std::thread::sleep(Duration::from_millis(1));
        w.store.watch_step();
    }
    assert!(is_hit(0) && is_hit(1), "it responds again");
    assert!(is_hit(2));
    ends_blocked(true);
    assert_eq!(w.store.phase(), Phase::Failed);
    assert_eq!([0, 1, 2, 10].map(is_hit), [false, false, false, true]);
    assert!(object.is(flag::DYING) && !in_memory.is(flag::DYING), "the memory of their heads is free");
}

/// The bans of the disk are replaced by those in memory.
#[test]
fn bans_are_counted_once_after_a_restart() {
    const SIZE: u64 = 16 << 20;
    let memory = Memory::with_store(16 << 20);
    let arena = UnusedFiles::new().and_then(|files| files.open(SIZE)).expect("memory");
    let mut w = DiskWorld::over(&memory, Arc::clone(&arena));
    w.fetch(1);
    w.world.cache.ban(&["obj.http.foo", "==", "none"], T0);
    w.world.cache.ban(&["req.http.foo", "==", "none"], T0);
    w.settle();
    let names = ["bans", "bans_completed", "bans_obj", "bans_req", "bans_persisted_bytes"];
    let counts = |w: &DiskWorld| names.map(|name| w.world.stat(name));
    let before = counts(&w);
    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    let w = DiskWorld::over(&memory, next);
    assert_eq!(counts(&w), before, "{names:?}");
}

/// A purge begins after an object was copied into one span, and before the copy is in its place.
#[test]
fn a_purge_finds_an_object_that_is_moved_and_keeps_it_from_the_disk() {
    for purge in [Purge::Hard, Purge::Soft { ttl: 100.0, grace: None, keep: None }] {
        let mut w = DiskWorld::new(&Memory::with_store(16 << 20));
        let (object, mut writer) = w.world.begin(&w.world.spec(1000.0));
        w.busy(1).publish(&object);
        w.world.write(&mut writer, b"body");
        writer.finish();
        let copy = object.compacted(1000).expect("it is short");
        let purging = w.world.cache.begin_purge(&digest(1), purge, T0);
        let moved = w.world.cache.replace_by_copy(object, Arc::clone(&copy));
        assert!(Arc::ptr_eq(&moved, &copy));
        w.world.cache.commit_to_disks(&moved);
        assert_eq!(purging.finish(&w.world.cache), 1);
        w.settle();
        assert!(w.read(1).is_none(), "{purge:?}");
    }
}
