//! A strict reader of HTTP/1 messages.

use std::io;

use lacquer_net::memory::Peer;

use crate::page;
use crate::wire::{Chance, Incoming};

/// The head of a request or response.
#[derive(Debug, Default)]
pub struct Head {
    pub start: String,
    fields: Vec<(String, String)>,
}

/// A message that is incomplete or malformed.
#[derive(Debug)]
pub enum Broken {
    /// The connection ended before the message.
    Ended,
    Malformed(String),
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Broken {
        Broken::Ended
    }
}

fn malformed<T>(why: impl Into<String>) -> Result<T, Broken> {
    Err(Broken::Malformed(why.into()))
}

impl Head {
    fn parse(text: &str) -> Result<Head, Broken> {
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let field =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        match lines.map(field).collect::<Option<Vec<_>>>() {
            Some(fields) => Ok(Head { start, fields }),
            None => malformed(format!("head {text:?}")),
        }
    }

    pub fn add(&mut self, name: String, value: String) {
        self.fields.push((name, value));
    }

    /// Returns the status, if this is the head of a response.
    pub fn status(&self) -> Option<u16> {
        self.word(1).parse().ok()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.get(name)?.parse().ok()
    }

    /// Returns the number of the response that the entity tag names.
    pub fn response(&self) -> Option<usize> {
        page::response_of_tag(self.get("etag")?)
    }

    /// Returns the positions of the first and last byte, and the whole length if it is known.
    pub fn content_range(&self) -> Option<(usize, usize, Option<usize>)> {
        let (part, whole) = self.get("content-range")?.strip_prefix("bytes ")?.split_once('/')?;
        let (from, to) = part.split_once('-')?;
        Some((from.parse().ok()?, to.parse().ok()?, whole.parse().ok()))
    }

    /// Returns a word of the first line.
    pub fn word(&self, at: usize) -> &str {
        self.start.split(' ').nth(at).unwrap_or_default()
    }
}

/// Reads a head. Returns `None` if the connection ends before it.
pub async fn head(from: &mut Incoming, peer: &Peer, chance: &Chance) -> Result<Option<Head>, Broken> {
    loop {
        if let Some(end) = from.bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = from.take(end + 4);
            let text =
                str::from_utf8(&head[..end]).map_err(|_| Broken::Malformed("a head of bytes".into()))?;
            return Head::parse(text).map(Some);
        }
        if !from.more(peer, chance).await? {
            return if from.bytes.is_empty() { Ok(None) } else { Err(Broken::Ended) };
        }
    }
}

/// Reads a body with a length or in chunks.
pub async fn body(head: &Head, from: &mut Incoming, peer: &Peer, chance: &Chance) -> Result<Vec<u8>, Broken> {
    let mut all = Vec::new();
    if head.get("transfer-encoding") == Some("chunked") {
        loop {
            let line = line(from, peer, chance).await?;
            let Ok(size) = usize::from_str_radix(&line, 16) else {
                return malformed(format!("chunk {line:?}"));
            };
            let begun = all.len();
            while all.len() < begun + size {
                some(from, peer, chance, begun + size - all.len(), &mut all).await?;
            }
            if !self::line(from, peer, chance).await?.is_empty() {
                return malformed("a chunk that is longer than it says");
            }
            if size == 0 {
                return Ok(all);
            }
        }
    }
    let length = head.number("content-length").unwrap_or(0);
    while all.len() < length {
        some(from, peer, chance, length - all.len(), &mut all).await?;
    }
    Ok(all)
}

/// Reads and appends at least one byte.
async fn some(
    from: &mut Incoming,
    peer: &Peer,
    chance: &Chance,
    most: usize,
    to: &mut Vec<u8>,
) -> Result<(), Broken> {
    if from.bytes.is_empty() && !from.more(peer, chance).await? {
        return Err(Broken::Ended);
    }
    to.append(&mut from.take(most.min(from.bytes.len())));
    Ok(())
}

async fn line(from: &mut Incoming, peer: &Peer, chance: &Chance) -> Result<String, Broken> {
    loop {
        if let Some(end) = from.bytes.windows(2).position(|window| window == b"\r\n") {
            let line = from.take(end + 2);
            return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        if !from.more(peer, chance).await? {
            return Err(Broken::Ended);
        }
    }
}
