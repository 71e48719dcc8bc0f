//! HAVAL with three passes (Zheng, Pieprzyk and Seberry, 1992), of 128 to 256 bits. No maintained crate provides it.

const PASSES: u8 = 3;
const VERSION: u8 = 1;
const BLOCK: usize = 128;

/// Words of the fraction of pi: the initial state, then the constants of the second and third pass.
#[rustfmt::skip]
const PI: [u32; 72] = [
    0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344, 0xa409_3822, 0x299f_31d0, 0x082e_fa98,
    0xec4e_6c89, 0x4528_21e6, 0x38d0_1377, 0xbe54_66cf, 0x34e9_0c6c, 0xc0ac_29b7, 0xc97c_50dd,
    0x3f84_d5b5, 0xb547_0917, 0x9216_d5d9, 0x8979_fb1b, 0xd131_0ba6, 0x98df_b5ac, 0x2ffd_72db,
    0xd01a_dfb7, 0xb8e1_afed, 0x6a26_7e96, 0xba7c_9045, 0xf12c_7f99, 0x24a1_9947, 0xb391_6cf7,
    0x0801_f2e2, 0x858e_fc16, 0x6369_20d8, 0x7157_4e69, 0xa458_fea3, 0xf493_3d7e, 0x0d95_748f,
    0x728e_b658, 0x718b_cd58, 0x8215_4aee, 0x7b54_a41d, 0xc25a_59b5, 0x9c30_d539, 0x2af2_6013,
    0xc5d1_b023, 0x2860_85f0, 0xca41_7918, 0xb8db_38ef, 0x8e79_dcb0, 0x603a_180e, 0x6c9e_0e8b,
    0xb01e_8a3e, 0xd715_77c1, 0xbd31_4b27, 0x78af_2fda, 0x5560_5c60, 0xe655_25f3, 0xaa55_ab94,
    0x5748_9862, 0x63e8_1440, 0x55ca_396a, 0x2aab_10b6, 0xb4cc_5c34, 0x1141_e8ce, 0xa154_86af,
    0x7c72_e993, 0xb3ee_1411, 0x636f_bc2a, 0x2ba9_c55d, 0x7418_31f6, 0xce5c_3e16, 0x9b87_931e,
    0xafd6_ba33, 0x6c24_cf5c,
];

/// The order of a block's words in each pass.
const ORDER: [[u8; 32]; 3] = [
    [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28, 29, 30, 31,
    ],
    [
        5, 14, 26, 18, 11, 28, 7, 16, 0, 23, 20, 22, 1, 10, 4, 8, 30, 3, 21, 9, 17, 24, 29, 6, 19, 12, 15,
        13, 2, 25, 31, 27,
    ],
    [
        19, 9, 4, 20, 28, 17, 8, 22, 29, 14, 25, 12, 24, 30, 16, 26, 31, 15, 7, 3, 1, 0, 18, 27, 13, 6, 21,
        10, 23, 11, 5, 2,
    ],
];

/// Computes the boolean function of a pass; `x(i)` is the i-th of its seven words.
fn mix(pass: usize, x: impl Fn(usize) -> u32) -> u32 {
    match pass {
        0 => (x(2) & (x(4) ^ x(3))) ^ (x(6) & x(0)) ^ (x(5) & x(1)) ^ x(4),
        1 => {
            let inner = (x(3) & !x(0)) ^ (x(1) & x(2)) ^ x(4) ^ x(6);
            (x(5) & inner) ^ (x(1) & (x(3) ^ x(2))) ^ (x(0) & x(2)) ^ x(6)
        }
        _ => (x(3) & ((x(5) & x(4)) ^ x(6) ^ x(0))) ^ (x(5) & x(2)) ^ (x(4) & x(1)) ^ x(0),
    }
}

fn compress(state: &mut [u32; 8], block: &[u8]) {
    let (words, _) = block.as_chunks::<4>();
    let mut t = *state;
    for (pass, order) in ORDER.iter().enumerate() {
        for (i, &word) in order.iter().enumerate() {
            // The eight words rotate: each step replaces another one.
            let at = |j: usize| (j + 32 - i) % 8;
            let mixed = mix(pass, |j| t[at(j)]).rotate_right(7);
            let constant = if pass == 0 { 0 } else { PI[8 + 32 * (pass - 1) + i] };
            t[at(7)] = mixed
                .wrapping_add(t[at(7)].rotate_right(11))
                .wrapping_add(u32::from_le_bytes(words[usize::from(word)]))
                .wrapping_add(constant);
        }
    }
    for (s, t) in state.iter_mut().zip(t) {
        *s = s.wrapping_add(t);
    }
}

/// Returns a mask of `count` bits, starting at bit `from`.
const fn bits(count: u32, from: u32) -> u32 {
    ((1 << count) - 1) << from
}

/// The addition of the words beyond the result to one word of it: the rotation of the masked bits, and the
/// masks of the last words, the last one first.
type Fold = (u32, &'static [u32]);

const TO_128: &[Fold] = &[
    (8, &[bits(8, 0), bits(8, 24), bits(8, 16), bits(8, 8)]),
    (16, &[bits(8, 8), bits(8, 0), bits(8, 24), bits(8, 16)]),
    (24, &[bits(8, 16), bits(8, 8), bits(8, 0), bits(8, 24)]),
    (0, &[bits(8, 24), bits(8, 16), bits(8, 8), bits(8, 0)]),
];
const TO_160: &[Fold] = &[
    (19, &[bits(6, 0), bits(7, 25), bits(6, 19)]),
    (25, &[bits(6, 6), bits(6, 0), bits(7, 25)]),
    (0, &[bits(7, 12), bits(6, 6), bits(6, 0)]),
    (6, &[bits(6, 19), bits(7, 12), bits(6, 6)]),
    (12, &[bits(7, 25), bits(6, 19), bits(7, 12)]),
];
const TO_192: &[Fold] = &[
    (26, &[bits(5, 0), bits(6, 26)]),
    (0, &[bits(5, 5), bits(5, 0)]),
    (5, &[bits(6, 10), bits(5, 5)]),
    (10, &[bits(5, 16), bits(6, 10)]),
    (16, &[bits(5, 21), bits(5, 16)]),
    (21, &[bits(6, 26), bits(5, 21)]),
];
const TO_224: &[Fold] = &[
    (27, &[bits(5, 27)]),
    (22, &[bits(5, 22)]),
    (18, &[bits(4, 18)]),
    (13, &[bits(5, 13)]),
    (9, &[bits(4, 9)]),
    (4, &[bits(5, 4)]),
    (0, &[bits(4, 0)]),
];

fn digest(message: &[u8], length: u16, folds: &[Fold]) -> Vec<u8> {
    let mut padded = message.to_vec();
    padded.push(1);
    let zeros = (2 * BLOCK - 10 - padded.len() % BLOCK) % BLOCK;
    padded.resize(padded.len() + zeros, 0);
    padded.push((length as u8 & 3) << 6 | PASSES << 3 | VERSION);
    padded.push((length >> 2) as u8);
    padded.extend_from_slice(&(message.len() as u64).wrapping_mul(8).to_le_bytes());

    let mut state = [0; 8];
    state.copy_from_slice(&PI[..8]);
    for block in padded.chunks_exact(BLOCK) {
        compress(&mut state, block);
    }
    let mut result = state;
    for (word, (turn, masks)) in result.iter_mut().zip(folds) {
        let left = state.iter().rev().zip(*masks).fold(0, |all, (word, mask)| all | word & mask);
        *word = word.wrapping_add(left.rotate_right(*turn));
    }
    result[..usize::from(length) / 32].iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn haval128(message: &[u8]) -> Vec<u8> {
    digest(message, 128, TO_128)
}

pub fn haval160(message: &[u8]) -> Vec<u8> {
    digest(message, 160, TO_160)
}

pub fn haval192(message: &[u8]) -> Vec<u8> {
    digest(message, 192, TO_192)
}

pub fn haval224(message: &[u8]) -> Vec<u8> {
    digest(message, 224, TO_224)
}

pub fn haval256(message: &[u8]) -> Vec<u8> {
    digest(message, 256, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::tests::shown;

    #[test]
    fn hashes_match_published_values() {
        for (found, expected) in [
            (haval128(b""), "c68f39913f901f3ddf44c707357a7d70"),
            (haval160(b"a"), "4da08f514a7275dbc4cece4a347385983983a830"),
            (haval192(b"HAVAL"), "8da26ddab4317b392b22b638998fe65b0fbe4610d345cf89"),
            (haval224(b"0123456789"), "ee345c97a58190bf0f38bf7ce890231aa5fcf9862bf8e7bebbf76789"),
            (
                haval256(b"abcdefghijklmnopqrstuvwxyz"),
                "72fad4bde1da8c8332fb60561a780e7f504f21547b98686824fc33fc796afa76",
            ),
            (
                haval256(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
                "899397d96489281e9e76d5e65abab751f312e06c06c07c9c1d42abd31bb6a404",
            ),
        ] {
            assert_eq!(shown(&found), expected);
        }
    }

    #[test]
    fn padding_fills_whole_blocks() {
        // Lengths around the point where another block is needed.
        let made: Vec<_> = (110..140).map(|n| haval256(&vec![b'x'; n])).collect();
        assert!(made.iter().all(|hash| hash.len() == 32));
        assert!((1..made.len()).all(|i| made[i] != made[i - 1]));
    }
}
