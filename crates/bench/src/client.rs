//! One connection of the load generator: sends the requests of the plan, reads the responses and counts them.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes to read while waiting for a head: all of a small response, and only a little of a large body.
const HEAD_AND_MORE: usize = 4096;
/// The number of attempts to connect again, and the pause after each.
const CONNECT_TRIES: u32 = 5000;
const CONNECT_PAUSE: Duration = Duration::from_millis(1);

/// The request to send, the number of requests left, and the time at which sending stops.
pub struct Plan {
    path: String,
    header: String,
    next: u64,
    end: u64,
    until: Option<Instant>,
    /// If not 0, the numbers in paths are below it, in no order.
    among: u64,
    /// The percentage of the requests whose numbers are new: not below that.
    new: u64,
}

/// Returns a number below `limit` that follows from `n`.
fn scattered(n: u64, limit: u64) -> u64 {
    let mut mixed = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % limit
}

impl Plan {
    pub fn new(path: &str, header: &str, next: u64, end: u64, until: Option<Instant>) -> Self {
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        Self { path: path.to_owned(), header, next, end, until, among: 0, new: 0 }
    }

    /// Takes the numbers in paths from those below `limit`, in no order. 0 is no limit.
    pub fn among(mut self, limit: u64) -> Self {
        self.among = limit;
        self
    }

    /// Takes new numbers for this percentage of the requests.
    pub fn with_new(mut self, percentage: u64) -> Self {
        self.new = percentage;
        self
    }

    pub fn left(&self) -> usize {
        (self.end - self.next) as usize
    }

    /// Returns the next request, and whether its number is new.
    fn request(&mut self, now: Instant) -> Option<(String, bool)> {
        if self.next == self.end || self.until.is_some_and(|until| now >= until) {
            return None;
        }
        let is_new = scattered(!self.next, 100) < self.new;
        let number = match self.among {
            0 => self.next,
            among if is_new => among.saturating_add(self.next),
            among => scattered(self.next, among),
        };
        let path = self.path.replace("{}", &number.to_string());
        self.next += 1;
        // Without new numbers, all are alike.
        let is_known = self.new > 0 && !is_new;
        Some((format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{}\r\n", self.header), is_known))
    }
}

#[derive(Default)]
pub struct Tally {
    pub micros: Vec<u32>,
    /// Those of the requests whose numbers are not new.
    pub known_micros: Vec<u32>,
    /// The delays of requests that were due at a fixed time.
    pub late_micros: Vec<u32>,
    pub bytes: u64,
    pub errors: u64,
    /// The connections that could not be opened.
    pub refused: u64,
    pub took: Duration,
}

pub struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    body_left: u64,
    in_body: bool,
    /// The server closes the connection after the response.
    is_last: bool,
    since: Instant,
    is_known: bool,
}

impl Client {
    /// Connects and registers the connection with epoll. Its events carry the number of its slot.
    pub fn connect(epoll: &OwnedFd, address: SocketAddr, slot: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(epoll, &stream, EventData::new_u64(slot as u64), EventFlags::IN)?;
        Ok(Self {
            stream,
            head: Vec::new(),
            body_left: 0,
            in_body: false,
            is_last: false,
            since: Instant::now(),
            is_known: false,
        })
    }

    /// Connects like [`Self::connect`], and tries again for some seconds if that fails.
    pub fn connect_again(
        epoll: &OwnedFd,
        address: SocketAddr,
        slot: usize,
        tally: &mut Tally,
    ) -> io::Result<Self> {
        for _ in 0..CONNECT_TRIES {
            match Self::connect(epoll, address, slot) {
                Ok(client) => return Ok(client),
                Err(_) => tally.refused += 1,
            }
            std::thread::sleep(CONNECT_PAUSE);
        }
        Self::connect(epoll, address, slot)
    }

    /// Returns whether the server closes the connection after the response that was received.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Sends the next request, whose latency counts from `since`. Returns false if none is left. Requests are
    /// far smaller than a socket buffer, so a write that would block is an error.
    pub fn send(&mut self, plan: &mut Plan, since: Instant) -> io::Result<bool> {
        let Some((request, is_known)) = plan.request(since) else { return Ok(false) };
        (self.in_body, self.since, self.is_known) = (false, since, is_known);
        self.head.clear();
        self.stream.write_all(request.as_bytes())?;
        Ok(true)
    }

    /// Reads the available bytes. Returns true if the response is complete.
    pub fn receive(&mut self, tally: &mut Tally, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            let (room, how) = if self.in_body {
                (buffer.len(), RecvFlags::TRUNC)
            } else {
                (HEAD_AND_MORE, RecvFlags::empty())
            };
            let got = match recv(&self.stream, &mut buffer[..room], how) {
                Ok((_, 0)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((_, got)) => got,
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            tally.bytes += got as u64;
            let complete =
                if self.in_body { self.count_body(got as u64) } else { self.parse_head(&buffer[..got])? };
            if complete {
                let micros = self.since.elapsed().as_micros() as u32;
                tally.micros.push(micros);
                if self.is_known {
                    tally.known_micros.push(micros);
                }
                return Ok(true);
            }
        }
    }

    /// Sends further requests while responses arrive. Returns false when the plan has no request left.
    pub fn drive(&mut self, plan: &mut Plan, tally: &mut Tally, buffer: &mut [u8]) -> io::Result<bool> {
        while self.receive(tally, buffer)? {
            if !self.send(plan, Instant::now())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts received bytes of the body. Returns true if it is complete.
    fn count_body(&mut self, bytes: u64) -> bool {
        self.body_left = self.body_left.saturating_sub(bytes);
        self.body_left == 0
    }

    /// Adds bytes of a head, which may include the start of the body. Returns true if the response is complete.
    fn parse_head(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(false) };
        let head = String::from_utf8_lossy(&self.head[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<u64>().ok());
        let length = length.ok_or_else(|| io::Error::other("a response without Content-Length"))?;
        self.is_last = head.lines().any(|line| line == "connection: close");
        if !head.starts_with("http/1.1 200") {
            return Err(io::Error::other(head.lines().next().unwrap_or_default().to_owned()));
        }
        self.in_body = true;
        self.body_left = length;
        Ok(self.count_body((self.head.len() - end - 4) as u64))
    }
}
