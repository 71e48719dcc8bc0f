//! A page that a store keeps.

use crate::record::{Key, Meta, Parts};
use crate::state::Content;

/// A page. All bytes of its body are its number.
pub struct Page {
    pub number: u64,
    pub head: &'static str,
    pub len: u64,
}

pub fn key(number: u64) -> Key {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..16].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

impl Content for Page {
    fn parts(&self) -> Parts<'_> {
        let meta = Meta { key: key(self.number), variant: 0, expires: 5000, ban: 1 };
        Parts { meta, descriptor: b"page", head: self.head.as_bytes(), extra: &[], body_len: self.len }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let len = window.len().min((self.len - from) as usize);
        window[..len].fill(self.number as u8);
        len
    }
}
