//! HTTP/2 clients: several streams at once, some of which are reset.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use lacquer_testing::Random;
use lacquer_testing::h2::{END_HEADERS, END_STREAM, H2Client, INITIAL_WINDOW_SIZE, block, kind};

use super::bodies::{BLOCK, check, generation_of};
use super::check_page;
use super::world::{Kind, Target, World};

/// A stream that waits for its response.
struct Waiting {
    target: Target,
    floor: u32,
    from: usize,
    status: u16,
    body: Vec<u8>,
}

impl Waiting {
    fn check(&self, world: &World) -> Result<(), String> {
        let Target { kind, key } = self.target;
        match (kind, self.status) {
            (Kind::Faulty, 503) => return Ok(()),
            (Kind::Esi, 200) => return check_page(world, self.target, &self.body),
            (_, 200 | 206) => {}
            (_, other) => return Err(format!("status {other}")),
        }
        let length = self.target.length();
        let from = if self.status == 206 { self.from } else { 0 };
        if self.body.len() != length - from {
            return Err(format!("{} bytes from {from} of {length}", self.body.len()));
        }
        let generation = check(key, length, from, &self.body)?;
        if kind == Kind::Kept && generation < self.floor {
            return Err(format!("generation {generation}, but {} was invalidated before", self.floor - 1));
        }
        world.checked.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn status_of(payload: &[u8]) -> u16 {
    match payload.first() {
        Some(row @ 0x88..=0x8e) => [200, 204, 206, 304, 400, 404, 500][usize::from(row - 0x88)],
        _ => payload.get(2..5).and_then(|t| str::from_utf8(t).ok()?.parse().ok()).unwrap_or(0),
    }
}

/// Runs several connections, one after the other.
pub fn client(world: &World, address: SocketAddr, mut random: Random) {
    while world.go_on() {
        // A connection ends after a number of requests.
        if let Err(error) = connection(world, address, &mut random) {
            assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}

fn connection(world: &World, address: SocketAddr, random: &mut Random) -> io::Result<()> {
    let mut client = H2Client::connect(address, &[(INITIAL_WINDOW_SIZE, 1 << 30)])?;
    client.send(kind::WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes())?;
    let mut waiting: HashMap<u32, Waiting> = HashMap::new();
    let mut left = 30;
    while left > 0 || !waiting.is_empty() {
        while left > 0 && waiting.len() < 6 {
            left -= 1;
            ask(world, &mut client, random, &mut waiting)?;
        }
        if random.below(40) == 0
            && let Some(&stream) = waiting.keys().next()
        {
            client.send(kind::RST_STREAM, 0, stream, &8u32.to_be_bytes())?;
            waiting.remove(&stream);
        }
        if waiting.is_empty() {
            continue;
        }
        let frame = client.frame()?;
        let Some(answer) = waiting.get_mut(&frame.stream) else { continue };
        match frame.kind {
            kind::HEADERS => answer.status = status_of(&frame.payload),
            kind::DATA => answer.body.extend_from_slice(&frame.payload),
            kind::RST_STREAM => {
                assert_eq!(answer.target.kind, Kind::Faulty, "a stream was reset");
                waiting.remove(&frame.stream);
                continue;
            }
            _ => continue,
        }
        if frame.flags & END_STREAM != 0
            && let Some(answer) = waiting.remove(&frame.stream)
            && let Err(why) = answer.check(world)
        {
            panic!(
                "{why}: {} over HTTP/2, generation {:?}",
                answer.target.path(),
                generation_of(&answer.body)
            );
        }
    }
    Ok(())
}

fn ask(
    world: &World,
    client: &mut H2Client,
    random: &mut Random,
    waiting: &mut HashMap<u32, Waiting>,
) -> io::Result<()> {
    let target = Target::any(random);
    let from = BLOCK * random.index(target.length() / BLOCK);
    let range = format!("bytes={from}-");
    let more = [("range", range.as_str())];
    let is_part = target.kind != Kind::Esi && random.below(4) == 0;
    let headers = block("GET", &target.path(), if is_part { &more } else { &[] });
    let stream = client.new_stream();
    let floor = world.floor(target.key);
    waiting.insert(stream, Waiting { target, floor, from, status: 0, body: Vec::new() });
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &headers)
}
