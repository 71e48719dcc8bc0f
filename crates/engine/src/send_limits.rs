//! The time limits for a client to receive its response.

use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::time::Duration;

use lacquer_net::ClientSocket;
use lacquer_net::disconnect::DisconnectPolicy;
use lacquer_sources::clock::{self, Instant};

#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// The seconds for the whole response; 0 means no limit.
    pub total: f64,
    /// The time of the request's last event. For a stream, `total` counts from then; for a connection, from the first
    /// wait.
    pub since: f64,
    /// The seconds for which the client may take no byte.
    pub idle: f64,
    /// The policy for detecting that a client is gone while its response waits for more of the body.
    pub disconnect: DisconnectPolicy,
}

/// The least time between two looks at the send buffer of a socket that is full.
const LOOK: Duration = Duration::from_millis(250);
/// The number of looks until a limit.
const LOOKS: u32 = 8;

/// The send buffer of a full socket. The system reports room only once a third of the buffer is free, which takes longer
/// than a limit if the client is slow. Meanwhile, fewer bytes in the buffer show that the client takes some.
#[derive(Default)]
struct SendBuffer {
    queued: Option<usize>,
}

impl SendBuffer {
    /// Returns whether the client has taken bytes since the last call.
    fn has_drained(&mut self, socket: BorrowedFd<'_>) -> bool {
        let now = lacquer_system::queued(socket);
        let before = std::mem::replace(&mut self.queued, now);
        matches!((before, now), (Some(before), Some(now)) if now < before)
    }
}

/// Waits for progress of a client. `longest_wait` returns the time until which it may take from then on, and the parameter
/// that limits it, which is the error. Bytes that the client takes from the full send buffer of its socket are progress, too.
pub async fn in_time<T>(
    tx: &ClientSocket,
    progress: impl Future<Output = T>,
    mut longest_wait: impl FnMut() -> (Instant, &'static str),
) -> Result<T, &'static str> {
    let mut progress = pin!(progress);
    let (mut until, mut limit) = longest_wait();
    let mut buffer = SendBuffer::default();
    let look = (until.saturating_duration_since(Instant::now()) / LOOKS).max(LOOK);
    loop {
        let step = until.min(Instant::now() + look);
        if let Ok(done) = tokio::time::timeout_at(step, progress.as_mut()).await {
            return Ok(done);
        }
        if buffer.has_drained(tx.as_fd()) {
            (until, limit) = longest_wait();
        }
        if Instant::now() >= until {
            return Err(limit);
        }
    }
}

/// The time limits of a response on a stream.
#[derive(Clone, Copy)]
pub struct StreamLimits {
    /// The seconds for which the client may take no byte.
    idle: f64,
    /// The seconds for the whole response; 0 means no limit.
    total: f64,
    /// The time by which the whole response must be sent.
    by: Option<Instant>,
}

impl StreamLimits {
    pub fn new(limits: SendLimits) -> StreamLimits {
        let left = |total: f64| clock::seconds((limits.since + total - clock::real()).max(0.0));
        let by = (limits.total > 0.0).then(|| Instant::now() + left(limits.total));
        StreamLimits { idle: limits.idle, total: limits.total, by }
    }

    /// Returns the limits of a write that begins now. It may have frames of other responses, so it has as much time as a
    /// whole response, whatever is left to this one.
    #[must_use]
    pub fn of_write(self) -> StreamLimits {
        let by = (self.total > 0.0).then(|| Instant::now() + clock::seconds(self.total));
        StreamLimits { by, ..self }
    }

    /// Returns the time by which the whole response must be sent.
    pub fn by(self) -> Option<Instant> {
        self.by
    }

    /// Returns the time until which a response may wait from now on, and the parameter that limits it.
    pub fn longest_wait(self) -> (Instant, &'static str) {
        let idle = Instant::now() + clock::seconds(clock::limit(self.idle));
        match self.by {
            Some(by) if by < idle => (by, "send_timeout"),
            _ => (idle, "idle_send_timeout"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_client_that_reads_drains_the_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (mut server, _) = listener.accept().expect("the client has connected");
        server.set_nonblocking(true).expect("sockets can be non-blocking");
        while server.write(&[0; 16_000]).is_ok() {}
        let mut buffer = SendBuffer::default();
        assert!(!buffer.has_drained(server.as_fd()), "the first look has nothing to compare with");
        client.set_read_timeout(Some(Duration::from_secs(5))).expect("sockets have timeouts");
        let mut read = 0;
        // The kernel tells the other side of room once there is enough of it.
        while !buffer.has_drained(server.as_fd()) {
            read += client.read(&mut [0; 16_000]).expect("there are bytes");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(read > 0);
        let idle = std::fs::File::open("/dev/null").expect("it can be opened");
        let mut nothing = SendBuffer::default();
        assert!(!nothing.has_drained(idle.as_fd()) && !nothing.has_drained(idle.as_fd()));
    }
}
