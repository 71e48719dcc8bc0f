//! What tests and the bench share: chance that can be repeated. What is installed does not depend on this.
#![forbid(unsafe_code)]

/// SplitMix64: who was given the seed has all of it; a test that fails prints nothing else.
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

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }
}
