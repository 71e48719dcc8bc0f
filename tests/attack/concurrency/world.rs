//! The pages that clients request, their origin, and the time at which each was invalidated.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use lacquer_testing::Random;

use super::bodies::{BLOCK, body, gzip};

pub const KEYS: usize = 48;
pub const TAGS: usize = 6;

/// The kind of a page, which is the first letter of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Cached for an hour.
    Kept,
    /// Cached for 50 ms.
    Brief,
    /// The origin compresses it.
    Zipped,
    /// Includes the two keys that follow.
    Esi,
    /// Never cached.
    Passed,
    /// Every other response is truncated.
    Faulty,
}

pub const KINDS: [(Kind, char); 6] = [
    (Kind::Kept, 'c'),
    (Kind::Brief, 'b'),
    (Kind::Zipped, 'z'),
    (Kind::Esi, 'e'),
    (Kind::Passed, 'p'),
    (Kind::Faulty, 'f'),
];

/// A page to request.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub kind: Kind,
    pub key: usize,
}

impl Target {
    pub fn any(random: &mut Random) -> Target {
        Target { kind: random.one(&KINDS).0, key: random.index(KEYS) }
    }

    pub fn path(self) -> String {
        let letter = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or('c', |(_, letter)| *letter);
        format!("/{letter}/{}", self.key)
    }

    fn parse(path: &str) -> Option<Target> {
        let path = path.split('?').next()?;
        let (letter, key) = path.strip_prefix('/')?.split_once('/')?;
        let kind = KINDS.iter().find(|(_, l)| letter == l.to_string())?.0;
        Some(Target { kind, key: key.parse().ok().filter(|key| *key < KEYS)? })
    }

    /// Returns a length: small, larger than a socket's buffer, or in between.
    pub fn length(self) -> usize {
        BLOCK * [1, 3, 20, 200, 1200, 4000][self.key % 6]
    }

    /// Returns the keys that an ESI page includes.
    pub fn included(self) -> [Target; 2] {
        [1, 2].map(|n| Target { kind: Kind::Kept, key: (self.key + n) % KEYS })
    }

    pub fn tag(key: usize) -> usize {
        key % TAGS
    }
}

/// The state that all threads share.
pub struct World {
    /// The generation that the origin serves, by key.
    current: Vec<AtomicU32>,
    /// The oldest generation that a request that begins now may receive.
    floor: Vec<AtomicU32>,
    pub ends: AtomicBool,
    pub checked: AtomicU64,
    pub invalidated: AtomicU64,
}

impl World {
    pub fn new() -> Arc<World> {
        let ones = || (0..KEYS).map(|_| AtomicU32::new(1)).collect();
        Arc::new(World {
            current: ones(),
            floor: ones(),
            ends: AtomicBool::new(false),
            checked: AtomicU64::new(0),
            invalidated: AtomicU64::new(0),
        })
    }

    pub fn go_on(&self) -> bool {
        !self.ends.load(Ordering::Relaxed)
    }

    pub fn floor(&self, key: usize) -> u32 {
        self.floor[key].load(Ordering::SeqCst)
    }

    /// Changes the origin's content. Returns the new generation.
    pub fn change(&self, key: usize) -> u32 {
        self.current[key].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Records that all objects older than this generation were invalidated.
    pub fn invalidated(&self, key: usize, generation: u32) {
        self.floor[key].fetch_max(generation, Ordering::SeqCst);
        self.invalidated.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts the origin.
pub fn start_origin(world: &Arc<World>, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let world = world.clone();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().flatten().enumerate() {
            let (world, random) = (world.clone(), Random(seed ^ n as u64));
            std::thread::spawn(move || serve(&world, stream, random));
        }
    });
    address
}

/// Reads requests and sends responses, until a response is to be truncated.
fn serve(world: &World, mut stream: TcpStream, mut random: Random) {
    let _ = stream.set_nodelay(true);
    let Ok(input) = stream.try_clone() else { return };
    let mut input = BufReader::new(input);
    while let Some((method, path)) = request(&mut input) {
        let Some(target) = Target::parse(&path) else { return };
        if !answer(world, &mut stream, &method, target, &mut random) {
            return;
        }
    }
}

/// Reads a request with its body. Returns method and path.
fn request(input: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let mut first = String::new();
    input.read_line(&mut first).ok().filter(|n| *n > 0)?;
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        input.read_line(&mut line).ok().filter(|n| *n > 0)?;
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    input.read_exact(&mut vec![0; length]).ok()?;
    let mut words = first.split(' ');
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

/// Returns whether the connection can be used for another request.
fn answer(world: &World, stream: &mut TcpStream, method: &str, target: Target, random: &mut Random) -> bool {
    let Target { kind, key } = target;
    let generation = world.current[key].load(Ordering::SeqCst);
    let mut content = body(key, generation, target.length());
    let mut head = format!(
        "HTTP/1.1 200 OK\r\nETag: \"{key}-{generation}\"\r\nX-Key: {key}\r\nxkey: t{}\r\n",
        Target::tag(key)
    );
    if kind == Kind::Esi {
        let [a, b] = target.included().map(Target::path);
        content = format!("<esi:include src=\"{a}\"/>\n<esi:include src=\"{b}\"/>").into_bytes();
    }
    if kind == Kind::Zipped {
        content = gzip(&content);
        head.push_str("Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n");
    }
    let cut = kind == Kind::Faulty && random.below(2) == 0;
    let chunked = random.below(2) == 0;
    let _ = if chunked {
        write!(head, "Transfer-Encoding: chunked\r\n\r\n")
    } else {
        write!(head, "Content-Length: {}\r\n\r\n", content.len())
    };
    if method == "HEAD" {
        return stream.write_all(head.as_bytes()).is_ok();
    }
    let mut message = head.into_bytes();
    if chunked {
        for chunk in content.chunks(1 + random.index(20_000)) {
            message.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            message.extend_from_slice(chunk);
            message.extend_from_slice(b"\r\n");
        }
        message.extend_from_slice(b"0\r\n\r\n");
    } else {
        message.extend_from_slice(&content);
    }
    if cut {
        message.truncate(message.len() - 6);
    }
    let (first, second) = message.split_at(random.index(message.len()));
    stream.write_all(first).is_ok() && stream.write_all(second).is_ok() && !cut
}
