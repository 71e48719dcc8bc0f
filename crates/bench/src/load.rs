//! A counted number of requests, or as many as some seconds allow, over a number of kept connections, each
//! sending its next request when the last is answered, or at a given rate ([`paced`]). `{}` in the path becomes
//! a running number, so every request can be for another object. The latency of each request is kept, so the
//! whole distribution can be told. Bodies are thrown away by the kernel, uncopied: so a server that sends large
//! ones has its core full before the load has.

use crate::options::Options;
use crate::paced;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How much is read while a head is waited for: all of a small answer, and little of a large one's body.
const HEAD_AND_MORE: usize = 4096;

/// What to ask for, how many are left, and for how long.
pub struct Plan {
    path: String,
    header: String,
    next: u64,
    end: u64,
    until: Option<Instant>,
}

impl Plan {
    pub fn left(&self) -> usize {
        (self.end - self.next) as usize
    }

    fn request(&mut self, now: Instant) -> Option<String> {
        if self.next == self.end || self.until.is_some_and(|until| now >= until) {
            return None;
        }
        let path = self.path.replace("{}", &self.next.to_string());
        self.next += 1;
        Some(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{}\r\n", self.header))
    }
}

#[derive(Default)]
pub struct Tally {
    micros: Vec<u32>,
    /// How late requests were sent that were due at a moment.
    pub late_micros: Vec<u32>,
    bytes: u64,
    pub errors: u64,
    pub took: Duration,
}

pub struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    body_left: u64,
    in_body: bool,
    since: Instant,
}

impl Client {
    /// Connects; events of the connection carry the number of its slot.
    pub fn enlist(epoll: &OwnedFd, address: SocketAddr, slot: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(epoll, &stream, EventData::new_u64(slot as u64), EventFlags::IN)?;
        Ok(Self { stream, head: Vec::new(), body_left: 0, in_body: false, since: Instant::now() })
    }

    /// Sends the next request, whose latency counts from `since`; false when there is none left. Requests
    /// are far smaller than a socket buffer, so a write that would block is an error here.
    pub fn ask(&mut self, plan: &mut Plan, since: Instant) -> io::Result<bool> {
        let Some(request) = plan.request(since) else { return Ok(false) };
        (self.in_body, self.since) = (false, since);
        self.head.clear();
        self.stream.write_all(request.as_bytes())?;
        Ok(true)
    }

    /// Reads what there is; true when the response is complete.
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
            let complete = if self.in_body { self.pass_over(got as u64) } else { self.take(&buffer[..got])? };
            if complete {
                tally.micros.push(self.since.elapsed().as_micros() as u32);
                return Ok(true);
            }
        }
    }

    /// Asks again as long as there are answers; true while this client still has something to do.
    fn drive(&mut self, plan: &mut Plan, tally: &mut Tally, buffer: &mut [u8]) -> io::Result<bool> {
        while self.receive(tally, buffer)? {
            if !self.ask(plan, Instant::now())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// So much of the body came; true when it is complete.
    fn pass_over(&mut self, bytes: u64) -> bool {
        self.body_left = self.body_left.saturating_sub(bytes);
        self.body_left == 0
    }

    /// Takes bytes of a head, with the body's beginning; true when the response is complete.
    fn take(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(false) };
        let head = String::from_utf8_lossy(&self.head[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<u64>().ok());
        let length = length.ok_or_else(|| io::Error::other("a response without Content-Length"))?;
        if !head.starts_with("http/1.1 200") {
            return Err(io::Error::other(head.lines().next().unwrap_or_default().to_owned()));
        }
        self.in_body = true;
        self.body_left = length;
        Ok(self.pass_over((self.head.len() - end - 4) as u64))
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let address = options.address("connect")?;
    let first: u64 = options.number("first", 0)?;
    let seconds: f64 = options.number("seconds", 0.0)?;
    let count: u64 = options.number("count", if seconds > 0.0 { u64::MAX - first } else { 1000 })?;
    let rate: f64 = options.number("rate", 0.0)?;
    if seconds > 0.0 && rate > 0.0 {
        return Err("--rate goes with --count, not with --seconds".into());
    }
    let connections: usize = options.number("connections", 1)?;
    let header = options.text("header", "");
    let mut plan = Plan {
        path: options.text("path", "/").to_owned(),
        header: if header.is_empty() { String::new() } else { format!("{header}\r\n") },
        next: first,
        // At a rate each connection begins with a request that is not counted.
        end: first + count + if rate > 0.0 { connections as u64 } else { 0 },
        until: (seconds > 0.0).then(|| Instant::now() + Duration::from_secs_f64(seconds)),
    };
    let tally = if rate > 0.0 {
        paced::drive_all(address, connections, &mut plan, rate)
    } else {
        drive_all(address, connections, &mut plan)
    };
    let tally = tally.map_err(|error| format!("{address}: {error}"))?;
    println!("{}", report(tally));
    Ok(())
}

fn drive_all(address: SocketAddr, connections: usize, plan: &mut Plan) -> io::Result<Tally> {
    let started = Instant::now();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut tally = Tally::default();
    for slot in 0..connections {
        let mut client = Client::enlist(&epoll, address, slot)?;
        if !client.ask(plan, Instant::now())? {
            break;
        }
        clients.push(Some(client));
    }
    let mut busy = clients.len();
    let mut buffer = vec![0; 256 * 1024];
    let mut events = Vec::with_capacity(256);
    while busy > 0 {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let slot = event.data.u64() as usize;
            let Some(client) = clients[slot].as_mut() else { continue };
            let goes_on = client.drive(plan, &mut tally, &mut buffer);
            if !matches!(goes_on, Ok(true)) {
                tally.errors += u64::from(goes_on.is_err());
                clients[slot] = None;
                busy -= 1;
            }
        }
    }
    tally.took = started.elapsed();
    Ok(tally)
}

fn report(tally: Tally) -> String {
    format!(
        "{{\"requests\": {}, \"errors\": {}, \"bytes\": {}, \"seconds\": {:.6}, \"latency_us\": {}, \"late_us\": {}}}",
        tally.micros.len(),
        tally.errors,
        tally.bytes,
        tally.took.as_secs_f64(),
        distribution(tally.micros),
        distribution(tally.late_micros)
    )
}

fn distribution(mut micros: Vec<u32>) -> String {
    micros.sort_unstable();
    let mut text = String::from("{");
    for (name, share) in [
        ("p1", 0.01),
        ("p10", 0.1),
        ("p50", 0.5),
        ("p75", 0.75),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
    ] {
        let at = ((micros.len() as f64 * share) as usize).min(micros.len().saturating_sub(1));
        let _ = write!(text, "\"{name}\": {}, ", micros.get(at).copied().unwrap_or(0));
    }
    let _ = write!(text, "\"max\": {}}}", micros.last().copied().unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_json_with_the_distribution() {
        let tally = Tally { micros: (1..=100).rev().collect(), ..Tally::default() };
        let text = report(tally);
        assert!(
            text.contains("\"requests\": 100")
                && text.contains("\"p50\": 51")
                && text.contains("\"max\": 100}, \"late_us\""),
            "{text}"
        );
    }
}
