//! The worker is killed at random moments of a random history: the next one continues as if nothing had happened.

use std::collections::{BTreeSet, HashMap};

use lacquer_storage::UnusedFiles;

use super::*;

const SIZE: u64 = 4 << 20;
const HEADS: [&str; 6] = ["Foo: 0", "Foo: 1", "Foo: 2", "Foo: 3", "Foo: 4", "Foo: 5"];

#[derive(Debug)]
struct Known {
    vxid: u64,
    until: f64,
    foo: u64,
    tags: BTreeSet<u64>,
}

fn empty() -> Arc<Arena> {
    UnusedFiles::new().and_then(|files| files.open(SIZE)).expect("memory")
}

impl World {
    /// Continues with the objects in an arena.
    fn over(arena: Arc<Arena>, now: f64, vxid: u64) -> (Self, Recovery) {
        let w = Self::with_arena(arena, Vec::new(), now);
        w.vxid.set(vxid);
        let recovery = w.cache.recover().expect("memory");
        (w, recovery)
    }

    /// Returns the cache that takes over the memory of this one if it is killed now.
    fn killed(&self, arena: &Arc<Arena>) -> (Arc<Arena>, Self, Recovery) {
        let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
        let (w, recovery) = Self::over(next.clone(), self.now.get(), self.vxid.get());
        (next, w, recovery)
    }

    fn assert_agrees(&self, known: &HashMap<u64, Vec<Known>>, key: u64) {
        let all = known.get(&key).map_or(&[][..], |all| all);
        let newest = all.iter().rev().find(|k| k.until > self.now.get());
        let found = self.lookup(key);
        match outcome(&found) {
            // It has expired, but was not removed.
            Outcome::Miss(Some(stale)) | Outcome::Grace(stale, _) if newest.is_none() => {
                assert!(all.iter().any(|k| k.vxid == stale));
            }
            found => {
                let expected = newest.map_or(Outcome::Miss(None), |k| Outcome::Hit(k.vxid));
                assert_eq!(found, expected, "key {key}");
            }
        }
        if let Lookup::Hit(object) = found {
            let mut body = Vec::new();
            while let Some(chunk) = object.chunk_at(body.len() as u64) {
                body.extend_from_slice(chunk.bytes());
            }
            assert!(body == content(object.vxid()));
        }
    }
}

/// Returns the body of an object: mostly short, some with pages of their own.
fn content(vxid: u64) -> Vec<u8> {
    Random(vxid).bytes(if vxid.is_multiple_of(9) { 20_000 } else { vxid as usize % 300 })
}

fn publish(w: &World, random: &mut Random, key: u64) -> Known {
    let Lookup::Miss { busy, .. } = w.lookup_with(key, |a| a.always_miss = true) else {
        unreachable!("always_miss misses");
    };
    let tags: BTreeSet<u64> = (0..random.below(4)).map(|_| random.below(12)).collect();
    let (ttl, foo) = (20 + random.below(60), random.below(6));
    let head = HEADS[foo as usize].as_bytes();
    let object = w.object(ttl as f32, |s| s.head = head, &content(w.vxid.get() + 1));
    let numbers: Vec<u64> = tags.iter().copied().collect();
    drop(busy.publish_tagged(&object, words(&numbers).iter().map(|word| w.cache.tag(word)).collect()));
    Known { vxid: object.vxid(), until: w.now.get() + ttl as f64, foo, tags }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut arena = empty();
    let (mut w, _) = World::over(arena.clone(), T0, 1000);
    let mut known: HashMap<u64, Vec<Known>> = HashMap::new();
    for _ in 0..1000 {
        let (key, some) = (random.below(40), random.below(40));
        match random.below(12) {
            0..5 => known.entry(key).or_default().push(publish(&w, &mut random, key)),
            5 => {
                w.cache.purge(key, Purge::Hard, w.now.get());
                known.remove(&key);
            }
            6 if some < 12 => {
                w.cache.purge_tags(&[some], Purge::Hard, w.now.get());
                for all in known.values_mut() {
                    all.retain(|k| !k.tags.contains(&some));
                }
            }
            7 if some < 6 => {
                w.cache.ban(&["obj.http.foo", "==", &some.to_string()], w.now.get());
                for all in known.values_mut() {
                    all.retain(|k| k.foo != some);
                }
            }
            8 => w.tick(random.below(6) as f64),
            9 if some < 6 => {
                let next;
                (arena, next, _) = w.killed(&arena);
                w = next;
                (0..40).for_each(|key| w.assert_agrees(&known, key));
            }
            _ => w.assert_agrees(&known, key),
        }
    }
    w.request_end(&known);
    assert_eq!(arena.used(), 0, "seed {seed}");
}

impl World {
    /// Removes everything.
    fn request_end(self, known: &HashMap<u64, Vec<Known>>) {
        for &key in known.keys() {
            self.cache.purge(key, Purge::Hard, self.now.get());
        }
        assert_eq!((self.stat("n_object"), self.stat("n_objectcore")), (0, 0));
    }
}

#[test]
fn the_next_worker_agrees_with_a_model() {
    (0..20).for_each(run);
}

/// Bans are in the store, with their times and their order.
#[test]
fn bans_survive() {
    let arena = empty();
    let (w, _) = World::over(arena.clone(), T0, 1000);
    w.fill(1, 100.0, |s| s.head = b"Foo: 1");
    w.fill(2, 100.0, |s| s.head = b"Foo: 2");
    w.cache.ban(&["obj.http.foo", "==", "1"], T0);
    let before = w.cache.bans().snapshot().len();
    let (next, w, recovery) = w.killed(&arena);
    assert_eq!((recovery, w.cache.bans().snapshot().len()), (Recovery { indexed: 2, refused: 0 }, before));
    let (_, w, _) = w.killed(&next);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
    assert!(matches!(w.lookup(2), Lookup::Hit(_)));
    // A new ban has the next number, and is tested.
    w.cache.ban(&["obj.http.foo", "==", "2"], T0);
    assert_eq!(outcome(&w.lookup(2)), Outcome::Miss(None));
}

/// The first bans are no longer in the list.
#[test]
fn objects_survive_after_old_bans_are_gone() {
    let arena = empty();
    let (w, _) = World::over(arena.clone(), T0, 1000);
    for n in 0..5 {
        w.cache.ban(&["obj.http.foo", "==", &n.to_string()], T0);
    }
    w.cache.bans().clean_tail();
    w.fill(1, 100.0, |s| s.head = b"Foo: 1");
    let (_, w, recovery) = w.killed(&arena);
    assert_eq!(recovery, Recovery { indexed: 1, refused: 0 });
    assert!(matches!(w.lookup(1), Lookup::Hit(_)));
}

/// A number to which no ban can be added empties the store.
#[test]
fn bans_with_impossible_numbers_are_refused() {
    for number in [u32::MAX, u32::MAX - 1] {
        let arena = empty();
        let store = Stevedore::new("s0", Kind::Malloc, 0, arena.clone());
        store.write_note(number, T0, &[]).expect("there is memory");
        let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
        let (w, _) = World::over(next, T0, 1000);
        (0..3).for_each(|n| w.cache.ban(&["obj.http.foo", "==", &n.to_string()], T0));
        w.fill(1, 100.0, |_| {});
        assert!(matches!(w.lookup(1), Lookup::Hit(_)));
    }
}

/// An object that is removed while a client reads it does not come back.
#[test]
fn what_is_still_read_does_not_come_back() {
    let arena = empty();
    let (w, _) = World::over(arena.clone(), T0, 1000);
    let object = w.fill(1, 100.0, |_| {});
    w.cache.purge(1, Purge::Hard, T0);
    let (_, next, recovery) = w.killed(&arena);
    assert_eq!(recovery, Recovery::default());
    assert_eq!(outcome(&next.lookup(1)), Outcome::Miss(None));
    drop(object);
}

/// The age of an object at its fetch does not change the order in which objects were published.
#[test]
fn an_object_that_was_replaced_by_an_older_response_does_not_come_back() {
    let arena = empty();
    let (w, _) = World::over(arena.clone(), T0, 1000);
    w.fill(1, 100.0, |_| {});
    let newer = w.fill(1, 100.0, |spec| spec.t_origin -= 50.0);
    // Objects of other requests stay.
    w.fill(2, 100.0, |spec| spec.vary = b"one");
    w.fill(2, 100.0, |spec| spec.vary = b"another");
    let (_, next, recovery) = w.killed(&arena);
    assert_eq!(recovery, Recovery { indexed: 3, refused: 0 });
    assert_eq!(outcome(&next.lookup(1)), Outcome::Hit(newer.vxid()));
}

/// The fetch of the older object ends last.
#[test]
fn an_object_that_was_replaced_during_its_fetch_does_not_come_back() {
    let arena = empty();
    let (w, _) = World::over(arena.clone(), T0, 1000);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!("there is nothing") };
    let (older, mut writer) = w.begin(&w.spec(100.0));
    busy.publish(&older);
    let newer = w.fill(1, 100.0, |spec| spec.t_origin -= 50.0);
    w.write(&mut writer, b"body");
    drop(w.cache.finish(older, writer));
    let (_, next, recovery) = w.killed(&arena);
    assert_eq!(recovery, Recovery { indexed: 1, refused: 0 });
    assert_eq!(outcome(&next.lookup(1)), Outcome::Hit(newer.vxid()));
}
