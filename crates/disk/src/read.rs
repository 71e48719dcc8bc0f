//! Reads objects. Reads block the thread; [`crate::Running`] has threads for them.

use std::sync::Arc;

use crate::blocks::{Aligned, read_around};
use crate::record::{FIXED, Fields, Header, Key, blocks_of, fingerprint, read_body};
use crate::stats::{add, bump};
use crate::store::{Candidate, Store};

/// A record up to this length is read at once.
const WHOLE: u64 = 144 << 10;
/// The part of a longer record that is read first.
const BEGINNING: u64 = 128 << 10;

/// The beginning of an object, or all of it.
#[derive(Debug)]
pub struct Loaded {
    store: Arc<Store>,
    candidate: Candidate,
    header: Header,
    tags: Box<[u64]>,
    buffer: Aligned,
    from: usize,
}

/// The body of an object on a disk. Its segment is not reused while this exists.
#[derive(Clone, Debug)]
pub struct StoredBody {
    store: Arc<Store>,
    candidate: Candidate,
    body_at: u64,
    body: u64,
}

impl Store {
    /// Reads a candidate. Returns `None` if it has another key, was purged by a tag, is damaged, or cannot be read. A
    /// purged or damaged one is removed.
    pub fn load(self: &Arc<Self>, candidate: &Candidate, key: &Key) -> Option<Loaded> {
        let mut len = candidate.entry.read_len();
        if len > WHOLE {
            len = BEGINNING;
        }
        let (mut buffer, mut from) = self.read(candidate, len)?;
        let Some(header) = Header::decode(&self.layout, candidate.log, &buffer.bytes()[from..]) else {
            self.drop_damaged(candidate);
            return None;
        };
        if buffer.bytes().len() - from < header.body_at() as usize {
            (buffer, from) = self.read(candidate, header.body_at())?;
        }
        let Some(fields) = header.fields(&self.layout, &buffer.bytes()[from..]) else {
            self.drop_damaged(candidate);
            return None;
        };
        debug_assert_eq!(
            fingerprint(&header.meta.key),
            candidate.entry.fingerprint,
            "its checksum is correct"
        );
        if header.meta.key != *key {
            return None;
        }
        let tags = self.tags_of(fields.head)?;
        if self.drop_purged_by_tag(candidate, &tags) {
            return None;
        }
        Some(Loaded { store: Arc::clone(self), candidate: candidate.clone(), header, tags, buffer, from })
    }

    fn read(&self, candidate: &Candidate, len: u64) -> Option<(Aligned, usize)> {
        bump(&self.health.stats.reads);
        add(&self.health.stats.read_bytes, len);
        read_around(&*self.blocks, candidate.entry.place(), len)
            .inspect_err(|_| {
                self.drop_unreadable(candidate);
                self.check_health();
            })
            .ok()
    }
}

impl Loaded {
    /// Returns descriptor, head and extra data.
    pub fn fields(&self) -> Fields<'_> {
        let fields = self.header.fields(&self.store.layout, &self.buffer.bytes()[self.from..]);
        fields.unwrap_or(Fields { descriptor: &[], head: &[], extra: &[] })
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

    /// Returns the length of the beginning of the body that was read: whole blocks, or all of the body.
    pub fn present(&self) -> u64 {
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
        }
    }
}

impl StoredBody {
    /// Fills the window with the bytes of the body from an offset on. Returns their number: 0 at the end. `None` if
    /// they are damaged or cannot be read; the window's contents must then not be used.
    pub fn read(&self, from: u64, window: &mut [u8]) -> Option<usize> {
        let store = &self.store;
        let to = self.body.min(from + window.len() as u64);
        if from >= to {
            return Some(0);
        }
        let (offset, len) = blocks_of(self.body_at, self.body, from, to);
        bump(&store.health.stats.reads);
        add(&store.health.stats.read_bytes, len);
        let place = self.candidate.entry.place() + offset;
        let Ok((buffer, at)) = read_around(&*store.blocks, place, len) else {
            store.drop_unreadable(&self.candidate);
            store.check_health();
            return None;
        };
        let bytes = &buffer.bytes()[at..at + len as usize];
        let mut filled = 0;
        let copied = read_body(&store.layout, self.candidate.log, self.body, bytes, from, to, |piece| {
            window[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        });
        if copied.is_none() {
            store.drop_damaged(&self.candidate);
            return None;
        }
        Some(filled)
    }
}

const _: () = assert!(BEGINNING > FIXED as u64);
