//! Memory for frames, which passes from one connection to the next.

use std::cell::Cell;

/// Buffers that a reactor's connections lend each other: who waits has none.
#[derive(Default)]
pub struct Buffers {
    pub input: Cell<Vec<u8>>,
    pub output: Cell<Vec<u8>>,
}
