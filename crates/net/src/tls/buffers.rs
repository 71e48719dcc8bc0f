//! Buffers for records. A connection has one only while it holds bytes, so an idle connection costs no buffer, and each
//! thread keeps a few for the next connection, so a response allocates none.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::keys::{MAX_PLAIN, OVERHEAD};

/// The size of a buffer: four full records.
pub const SIZE: usize = 4 * (MAX_PLAIN + OVERHEAD);
/// The number of unused buffers that a thread keeps.
const KEPT: usize = 4;

thread_local! {
    static UNUSED: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`SIZE`] bytes, or a smaller one that holds what a waiting connection has received.
pub struct Buffer(Box<[u8]>);

impl Buffer {
    pub fn new() -> Buffer {
        let unused = UNUSED.with_borrow_mut(Vec::pop);
        Buffer(unused.unwrap_or_else(|| vec![0; SIZE].into()))
    }

    /// Returns a buffer that holds these bytes and no more.
    pub fn holding(bytes: &[u8]) -> Buffer {
        Buffer(bytes.into())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.len() == SIZE {
            let bytes = std::mem::take(&mut self.0);
            // A thread that is ending keeps none.
            let _ = UNUSED.try_with(|unused| {
                let mut unused = unused.borrow_mut();
                if unused.len() < KEPT {
                    unused.push(bytes);
                }
            });
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
