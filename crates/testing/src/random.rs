//! A small pseudo-random number generator: the same seed gives the same numbers.

/// Returns the number of rounds of a randomized test: `count`, or about a thousandth of it under Miri, which is about a
/// thousand times slower.
pub const fn rounds(count: usize) -> usize {
    if cfg!(miri) { count / 1000 + 10 } else { count }
}

/// Returns an object's key that differs for each number.
pub fn key(number: u64) -> [u8; 24] {
    let mut random = Random(number);
    let mut key = [0; 24];
    key.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.number().to_le_bytes()));
    key
}

/// The SplitMix64 generator. A failing test prints the seed, which is sufficient to repeat it.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `n`. Panics if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }

    /// Returns an index into a sequence of length `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns bytes that compress a little.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.number() >> 60) as u8 * 3).collect()
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }
}
