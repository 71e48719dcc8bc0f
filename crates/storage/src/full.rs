//! The error of a store without room.

use std::fmt;

/// There is no room: an object must be evicted first, or the request is too large for the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("storage is full")
    }
}

impl std::error::Error for Full {}
