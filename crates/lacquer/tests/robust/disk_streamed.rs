//! Objects on disks that are longer than the memory in front: they are written while they are fetched, and slow clients
//! read them from the disk. The memory has 16 MB, and the bodies four times as many, a quarter of the disk.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_testing::daemon::{Daemon, signal, vcl};
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::{SharedSlot, shared_slot};
use lacquer_testing::{LONGEST_HOLD, until, until_within};

use crate::devices::{LoopDevice, SmallDisk, create, sparse};
use crate::disk::{Place, ask, connect, kill_all, kill_now};
use crate::disk_waits::{wait_for_index, wait_for_writes};
use crate::several_disks::objects;

const MEMORY: u64 = 16 << 20;
const LONG: u64 = 4 * MEMORY - (1 << 20) - 77;
const SIZE: &str = ",size=300m,memory=16m";

const SUBS: &str = r#"
import std;
sub vcl_recv {
    if (req.method == "PURGE") { return (purge); }
    if (req.method == "BAN") { std.ban("req.url == " + req.url); return (synth(200)); }
}
sub vcl_backend_response {
    set beresp.ttl = 1h;
    set beresp.storage = storage.s0;
    if (bereq.url ~ "whole$") { set beresp.do_stream = false; }
}
"#;

/// The bytes of a page in a version: each megabyte is the same block, turned by another distance.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new(page: u64, version: u64) -> Pattern {
        Pattern(Random(page * 1000 + version).bytes(1 << 20))
    }

    /// Returns some of the bytes from a position on.
    fn at(&self, at: u64) -> &[u8] {
        let length = self.0.len() as u64;
        let (block, within) = (at / length, at % length);
        let from = (within + block * 28_693) % length;
        let most = (length - from).min(length - within);
        &self.0[from as usize..(from + most) as usize]
    }

    fn begins(&self, mut at: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let expected = self.at(at);
            let n = expected.len().min(bytes.len());
            if expected[..n] != bytes[..n] {
                return false;
            }
            (at, bytes) = (at + n as u64, &bytes[n..]);
        }
        true
    }
}

/// A body that is checked while it arrives.
struct Checked {
    page: u64,
    at: u64,
    /// The version of the bytes so far.
    found: Option<(u64, Pattern)>,
}

impl Checked {
    fn new(page: u64, at: u64) -> Checked {
        Checked { page, at, found: None }
    }

    fn version(&self) -> Option<u64> {
        self.found.as_ref().map(|found| found.0)
    }

    fn add(&mut self, bytes: &[u8], versions: u64) {
        if self.found.is_none() && !bytes.is_empty() {
            let patterns = (1..=versions).rev().map(|version| (version, Pattern::new(self.page, version)));
            self.found = patterns.into_iter().find(|(_, pattern)| pattern.begins(self.at, bytes));
        }
        let is_right =
            bytes.is_empty() || self.found.as_ref().is_some_and(|found| found.1.begins(self.at, bytes));
        assert!(is_right, "wrong bytes of {} at {}..{}", self.page, self.at, self.at + bytes.len() as u64);
        self.at += bytes.len() as u64;
    }
}

/// An origin of long pages `/N/LENGTH/HOW`. HOW is `cut` for a body that ends at three quarters, `held` for one that stops
/// there until the test continues it, `slow` for one that takes a few seconds, `chunked` for one of unknown length.
struct LongPages {
    origin: Origin,
    _slot: SharedSlot,
    version: Arc<AtomicU64>,
    /// Whether bodies that were held are sent to their end.
    continues: Arc<AtomicBool>,
    /// The number of bodies that were sent to their end, and of those that were begun.
    sent: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
}

fn send(
    path: &str,
    version: u64,
    stream: &mut TcpStream,
    begun: &AtomicUsize,
    continues: &AtomicBool,
) -> io::Result<bool> {
    let mut parts = path.split('/').skip(1);
    let mut number = || parts.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let (page, length) = (number(), number());
    let how = parts.next().unwrap_or_default();
    let framing = match how {
        "chunked" => "Transfer-Encoding: chunked".to_owned(),
        _ => format!("Content-Length: {length}"),
    };
    write!(stream, "HTTP/1.1 200 OK\r\nX-Version: {version}\r\nETag: \"{version}\"\r\n{framing}\r\n\r\n")?;
    begun.fetch_add(1, Ordering::SeqCst);
    let end = if how == "cut" { length * 3 / 4 } else { length };
    let mut at = 0;
    let pattern = Pattern::new(page, version);
    while at < end {
        if how == "held" && at >= length * 3 / 4 {
            until_within(LONGEST_HOLD, || continues.load(Ordering::SeqCst));
        }
        let piece = pattern.at(at);
        let piece = &piece[..piece.len().min((end - at).min(256 << 10) as usize)];
        if how == "chunked" {
            write!(stream, "{:x}\r\n", piece.len())?;
            stream.write_all(piece)?;
            stream.write_all(b"\r\n")?;
        } else {
            stream.write_all(piece)?;
        }
        at += piece.len() as u64;
        if how == "slow" {
            thread::sleep(Duration::from_millis(10));
        }
    }
    if how == "chunked" {
        stream.write_all(b"0\r\n\r\n")?;
    }
    Ok(how != "cut")
}

impl LongPages {
    fn start() -> LongPages {
        let slot = shared_slot();
        let (version, sent, begun) =
            (Arc::new(AtomicU64::new(1)), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (current, counted, started) = (Arc::clone(&version), Arc::clone(&sent), Arc::clone(&begun));
        let continues = Arc::<AtomicBool>::default();
        let goes_on = Arc::clone(&continues);
        let origin = Origin::start(move |path, stream| {
            let version = current.load(Ordering::SeqCst);
            let is_sent = send(path, version, stream, &started, &goes_on).is_ok_and(|is_whole| is_whole);
            counted.fetch_add(usize::from(is_sent), Ordering::SeqCst);
            is_sent
        });
        LongPages { origin, _slot: slot, version, continues, sent, begun }
    }

    fn daemon(&self, option: &str) -> Daemon {
        // On a slow disk, responses whose clients do not read wait for longer than the default.
        let options = ["-s", option, "-p", "idle_send_timeout=600"];
        let mut daemon = Daemon::start(&vcl(self.origin.address, SUBS), &options);
        wait_for_index(&mut daemon);
        daemon
    }

    fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
    }

    fn versions(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Returns the version of a page, after checking all of it.
    fn get(&self, daemon: &Daemon, path: &str) -> u64 {
        let mut response = begin(daemon, path, "");
        let ended = response.read_to(u64::MAX, self.versions());
        let length: u64 = path.split('/').nth(2).and_then(|word| word.parse().ok()).unwrap_or(0);
        assert!(ended.is_ok() && response.body.at == length, "{path}: {} bytes", response.body.at);
        response.body.version().expect("it has bytes")
    }
}

/// Begins to ask for a page. Returns the connection after the head of the response.
fn begin(daemon: &Daemon, path: &str, headers: &str) -> Response {
    let mut stream = daemon.connect();
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("it is set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
        .expect("it is sent");
    let page = path.split('/').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Response::begin(stream, page)
}

/// A response of which the body is read.
struct Response {
    stream: TcpStream,
    status: u16,
    /// The rest of the body, if its length is known.
    left: Option<u64>,
    chunks: Vec<u8>,
    body: Checked,
    is_ended: bool,
}

impl Response {
    fn begin(mut stream: TcpStream, page: u64) -> Response {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let field = |name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
        };
        let left = field("content-length:").and_then(|value| value.parse().ok());
        let from =
            field("content-range: bytes").and_then(|value| value.split('-').next()?.trim().parse().ok());
        let body = Checked::new(page, from.unwrap_or(0));
        Response { stream, status, left, chunks: Vec::new(), body, is_ended: false }
    }

    /// Reads until the body has this many bytes, or to its end. Fails if it ends early.
    fn read_to(&mut self, to: u64, versions: u64) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        while self.body.at < to && !self.is_ended {
            let n = self.stream.read(&mut buffer)?;
            let bytes = match &mut self.left {
                Some(left) => {
                    *left -= n as u64;
                    self.is_ended = *left == 0;
                    buffer[..n].to_vec()
                }
                None => {
                    self.chunks.extend_from_slice(&buffer[..n]);
                    let (bytes, is_ended) = decode(&mut self.chunks);
                    self.is_ended = is_ended;
                    bytes
                }
            };
            self.body.add(&bytes, versions);
            if n == 0 && !self.is_ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// Takes the complete chunks from the beginning of a chunked body. Returns their bytes, and whether the last was there.
fn decode(chunks: &mut Vec<u8>) -> (Vec<u8>, bool) {
    let (mut at, mut bytes) = (0, Vec::new());
    let is_ended = loop {
        let Some(line) = chunks[at..].windows(2).position(|two| two == b"\r\n") else { break false };
        let size = String::from_utf8_lossy(&chunks[at..at + line]).into_owned();
        let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
        let start = at + line + 2;
        if size == 0 {
            break true;
        }
        let Some(chunk) = chunks.get(start..start + size + 2) else { break false };
        bytes.extend_from_slice(&chunk[..size]);
        at = start + size + 2;
    };
    chunks.drain(..at);
    (bytes, is_ended)
}

fn path(page: u64, how: &str) -> String {
    format!("/{page}/{LONG}/{how}")
}

/// Waits until a body of which the fetch has begun was fetched.
fn wait_for_fetch(pages: &LongPages, count: usize) {
    let start = Instant::now();
    while pages.sent.load(Ordering::SeqCst) < count {
        assert!(start.elapsed() < Duration::from_mins(1), "the fetch does not end");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn bodies_longer_than_the_memory_are_delivered_and_stored() {
    let (pages, place) = (LongPages::start(), Place::new("streamed"));
    let option = place.option(SIZE);
    let mut daemon = pages.daemon(&option);
    let resident = daemon.resident().memory;
    for how in ["", "chunked", "whole"] {
        assert_eq!(pages.get(&daemon, &path(1, how)), 1, "{}", daemon.stderr());
    }
    // The memory is as small as it was configured, although the objects are complete.
    let grown = daemon.resident().memory.saturating_sub(resident);
    assert!(grown < 2 * MEMORY, "{grown} bytes more in memory");
    let before = pages.origin.requests();
    assert_eq!(before, 3);
    pages.set_version(2);
    assert_eq!(pages.get(&daemon, &path(1, "whole")), 1, "a hit");
    let mut part = begin(&daemon, &path(1, "whole"), "Range: bytes=30000001-30000100\r\n");
    part.read_to(u64::MAX, 1).expect("the range");
    assert_eq!((part.status, part.body.at), (206, 30_000_101));
    kill_all(daemon);
    let daemon = pages.daemon(&option);
    let hits = ["", "chunked", "whole"].map(|how| pages.get(&daemon, &path(1, how)));
    assert!(hits.iter().filter(|&&version| version == 1).count() >= 2, "{hits:?}: {}", daemon.stderr());
}

#[test]
fn several_long_bodies_at_once_share_the_memory() {
    let (pages, place) = (LongPages::start(), Place::new("several-long"));
    let mut daemon = pages.daemon(&place.option(SIZE));
    thread::scope(|scope| {
        for page in 0..4 {
            for client in 0..2 {
                let daemon = &daemon;
                scope.spawn(move || {
                    let mut response = begin(daemon, &path(page, "slow"), "");
                    let mut next = 1 << 20;
                    while response.body.at < LONG {
                        let read = response.read_to(next, 1);
                        assert!(
                            read.is_ok(),
                            "page {page}, client {client}: {read:?} at {}",
                            response.body.at
                        );
                        next += 1 << 20;
                        thread::sleep(Duration::from_millis(client * 30));
                    }
                });
            }
        }
    });
    assert_eq!(pages.origin.requests(), 4, "{}", daemon.stderr());
    assert_eq!(daemon.ok("storage.list").matches("error").count(), 0);
}

#[test]
fn a_client_that_stops_reading_does_not_delay_the_fetch() {
    let (pages, place) = (LongPages::start(), Place::new("stopped"));
    let daemon = pages.daemon(&place.option(SIZE));
    let mut stopped: Vec<Response> = (0..4).map(|_| begin(&daemon, &path(7, ""), "")).collect();
    wait_for_fetch(&pages, 1);
    // Others are served meanwhile.
    assert_eq!(pages.get(&daemon, &path(7, "")), 1);
    pages.set_version(2);
    for (n, response) in stopped.iter_mut().enumerate() {
        let to = if n == 0 { LONG / 2 } else { LONG };
        response.read_to(to, 2).unwrap_or_else(|error| panic!("client {n}: {error}: {}", daemon.stderr()));
        assert_eq!(response.body.version(), Some(1));
    }
    drop(stopped);
    assert_eq!((pages.get(&daemon, &path(7, "")), pages.origin.requests()), (1, 1));
}

#[test]
fn an_origin_that_cuts_its_body_short_leaves_nothing_behind() {
    let (pages, place) = (LongPages::start(), Place::new("cut"));
    let option = place.option(SIZE);
    let daemon = pages.daemon(&option);
    // More than the disk has room for.
    for round in 0..8 {
        let mut response = begin(&daemon, &path(round % 2, "cut"), "");
        let read = response.read_to(u64::MAX, 1);
        assert!(read.is_err() && response.body.at <= LONG * 3 / 4, "{} bytes", response.body.at);
    }
    assert_eq!(pages.origin.requests(), 8, "nothing was stored: {}", daemon.stderr());
    assert_eq!(pages.get(&daemon, &path(1, "")), 1);
    kill_all(daemon);
    pages.set_version(2);
    let daemon = pages.daemon(&option);
    assert_eq!(pages.get(&daemon, &path(1, "")), 1);
    assert!(begin(&daemon, &path(0, "cut"), "").read_to(u64::MAX, 2).is_err());
    assert_eq!(pages.origin.requests(), 10);
}

#[test]
fn objects_that_are_purged_or_banned_during_their_fetch_do_not_come_back() {
    let (pages, place) = (LongPages::start(), Place::new("purged-long"));
    let option = place.option(SIZE);
    let daemon = pages.daemon(&option);
    for (version, method) in [(1, "PURGE"), (2, "BAN")] {
        pages.set_version(version);
        let mut response = begin(&daemon, &path(5, "slow"), "");
        response.read_to(LONG / 4, version).expect("the beginning");
        assert_eq!(ask(&mut connect(&daemon), method, &path(5, "slow"), "").status, 200);
        // The client gets the body that it has begun.
        response.read_to(u64::MAX, version).unwrap_or_else(|error| panic!("{method}: {error}"));
        assert_eq!((response.body.at, response.body.version()), (LONG, Some(version)));
        wait_for_writes(&daemon);
    }
    kill_all(daemon);
    pages.set_version(3);
    let daemon = pages.daemon(&option);
    assert_eq!(pages.get(&daemon, &path(5, "slow")), 3);
}

#[test]
fn a_kill_during_a_long_fetch_leaves_no_wrong_byte() {
    let (pages, place) = (LongPages::start(), Place::new("killed-long"));
    let option = place.option(SIZE);
    let mut kept = 0;
    for round in 1..7 {
        pages.set_version(round);
        let mut daemon = pages.daemon(&option);
        kept += u32::from(pages.get(&daemon, &path(1, "")) < round);
        assert!(until(|| objects(&mut daemon, [&place, &place])[0] > 0), "{}", daemon.stderr());
        let mut response = begin(&daemon, &path(round + 10, "slow"), "");
        response.read_to(LONG * round / 8, round).expect("the beginning");
        kill_now(daemon);
    }
    assert!(kept >= 4, "{kept} times, the object has survived");
    let daemon = pages.daemon(&option);
    for page in 11..17 {
        pages.get(&daemon, &path(page, "slow"));
    }
}

/// The file behind the device has no room for the body: writes fail in the middle.
#[test]
fn a_disk_that_fails_during_a_fetch_ends_it_without_a_wrong_byte() {
    let (pages, place) = (LongPages::start(), Place::new("failed-long"));
    let Some(small) = SmallDisk::new(&place, 24) else { return };
    let Some(device) = LoopDevice::over(&sparse(&small.0.join("backing"), 512 << 20), &[]) else { return };
    create(&device);
    let daemon = pages.daemon(&device.option());
    let mut response = begin(&daemon, &path(1, ""), "");
    let mut slow = begin(&daemon, &path(1, ""), "");
    let read = response.read_to(u64::MAX, 1);
    // On a busy machine, a client may be behind the part that cannot be written.
    assert!(read.is_err() && response.body.at > 0, "{} bytes", response.body.at);
    let read = slow.read_to(u64::MAX, 1);
    assert!(read.is_err() && slow.body.at > 0, "{} bytes", slow.body.at);
    assert!(until(|| daemon.stderr().contains("the disk is out of use")), "{}", daemon.stderr());
    // The object is not stored. Memory serves short ones.
    let requests = pages.origin.requests();
    let mut response = begin(&daemon, &path(1, ""), "");
    let _ = response.read_to(u64::MAX, 1);
    assert_eq!(pages.origin.requests(), requests + 1);
    assert_eq!(pages.get(&daemon, "/2/100000/"), 1);
    assert_eq!(pages.get(&daemon, "/2/100000/"), 1);
    assert_eq!(pages.origin.requests(), requests + 2);
}

/// The file behind the device becomes shorter: parts that have left memory cannot be read.
#[test]
fn a_part_that_cannot_be_read_during_a_fetch_ends_its_responses() {
    let (pages, place) = (LongPages::start(), Place::new("lost-part"));
    let backing = sparse(&place.store(), 512 << 20);
    let Some(device) = LoopDevice::over(&backing, &[]) else { return };
    create(&device);
    let daemon = pages.daemon(&device.option());
    let mut fast = begin(&daemon, &path(1, "held"), "");
    let mut stopped = begin(&daemon, &path(1, "held"), "");
    fast.read_to(LONG / 2, 1).expect("the beginning");
    File::options().write(true).open(&backing).and_then(|file| file.set_len(1 << 20)).expect("it can be cut");
    File::options().write(true).open(&backing).and_then(|file| file.set_len(512 << 20)).expect("it can grow");
    let read = stopped.read_to(u64::MAX, 1);
    let is_ended = read.is_err_and(|error| error.kind() != ErrorKind::WouldBlock);
    assert!(is_ended && stopped.body.at < LONG, "{} bytes: {}", stopped.body.at, daemon.stderr());
    pages.continues.store(true, Ordering::SeqCst);
    let _ = fast.read_to(u64::MAX, 1);
    pages.set_version(2);
    assert_eq!(pages.get(&daemon, &path(1, "held")), 2, "the object was not stored");
}

/// Objects in memory whose bodies are on the disk leave it to new ones when no response uses them.
#[test]
fn objects_that_are_not_read_do_not_keep_a_disk_full() {
    let (pages, place) = (LongPages::start(), Place::new("idle"));
    let daemon = pages.daemon(&place.option(",size=300m,memory=256m"));
    for page in 0..8 {
        assert_eq!(pages.get(&daemon, &path(page, "")), 1, "{}", daemon.stderr());
    }
    assert_eq!(pages.begun.load(Ordering::SeqCst), 8);
    assert_eq!((pages.get(&daemon, &path(7, "")), pages.origin.requests()), (1, 8), "the last one is there");
}

/// Responses hold nearly all segments, so that no body can be written: the fetch ends, and later ones work.
#[test]
fn a_disk_full_of_objects_that_are_read_has_room_again_later() {
    let (pages, place) = (LongPages::start(), Place::new("pinned"));
    let daemon = pages.daemon(&place.option(SIZE));
    let stopped: Vec<Response> = (0..4)
        .map(|page| {
            let response = begin(&daemon, &path(page, ""), "");
            wait_for_fetch(&pages, page as usize + 1);
            response
        })
        .collect();
    // It fails, but gets no wrong byte.
    assert!(begin(&daemon, &path(4, ""), "").read_to(u64::MAX, 1).is_err());
    drop(stopped);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(pages.get(&daemon, &path(9, "")), 1, "{}", daemon.stderr());
    let before = pages.origin.requests();
    assert_eq!(pages.get(&daemon, &path(9, "")), 1);
    assert_eq!(pages.origin.requests(), before);
}

/// The worker ends in the middle of a fetch, and the next one continues with the disk.
#[test]
fn the_next_worker_continues_after_one_that_ended_during_a_fetch() {
    let (pages, place) = (LongPages::start(), Place::new("worker-long"));
    let mut daemon = pages.daemon(&place.option(SIZE));
    assert_eq!(pages.get(&daemon, &path(1, "")), 1);
    wait_for_writes(&daemon);
    let mut response = begin(&daemon, &path(2, "slow"), "");
    response.read_to(LONG / 2, 1).expect("the beginning");
    let worker = daemon.worker();
    signal(worker, "-KILL");
    assert!(response.read_to(u64::MAX, 1).is_err());
    assert!(until(|| !Path::new(&format!("/proc/{worker}/exe")).exists() && daemon.worker() != worker));
    wait_for_index(&mut daemon);
    pages.set_version(2);
    assert_eq!((pages.get(&daemon, &path(1, "")), pages.get(&daemon, &path(2, "slow"))), (1, 2));
    assert!(pages.begun.load(Ordering::SeqCst) >= 3);
}
