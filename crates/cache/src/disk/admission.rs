//! Admission to disks by a second request: objects that are requested only once are not written.
//!
//! An object that is refused when its fetch ends is written at its first hit in memory. If it has left memory, it is
//! written when it is fetched again: a table remembers the keys of refused objects. The table has a fixed size. It has
//! sets of some keys each, and a new key takes the place of the oldest one of its set. A key is remembered by 32 bits,
//! so that one of 500 million objects that are requested once is written.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::shard::{SHARDS, shard_index};
use crate::slab::Key;

/// The number of sets for each shard, and of the keys in a set. All keys together take 8 MB.
const SETS: usize = if cfg!(miri) { 16 } else { 4096 };
const WAYS: usize = 8;
/// The value of a place without a key.
const FREE: u32 = 0;

/// The keys in one set, the latest first. It is used with the lock of the shard.
type Set = [AtomicU32; WAYS];

/// The rule by which objects are admitted, and the keys that it has refused.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    by_second: AtomicBool,
    /// The sets of all shards. Their memory is allocated when the rule is first used.
    sets: OnceLock<Box<[Set]>>,
}

impl Admission {
    /// Sets whether an object is admitted only when it is requested for the second time.
    pub(crate) fn set_by_second(&self, on: bool) {
        if on {
            self.sets.get_or_init(|| (0..SHARDS * SETS).map(|_| Set::default()).collect());
        }
        self.by_second.store(on, Ordering::Relaxed);
    }

    /// Returns whether an object is admitted only when it is requested for the second time.
    pub(crate) fn is_by_second(&self) -> bool {
        self.by_second.load(Ordering::Relaxed)
    }

    /// Returns whether the key was refused before, and remembers it. The caller holds the lock of its shard.
    pub(crate) fn was_refused(&self, key: &Key) -> bool {
        let Some(sets) = self.sets.get() else { return false };
        let within = usize::from(u16::from_le_bytes([key[5], key[6]])) % SETS;
        let set = &sets[shard_index(key) * SETS + within];
        let tag = u32::from_le_bytes([key[20], key[21], key[22], key[23]]).max(FREE + 1);
        let known = set.iter().position(|place| place.load(Ordering::Relaxed) == tag);
        for at in (0..known.unwrap_or(WAYS - 1)).rev() {
            set[at + 1].store(set[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        set[0].store(tag, Ordering::Relaxed);
        known.is_some()
    }
}

#[cfg(test)]
mod tests {
    use lacquer_testing::Random;

    use super::*;

    fn key(random: &mut Random) -> Key {
        std::array::from_fn(|_| random.number() as u8)
    }

    #[test]
    fn keys_are_new_once() {
        let (admission, mut random) = (Admission::default(), Random(7));
        let keys: Vec<Key> = (0..if cfg!(miri) { 50 } else { 10_000 }).map(|_| key(&mut random)).collect();
        assert!(!admission.was_refused(&keys[0]) && !admission.was_refused(&keys[0]), "it remembers nothing");
        admission.set_by_second(true);
        assert!(keys.iter().all(|key| !admission.was_refused(key)));
        assert!(keys.iter().all(|key| admission.was_refused(key)));
        assert!(keys.iter().all(|key| admission.was_refused(key)), "they are still known");
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn a_million_keys_that_come_once_are_all_refused() {
        let (admission, mut random) = (Admission::default(), Random(8));
        admission.set_by_second(true);
        let first = key(&mut random);
        assert!(!admission.was_refused(&first));
        let admitted = (0..1_000_000).filter(|_| admission.was_refused(&key(&mut random))).count();
        assert_eq!(admitted, 0);
        assert!(admission.was_refused(&first), "half as many keys as there is room for do not displace it");
        let admitted = (0..6_000_000).filter(|_| admission.was_refused(&key(&mut random))).count();
        assert!(admitted <= 1, "{admitted}");
        assert!(!admission.was_refused(&first), "the memory is bounded");
    }

    #[test]
    fn a_set_keeps_its_latest_keys() {
        let admission = Admission::default();
        admission.set_by_second(true);
        let numbered = |n: u8| -> Key {
            let mut key = [0; 24];
            key[20] = n;
            key
        };
        for n in 1..=WAYS as u8 {
            assert!(!admission.was_refused(&numbered(n)));
        }
        assert!(admission.was_refused(&numbered(1)), "it is the latest now");
        assert!(!admission.was_refused(&numbered(100)));
        assert!(admission.was_refused(&numbered(1)));
        assert!(!admission.was_refused(&numbered(2)), "it was the oldest");
    }

    #[test]
    fn a_key_of_zeros_is_like_any_other() {
        let admission = Admission::default();
        admission.set_by_second(true);
        assert!(!admission.was_refused(&[0; 24]));
        assert!(admission.was_refused(&[0; 24]));
    }
}
