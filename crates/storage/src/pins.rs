//! The pages that the other process may use during a handover; `handover.rs` explains it.

use std::io;
use std::os::fd::BorrowedFd;

use crate::bits::Bits;
use crate::runs::Runs;
use crate::slabs::Slabs;
use crate::system;

/// The state of the handover, in the allocator.
#[derive(Debug, Default)]
pub(crate) enum Handover {
    #[default]
    None,
    Frozen(Held),
    Pinned(Pins),
}

/// The memory that would have been freed while the arena is frozen.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Pages, and whether a socket may hold them.
    pub(crate) pages: Vec<(u32, u32, bool)>,
    /// The numbers of notes.
    pub(crate) notes: Vec<u32>,
}

/// The pages that another process may use.
#[derive(Debug)]
pub(crate) struct Pins {
    bits: Bits,
    /// Pinned pages that belong to no span of this process.
    orphans: Vec<(u32, u32)>,
}

impl Handover {
    pub(crate) fn pinned(pages: u32, pins: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::Pinned(Pins { bits: read(pages, pins)?, orphans: Vec::new() }))
    }

    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self, Self::Frozen(_))
    }

    /// Keeps pages from being used again, if another process may use them. Returns false if they may be freed.
    pub(crate) fn hold(&mut self, start: u32, n: u32, sent: bool) -> bool {
        match self {
            Self::None => return false,
            Self::Frozen(held) => held.pages.push((start, n, sent)),
            Self::Pinned(pins) if !pins.bits.any(start, n) => return false,
            Self::Pinned(pins) => pins.orphans.push((start, n)),
        }
        true
    }

    /// Keeps a note from being removed, because objects that the next process finds may refer to it. Returns false if it
    /// may be removed.
    pub(crate) fn hold_note(&mut self, note: u32) -> bool {
        if let Self::Frozen(held) = self {
            held.notes.push(note);
        }
        self.is_frozen()
    }

    /// Takes the pinned pages out of the free ones, after the objects were taken over.
    pub(crate) fn pin(&mut self, runs: &mut Runs, slabs: &mut Slabs) {
        let Self::Pinned(pins) = self else { return };
        slabs.close(runs);
        let free: Vec<(u32, u32)> = runs.all().collect();
        for (start, n) in free {
            for (_, start, n) in pins.bits.divide(start, n).filter(|(is_pinned, ..)| *is_pinned) {
                runs.take_at(start, n);
                pins.orphans.push((start, n));
            }
        }
    }

    /// Unpins all pages but these. Returns those of them that are free now, which a socket may hold.
    pub(crate) fn release(&mut self, slabs: &mut Slabs, still: &Bits) -> Vec<(u32, u32)> {
        let Self::Pinned(pins) = self else { return Vec::new() };
        pins.bits.keep_only(still);
        let mut free = Vec::new();
        for (start, n) in std::mem::take(&mut pins.orphans) {
            for (is_pinned, start, n) in pins.bits.divide(start, n) {
                let to = if is_pinned { &mut pins.orphans } else { &mut free };
                to.push((start, n));
            }
        }
        slabs.open(|start, n| !pins.bits.any(start, n));
        if pins.bits.is_empty() {
            *self = Self::None;
        }
        free
    }
}

/// Reads a set of pages. Pages of which the file contains nothing are in it.
pub(crate) fn read(pages: u32, pins: BorrowedFd<'_>) -> io::Result<Bits> {
    let mut bytes = vec![0; (pages.div_ceil(u64::BITS) * 8) as usize];
    let mut length = 0;
    while length < bytes.len() {
        match system::read(pins, &mut bytes[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(Bits::from_bytes(pages, &bytes[..length]))
}
