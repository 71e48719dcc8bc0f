//! HTTP/1 clients: all methods, ranges, conditions, gzip, and clients that leave early.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use lacquer_testing::Random;
use lacquer_testing::client::{Client, Response};

use super::bodies::{BLOCK, check, gunzip};
use super::check_page;
use super::world::{Kind, Target, World};

/// A request, and the properties that its response must have.
struct PageRequest {
    target: Target,
    method: &'static str,
    range: Option<(usize, usize)>,
    etag: Option<String>,
    floor: u32,
}

impl PageRequest {
    fn any(world: &World, random: &mut Random, known: Option<&String>) -> PageRequest {
        let target = Target::any(random);
        let method = match random.below(10) {
            0 => "HEAD",
            1 => random.one(&["POST", "PUT", "DELETE", "OPTIONS", "PATCH"]),
            _ => "GET",
        };
        let blocks = target.length() / BLOCK;
        let range = (method == "GET" && target.kind != Kind::Esi && random.below(4) == 0).then(|| {
            let first = random.index(blocks);
            (first * BLOCK, (first + 1 + random.index(blocks - first)) * BLOCK - 1)
        });
        let etag = known.filter(|_| method == "GET" && random.below(4) == 0).cloned();
        PageRequest { target, method, range, etag, floor: world.floor(target.key) }
    }

    fn text(&self, random: &mut Random) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: robust\r\n", self.method, self.target.path());
        if let Some((first, last)) = self.range {
            let _ = write!(text, "Range: bytes={first}-{last}\r\n");
        } else if random.below(3) == 0 {
            text.push_str("Accept-Encoding: gzip\r\n");
        }
        if let Some(etag) = &self.etag {
            let _ = write!(text, "If-None-Match: {etag}\r\n");
        }
        let body = if matches!(self.method, "POST" | "PUT" | "PATCH") {
            "x".repeat(random.index(5000))
        } else {
            String::new()
        };
        if !body.is_empty() {
            let _ = write!(text, "Content-Length: {}\r\n", body.len());
        }
        text + "\r\n" + &body
    }

    /// Checks a response.
    fn check(&self, world: &World, answer: &Response) -> Result<(), String> {
        let Target { kind, key } = self.target;
        let etag = answer.header("ETag").unwrap_or_default().to_owned();
        let key_fits = etag.contains(&format!("\"{key}-"));
        match answer.status {
            503 if kind == Kind::Faulty => return Ok(()),
            200 | 206 | 304 if !key_fits => return Err(format!("the answer of {etag}")),
            304 if self
                .etag
                .as_ref()
                .is_some_and(|sent| sent.trim_start_matches("W/") == etag.trim_start_matches("W/")) => {}
            200 | 206 => self.check_body(world, answer)?,
            other => return Err(format!("status {other}")),
        }
        let generation = etag.trim_end_matches('"').rsplit('-').next().and_then(|n| n.parse::<u32>().ok());
        if kind == Kind::Kept && generation.is_none_or(|g| g < self.floor) {
            return Err(format!("{etag}, but {} was invalidated before", self.floor - 1));
        }
        world.checked.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn check_body(&self, world: &World, answer: &Response) -> Result<(), String> {
        let length = self.target.length();
        if self.method == "HEAD" {
            return if answer.body.is_empty() { Ok(()) } else { Err("a body after HEAD".to_owned()) };
        }
        let is_gzip = answer.header("Content-Encoding") == Some("gzip");
        let body = if is_gzip { gunzip(&answer.body)? } else { answer.body.clone() };
        if self.target.kind == Kind::Esi && self.method == "GET" {
            return check_page(world, self.target, &body);
        }
        if self.target.kind == Kind::Esi {
            return Ok(());
        }
        let (first, last) =
            if answer.status == 206 { self.range.ok_or("206 without a range")? } else { (0, length - 1) };
        if answer.status == 206 {
            let wanted = format!("bytes {first}-{last}/{length}");
            let told = answer.header("Content-Range").unwrap_or_default();
            if told != wanted && !told.ends_with("/*") {
                return Err(format!("{told} instead of {wanted}"));
            }
        }
        if body.len() != last + 1 - first {
            return Err(format!("{} bytes instead of {first} to {last}", body.len()));
        }
        let generation = check(self.target.key, length, first, &body)?;
        let etag = answer.header("ETag").unwrap_or_default();
        if etag.contains(&format!("-{generation}\"")) {
            Ok(())
        } else {
            Err(format!("{generation} under {etag}"))
        }
    }
}

/// Sends one request after the other.
pub fn client(world: &World, address: SocketAddr, mut random: Random) {
    let mut known: Option<String> = None;
    while world.go_on() {
        let Ok(mut client) = Client::connect(address) else { continue };
        let mut after_fault = false;
        for _ in 0..=random.index(50) {
            let asked = PageRequest::any(world, &mut random, known.as_ref());
            let text = asked.text(&mut random);
            let answer = client.send(&text).and_then(|()| client.response_to(asked.method));
            // A connection ends after a response whose object was truncated, even if this client received all that it
            // requested.
            let is_fault = asked.target.kind == Kind::Faulty;
            let Ok(answer) = answer else {
                assert!(is_fault || after_fault || !world.go_on(), "{text}: {answer:?}");
                break;
            };
            after_fault = is_fault;
            if let Err(why) = asked.check(world, &answer) {
                panic!("{why}\n{text}\n{}", answer.head);
            }
            if answer.header("ETag").is_some() {
                known = answer.header("ETag").map(str::to_owned);
            }
            if answer.header("Connection") == Some("close") {
                break;
            }
        }
    }
}

/// Sends a request, reads a little and leaves.
pub fn quitter(world: &World, address: SocketAddr, mut random: Random) {
    while world.go_on() {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        // Each object is new to the cache, to cause evictions.
        let path = format!("{}?{}", Target::any(&mut random).path(), random.number());
        let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: robust\r\n\r\n").as_bytes());
        if random.below(2) == 0 {
            let _ = stream.read(&mut [0; 700]);
        }
    }
}
