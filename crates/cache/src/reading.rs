//! Reading the body of an object, and letting go of one that has a single reader.

use lacquer_storage::{BodyState, Chunk};

use crate::object::Object;

impl Object {
    /// Returns whether the body is longer than `offset` or has ended.
    pub fn has_more_than(&self, offset: u64) -> bool {
        self.body_len() > offset || self.state() != BodyState::Fetching
    }

    /// Returns the stored bytes at `from`, as far as they are in one piece and before `to`.
    pub fn chunk_before(&self, from: u64, to: u64) -> Option<Chunk<'_>> {
        let most = to.checked_sub(from)?;
        let mut chunk = self.chunk_at(from)?;
        chunk.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Returns a copy of the whole body.
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
