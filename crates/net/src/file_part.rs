//! A part of a file that a transport sends without a copy in the memory of this process.

use std::io;
use std::os::fd::BorrowedFd;

pub trait FilePart {
    /// Returns the number of bytes left to send.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends as many bytes as a socket accepts with a system call, and removes them from the part. Returns their
    /// number.
    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize>;

    /// Reads bytes for a transport that has no socket, and removes them from the part. Returns their number.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;
}
