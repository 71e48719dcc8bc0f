//! An object whose body is being appended, and the move of that body to a disk.

use std::sync::Arc;

use lacquer_cache::disk::Spill;
use lacquer_cache::{BodyWriter, Object};

/// An object whose body is being appended. Dropping it ends the body as failed.
pub struct Draft {
    pub object: Arc<Object>,
    pub writer: BodyWriter,
    /// Other requests already use it.
    pub is_published: bool,
    pub moving: Moving,
}

/// The move of a body to a disk.
pub enum Moving {
    /// The body stays in memory.
    Never,
    /// It moves when it has this length.
    From(u64),
    Begun(Box<Spill>),
}

impl Moving {
    /// Decides for a new object; `from` is the length that the cache has returned for it.
    pub fn from(length: u64) -> Self {
        if length == u64::MAX { Self::Never } else { Self::From(length) }
    }

    /// Returns whether there is something to do for a body of this length.
    #[inline]
    pub fn is_due(&self, length: u64) -> bool {
        match self {
            Self::Never => false,
            Self::From(from) => length >= *from,
            Self::Begun(_) => true,
        }
    }
}

impl Draft {
    /// Passes the rest of the body to the disk, when it has ended. Returns whether the object can be stored.
    pub(super) fn finish_move(&mut self) -> bool {
        let Moving::Begun(spill) = &mut self.moving else { return true };
        spill.finish(self.writer.len());
        !spill.is_stopped()
    }
}
