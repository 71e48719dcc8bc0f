//! Random numbers: fast ones that differ on each thread and are not suitable for security, and secret ones from the
//! operating system.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

thread_local! {
    static OF_THREAD: RefCell<Random> = RefCell::new(Random::new(RandomState::new().build_hasher().finish()));
    static SEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread's numbers a function of the seed.
pub fn seed(seed: u64) {
    SEEDED.set(true);
    OF_THREAD.set(Random::new(seed));
}

/// Returns 64 random bits from this thread's sequence.
pub fn bits64() -> u64 {
    OF_THREAD.with_borrow_mut(Random::bits64)
}

/// Fills the bytes with numbers that nobody can predict. On a thread with a seed they come from its sequence.
pub fn secret(bytes: &mut [u8]) -> std::io::Result<()> {
    if !SEEDED.get() {
        return crate::system::random(bytes);
    }
    for chunk in bytes.chunks_mut(8) {
        let numbers = bits64().to_le_bytes();
        chunk.copy_from_slice(&numbers[..chunk.len()]);
    }
    Ok(())
}

/// A sequence of random numbers that is a function of its seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn bits64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns true with a probability of `percent` in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_numbers() {
        let some = || -> Vec<u64> { (0..100).map(|_| bits64()).collect() };
        seed(0);
        let first = some();
        seed(0);
        assert_eq!(first, some());
        assert_ne!(first, some());
    }

    #[test]
    fn secrets_differ_unless_a_seed_repeats_them() {
        let some = || {
            let mut bytes = [0; 21];
            secret(&mut bytes).map(|()| bytes).expect("the system has random numbers")
        };
        assert_ne!(some(), some());
        seed(7);
        let first = some();
        seed(7);
        assert_eq!(first, some());
    }

    #[test]
    fn threads_differ() {
        let there = std::thread::spawn(bits64).join();
        assert_ne!(there.ok(), Some(bits64()));
    }

    #[test]
    fn numbers_stay_below_their_end() {
        let mut random = Random::new(1);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
