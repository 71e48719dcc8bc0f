//! Reads objects. Reads block the thread; [`crate::Running`] has threads for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::buffers::Buffer;
use crate::large::{Places, Stretch};
use crate::record::{
    BODY_DATA, CHECKSUM, FIXED, Fields, Form, Header, Key, blocks_of, fingerprint, read_body,
};
use crate::stats::{add, bump};
use crate::store::{Candidate, Store};

/// A record up to this length is read at once.
const WHOLE: u64 = 272 << 10;
/// The part of a longer record that is read first.
const BEGINNING: u64 = 128 << 10;

/// The beginning of an object, or all of it.
#[derive(Debug)]
pub struct Loaded {
    store: Arc<Store>,
    candidate: Candidate,
    header: Header,
    tags: Box<[u64]>,
    /// The parts of a large object.
    places: Option<Arc<Places>>,
    buffer: Buffer,
    from: usize,
}

/// The body of an object on a disk. Its segments are not reused while this exists.
#[derive(Clone, Debug)]
pub struct StoredBody {
    store: Arc<Store>,
    candidate: Candidate,
    body_at: u64,
    body: u64,
    places: Option<Arc<Places>>,
}

/// The reason why a part of a body has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The device does not return it.
    Unreadable,
    /// Its checksum is wrong.
    Damaged,
}

/// Returns the number of bytes that are read first of a record.
pub(crate) fn first_read(candidate: &Candidate) -> u64 {
    let len = candidate.entry.read_len();
    if len > WHOLE { BEGINNING } else { len }
}

impl Store {
    /// Reads a candidate. Returns `None` if it has another key, was purged by a tag, is damaged, or cannot be read. A
    /// purged or damaged one is removed.
    pub fn load(self: &Arc<Self>, candidate: &Candidate, key: &Key) -> Option<Loaded> {
        let (mut buffer, mut from) = self.read(candidate, first_read(candidate))?;
        let header = self.header(candidate, &buffer.bytes()[from..])?;
        if buffer.bytes().len() - from < header.body_at() as usize {
            (buffer, from) = self.read(candidate, header.body_at())?;
        }
        self.accept(candidate, key, header, (buffer, from))
    }

    /// Decodes the header of a candidate. Removes a damaged one.
    pub(crate) fn header(&self, candidate: &Candidate, bytes: &[u8]) -> Option<Header> {
        let header = Header::decode(&self.layout, candidate.log, bytes);
        if header.is_none() {
            self.drop_damaged(candidate);
        }
        header
    }

    /// Accepts a candidate that was read, if it has the key, its fields are sound, and it was not purged by a tag. Removes
    /// a purged or damaged one.
    pub(crate) fn accept(
        self: &Arc<Self>,
        candidate: &Candidate,
        key: &Key,
        header: Header,
        (buffer, from): (Buffer, usize),
    ) -> Option<Loaded> {
        let Some(fields) = header.fields(&self.layout, &buffer.bytes()[from..]) else {
            self.drop_damaged(candidate);
            return None;
        };
        debug_assert_eq!(
            fingerprint(&header.meta.key),
            candidate.entry.fingerprint,
            "its checksum is correct"
        );
        if header.meta.key != *key || header.form == Form::Part {
            return None;
        }
        let tags = self.tags_of(fields.head)?;
        if self.drop_purged_by_tag(candidate, &tags) {
            return None;
        }
        let places = match header.form {
            Form::Large => Some(Arc::new(self.places(candidate, &fields)?)),
            Form::Object | Form::Part => None,
        };
        Some(Loaded {
            store: Arc::clone(self),
            candidate: candidate.clone(),
            header,
            tags,
            places,
            buffer,
            from,
        })
    }

    fn read(&self, candidate: &Candidate, len: u64) -> Option<(Buffer, usize)> {
        self.count_read(len);
        self.buffers
            .read(&*self.blocks, candidate.entry.place(), len)
            .inspect_err(|_| self.read_failed(candidate))
            .ok()
    }

    pub(crate) fn count_read(&self, len: u64) {
        bump(&self.health.stats.reads);
        add(&self.health.stats.read_bytes, len);
    }

    /// Fills the window with the bytes of a body from an offset on, as far as they are in one record, whose body begins at
    /// `body_at` there. Returns their number.
    pub(crate) fn read_stretch(
        &self,
        stretch: Stretch,
        body_at: u64,
        from: u64,
        window: &mut [u8],
    ) -> Result<usize, Fault> {
        let Stretch { place, log, start, len: body } = stretch;
        let from = from - start;
        let to = body.min(from + window.len() as u64);
        let (offset, len) = blocks_of(body_at, body, from, to);
        self.count_read(len);
        let read = self.buffers.read(&*self.blocks, place + offset, len);
        let (buffer, at) = read.map_err(|_| Fault::Unreadable)?;
        let bytes = &buffer.bytes()[at..at + len as usize];
        let mut filled = 0;
        let copied = read_body(&self.layout, log, body, bytes, from, to, |piece| {
            window[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        });
        copied.map(|()| filled).ok_or(Fault::Damaged)
    }

    /// Handles a fault of a record that the index does not contain.
    pub(crate) fn note_fault(&self, fault: Fault, place: u64) {
        match fault {
            Fault::Unreadable => self.check_health(),
            Fault::Damaged => self.note_damaged(place),
        }
    }

    /// Removes an object that cannot be read. Takes the device out of use if too many reads have failed, which blocks the
    /// thread.
    pub(crate) fn read_failed(&self, candidate: &Candidate) {
        self.drop_unreadable(candidate);
        self.check_health();
    }
}

impl Loaded {
    /// Returns descriptor, head and extra data.
    pub fn fields(&self) -> Fields<'_> {
        let fields = self.header.verified_fields(&self.buffer.bytes()[self.from..]);
        fields.unwrap_or(Fields { descriptor: &[], head: &[], extra: &[], parts: &[] })
    }

    /// Returns the epochs of the parts of a large object.
    pub(crate) fn epochs(&self) -> Option<BTreeSet<u64>> {
        Some(self.places.as_ref()?.epochs(&self.store.layout))
    }

    /// Returns the hashes of its tags.
    pub fn tags(&self) -> &[u64] {
        &self.tags
    }

    pub fn body_len(&self) -> u64 {
        self.header.body
    }

    pub fn variant(&self) -> u32 {
        self.header.meta.variant
    }

    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Returns the newest ban that the object was tested against.
    pub fn ban(&self) -> u32 {
        self.store.tested_ban(self.header.meta.ban, self.candidate.is_old)
    }

    /// Returns the length of the beginning of the body that was read: whole blocks, or all of the body. 0 for a large
    /// object.
    pub fn present(&self) -> u64 {
        if self.places.is_some() {
            return 0;
        }
        let read = (self.buffer.bytes().len() - self.from) as u64;
        let blocks = read.saturating_sub(self.header.body_at()) / crate::record::BODY_BLOCK;
        let present = blocks * crate::record::BODY_DATA;
        if read >= self.header.len { self.header.body } else { present.min(self.header.body) }
    }

    /// Verifies the beginning of the body that was read and passes it to `take`. Returns false if it is damaged; the
    /// object is then removed from the store, and what was passed must not be used.
    pub fn read_present(&self, take: impl FnMut(&[u8])) -> bool {
        let bytes = &self.buffer.bytes()[self.from + self.header.body_at() as usize..];
        let (layout, header) = (&self.store.layout, &self.header);
        let read = read_body(layout, header.log, header.body, bytes, 0, self.present(), take);
        if read.is_none() {
            self.store.drop_damaged(&self.candidate);
        }
        read.is_some()
    }

    /// Allows the reuse of the segment, for an object that was read whole.
    pub fn release(&mut self) {
        self.candidate.pin = None;
    }

    /// Verifies the beginning of the body that was read. Removes the object from the store if it is damaged.
    pub fn is_sound(&self) -> bool {
        self.read_present(|_| {})
    }

    /// Returns bytes of the body from an offset on, up to the end of their block, or `None` if they were not read. The
    /// caller has verified them ([`is_sound`](Self::is_sound)).
    pub fn bytes_at(&self, from: u64) -> Option<&[u8]> {
        if from >= self.present() {
            return None;
        }
        let (at, len) = self.header.blocks_of(from, from + 1);
        let at = self.from + at as usize;
        let skipped = (from % BODY_DATA) as usize;
        self.buffer.bytes().get(at + skipped..at + (len - CHECKSUM) as usize)
    }

    /// Fills the window with the bytes from an offset on that were read. Returns their number, 0 after the last, or
    /// `None` if they are damaged; the object is then removed from the store.
    pub fn read_at(&self, from: u64, window: &mut [u8]) -> Option<usize> {
        let (layout, header) = (&self.store.layout, &self.header);
        let to = self.present().min(from + window.len() as u64);
        let (at, _) = header.blocks_of(from, to);
        let blocks = self.buffer.bytes().get(self.from + at as usize..).unwrap_or_default();
        let mut filled = 0;
        let read = read_body(layout, header.log, header.body, blocks, from, to, |piece| {
            window[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        });
        if read.is_none() {
            self.store.drop_damaged(&self.candidate);
        }
        read.map(|()| filled)
    }

    /// Returns the body, to read from it later.
    pub fn body(&self) -> StoredBody {
        StoredBody {
            store: Arc::clone(&self.store),
            candidate: self.candidate.clone(),
            body_at: self.header.body_at(),
            body: self.header.body,
            places: self.places.clone(),
        }
    }
}

impl StoredBody {
    /// Fills the window with the bytes of the body from an offset on, or its beginning if they are in several parts.
    /// Returns their number: 0 at the end. `None` if they are damaged or cannot be read; the window's contents must then
    /// not be used.
    pub fn read(&self, from: u64, window: &mut [u8]) -> Option<usize> {
        let store = &self.store;
        if from >= self.body || window.is_empty() {
            return Some(0);
        }
        let (stretch, body_at) = self.stretch(from)?;
        match store.read_stretch(stretch, body_at, from, window) {
            Ok(filled) => Some(filled),
            Err(Fault::Unreadable) => {
                store.read_failed(&self.candidate);
                None
            }
            Err(Fault::Damaged) => {
                store.drop_damaged(&self.candidate);
                None
            }
        }
    }

    /// Returns the record that contains a byte of the body, and the offset of the body there.
    fn stretch(&self, at: u64) -> Option<(Stretch, u64)> {
        let Candidate { entry, log, .. } = &self.candidate;
        match &self.places {
            None => {
                let whole = Stretch { place: entry.place(), log: *log, start: 0, len: self.body };
                Some((whole, self.body_at))
            }
            Some(places) => Some((self.store.stretch(places, self.body, at)?, FIXED as u64)),
        }
    }
}

const _: () = assert!(BEGINNING > FIXED as u64);
