//! Frame buffers, shared by the connections of a reactor.

use std::cell::Cell;

/// Frame buffers, shared by the connections of a reactor. A connection that waits holds none.
#[derive(Default)]
pub struct Buffers {
    pub input: Cell<Vec<u8>>,
    pub output: Cell<Vec<u8>>,
}
