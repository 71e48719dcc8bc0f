//! The places of the ring's fields, for its writer and for readers in other processes. They are those of Varnish.

use super::Tag;

/// The first bytes of the head.
pub const MARKER: &[u8; 8] = b"VSLHEAD2";
/// The place of the words per segment.
pub const SEGMENT_SIZE: usize = 8;
/// The place of the number of the newest segment.
pub const SEGMENT_NUMBER: usize = 16;
/// The place of the offsets of each segment's first record.
pub const OFFSETS: usize = 24;
pub const SEGMENTS: u32 = 8;
/// The length of the head.
pub const HEAD: usize = OFFSETS + SEGMENTS as usize * 8;

/// The unit of positions in the ring, in bytes.
pub const WORD: usize = 4;
/// Bytes before a record's text: tag and length, then the transaction's number in two words.
pub const RECORD_HEAD: usize = 12;
/// The word after the newest record.
pub const END_MARKER: u32 = (Tag::_Reserved as u32) << 24 | 0x45_4545;
/// The word after which the ring continues at its beginning.
pub const WRAP_MARKER: u32 = (Tag::_Reserved as u32) << 24 | 0x57_5757;
