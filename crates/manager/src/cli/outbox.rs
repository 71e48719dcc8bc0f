//! The queue of replies to a client. Writing never blocks the manager: unsent bytes stay in the queue until the client
//! reads, and a client that reads nothing for [`READS_WITHIN`] is closed.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A client that reads nothing for this long is closed.
pub const READS_WITHIN: Duration = Duration::from_secs(10);
/// Bytes that a pipe accepts without blocking when it polls as writable.
const PIPE_PIECE: usize = 4096;

/// Whether a write to the descriptor may block, as it may if other processes share the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Writes return when the buffer is full.
    Never,
    /// Writes may block: poll before each one and write little.
    IfFull,
}

/// Bytes that are still to be written.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    written: usize,
    /// The time when the queue was last empty or the client last read some bytes.
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

    /// Returns the time when the client is closed unless it reads before.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_empty()).then(|| self.progress + READS_WITHIN)
    }

    /// Writes as much as the descriptor accepts.
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
    fn unread_bytes_stay_queued() {
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
