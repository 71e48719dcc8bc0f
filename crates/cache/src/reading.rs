//! Reading the body of an object, and letting go of one that has a single reader.

use lacquer_storage::{BodyState, Chunk, Read};

use crate::object::Object;

impl Object {
    /// Returns the bytes from `from` on, as far as they are in one piece and before `to`. Bytes that are not in memory
    /// yet are `Pending`: wait with [`more`](Self::more), and read again.
    #[inline]
    pub fn read(&self, from: u64, to: u64) -> Read<'_> {
        self.stored().read(from, to)
    }

    /// Returns whether the byte at `offset` is in memory or will never be, so that nobody has to wait before reading it.
    #[inline]
    pub fn is_ready(&self, offset: u64) -> bool {
        self.stored().is_ready(offset)
    }

    /// Returns the bytes in memory at `from`, as far as they are in one piece and before `to`.
    pub fn chunk_before(&self, from: u64, to: u64) -> Option<Chunk<'_>> {
        let most = to.checked_sub(from)?;
        let mut chunk = self.chunk_at(from)?;
        chunk.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Returns a copy of the whole body, of an object that only its request reads: such a body stays in memory.
    pub fn copy_body(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk_at(all.len() as u64).filter(|chunk| !chunk.is_empty()) {
            all.extend_from_slice(chunk.bytes());
        }
        all
    }

    /// Reports how far delivery has come, if the object has one reader. That lets go of what was delivered, and lets a
    /// fetch go on that waits for it. To be called before waiting for the bytes at `offset`, too: a fetch that waits
    /// for those before would never bring them.
    pub fn delivered(&self, offset: u64) {
        if self.has_one_reader() {
            self.stored().delivered(offset, true);
        }
    }

    /// The only reader of an object that others do not read is done: its body is not needed any more.
    pub fn let_go(&self) {
        if !self.has_one_reader() {
            return;
        }
        self.cancel();
        if self.state() == BodyState::Fetching {
            // The fetch may be waiting for us to take what it has.
            self.stored().delivered(u64::MAX, false);
        } else {
            self.stored().slim();
        }
    }
}
