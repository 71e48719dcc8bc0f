//! The number by which a store distinguishes the variants of a key.

use crate::bans::HeadReader;

/// FNV-1a: the result is equal in all processes.
fn hash(mut state: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // The end of a text is part of it.
    (state ^ 0x1ff).wrapping_mul(0x0000_0100_0000_01b3)
}

fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Returns the number of the variant with a Vary specification, which is empty if the object does not vary.
pub(crate) fn of(heads: &dyn HeadReader, vary: &[u8]) -> u32 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let (mut names, mut values) = (START, START);
    if !vary.is_empty() {
        heads.vary(vary, &mut |name, value| {
            names = hash(names, &name.to_ascii_lowercase());
            values = value.map_or(values, |value| hash(values, value));
        });
    }
    lacquer_disk::variant(mix(names), mix(values))
}
