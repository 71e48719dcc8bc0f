//! The decision whether an object that was read from a disk moves to memory.
//!
//! When memory is full, an object that comes from a disk would displace another one. It does so only if it is requested
//! again before as many bytes were read as there is memory, because only then would it have stayed. Other objects are sent
//! from the memory of the read ([`super::lend`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::slab::Key;

/// The number of reads whose memory responses may use at a time, for each store. Each has up to 276 kB. A quarter of the
/// memory of the storage is another limit.
const MOST_LENT: u64 = 96;
const READ: u64 = 276 << 10;
const LENT_PART: u64 = 4;

/// The number of keys that are remembered: 1 MB.
const PLACES: usize = if cfg!(miri) { 64 } else { 1 << 18 };
/// The number of steps of the clock in which as many bytes are read as there is memory.
const STEPS: u64 = 64;

/// The keys that were read last from a store, and the responses that use the memory of reads.
#[derive(Debug)]
pub(crate) struct Lending {
    /// The number of bytes that were read.
    clock: AtomicU64,
    /// 16 bits of a key, and the step of the clock in which it was read.
    places: Box<[AtomicU32]>,
    /// Each response has a clone.
    lent: Arc<()>,
}

/// The use of the memory of one read by a response.
#[derive(Debug)]
pub(crate) struct LentRead {
    _count: Arc<()>,
}

impl Default for Lending {
    fn default() -> Self {
        Self {
            clock: AtomicU64::new(0),
            places: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
            lent: Arc::new(()),
        }
    }
}

impl Lending {
    /// Records that an object of `bytes` bytes was read. Returns whether it was also read before, and about `window` bytes
    /// or fewer since.
    pub(crate) fn note(&self, key: &Key, bytes: u64, window: u64) -> bool {
        let step = (window / STEPS).max(1);
        let now = (self.clock.fetch_add(bytes, Ordering::Relaxed) / step) as u16;
        let at = u32::from_le_bytes([key[7], key[8], key[9], key[10]]) as usize % PLACES;
        // 0 is a place without a key.
        let tag = u16::from_le_bytes([key[11], key[12]]).max(1);
        let place = u32::from(tag) << 16 | u32::from(now);
        let before = self.places[at].swap(place, Ordering::Relaxed);
        before >> 16 == u32::from(tag) && u64::from(now.wrapping_sub(before as u16)) <= STEPS
    }

    /// Returns whether another response may use the memory of its read, if the storage has this much memory.
    pub(crate) fn has_room(&self, memory: u64) -> bool {
        (Arc::strong_count(&self.lent) as u64 - 1) < MOST_LENT.min(memory / LENT_PART / READ)
    }

    /// Counts a response that uses the memory of its read.
    pub(crate) fn begin(&self) -> LentRead {
        LentRead { _count: Arc::clone(&self.lent) }
    }
}

#[cfg(test)]
mod tests {
    use lacquer_testing::Random;

    use super::*;

    const MEMORY: u64 = 64 << 20;

    fn key(random: &mut Random) -> Key {
        std::array::from_fn(|_| random.number() as u8)
    }

    #[test]
    fn keys_are_known_until_as_much_was_read_as_there_is_memory() {
        let (lending, mut random) = (Lending::default(), Random(3));
        let (first, second) = (key(&mut random), key(&mut random));
        assert!(!lending.note(&first, 1000, MEMORY));
        assert!(lending.note(&first, 1000, MEMORY));
        assert!(!lending.note(&second, MEMORY / 2, MEMORY));
        assert!(lending.note(&first, MEMORY / 2, MEMORY) && lending.note(&second, 1, MEMORY));
        assert!(!lending.note(&key(&mut random), MEMORY + MEMORY / 10, MEMORY));
        assert!(!lending.note(&first, 1, MEMORY) && !lending.note(&second, 1, MEMORY));
        assert!(lending.note(&first, 1, MEMORY) && lending.note(&second, 1, MEMORY));
    }

    #[test]
    fn a_key_of_zeros_is_like_any_other() {
        let lending = Lending::default();
        assert!(!lending.note(&[0; 24], 1, MEMORY) && lending.note(&[0; 24], 1, MEMORY));
    }

    #[test]
    fn responses_that_use_the_memory_of_reads_are_limited() {
        let lending = Lending::default();
        assert!(!lending.has_room(1 << 20), "so little memory is for objects");
        let taken: Vec<_> = (0..MOST_LENT - 1).map(|_| lending.begin()).collect();
        assert!(lending.has_room(1 << 30) && !lending.has_room(64 << 20));
        let last = lending.begin();
        assert!(!lending.has_room(1 << 30));
        drop((last, taken));
        assert!(lending.has_room(64 << 20));
    }
}
