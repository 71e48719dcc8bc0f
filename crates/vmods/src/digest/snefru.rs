//! Snefru with eight rounds (Merkle, 1990), of 128 and 256 bits. No maintained crate provides it.

use super::snefru_table::S_BOXES;

/// Number of words in a block: the chaining value first, then the message.
const WORDS: usize = 16;
/// The rotation of every word after each of the four passes of a round.
const ROTATIONS: [u32; 4] = [16, 8, 16, 24];

/// Mixes a block. The lowest byte of each word selects an entry of an S-box, which is mixed into its two neighbors in
/// the ring. The S-boxes of a round alternate every two words.
fn mix(block: &mut [u32; WORDS]) {
    for boxes in S_BOXES.as_chunks::<2>().0 {
        for rotation in ROTATIONS {
            for i in 0..WORDS {
                let entry = boxes[i / 2 % 2][usize::from(block[i] as u8)];
                block[(i + 1) % WORDS] ^= entry;
                block[(i + WORDS - 1) % WORDS] ^= entry;
            }
            *block = block.map(|word| word.rotate_right(rotation));
        }
    }
}

/// Mixes the last words of the mixed block into the chaining value, the last one first.
fn compress(chain: &mut [u32], input: &[u8]) {
    let mut block = [0; WORDS];
    let (head, tail) = block.split_at_mut(chain.len());
    head.copy_from_slice(chain);
    for (word, bytes) in tail.iter_mut().zip(input.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    mix(&mut block);
    for (word, mixed) in chain.iter_mut().zip(block.iter().rev()) {
        *word ^= mixed;
    }
}

/// Hashes a message. It is padded with zeros to whole blocks, and its length in bits is in a separate last block.
fn digest<const CHAIN: usize>(message: &[u8]) -> Vec<u8> {
    let block = (WORDS - CHAIN) * 4;
    let mut padded = message.to_vec();
    padded.resize(message.len().next_multiple_of(block) + block - 8, 0);
    padded.extend_from_slice(&(message.len() as u64).wrapping_mul(8).to_be_bytes());

    let mut chain = [0; CHAIN];
    for input in padded.chunks_exact(block) {
        compress(&mut chain, input);
    }
    chain.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub fn snefru128(message: &[u8]) -> Vec<u8> {
    digest::<4>(message)
}

pub fn snefru256(message: &[u8]) -> Vec<u8> {
    digest::<8>(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::tests::shown;

    #[test]
    fn hashes_match_published_values() {
        let digits = "1234567890".repeat(8);
        for (message, expected) in [
            ("", "8617f366566a011837f4fb4ba5bedea2"),
            ("abc", "553d0648928299a0f22a275a02c83b10"),
            ("abcdefghijklmnopqrstuvwxyz", "7840148a66b91c219c36f127a0929606"),
            (&digits, "d9204ed80bb8430c0b9c244fe485814a"),
        ] {
            assert_eq!(shown(&snefru128(message.as_bytes())), expected, "{message}");
        }
        for (message, expected) in [
            ("", "8617f366566a011837f4fb4ba5bedea2b892f3ed8b894023d16ae344b2be5881"),
            ("abc", "7d033205647a2af3dc8339f6cb25643c33ebc622d32979c4b612b02c4903031b"),
            (
                "abcdefghijklmnopqrstuvwxyz",
                "9304bb2f876d9c4f54546cf7ec59e0a006bead745f08c642f25a7c808e0bf86e",
            ),
            (&digits, "d5fce38a152a2d9b83ab44c29306ee45ab0aed0e38c957ec431dab6ed6bb71b8"),
        ] {
            assert_eq!(shown(&snefru256(message.as_bytes())), expected, "{message}");
        }
    }

    #[test]
    fn a_message_that_fills_its_block_is_not_padded() {
        for (message, expected) in [
            ("Test message for buffer workflow test(47 bytes)", "dd0d1ab288c3c36671044f41c5077ad6"),
            ("Test message for buffer workflow test(48 bytes).", "e7054f05bd72d7e86a052153a17c741d"),
            ("Test message for buffer workflow test(49 bytes)..", "9b34204833422df13c83e10a0c6d080a"),
        ] {
            assert_eq!(shown(&snefru128(message.as_bytes())), expected, "{message}");
        }
    }
}
