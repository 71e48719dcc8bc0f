//! The list of the slots of a key: its order, and the time that many fetches of one key take.

use std::time::{Duration, Instant};

use super::*;
use crate::shard::Shard;
use crate::slab::key_of;

/// Objects come first, the newest of them at the front, then fetches, the newest of them at the front.
#[test]
fn the_slots_of_a_key_agree_with_a_model() {
    let w = World::new(None);
    let keys = [1, 2].map(|n| key_of(&digest(n)));
    let mut random = Random(7);
    let mut shard = Shard::new();
    let mut model: [(Vec<u32>, Vec<u32>); 2] = Default::default();
    for _ in 0..rounds(20_000) {
        let at = random.index(2);
        let (key, (objects, fetches)) = (keys[at], &mut model[at]);
        match random.below(4) {
            0 | 1 if objects.len() + fetches.len() < 12 => fetches.insert(0, shard.insert_busy(key)),
            0 | 1 if !objects.is_empty() => {
                let slot = objects.remove(random.index(objects.len()));
                assert!(shard.remove(slot).is_some());
            }
            2 if !fetches.is_empty() => {
                let slot = fetches.remove(random.index(fetches.len()));
                shard.publish(slot, w.object(10.0, |_| {}, b""));
                objects.insert(0, slot);
            }
            _ if !fetches.is_empty() => {
                let slot = fetches.remove(random.index(fetches.len()));
                assert!(shard.remove(slot).is_none());
            }
            _ => {}
        }
        for (key, (objects, fetches)) in keys.iter().zip(&model) {
            let expected: Vec<u32> = objects.iter().chain(fetches).copied().collect();
            assert_eq!(shard.slots(key).collect::<Vec<_>>(), expected);
        }
    }
}

/// An uncacheable page, for example: its requests do not wait for each other.
#[test]
#[cfg_attr(miri, ignore = "takes many fetches")]
fn the_time_of_a_fetch_does_not_depend_on_the_number_of_others_for_its_key() {
    const COUNT: usize = 200_000;
    const LIMIT: Duration = Duration::from_secs(20);
    let w = World::new(None);
    w.fill(1, 1000.0, |spec| spec.flags = flag::HFM);
    let began = Instant::now();
    let mut fetches = Vec::new();
    for n in 0..COUNT {
        assert!(began.elapsed() < LIMIT, "after the begin of {n} fetches");
        match w.lookup(1) {
            Lookup::HitMiss { busy, .. } => fetches.push(busy),
            other => panic!("{other:?}"),
        }
    }
    for (n, busy) in fetches.into_iter().enumerate() {
        assert!(began.elapsed() < LIMIT, "after the end of {n} fetches");
        match n % 100 {
            0 => busy.publish(&w.object(1000.0, |spec| spec.flags = flag::HFM, b"")),
            _ => drop(busy),
        }
    }
    assert_eq!(w.stat("n_objectcore"), 1);
}
