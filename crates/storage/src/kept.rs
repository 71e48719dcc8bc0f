//! Objects that outlive the process: makes a complete object valid for the next process, and finds the objects of the
//! previous one.
//!
//! An object in several spans, or with tags, has a list of words:
//!
//! ```text
//! u32 number of tags, u32 number of pieces | u32 1: has a span for the data of filters, u32 check of a body in one span
//! with data of filters: bits of its place, u32 length and u32 check
//! tags
//! pieces: bits of the place of the span | u32 filled bytes, u32 offset of the piece in the span
//!         | checks of its blocks, two in each word
//! ```
//!
//! Recovery trusts nothing that it reads: each span must lie within the arena and be free, each length must fit, and
//! each checksum of a record, a list and a head must be right. The checksum of a body is compared at its first use.
//! Checksums do not stop an attacker, who can compute them. The work and the memory of recovery are therefore bounded:
//! each link is read once, and heads are read up to a total of the bytes that the arena contains.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};

use crate::arena::{Arena, Full};
use crate::blocks::{BLOCK, Blocks};
use crate::body::Body;
use crate::first::{First, body_from, checked_body_from};
use crate::piece::KeptPart;
use crate::record::{Kind, Place, Record, Sealed, check};
use crate::records::Left;
use crate::span::Span;
use crate::stored::{Spans, Stored};

/// The maximum length of the head of an object that is kept.
const LONGEST_HEAD: usize = 1 << 20;

/// An object of the previous process.
#[derive(Debug)]
pub struct KeptObject {
    pub stored: Stored,
    pub key: [u8; 24],
    pub flags: u8,
    pub tags: Vec<u64>,
}

/// A note of the previous process.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptNote {
    pub number: u32,
    pub time: f64,
    pub is_completed: bool,
    pub text: Vec<u8>,
    /// The note itself. It is freed unless it is passed on.
    pub note: Note,
}

/// The record of a ban, by its number in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note(u32);

/// The number of objects that a table contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub accepted: u64,
    /// Objects that are damaged or were not accepted.
    pub refused: u64,
}

impl Stored {
    /// Makes the object valid for the next process, if its store is kept and the object is complete. Its record has the
    /// key. `flags` and `tags` are the caller's.
    pub fn keep(&self, flags: u8, tags: &[u64]) {
        let record = self.record();
        if !self.arena().records().is_kept() || record.is_sealed() {
            return;
        }
        // If there is no room for the list, the object does not outlive the process.
        let _ = self.try_keep(record, flags, tags);
    }

    fn try_keep(&self, record: &Record, flags: u8, tags: &[u64]) -> Option<()> {
        let first = self.first();
        let from = body_from(first);
        // Bodies that are longer than a block are in pieces, with a checksum for each block.
        let is_whole = matches!(self.spans(), Spans::Whole(_));
        if self.head().len() > LONGEST_HEAD || is_whole && first.len() - from > BLOCK {
            return None;
        }
        let head = check(&first.bytes()[..from]);
        let (kind, more) = match self.spans() {
            Spans::Whole(span) if tags.is_empty() => (Kind::Whole, check(&span.bytes()[from..])),
            spans => {
                let words = list(spans, from, tags)?;
                let records = self.arena().records();
                (Kind::Listed, records.write_list(&words, record.identity()).ok()?)
            }
        };
        let filled = first.len() as u32;
        record.seal(Sealed { kind, flags, place: first.place()?, filled, more }, head).then_some(())
    }

    /// Makes the object invalid for the next process.
    #[inline]
    pub fn forget(&self) {
        if self.record().is_sealed() {
            self.arena().records().forget(self.record());
        }
    }
}

/// Returns the list of an object.
fn list(spans: &Spans, body_from: usize, tags: &[u64]) -> Option<Vec<u64>> {
    let mut words = vec![tags.len() as u64, 0];
    words.extend_from_slice(tags);
    match spans {
        Spans::Whole(span) => words[1] = u64::from(check(&span.bytes()[body_from..])) << 32,
        Spans::Streamed(body) => {
            let arena = body.first().arena();
            body.for_each_kept(&mut |part| {
                // Spans in the overflow end with this process.
                if !Arc::ptr_eq(part.span().arena(), arena) {
                    return None;
                }
                match part {
                    KeptPart::Extra(span) => {
                        words[1] |= 1;
                        let sum = u64::from(check(span.bytes())) << 32;
                        words.splice(2..2, [span.place()?.bits()?, span.len() as u64 | sum]);
                    }
                    // A piece without bytes.
                    KeptPart::Piece { sums: [], .. } => {}
                    KeptPart::Piece { span, skip, sums } => {
                        words[0] += 1 << 32;
                        words.extend([span.place()?.bits()?, span.len() as u64 | (skip as u64) << 32]);
                        let pairs = sums.chunks(2);
                        words.extend(pairs.map(|pair| {
                            u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32
                        }));
                    }
                }
                Some(())
            })?;
            let has_bytes = words[0] >> 32 > 0 || words[1] & 1 != 0;
            if !has_bytes {
                // The next process finds the empty body in the span of the head.
                words[1] = u64::from(check(&[])) << 32;
            }
        }
    }
    Some(words)
}

impl Arena {
    /// Returns whether the next process may find the objects and notes of this arena.
    pub fn is_kept(&self) -> bool {
        self.records().is_kept()
    }

    /// Writes a note for the next process. If that is impossible, the next process will find nothing.
    pub fn write_note(&self, number: u32, time: f64, text: &[u8]) -> Option<Note> {
        let records = self.records();
        let write = || -> Result<Note, Full> {
            let root = records.take()?;
            // SAFETY: the table exists.
            let record = unsafe { root.get() };
            record.begin(u64::from(number), time, [0.0; 3]);
            record.set_key(&[0; 24]);
            let mut padded = text.to_vec();
            padded.resize(text.len().next_multiple_of(8), 0);
            let words: Vec<u64> = padded.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let more = records.write_list(&words, record.identity())?;
            let filled = u32::try_from(text.len()).map_err(|_| Full)?;
            let sealed = Sealed { kind: Kind::Note, flags: 0, place: Place::default(), filled, more };
            record.seal(sealed, 0);
            records.index(&root).map(Note)
        };
        let note = write().ok();
        if note.is_none() {
            records.spoil();
        }
        note
    }

    /// Marks a note as completed.
    pub fn complete_note(&self, note: Note) {
        self.records().with(note.0, |record| record.add_hits(1));
    }

    /// Removes a note. It stays while the arena is frozen, because objects that the next process finds may refer to it.
    pub fn remove_note(&self, note: Note) {
        let is_held = self.allocator().handover.hold_note(note.0);
        if !is_held {
            self.records().remove(note.0);
        }
    }

    /// Passes the notes of the previous process to `note`, and then its objects to `found`, oldest first, which returns
    /// whether it accepts an object. If a note is damaged, or `note` returns false, there are no objects. Frees the rest.
    pub fn take_over(
        self: &Arc<Self>,
        notes: &mut dyn FnMut(Vec<KeptNote>) -> bool,
        found: &mut dyn FnMut(KeptObject) -> bool,
    ) -> io::Result<Taken> {
        let left = self.records().left();
        let mut search = Search::new(&left, self.contents());
        let mut taken = Taken::default();
        let kept_notes = self.read_notes(&left, &mut search);
        if let Some(kept_notes) = kept_notes
            && notes(kept_notes)
        {
            for index in in_order(&left) {
                let links = self
                    .read_object(&left, index, &mut search)
                    .and_then(|(object, links)| found(object).then_some(links));
                match links {
                    Some(links) => {
                        taken.accepted += 1;
                        search.keep(links.into_iter().chain([index]));
                    }
                    None => taken.refused += 1,
                }
            }
        } else {
            search.used.fill(false);
        }
        self.records().settle(&search.used);
        self.punch_free_pages()?;
        Ok(taken)
    }

    /// Returns the notes, or `None` if one is damaged.
    fn read_notes(&self, left: &Left<'_>, search: &mut Search) -> Option<Vec<KeptNote>> {
        let mut notes = Vec::new();
        for index in 1..left.len() {
            let record = left.get(index)?;
            let Some(sealed) = record.sealed().filter(|sealed| sealed.kind == Kind::Note) else { continue };
            let mut links = Vec::new();
            let words = search.list(self, record, sealed.more, &mut links)?;
            let mut text: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            let is_sound = record.is_sound(0)
                && record.is_consistent()
                && record.origin().is_finite()
                && text.len() >= sealed.filled as usize;
            if !is_sound {
                return None;
            }
            text.truncate(sealed.filled as usize);
            search.keep(links.into_iter().chain([index]));
            notes.push(KeptNote {
                number: u32::try_from(record.vxid()).ok()?,
                time: record.origin(),
                is_completed: record.hits() > 0,
                text,
                note: Note(index),
            });
        }
        Some(notes)
    }

    /// Returns an object and the numbers of its links, if all of it is sound.
    fn read_object(
        self: &Arc<Self>,
        left: &Left<'_>,
        index: u32,
        search: &mut Search,
    ) -> Option<(KeptObject, Vec<u32>)> {
        let record = left.get(index)?;
        let sealed = record.sealed()?;
        let [ttl, grace, keep] = record.timers();
        let is_finite = record.origin().is_finite() && [ttl, grace, keep].into_iter().all(f32::is_finite);
        if !is_finite || !record.is_consistent() {
            return None;
        }
        let mut links = Vec::new();
        let (tags, spans) = match sealed.kind {
            Kind::Whole => (Vec::new(), self.whole(record, sealed, search)?),
            _ => {
                let list = search.list(self, record, sealed.more, &mut links)?;
                self.listed(record, sealed, Words(&list), search)?
            }
        };
        let stored = Stored::kept(spans, left.claim(index)?);
        Some((KeptObject { stored, key: record.key(), flags: sealed.flags, tags }, links))
    }

    /// Takes over an object in one span.
    fn whole(self: &Arc<Self>, record: &Record, sealed: Sealed, search: &mut Search) -> Option<Spans> {
        let span = Span::kept(self, sealed.place, sealed.filled)?;
        search.check_head(record, &span)?;
        if span.len() - body_from(&span) > BLOCK {
            return None;
        }
        span.distrust();
        Some(Spans::Whole(span))
    }

    /// Takes over an object with a list. Returns its tags and its spans.
    fn listed(
        self: &Arc<Self>,
        record: &Record,
        sealed: Sealed,
        mut words: Words<'_>,
        search: &mut Search,
    ) -> Option<(Vec<u64>, Spans)> {
        let (tags, pieces) = words.pair()?;
        let (has_extra, _) = words.pair()?;
        let extra = if has_extra & 1 != 0 { Some((words.next()?, words.pair()?)) } else { None };
        let tags = words.take(tags as usize)?.to_vec();
        if pieces == 0 && extra.is_none() {
            return Some((tags, self.whole(record, sealed, search)?));
        }
        let first = search.span(self, sealed.place, sealed.filled)?;
        search.check_head(record, &first)?;
        let extra = match extra {
            Some((place, (length, sum))) => {
                let span = Span::kept(self, Place::from_bits(place), length)?;
                search.pay(span.len())?;
                Some((check(span.bytes()) == sum).then_some(span)?)
            }
            None => None,
        };
        let pieces = words.pieces(self, pieces, search)?;
        Some((tags, Spans::Streamed(Body::kept(first, extra, pieces.into_iter()))))
    }
}

/// Returns the numbers of the sealed records of objects, by age.
fn in_order(left: &Left<'_>) -> Vec<u32> {
    let is_object = |sealed: &Sealed| matches!(sealed.kind, Kind::Whole | Kind::Listed);
    let mut found: Vec<(f64, u64, u32)> = (1..left.len())
        .filter_map(|index| {
            let record = left.get(index)?;
            record.sealed().filter(is_object)?;
            Some((record.origin(), record.vxid(), index))
        })
        .collect();
    found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    found.into_iter().map(|(.., index)| index).collect()
}

/// The progress of a search for objects.
#[derive(Debug)]
struct Search {
    /// Whether each record is in use again.
    used: Vec<bool>,
    /// Whether each link was read. A list that reads one again belongs to an attacker, who could repeat that.
    read: Vec<bool>,
    /// The number of bytes of heads that may still be read. Heads do not overlap, so their total is limited.
    bytes: u64,
    /// The spans of bodies in pieces, by place. Objects share them after a 304.
    spans: HashMap<u64, Weak<Span>>,
}

impl Search {
    fn new(left: &Left<'_>, bytes: u64) -> Self {
        let none = vec![false; left.len() as usize];
        Self { used: none.clone(), read: none, bytes, spans: HashMap::new() }
    }

    fn keep(&mut self, indices: impl Iterator<Item = u32>) {
        for index in indices {
            self.used[index as usize] = true;
        }
    }

    /// Reads the list of a record.
    fn list(&mut self, arena: &Arena, root: &Record, first: u32, links: &mut Vec<u32>) -> Option<Vec<u64>> {
        let read = &mut self.read;
        arena.records().read_list(first, root.identity(), links, &mut |index| {
            read.get_mut(index as usize).is_some_and(|read| !std::mem::replace(read, true))
        })
    }

    /// Returns `None` if the search has read more bytes than the arena contains.
    fn pay(&mut self, bytes: usize) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes as u64)?;
        Some(())
    }

    /// Compares the checksum of a head and of the fixed part of its record.
    fn check_head(&mut self, record: &Record, first: &Span) -> Option<()> {
        let from = checked_body_from(first)?;
        self.pay(from)?;
        let is_sound = record.is_sound(check(&first.bytes()[..from]));
        (is_sound && First::of(first).head.len() <= LONGEST_HEAD).then_some(())
    }

    /// Takes over a span of a body in pieces.
    fn span(&mut self, arena: &Arc<Arena>, place: Place, filled: u32) -> Option<Arc<Span>> {
        let known = self.spans.get(&place.at).and_then(Weak::upgrade);
        if let Some(span) = known {
            return (span.place() == Some(place) && span.len() == filled as usize).then_some(span);
        }
        let span = Arc::new(Span::kept(arena, place, filled)?);
        self.spans.insert(place.at, Arc::downgrade(&span));
        Some(span)
    }
}

/// The words of a list that are still to be read.
struct Words<'a>(&'a [u64]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<u64> {
        self.take(1).map(|words| words[0])
    }

    /// Returns the lower and the upper half of the next word.
    fn pair(&mut self) -> Option<(u32, u32)> {
        self.next().map(|word| (word as u32, (word >> 32) as u32))
    }

    fn take(&mut self, n: usize) -> Option<&'a [u64]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn pieces(
        &mut self,
        arena: &Arc<Arena>,
        n: u32,
        search: &mut Search,
    ) -> Option<Vec<(Arc<Span>, usize, Blocks)>> {
        let mut pieces = Vec::new();
        for _ in 0..n {
            let place = Place::from_bits(self.next()?);
            let (filled, skip) = self.pair()?;
            let span = search.span(arena, place, filled)?;
            let length = (filled as usize).checked_sub(skip as usize).filter(|&n| n > 0)?;
            let blocks = length.div_ceil(BLOCK);
            let halves =
                self.take(blocks.div_ceil(2))?.iter().flat_map(|&pair| [pair as u32, (pair >> 32) as u32]);
            pieces.push((span, skip as usize, Blocks::unverified(halves.take(blocks).collect())));
        }
        Some(pieces)
    }
}
