//! Reads the body of an object, and frees the body of an object with a single reader.

use lacquer_storage::{BodyState, Chunk, Read};

use crate::object::Object;

impl Object {
    /// Returns the contiguous bytes from `from` on, before `to`. If the bytes are not in memory yet, returns
    /// `Pending`: the caller waits with [`more`](Self::more) and reads again.
    #[inline]
    pub fn read(&self, from: u64, to: u64) -> Read<'_> {
        self.stored().read(from, to)
    }

    /// Returns whether the byte at `offset` is in memory or will never be, so that a read need not wait.
    #[inline]
    pub fn is_ready(&self, offset: u64) -> bool {
        self.stored().is_ready(offset)
    }

    /// Returns the contiguous bytes in memory from `from` on, before `to`.
    pub fn chunk_before(&self, from: u64, to: u64) -> Option<Chunk<'_>> {
        let most = to.checked_sub(from)?;
        let mut chunk = self.chunk_at(from)?;
        chunk.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Returns a copy of the whole body of an object with a single reader: such a body stays in memory.
    pub fn copy_body(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk_at(all.len() as u64).filter(|chunk| !chunk.is_empty()) {
            all.extend_from_slice(chunk.bytes());
        }
        all
    }

    /// Reports the progress of delivery, if the object has a single reader. This frees the delivered part and wakes a
    /// fetch that waits for space. Must also be called before waiting for the bytes at `offset`: otherwise a fetch
    /// that waits for space never brings them.
    pub fn delivered(&self, offset: u64) {
        if self.has_one_reader() {
            self.stored().delivered(offset, true);
        }
    }

    /// Frees the body of an object with a single reader, which does not need it anymore.
    pub fn let_go(&self) {
        if !self.has_one_reader() {
            return;
        }
        self.cancel();
        if self.state() == BodyState::Fetching {
            // The fetch may be waiting until delivery frees what it has stored.
            self.stored().delivered(u64::MAX, false);
        } else {
            self.stored().drop_body();
        }
    }
}
