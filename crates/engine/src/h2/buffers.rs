//! Buffers for frames, which connections share.

use std::cell::Cell;

/// Buffers that a reactor's connections share. A connection that waits has none.
#[derive(Default)]
pub struct Buffers {
    pub input: Cell<Vec<u8>>,
    pub output: Cell<Vec<u8>>,
}
