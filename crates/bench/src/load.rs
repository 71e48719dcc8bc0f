//! A counted number of requests over a number of kept connections, each sending its next request when
//! the last is answered. `{}` in the path becomes a running number, so every request can be for another
//! object. The latency of each request is kept, so the whole distribution can be told.

use crate::options::Options;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// What to ask for, and how many are left.
struct Plan {
    path: String,
    header: String,
    next: u64,
    end: u64,
}

impl Plan {
    fn request(&mut self) -> Option<String> {
        if self.next == self.end {
            return None;
        }
        let path = self.path.replace("{}", &self.next.to_string());
        self.next += 1;
        Some(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{}\r\n", self.header))
    }
}

#[derive(Default)]
struct Tally {
    micros: Vec<u32>,
    bytes: u64,
    errors: u64,
}

struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    body_left: u64,
    in_body: bool,
    asked: Instant,
}

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, head: Vec::new(), body_left: 0, in_body: false, asked: Instant::now() })
    }

    /// Sends the next request; false when there is none left. Requests are far smaller than a socket
    /// buffer, so a write that would block is an error here.
    fn ask(&mut self, plan: &mut Plan) -> io::Result<bool> {
        let Some(request) = plan.request() else { return Ok(false) };
        (self.in_body, self.asked) = (false, Instant::now());
        self.head.clear();
        self.stream.write_all(request.as_bytes())?;
        Ok(true)
    }

    /// Reads what there is; true while this client still has something to do.
    fn drive(&mut self, plan: &mut Plan, tally: &mut Tally, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            let got = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            tally.bytes += got as u64;
            if self.take(&buffer[..got])? {
                tally.micros.push(self.asked.elapsed().as_micros() as u32);
                if !self.ask(plan)? {
                    return Ok(false);
                }
            }
        }
    }

    /// Takes bytes of a response; true when it is complete.
    fn take(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.in_body {
            self.body_left = self.body_left.saturating_sub(bytes.len() as u64);
            return Ok(self.body_left == 0);
        }
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(false) };
        let head = String::from_utf8_lossy(&self.head[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<u64>().ok());
        let length = length.ok_or_else(|| io::Error::other("a response without Content-Length"))?;
        if !head.starts_with("http/1.1 200") {
            return Err(io::Error::other(head.lines().next().unwrap_or_default().to_owned()));
        }
        self.in_body = true;
        self.body_left = length.saturating_sub((self.head.len() - end - 4) as u64);
        Ok(self.body_left == 0)
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let address = options.address("connect")?;
    let first: u64 = options.number("first", 0)?;
    let count: u64 = options.number("count", 1000)?;
    let connections: usize = options.number("connections", 1)?;
    let header = options.text("header", "");
    let mut plan = Plan {
        path: options.text("path", "/").to_owned(),
        header: if header.is_empty() { String::new() } else { format!("{header}\r\n") },
        next: first,
        end: first + count,
    };
    let started = Instant::now();
    let tally = drive_all(address, connections, &mut plan).map_err(|error| format!("{address}: {error}"))?;
    println!("{}", report(tally, started.elapsed().as_secs_f64()));
    Ok(())
}

fn drive_all(address: SocketAddr, connections: usize, plan: &mut Plan) -> io::Result<Tally> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut tally = Tally::default();
    for slot in 0..connections {
        let mut client = Client::connect(address)?;
        if !client.ask(plan)? {
            break;
        }
        epoll::add(&epoll, &client.stream, EventData::new_u64(slot as u64), EventFlags::IN)?;
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
    Ok(tally)
}

fn report(mut tally: Tally, seconds: f64) -> String {
    tally.micros.sort_unstable();
    let count = tally.micros.len();
    let mut text = format!(
        "{{\"requests\": {count}, \"errors\": {}, \"bytes\": {}, \"seconds\": {seconds:.6}, \"latency_us\": {{",
        tally.errors, tally.bytes
    );
    for (name, share) in [
        ("p1", 0.01),
        ("p10", 0.1),
        ("p50", 0.5),
        ("p75", 0.75),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
    ] {
        let at = ((count as f64 * share) as usize).min(count.saturating_sub(1));
        let _ = write!(text, "\"{name}\": {}, ", tally.micros.get(at).copied().unwrap_or(0));
    }
    let _ = write!(text, "\"max\": {}}}}}", tally.micros.last().copied().unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_json_with_the_distribution() {
        let tally = Tally { micros: (1..=100).rev().collect(), bytes: 7, errors: 0 };
        let text = report(tally, 1.5);
        assert!(
            text.contains("\"requests\": 100")
                && text.contains("\"p50\": 51")
                && text.ends_with("\"max\": 100}}"),
            "{text}"
        );
    }
}
