//! A full storage: which objects are evicted and which are kept, and that all memory is freed in the end.

use super::*;
use crate::evicted::Evicted;

#[test]
fn the_oldest_object_without_a_hit_is_evicted() {
    let w = World::new(Some(1 << 20));
    let body = vec![1; 300_000];
    let fill = |key| {
        let Lookup::Miss { busy, .. } = w.lookup(key) else { unreachable!() };
        w.tick(1.0);
        let object = w.try_object(1000.0, |_| {}, &body)?;
        busy.publish(&object);
        Ok::<u64, Full>(object.vxid())
    };
    let xs: Vec<u64> = (1..=3).map(|key| fill(key).expect("room")).collect();
    assert_eq!(outcome(&w.lookup(1)), Outcome::Hit(xs[0]));
    fill(4).expect("evicts");
    assert_eq!(w.stat("n_lru_nuked"), 1);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Hit(xs[0]));
    assert_eq!(outcome(&w.lookup(2)), Outcome::Miss(None), "the oldest without a hit");
    assert_eq!(outcome(&w.lookup(3)), Outcome::Hit(xs[2]));
    assert!(w.log.borrow().contains(&format!("LRU xid={}", xs[1])));
    assert_eq!((w.stat("n_object"), w.stat("n_objectcore")), (3, 3));
}

#[test]
fn objects_with_readers_are_not_evicted() {
    let w = World::new(Some(1 << 20));
    let body = vec![1; 600_000];
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    busy.publish(&w.object(1000.0, |_| {}, &body));
    let Lookup::Hit(reader) = w.lookup(1) else { unreachable!() };
    assert_eq!(w.try_object(10.0, |_| {}, &body).err(), Some(Full));
    assert!(w.log.borrow().contains(&"LRU_Fail".to_owned()));
    // Removed while it is read: the memory is in use until the reader is gone.
    w.cache.kill(&reader);
    assert_eq!(w.try_object(10.0, |_| {}, &body).err(), Some(Full));
    assert_eq!(reader.chunk_at(0).expect("there").bytes(), body);
    assert_eq!(w.stat("n_object"), 1);
    drop(reader);
    assert_eq!(w.stat("n_object"), 0);
    w.object(10.0, |_| {}, &body);
}

#[test]
#[cfg_attr(miri, ignore = "takes a thousand objects")]
fn nuke_limit_is_respected() {
    let w = World::new(Some(1 << 20));
    for key in 0..1000 {
        w.fill(key, 1000.0, |s| s.head = &[b'x'; 800]);
    }
    assert_eq!(w.stat("n_lru_nuked"), 0);
    assert_eq!(w.try_object(10.0, |_| {}, &vec![0; 900_000]).err(), Some(Full));
    assert_eq!((w.stat("n_lru_nuked"), w.stat("n_lru_limited")), (50, 1));
}

/// Mixed sizes, far more than the storage can contain: nearly every object is stored, large ones do not starve, and
/// at the end all memory is free again.
#[test]
#[cfg_attr(miri, ignore = "takes thousands of objects")]
fn objects_of_mixed_sizes_are_stored_without_starvation() {
    for seed in 1..=3 {
        println!("seed {seed}");
        let w = World::new(Some(64 << 20));
        let mut random = Random(seed);
        let bytes: Vec<u8> = (0..4 << 20).map(|i| i as u8).collect();
        let mut front = FrontTable::new(256);
        let (mut refused, mut large) = (0, 0);
        for i in 0..6000u64 {
            let len = match random.below(20) {
                0..16 => 100 + random.below(2000),
                16..19 => random.below(200_000),
                _ => random.below(4 << 20),
            } as usize;
            w.tick(0.01);
            let Lookup::Miss { busy, .. } = w.lookup(i) else { unreachable!() };
            match w.try_object(if i % 7 == 0 { 0.0 } else { 1000.0 }, |_| {}, &bytes[..len]) {
                Ok(object) => busy.publish(&object),
                Err(Full) => {
                    refused += 1;
                    large += u64::from(len > 1 << 20);
                }
            }
            for _ in 0..3 {
                let key = i - random.below(i.min(100) + 1);
                with_args(
                    w.now.get(),
                    &Request::default(),
                    |_| {},
                    |args| {
                        drop(front.lookup(&w.cache, &digest(key), args, None));
                    },
                );
            }
            if i % 100 == 0 {
                w.expire();
            }
        }
        println!("{refused} refused, {large} of them large, {} nuked", w.stat("n_lru_nuked"));
        assert!(refused * 100 <= 6000, "{refused} of 6000 refused");
        drop(front);
        w.tick(10_000.0);
        w.expire();
        assert_eq!((w.stat("n_object"), w.stat("n_objectcore"), w.stat("n_objecthead")), (0, 0, 0));
        assert_eq!(w.cache.stevedores()[0].used_space(), 0);
        assert_eq!(w.cache.stevedores()[0].longest_free(), 64 << 20);
    }
}

/// Evictions with pauses have the same result as evictions without.
#[test]
#[cfg_attr(miri, ignore = "takes a thousand objects")]
fn evictions_can_be_paused_and_resumed() {
    let w = World::new(Some(1 << 20));
    for key in 0..1000 {
        w.fill(key, 1000.0, |s| s.head = &[b'x'; 800]);
    }
    let mut log = |_: &str| {};
    let spec = ObjectSpec { head: b"", ..w.spec(10.0) };
    let stevedore = &w.cache.stevedores()[0];
    let sizes = ChunkSizes { first: 64 << 10, max: 64 << 10 };
    let begun = w.cache.begin(stevedore, &spec, None, sizes, &mut Nuke::new(1000, &mut log));
    let (_object, mut writer) = begun.expect("there is room");
    let (mut pauses, mut left) = (0, 2000);
    for _ in 0..10 {
        let mut tries = 0;
        loop {
            let mut nuke = Nuke::new(left, &mut log).pause_after(5, tries);
            let reserved = w.cache.reserve(stevedore, &mut writer, &mut nuke);
            left = nuke.left;
            if reserved.is_ok() {
                break;
            }
            assert!(nuke.is_paused());
            pauses += 1;
            tries += 5;
        }
        let room = writer.window().len();
        writer.commit(room);
    }
    assert!(pauses > 0 && w.stat("n_lru_limited") == 0, "{pauses}");
}

/// Evicting one of two objects that share a body frees nothing, so others are evicted before. If there are no others,
/// both are evicted, at the price of one.
#[test]
fn a_shared_body_costs_one_eviction() {
    let w = World::new(Some(4 << 20));
    let mut log = |_: &str| {};
    let spec = |vxid| ObjectSpec {
        vxid,
        t_origin: w.now.get(),
        timers: Timers { ttl: 1000.0, grace: 0.0, keep: 0.0 },
        flags: 0,
        last_modified: 0.0,
        vary: b"",
        head: b"head",
        extra: b"",
    };
    let stevedore = &w.cache.stevedores()[0];
    let create = |key: u64, evictions: u32| {
        let Lookup::Miss { busy, .. } = w.lookup(key) else { unreachable!() };
        let (sizes, length) = (ChunkSizes { first: 1 << 20, max: 2 << 20 }, 1_500_000);
        let mut log = |_: &str| {};
        let nuke = &mut Nuke::new(evictions, &mut log);
        let (object, mut writer) = w.cache.begin(stevedore, &spec(key), Some(length), sizes, nuke)?;
        while writer.len() < length {
            w.cache.reserve(stevedore, &mut writer, nuke)?;
            let n = writer.window().len().min((length - writer.len()) as usize);
            writer.commit(n);
        }
        writer.finish();
        busy.publish(&object);
        Ok::<_, Full>(object)
    };
    let first = create(1, 0).expect("room");
    let shared = w.cache.share(stevedore, &spec(2), &first, &mut Nuke::new(0, &mut log));
    let Lookup::Miss { busy, .. } = w.lookup(2) else { unreachable!() };
    busy.publish(&shared.expect("room").expect("it is in memory"));
    drop(first);
    drop(create(3, 0).expect("room"));
    let held = create(4, 1).expect("one eviction suffices");
    assert!(matches!(w.lookup(3), Lookup::Miss { .. }));
    for key in [1, 2] {
        assert!(matches!(w.lookup(key), Lookup::Hit(_)), "evicting object {key} would have freed nothing");
    }
    create(5, 1).expect("both objects count as one");
    for key in [1, 2] {
        assert!(matches!(w.lookup(key), Lookup::Miss { .. }));
    }
    drop(held);
}

/// The rounds that only clear marks do not reach all of them.
#[test]
#[cfg_attr(miri, ignore = "takes many objects")]
fn one_of_very_many_objects_with_hits_is_evicted() {
    let w = World::new(None);
    for key in 0..160_000 {
        w.fill(key, 1000.0, |_| {}).hit(1);
    }
    assert_eq!(w.cache.nuke_one(0, false, &mut |_| {}), Evicted::Object);
    assert_eq!(w.stat("n_lru_nuked"), 1);
}
