//! Answers on their way to a client. Writing never blocks the manager: the rest waits here until the client reads,
//! and a client that reads nothing for a while is given up.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A client that takes nothing for this long is dropped.
pub const READS_WITHIN: Duration = Duration::from_secs(10);
/// A pipe that polls as writable takes this much without blocking.
const PIPE_PIECE: usize = 4096;

/// The treatment of a descriptor that is shared with other processes, and so blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Writes return when there is no room.
    Never,
    /// Writes may block: ask before each, and write little.
    IfFull,
}

/// Bytes that are still to be written.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    written: usize,
    /// The time when it was last empty, or the client last took some bytes.
    progress: Instant,
}

impl Outbox {
    pub fn new(now: Instant) -> Outbox {
        Outbox { bytes: Vec::new(), written: 0, progress: now }
    }

    pub fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    pub fn push(&mut self, bytes: Vec<u8>, now: Instant) {
        if self.is_empty() {
            self.progress = now;
            self.bytes = bytes;
            self.written = 0;
        } else {
            self.bytes.extend_from_slice(&bytes);
        }
    }

    /// Returns when the client is given up, if it does not read until then.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_empty()).then(|| self.progress + READS_WITHIN)
    }

    /// Writes as much as there is room for.
    pub fn flush(&mut self, to: BorrowedFd<'_>, blocking: Blocking, now: Instant) -> io::Result<()> {
        while !self.is_empty() {
            let mut rest = &self.bytes[self.written..];
            if blocking == Blocking::IfFull {
                if !has_room(to) {
                    return Ok(());
                }
                rest = &rest[..rest.len().min(PIPE_PIECE)];
            }
            match rustix::io::write(to, rest) {
                Ok(length) => {
                    self.written += length;
                    self.progress = now;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.bytes = Vec::new();
        self.written = 0;
        Ok(())
    }
}

fn has_room(to: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_not_read_waits() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let now = Instant::now();
        let mut outbox = Outbox::new(now);
        assert_eq!(outbox.deadline(), None);
        outbox.push(vec![b'x'; 4 << 20], now);
        outbox.flush(ours.as_fd(), Blocking::Never, now).unwrap();
        assert!(!outbox.is_empty());
        assert_eq!(outbox.deadline(), Some(now + READS_WITHIN));
        let reader = std::thread::spawn(move || {
            let mut seen = vec![0; 4 << 20];
            theirs.read_exact(&mut seen).map(|()| seen)
        });
        while !outbox.is_empty() {
            outbox.flush(ours.as_fd(), Blocking::Never, now).unwrap();
            std::thread::yield_now();
        }
        assert!(reader.join().unwrap().unwrap().iter().all(|byte| *byte == b'x'));
    }

    #[test]
    fn a_full_pipe_does_not_block() {
        let (_read, write) = rustix::pipe::pipe().unwrap();
        let now = Instant::now();
        let mut outbox = Outbox::new(now);
        outbox.push(vec![b'x'; 1 << 20], now);
        outbox.flush(write.as_fd(), Blocking::IfFull, now).unwrap();
        assert!(!outbox.is_empty());
    }
}
