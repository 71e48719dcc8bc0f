//! A record: the fixed-size part of an object outside of its spans, in memory that outlives the process.
//!
//! ```text
//! 0   u64 seal: 4 bits kind, 8 bits flags, 12 bits slot size / 16 (0: pages), 40 bits place of the first span / 16
//! 8   24 bytes key            32  u64 vxid: 50 bits, 14 bits check of ttl, grace, keep and ban
//! 40  f64 origin              48  f32 ttl, grace, keep       60  u32 ban
//! 64  u32 hits                68  u32 filled bytes of the first span
//! 72  u32 check of all that does not change, and of the head
//! 76  u32 check of the body (WHOLE), or number of the first link (LISTED, NOTE)
//! ```
//!
//! The seal is written last and cleared first: a record with a seal of zero is unused, or belongs to an object that the
//! next process must not find. A link contains seven words, from byte 8 to 63.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use twox_hash::XxHash3_64;

/// The number of words in a link.
pub(crate) const LINK_WORDS: usize = 7;
/// The number of bits of a VXID that a record stores. VXIDs have at most 15 decimal digits.
const VXID_BITS: u32 = 50;
const VXID_MASK: u64 = (1 << VXID_BITS) - 1;

const KIND_BITS: u32 = 4;
const SLOT_SHIFT: u32 = 12;
const PLACE_SHIFT: u32 = 24;
const UNIT: u64 = 16;

/// The kind of a record that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An object that consists of one span.
    Whole = 1,
    /// An object with links, which contain its tags and the pieces of its body.
    Listed = 2,
    /// Belongs to the record that refers to it.
    Link = 3,
    /// A note: a ban.
    Note = 4,
    /// The first record of the table.
    Header = 5,
}

impl Kind {
    fn of(seal: u64) -> Option<Self> {
        [Self::Whole, Self::Listed, Self::Link, Self::Note, Self::Header]
            .into_iter()
            .find(|&kind| kind as u64 == seal & ((1 << KIND_BITS) - 1))
    }
}

/// The location of a span: its offset in the arena and, if it is a slot of a slab, the size of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) at: u64,
    /// 0 for a span with pages of its own.
    pub(crate) slot: u32,
}

impl Place {
    /// Returns the place as bits 12 to 63 of a word, or `None` if it cannot be expressed.
    pub(crate) fn bits(self) -> Option<u64> {
        let (at, slot) = (self.at / UNIT, u64::from(self.slot) / UNIT);
        (at < 1 << 40 && slot < 1 << 12 && self.at.is_multiple_of(UNIT))
            .then_some(at << PLACE_SHIFT | slot << SLOT_SHIFT)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let slot = (bits >> SLOT_SHIFT) & 0xfff;
        Self { at: (bits >> PLACE_SHIFT) * UNIT, slot: (slot * UNIT) as u32 }
    }
}

/// Returns the checksum of bytes.
pub(crate) fn check(bytes: &[u8]) -> u32 {
    XxHash3_64::oneshot(bytes) as u32
}

/// Returns the checksum of words.
pub(crate) fn check_words<const N: usize>(words: [u64; N]) -> u32 {
    check(words.map(u64::to_le_bytes).as_flattened())
}

/// The memory of a record. Every field may be read and written at any time; the seal decides whether another process
/// may use them.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Record {
    seal: AtomicU64,
    key: [AtomicU64; 3],
    vxid: AtomicU64,
    origin: AtomicU64,
    ttl: AtomicU32,
    grace: AtomicU32,
    keep: AtomicU32,
    ban: AtomicU32,
    hits: AtomicU32,
    filled: AtomicU32,
    check: AtomicU32,
    more: AtomicU32,
}

pub(crate) const RECORD: usize = 80;
const _: () = assert!(size_of::<Record>() == RECORD);

/// The fields of a record that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) place: Place,
    pub(crate) filled: u32,
    pub(crate) more: u32,
}

impl Record {
    /// Sets the attributes of a new object.
    pub fn begin(&self, vxid: u64, origin: f64, timers: [f32; 3]) {
        self.vxid.store(vxid & VXID_MASK, Ordering::Relaxed);
        self.origin.store(origin.to_bits(), Ordering::Relaxed);
        self.hits.store(0, Ordering::Relaxed);
        self.ban.store(0, Ordering::Relaxed);
        self.set_timers(timers);
    }

    /// Copies the attributes of another object.
    pub fn copy_from(&self, other: &Self) {
        self.begin(other.vxid(), other.origin(), other.timers());
        self.set_key(&other.key());
        self.hits.store(other.hits(), Ordering::Relaxed);
        self.set_ban(other.ban());
    }

    #[inline]
    pub fn vxid(&self) -> u64 {
        self.vxid.load(Ordering::Relaxed) & VXID_MASK
    }

    #[inline]
    pub fn origin(&self) -> f64 {
        f64::from_bits(self.origin.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn ttl(&self) -> f32 {
        f32::from_bits(self.ttl.load(Ordering::Relaxed))
    }

    /// Returns ttl, grace and keep.
    #[inline]
    pub fn timers(&self) -> [f32; 3] {
        [&self.ttl, &self.grace, &self.keep].map(|from| f32::from_bits(from.load(Ordering::Relaxed)))
    }

    /// Sets ttl, grace and keep. No other thread may call this or [`Self::set_ban`] at the same time.
    pub fn set_timers(&self, timers: [f32; 3]) {
        for (to, seconds) in [&self.ttl, &self.grace, &self.keep].into_iter().zip(timers) {
            to.store(seconds.to_bits(), Ordering::Relaxed);
        }
        self.update_check();
    }

    #[inline]
    pub fn ban(&self) -> u32 {
        self.ban.load(Ordering::Acquire)
    }

    /// Sets the number of the newest ban that the object was tested against.
    pub fn set_ban(&self, ban: u32) {
        self.ban.store(ban, Ordering::Release);
        self.update_check();
    }

    #[inline]
    pub fn hits(&self) -> u32 {
        self.hits.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn add_hits(&self, n: u32) {
        self.hits.fetch_add(n, Ordering::Relaxed);
    }

    /// Raises the number of hits to `n`.
    pub(crate) fn raise_hits(&self, n: u32) {
        self.hits.fetch_max(n, Ordering::Relaxed);
    }

    /// Returns the check of the fields that change, in the upper bits of the word of the VXID.
    fn changing_check(&self) -> u64 {
        let pair = |a: &AtomicU32, b: &AtomicU32| {
            u64::from(a.load(Ordering::Relaxed)) | u64::from(b.load(Ordering::Relaxed)) << 32
        };
        let mixed = pair(&self.ttl, &self.grace).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
            ^ pair(&self.keep, &self.ban).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        (mixed ^ mixed >> 29).wrapping_mul(0x9fb2_1c65_1e98_df25) >> VXID_BITS << VXID_BITS
    }

    fn update_check(&self) {
        self.vxid.store(self.vxid() | self.changing_check(), Ordering::Relaxed);
    }

    /// Returns whether the fields that change agree with their check.
    pub(crate) fn is_consistent(&self) -> bool {
        self.vxid.load(Ordering::Relaxed) & !VXID_MASK == self.changing_check()
    }

    pub fn key(&self) -> [u8; 24] {
        let mut key = [0; 24];
        for (part, word) in key.chunks_exact_mut(8).zip(&self.key) {
            part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        key
    }

    /// Sets the key, before the object is in the index.
    pub fn set_key(&self, key: &[u8; 24]) {
        for (word, part) in self.key.iter().zip(key.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*part), Ordering::Relaxed);
        }
    }

    /// Returns a checksum that identifies the record as the root of a list.
    pub(crate) fn identity(&self) -> u32 {
        let [a, b, c] = [0, 1, 2].map(|i: usize| self.key[i].load(Ordering::Relaxed));
        check_words([a, b, c, self.vxid()])
    }

    /// Returns the checksum of the record's fixed fields and of `head`, the checksum of the head.
    fn fixed_check(&self, seal: u64, filled: u32, more: u32, head: u32) -> u32 {
        let [a, b, c] = [0, 1, 2].map(|i: usize| self.key[i].load(Ordering::Relaxed));
        let lengths = u64::from(filled) | u64::from(more) << 32;
        let origin = self.origin.load(Ordering::Relaxed);
        check_words([a, b, c, self.vxid(), origin, seal, lengths, u64::from(head)])
    }

    /// Makes the record valid for the next process. `head` is the checksum of the head. Returns false if the place
    /// cannot be expressed.
    pub(crate) fn seal(&self, sealed: Sealed, head: u32) -> bool {
        let Some(place) = sealed.place.bits() else { return false };
        let seal = sealed.kind as u64 | u64::from(sealed.flags) << KIND_BITS | place;
        self.filled.store(sealed.filled, Ordering::Relaxed);
        self.more.store(sealed.more, Ordering::Relaxed);
        self.check.store(self.fixed_check(seal, sealed.filled, sealed.more, head), Ordering::Relaxed);
        self.seal.store(seal, Ordering::Release);
        true
    }

    /// Makes the record invalid for the next process.
    #[inline]
    pub(crate) fn clear(&self) {
        self.seal.store(0, Ordering::Release);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.load(Ordering::Relaxed) != 0
    }

    /// Returns the sealed fields. They are not checked.
    pub(crate) fn sealed(&self) -> Option<Sealed> {
        let seal = self.seal.load(Ordering::Acquire);
        Some(Sealed {
            kind: Kind::of(seal)?,
            flags: (seal >> KIND_BITS) as u8,
            place: Place::from_bits(seal),
            filled: self.filled.load(Ordering::Relaxed),
            more: self.more.load(Ordering::Relaxed),
        })
    }

    /// Returns whether the fixed fields, and a head with this checksum, are those that were sealed.
    pub(crate) fn is_sound(&self, head: u32) -> bool {
        let (filled, more) = (self.filled.load(Ordering::Relaxed), self.more.load(Ordering::Relaxed));
        let seal = self.seal.load(Ordering::Relaxed);
        self.check.load(Ordering::Relaxed) == self.fixed_check(seal, filled, more, head)
    }

    /// Writes a link: words that belong to the root with the checksum `root`, and the number of the next link or 0.
    pub(crate) fn set_link(&self, words: [u64; LINK_WORDS], next: u32, root: u32) {
        for (to, word) in self.key.iter().chain([&self.vxid, &self.origin]).zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        for ((low, high), word) in
            [(&self.ttl, &self.grace), (&self.keep, &self.ban)].into_iter().zip(&words[5..])
        {
            low.store(*word as u32, Ordering::Relaxed);
            high.store((*word >> 32) as u32, Ordering::Relaxed);
        }
        self.more.store(next, Ordering::Relaxed);
        self.check.store(link_check(words, next, root), Ordering::Relaxed);
        self.seal.store(Kind::Link as u64, Ordering::Release);
    }

    /// Returns the words of a link of this root and the number of the next link, if the link is sound.
    pub(crate) fn link(&self, root: u32) -> Option<([u64; LINK_WORDS], u32)> {
        let pair = |low: &AtomicU32, high: &AtomicU32| {
            u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32
        };
        let [a, b, c] = [0, 1, 2].map(|i: usize| self.key[i].load(Ordering::Relaxed));
        let (d, e) = (self.vxid.load(Ordering::Relaxed), self.origin.load(Ordering::Relaxed));
        let words = [a, b, c, d, e, pair(&self.ttl, &self.grace), pair(&self.keep, &self.ban)];
        let next = self.more.load(Ordering::Relaxed);
        let is_sound = self.seal.load(Ordering::Relaxed) == Kind::Link as u64
            && self.check.load(Ordering::Relaxed) == link_check(words, next, root);
        is_sound.then_some((words, next))
    }
}

fn link_check(words: [u64; LINK_WORDS], next: u32, root: u32) -> u32 {
    let [a, b, c, d, e, f, g] = words;
    check_words([a, b, c, d, e, f, g, u64::from(next) | u64::from(root) << 32])
}
