//! An origin that speaks HTTP/2 without TLS. The path of a request selects what it sends, valid or not.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::h2::{ACK, END_HEADERS, END_STREAM, Frame, PREFACE, kind, put, settings};

const PUSH_PROMISE: u8 = 5;
const PADDED: u8 = 8;

/// The counts of an origin.
#[derive(Default)]
pub struct Counts {
    pub connections: AtomicUsize,
    pub requests: AtomicUsize,
    /// The largest number of streams that were open at a time on one connection.
    pub streams: AtomicUsize,
    /// The number of requests that were reset before their end.
    pub resets: AtomicUsize,
    /// The number of bytes that the windows of streams were extended by.
    pub credit: AtomicUsize,
    /// The number of bytes that endless responses have had.
    pub endless: AtomicUsize,
}

pub struct Origin {
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
}

impl Origin {
    /// Starts an origin that announces these settings.
    pub fn start(entries: &'static [(u16, u32)]) -> Origin {
        Origin::start_late(entries, Duration::ZERO)
    }

    /// Starts an origin that announces these settings late on each connection.
    pub fn start_late(entries: &'static [(u16, u32)], delay: Duration) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let counts = Arc::<Counts>::default();
        let shared = counts.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = shared.clone();
                counts.connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || Peer::new(stream, counts).serve(entries, delay));
            }
        });
        Origin { address, counts }
    }
}

/// One connection.
struct Peer {
    socket: TcpStream,
    out: Arc<Mutex<TcpStream>>,
    counts: Arc<Counts>,
    /// The paths of requests whose bodies have not ended, and the number of bytes.
    open: HashMap<u32, (String, usize)>,
    active: Arc<AtomicUsize>,
    /// The requests whose bodies are returned while they arrive.
    echoes: HashSet<u32>,
}

/// Returns a header block, uncompressed.
pub fn fields(status: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in [&[(":status", status)][..], more].concat() {
        if name == ":status" && value.is_empty() {
            continue;
        }
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "the length fits into one byte");
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// Returns the path in a header block of the daemon, which sends it as a literal.
fn path_of(block: &[u8]) -> String {
    let at = block.windows(3).position(|window| window[0] == 0x14 && window[2] == b'/');
    let path = at.map(|at| &block[at + 2..at + 2 + block[at + 1] as usize]);
    String::from_utf8_lossy(path.unwrap_or(b"/")).into_owned()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, kind, flags, stream, payload);
    out
}

fn head(stream: u32, status: &str, more: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, END_HEADERS, stream, &fields(status, more))
}

fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(16_384).flat_map(|piece| frame(kind::DATA, 0, stream, piece)).collect()
}

fn end(stream: u32) -> Vec<u8> {
    frame(kind::DATA, END_STREAM, stream, b"")
}

/// Returns trailers, one of which must not pass.
fn trailers(stream: u32) -> Vec<u8> {
    let block = fields("", &[("grpc-status", "0"), ("content-length", "99")]);
    frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

fn whole(stream: u32, body: &[u8]) -> Vec<u8> {
    [head(stream, "200", &[]), data(stream, body), end(stream)].concat()
}

impl Peer {
    fn new(socket: TcpStream, counts: Arc<Counts>) -> Peer {
        socket.set_nodelay(true).expect("sockets have the option");
        let out = Arc::new(Mutex::new(socket.try_clone().expect("a descriptor")));
        Peer { socket, out, counts, open: HashMap::new(), active: Arc::default(), echoes: HashSet::new() }
    }

    fn frame(&mut self) -> Option<Frame> {
        let mut head = [0u8; 9];
        self.socket.read_exact(&mut head).ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut frame = Frame { kind: head[3], flags: head[4], stream, payload: vec![0; len as usize] };
        self.socket.read_exact(&mut frame.payload).ok()?;
        Some(frame)
    }

    fn send(&self, bytes: &[u8]) {
        let _ = self.out.lock().expect("no panic").write_all(bytes);
    }

    fn serve(mut self, entries: &[(u16, u32)], delay: Duration) {
        let mut preface = [0; PREFACE.len()];
        if self.socket.read_exact(&mut preface).is_err() || preface != PREFACE {
            return;
        }
        thread::sleep(delay);
        self.send(&frame(kind::SETTINGS, 0, 0, &settings(entries)));
        while let Some(found) = self.frame() {
            match found.kind {
                kind::SETTINGS if found.flags & ACK == 0 => self.send(&frame(kind::SETTINGS, ACK, 0, b"")),
                // Trailers, which are returned as the body.
                kind::HEADERS if self.open.remove(&found.stream).is_some() => {
                    self.active.fetch_sub(1, Ordering::SeqCst);
                    self.send(&whole(found.stream, &found.payload));
                }
                kind::HEADERS if self.echoes.remove(&found.stream) => {
                    self.send(&[data(found.stream, &found.payload), end(found.stream)].concat());
                }
                kind::HEADERS => self.head(&found),
                kind::DATA if self.echoes.contains(&found.stream) => self.echo(&found),
                kind::DATA => self.body(&found),
                kind::WINDOW_UPDATE if found.stream > 0 => {
                    let credit: [u8; 4] = found.payload[..].try_into().expect("four bytes");
                    let credit = u32::from_be_bytes(credit) as usize;
                    self.counts.credit.fetch_add(credit, Ordering::SeqCst);
                }
                kind::RST_STREAM => {
                    let was_open = self.open.remove(&found.stream).is_some();
                    let was_echo = self.echoes.remove(&found.stream);
                    self.counts.resets.fetch_add(usize::from(was_open || was_echo), Ordering::SeqCst);
                }
                _ => {}
            }
        }
    }

    fn head(&mut self, found: &Frame) {
        let path = path_of(&found.payload);
        let active = self.active.fetch_add(1, Ordering::SeqCst) + 1;
        self.counts.streams.fetch_max(active, Ordering::SeqCst);
        if path.starts_with("/echo") {
            self.counts.requests.fetch_add(1, Ordering::SeqCst);
            self.echoes.insert(found.stream);
            self.send(&head(found.stream, "200", &[("content-type", "application/grpc")]));
        } else if found.flags & END_STREAM != 0 || path.starts_with("/early") {
            self.answer(&path, found.stream, 0);
        } else {
            self.open.insert(found.stream, (path, 0));
        }
    }

    fn body(&mut self, found: &Frame) {
        let (id, len) = (found.stream, found.payload.len());
        let Some((path, received)) = self.open.get_mut(&id) else { return };
        *received += len;
        if path.starts_with("/cut") {
            // A response that begins, and ends with a reset.
            self.send(&[head(id, "200", &[]), data(id, b"hello")].concat());
            thread::sleep(Duration::from_millis(50));
            self.send(&frame(kind::RST_STREAM, 0, id, &[0, 0, 0, 2]));
            self.open.remove(&id);
            return;
        }
        if len > 0 {
            let credit = (len as u32).to_be_bytes();
            self.send(&[0, id].map(|id| frame(kind::WINDOW_UPDATE, 0, id, &credit)).concat());
        }
        if found.flags & END_STREAM != 0
            && let Some((path, received)) = self.open.remove(&id)
        {
            self.answer(&path, id, received);
        }
    }

    /// Returns the bytes of a request at once, and trailers at its end or behind `bye`.
    fn echo(&mut self, found: &Frame) {
        let (id, is_end) = (found.stream, found.flags & END_STREAM != 0 || found.payload == b"bye");
        let mut out = data(id, &found.payload);
        if is_end {
            self.echoes.remove(&id);
            let trailers = fields("", &[("grpc-status", "0")]);
            out.extend(frame(kind::HEADERS, END_HEADERS | END_STREAM, id, &trailers));
        }
        if !found.payload.is_empty() {
            let credit = (found.payload.len() as u32).to_be_bytes();
            out.extend([0, id].map(|id| frame(kind::WINDOW_UPDATE, 0, id, &credit)).concat());
        }
        self.send(&out);
    }

    fn answer(&self, path: &str, id: u32, received: usize) {
        let number = self.counts.requests.fetch_add(1, Ordering::SeqCst);
        let late = match path {
            "/early-late" => valid("/early", id),
            path if path.starts_with("/slow") => Some(whole(id, path.as_bytes())),
            _ => None,
        };
        if let Some(reply) = late {
            let (out, active) = (self.out.clone(), self.active.clone());
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(400));
                active.fetch_sub(1, Ordering::SeqCst);
                let _ = out.lock().expect("no panic").write_all(&reply);
            });
            return;
        }
        if let Some(endless) = endless(path, id) {
            let (out, counts) = (self.out.clone(), self.counts.clone());
            thread::spawn(move || endless.send(&out, &counts));
            return;
        }
        self.active.fetch_sub(1, Ordering::SeqCst);
        let connections = self.counts.connections.load(Ordering::SeqCst);
        match path.split('?').next().unwrap_or_default() {
            "/count" => self.send(&whole(id, received.to_string().as_bytes())),
            // Only the first connection refuses.
            "/goaway-once" if connections == 1 => {
                self.send(&frame(kind::GOAWAY, 0, 0, &[0; 8]));
            }
            "/refuse-once" if number == 0 => self.send(&frame(kind::RST_STREAM, 0, id, &[0, 0, 0, 7])),
            "/close" => {
                self.send(&whole(id, b"bye"));
                let _ = self.socket.shutdown(std::net::Shutdown::Both);
            }
            // The connection stays open, and nothing more happens on it.
            "/mute" => thread::sleep(Duration::from_mins(1)),
            "/interim-drop" => {
                self.send(&head(id, "103", &[("link", "x")]));
                drop(self.socket.shutdown(std::net::Shutdown::Both));
            }
            "/drop" => drop(self.socket.shutdown(std::net::Shutdown::Both)),
            // Trailers that come later than the rest.
            "/trailers-late" | "/zero-late" => {
                let (length, body) =
                    if path == "/zero-late" { ("0", &b""[..]) } else { ("5", &b"hello"[..]) };
                self.send(&[head(id, "200", &[("content-length", length)]), data(id, body)].concat());
                thread::sleep(Duration::from_millis(50));
                self.send(&trailers(id));
            }
            path => self.send(&valid(path, id).unwrap_or_else(|| invalid(path, id))),
        }
    }
}

/// A response without an end: how it begins, and what follows again and again.
struct Endless {
    begin: Vec<u8>,
    again: Vec<u8>,
    pause: Duration,
    /// Only the window of the stream is used.
    keeps_window: bool,
}

impl Endless {
    fn send(self, out: &Mutex<TcpStream>, counts: &Counts) {
        const WINDOW: usize = 200_000;
        let mut next = self.begin;
        let mut sent = 0;
        while out.lock().expect("no panic").write_all(&next).is_ok() {
            sent += next.len();
            next.clone_from(&self.again);
            counts.endless.fetch_add(next.len(), Ordering::SeqCst);
            if self.keeps_window {
                let begun = Instant::now();
                while sent > WINDOW + counts.credit.load(Ordering::SeqCst) {
                    if begun.elapsed() > Duration::from_secs(2) {
                        return;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            }
            thread::sleep(self.pause);
        }
    }
}

/// Returns the response without an end for this path.
fn endless(path: &str, id: u32) -> Option<Endless> {
    let begin = head(id, "200", &[]);
    let (again, millis, keeps_window) = match path {
        "/endless" => (data(id, &[b'x'; 16_000]), 0, true),
        "/endless-flood" => (data(id, &[b'x'; 16_000]), 0, false),
        "/drip" => (data(id, b"x"), 20, true),
        "/drip-frames" => (vec![0, 0], 20, true),
        "/pings" => (frame(kind::PING, 0, 0, &[0; 8]).repeat(100), 0, false),
        "/settings" => (frame(kind::SETTINGS, 0, 0, b"").repeat(100), 0, false),
        "/drip-pings" => (frame(kind::PING, 0, 0, &[0; 8]), 5, true),
        _ => return None,
    };
    Some(Endless { begin, again, pause: Duration::from_millis(millis), keeps_window })
}

/// Returns a response that keeps the rules.
fn valid(path: &str, id: u32) -> Option<Vec<u8>> {
    Some(match path {
        "/length" => [head(id, "200", &[("content-length", "5")]), data(id, b"hello"), end(id)].concat(),
        "/empty" => frame(kind::HEADERS, END_HEADERS | END_STREAM, id, &fields("204", &[])),
        "/nothing" => frame(kind::HEADERS, END_HEADERS | END_STREAM, id, &fields("200", &[("x", "y")])),
        "/interim" => [head(id, "103", &[("link", "x")]), whole(id, b"hello")].concat(),
        "/padded" => {
            let padded = [&[7][..], b"hello", &[0; 7]].concat();
            [head(id, "200", &[]), frame(kind::DATA, PADDED | END_STREAM, id, &padded)].concat()
        }
        "/parts" => {
            let block = fields("200", &[("a", "b"), ("c", "d")]);
            let (first, second) = block.split_at(10);
            let first = frame(kind::HEADERS, 0, id, first);
            [first, frame(kind::CONTINUATION, END_HEADERS, id, second), data(id, b"hello"), end(id)].concat()
        }
        "/trailers" => {
            [head(id, "200", &[("content-type", "application/grpc")]), data(id, b"hello"), trailers(id)]
                .concat()
        }
        // Without a body, with and without its length.
        "/bare" => [head(id, "200", &[("content-type", "application/grpc")]), trailers(id)].concat(),
        "/zero" => [head(id, "200", &[("content-length", "0")]), trailers(id)].concat(),
        "/large" => whole(id, &vec![b'x'; 200_000]),
        "/early" => {
            let end = frame(kind::RST_STREAM, 0, id, &[0; 4]);
            [head(id, "413", &[]), frame(kind::DATA, END_STREAM, id, b"too large"), end].concat()
        }
        "/" | "/ok" => whole(id, b"hello"),
        _ => return None,
    })
}

/// Returns a response that breaks a rule.
fn invalid(path: &str, id: u32) -> Vec<u8> {
    let long = "x".repeat(120);
    match path {
        "/bomb" => {
            // An entry of 120 bytes, and many references to it.
            let mut block = fields("200", &[]);
            block.extend_from_slice(&[0x40, 1, b'x', long.len() as u8]);
            block.extend_from_slice(long.as_bytes());
            block.extend_from_slice(&[0xbe; 16_000]);
            frame(kind::HEADERS, END_HEADERS, id, &block)
        }
        "/many" => {
            let more = vec![("x", long.as_str()); 1000];
            let block = fields("200", &more);
            let mut parts = block.chunks(16_000).map(|part| frame(kind::CONTINUATION, 0, id, part));
            let mut all = parts.next().unwrap_or_default();
            all[3] = kind::HEADERS;
            all.into_iter().chain(parts.flatten()).chain(frame(kind::CONTINUATION, 4, id, b"")).collect()
        }
        "/continuations" => {
            let first = frame(kind::HEADERS, 0, id, &fields("200", &[]));
            [first, frame(kind::CONTINUATION, 0, id, b"").repeat(10_000)].concat()
        }
        "/longer" => [head(id, "200", &[("content-length", "5")]), data(id, b"hello!"), end(id)].concat(),
        "/later" => {
            [head(id, "200", &[("content-length", "5")]), data(id, b"hello"), data(id, b"!"), end(id)]
                .concat()
        }
        "/shorter" => [head(id, "200", &[("content-length", "6")]), data(id, b"hello"), end(id)].concat(),
        "/overflow" => [head(id, "200", &[]), data(id, &vec![b'x'; 8 << 20])].concat(),
        "/window" => {
            let update = frame(kind::WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes());
            [update, whole(id, b"hello")].concat()
        }
        "/push" => frame(PUSH_PROMISE, END_HEADERS, id, &[&[0, 0, 0, 2][..], &fields("200", &[])].concat()),
        "/pseudo" => head(id, "200", &[(":path", "/")]),
        "/uppercase" => head(id, "200", &[("X-Y", "z")]),
        "/chunked" => [head(id, "200", &[("transfer-encoding", "chunked")]), end(id)].concat(),
        "/connection" => [head(id, "200", &[("connection", "close")]), end(id)].concat(),
        "/split" => [head(id, "200", &[("a", "b\r\nset-cookie: c")]), end(id)].concat(),
        "/nostatus" => [head(id, "", &[("a", "b")]), end(id)].concat(),
        "/status" => [head(id, "2000", &[]), end(id)].concat(),
        "/switch" => [head(id, "101", &[]), end(id)].concat(),
        "/first" => [data(id, b"hello"), end(id)].concat(),
        "/interims" => head(id, "103", &[]).repeat(1000),
        "/frames" => frame(kind::DATA, 0, id, b"").repeat(50_000),
        "/reset" => {
            [head(id, "200", &[]), data(id, b"hello"), frame(kind::RST_STREAM, 0, id, &[0; 4])].concat()
        }
        "/garbage" => vec![0xff; 100_000],
        "/http1" => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec(),
        "/other" => [head(id + 2, "200", &[]), end(id + 2)].concat(),
        "/hpack" => frame(kind::HEADERS, END_HEADERS, id, &[0xff, 0xff, 0xff, 0xff, 0xff]),
        _ => head(id, "404", &[]).into_iter().chain(end(id)).collect(),
    }
}
