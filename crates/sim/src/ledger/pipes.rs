//! Pipes: connections whose bytes the engine forwards without parsing them.

use super::{Ledger, Pipe};
use crate::page;

/// The number of a pipe, which its client sends to the origin.
pub type PipeNumber = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the origin.
    Up,
    Down,
}

/// The first number of the bodies that are sent through pipes, above the numbers of all responses.
const FIRST_BODY: usize = 900_000_000;

impl Ledger {
    /// Records a pipe that a client opens. The lengths are those of the bytes that each side sends.
    pub fn pipe(&mut self, up: usize, down: usize) -> PipeNumber {
        self.pipes.push(Pipe { up, down, is_left: false });
        self.pipes.len() - 1
    }

    /// Records that one side leaves the pipe.
    pub fn leave_pipe(&mut self, number: PipeNumber) {
        self.pipes[number].is_left = true;
    }

    /// Returns the bytes that are sent through a pipe.
    pub fn piped(&self, number: PipeNumber, direction: Direction) -> Vec<u8> {
        let Pipe { up, down, .. } = self.pipes[number];
        match direction {
            Direction::Up => page::body(FIRST_BODY + 2 * number, up),
            Direction::Down => page::body(FIRST_BODY + 2 * number + 1, down),
        }
    }

    /// Checks the bytes that have arrived at one end of a pipe. `is_cut` means that they ended without the farewell of
    /// their transport.
    pub fn check_pipe(&mut self, number: PipeNumber, direction: Direction, bytes: &[u8], is_cut: bool) {
        self.note(format_args!("pipe {number}: {} bytes {direction:?}", bytes.len()));
        let all = self.piped(number, direction);
        let is_complete = bytes.len() == all.len() || self.pipes[number].is_left;
        if !all.starts_with(bytes) || !is_complete {
            self.fault(&format!(
                "pipe {number}, {direction:?}: {} bytes are not the {}",
                bytes.len(),
                all.len()
            ));
        }
        if is_cut && !self.pipes[number].is_left {
            self.fault(&format!("pipe {number}, {direction:?}: no farewell"));
        }
    }
}
