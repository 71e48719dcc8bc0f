//! A small pseudo-random generator: the same seed gives the same numbers.

/// Returns how often a test with chance goes round: `count` times, or a thousandth of it under Miri, which takes a
/// millisecond for a microsecond.
pub const fn rounds(count: usize) -> usize {
    if cfg!(miri) { count / 1000 + 10 } else { count }
}

/// SplitMix64. A test that fails prints the seed; nothing else is needed to repeat it.
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

    /// A number less than `n`, which is more than 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }

    /// A place in something that has `len` of them.
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
