//! Frame buffers, shared by the connections of a reactor.

use std::cell::Cell;

/// Frame buffers, shared by the connections of a reactor. A connection that waits holds none.
#[derive(Default)]
pub struct Buffers {
    input: Cell<Vec<u8>>,
    output: Cell<Vec<u8>>,
}

impl Buffers {
    /// Returns the place of the buffer for received frames.
    pub fn input(&self) -> &Cell<Vec<u8>> {
        &self.input
    }

    /// Returns the place of the buffer for frames that wait to be sent.
    pub fn output(&self) -> &Cell<Vec<u8>> {
        &self.output
    }
}
