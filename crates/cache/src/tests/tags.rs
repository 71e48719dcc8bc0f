//! The tag index compared with a list that is searched linearly, while objects are added, expire, are removed and
//! purged.

use std::collections::BTreeSet;

use super::*;

struct Known {
    object: Arc<Object>,
    key: u64,
    tags: BTreeSet<u64>,
}

impl Known {
    fn has_any(&self, tags: &[u64]) -> bool {
        tags.iter().any(|tag| self.tags.contains(tag))
    }
}

fn tags_of(w: &World, numbers: &[u64]) -> Vec<Tag> {
    words(numbers).iter().map(|word| w.cache.tag(word)).collect()
}

fn publish(w: &World, random: &mut Random, key: u64) -> Known {
    let Lookup::Miss { busy, .. } = w.lookup_with(key, |a| a.always_miss = true) else {
        unreachable!("always_miss misses");
    };
    let numbers: Vec<u64> = (0..random.below(5)).map(|_| random.below(12) * random.below(12)).collect();
    let object = w.object(random.below(30) as f32, |s| s.timers.grace = 5.0, b"body");
    drop(busy.publish_tagged(&object, tags_of(w, &numbers)));
    Known { object, key, tags: numbers.into_iter().collect() }
}

fn run(seed: u64) {
    let w = World::new(None);
    let mut random = Random(seed);
    let mut known: Vec<Known> = Vec::new();
    for _ in 0..rounds(4000) {
        let some = [random.below(122), random.below(122), random.below(5)];
        match random.below(16) {
            0..9 => {
                let key = random.below(60);
                known.push(publish(&w, &mut random, key));
            }
            9 => {
                let before = known.len();
                known.retain(|k| !k.has_any(&some));
                assert_eq!(w.cache.purge_tags(&some, Purge::Hard, w.now.get()), before - known.len());
            }
            10 => {
                let now = w.now.get();
                let fresh = |k: &&Known| k.has_any(&some) && k.object.fresh_until(Limits::NONE) > now;
                let want = known.iter().filter(fresh).count();
                let soft = Purge::Soft { ttl: 0.0, grace: None, keep: None };
                assert_eq!(w.cache.purge_tags(&some, soft, now), want);
                assert!(!known.iter().any(|k| fresh(&k)));
            }
            11 if !known.is_empty() => {
                let gone = known.swap_remove(random.index(known.len()));
                assert!(w.cache.kill(&gone.object));
            }
            12 => {
                let key = random.below(60);
                w.cache.purge(key, Purge::Hard, w.now.get());
                known.retain(|k| k.key != key);
            }
            _ => {
                w.tick(random.below(20) as f64 / 10.0);
                w.expire();
                known.retain(|k| k.object.expires() > w.now.get());
            }
        }
        let distinct: BTreeSet<u64> = known.iter().flat_map(|k| k.tags.iter().copied()).collect();
        let entries: usize = known.iter().map(|k| k.tags.len()).sum();
        let objects = known.iter().filter(|k| !k.tags.is_empty()).count();
        assert_eq!(w.cache.tag_stats().read(), [distinct.len(), entries, objects].map(|n| n as u64));
    }
}

#[test]
fn the_tag_index_agrees_with_a_model() {
    for seed in 1..=if cfg!(miri) { 1 } else { 4 } {
        println!("seed {seed}");
        run(seed);
    }
}

/// A small body is moved when its fetch ends; its tags stay valid.
#[test]
fn tags_survive_the_end_of_the_fetch() {
    let w = World::new(None);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!("the cache is empty") };
    let (object, mut writer) = w.begin(&w.spec(60.0));
    drop(busy.publish_tagged(&object, tags_of(&w, &[1, 2, 1])));
    w.write(&mut writer, b"body");
    w.cache.finish(object, writer);
    assert_eq!(w.cache.tag_stats().read(), [2, 2, 1]);
    assert_eq!(w.cache.purge_tags(&[2, 1], Purge::Hard, w.now.get()), 1);
    assert_eq!(w.cache.tag_stats().read(), [0, 0, 0]);
}
