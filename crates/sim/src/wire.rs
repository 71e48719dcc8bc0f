//! The world's ends of connections: slow reads and writes in small pieces, as the seed decides.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use lacquer_net::memory::{Ends, Limits, Peer};
use lacquer_sources::random::Random;
use tokio::time::sleep;

/// The limit for a response: none takes longer, whatever the origins do.
pub const MAX_WAIT: Duration = Duration::from_mins(10);

/// The world's random numbers, which all its parts share.
pub type Chance = Rc<RefCell<Random>>;

/// Returns a number below `end`.
pub fn below(chance: &Chance, end: u64) -> u64 {
    chance.borrow_mut().below(end)
}

pub fn percent(chance: &Chance, percent: u64) -> bool {
    chance.borrow_mut().percent(percent)
}

/// Chooses one of several.
pub fn one_of<T: Copy>(chance: &Chance, several: &[T]) -> T {
    several[below(chance, several.len() as u64) as usize]
}

/// Waits for less than `end` milliseconds.
pub async fn pause(chance: &Chance, end: u64) {
    sleep(Duration::from_micros(below(chance, end * 1000))).await;
}

/// Returns the buffer sizes of a connection: mostly usual ones, some tiny.
pub fn limits(chance: &Chance) -> Limits {
    let window = one_of(chance, &[1 << 16, 1 << 16, 1 << 18, 4096, 700]);
    let step = one_of(chance, &[usize::MAX, usize::MAX, 16_384, 1000, 61]);
    // Most transports have no write buffer, as TCP.
    let buffer = one_of(chance, &[0, 0, 0, 16_384, 900]);
    Limits { window, step, buffer, sends_files: percent(chance, 50) }
}

/// Returns the addresses of a connection from one of a few peers.
pub fn ends(chance: &Chance) -> Ends {
    let peer = SocketAddr::from(([10, 0, 0, below(chance, 20) as u8], 1024 + below(chance, 60_000) as u16));
    Ends { engine: SocketAddr::from(([10, 0, 1, 1], 80)), peer }
}

/// Runs two futures to completion.
pub async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            of_b = Some(output);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Writes in pieces with pauses between them.
pub async fn write(peer: &Peer, bytes: &[u8], chance: &Chance) -> io::Result<()> {
    if percent(chance, 60) {
        return peer.write_all(bytes).await;
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        let longest = one_of(chance, &[7, 500, 9000, 100_000]);
        let (piece, behind) = rest.split_at(rest.len().min(1 + below(chance, longest) as usize));
        peer.write_all(piece).await?;
        rest = behind;
        if !rest.is_empty() {
            let longest = one_of(chance, &[0, 1, 20]);
            pause(chance, longest).await;
        }
    }
    Ok(())
}

/// Appends a body in chunks of all sizes.
pub fn chunks(body: &[u8], to: &mut Vec<u8>, chance: &Chance) {
    let mut rest = body;
    while !rest.is_empty() {
        let longest = one_of(chance, &[5, 1000, 100_000]);
        let (chunk, behind) = rest.split_at(rest.len().min(1 + below(chance, longest) as usize));
        to.extend(format!("{:x}\r\n", chunk.len()).bytes());
        to.extend(chunk);
        to.extend(b"\r\n");
        rest = behind;
    }
    to.extend(b"0\r\n\r\n");
}

/// Bytes that were read and not used yet.
#[derive(Default)]
pub struct Incoming {
    pub bytes: Vec<u8>,
    /// The maximum pause between two reads of a slow reader, in milliseconds.
    pub slowness: u64,
}

impl Incoming {
    /// Reads more bytes. Returns false at the end.
    pub async fn more(&mut self, peer: &Peer, chance: &Chance) -> io::Result<bool> {
        if self.slowness > 0 {
            pause(chance, self.slowness).await;
        }
        let mut buf = [0; 4096];
        let n = peer.read(&mut buf).await?;
        self.bytes.extend(&buf[..n]);
        Ok(n > 0)
    }

    /// Removes and returns `n` bytes. Panics if there are fewer.
    pub fn take(&mut self, n: usize) -> Vec<u8> {
        self.bytes.drain(..n).collect()
    }
}
