//! Reads and writes HTTP/1 messages at the world's end of a connection.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use lacquer_net::memory::Peer;

/// The largest head and body that are read, in bytes.
const MAX_HEAD: usize = 1 << 20;
const MAX_BODY: usize = 256 << 20;
const PIECE: usize = 4 << 10;

/// A message as it was received.
#[derive(Debug, Default)]
pub struct Message {
    /// The first line.
    pub start: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The connection ended before the message.
    pub is_cut: bool,
}

impl Message {
    /// Returns a word of the first line.
    pub fn word(&self, at: usize) -> &str {
        self.start.split(' ').nth(at).unwrap_or_default()
    }

    /// Returns the values of a header.
    pub fn all<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m str> {
        self.headers
            .iter()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| &value[..])
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }

    /// Returns the status of a response.
    pub fn status(&self) -> Option<u16> {
        self.word(1).parse().ok()
    }

    /// Returns the reason of a response.
    pub fn reason(&self) -> &str {
        self.start.splitn(3, ' ').nth(2).unwrap_or_default()
    }

    /// Returns the body, decompressed if the message says that it is compressed.
    pub fn plain_body(&self) -> Vec<u8> {
        if self.get("Content-Encoding") != Some("gzip") {
            return self.body.clone();
        }
        let mut plain = Vec::new();
        let read = GzDecoder::new(&self.body[..]).take(MAX_BODY as u64).read_to_end(&mut plain);
        if read.is_ok() { plain } else { self.body.clone() }
    }
}

/// Compresses a body.
pub fn pack(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // A write to memory cannot fail.
    let _ = encoder.write_all(plain);
    encoder.finish().unwrap_or_default()
}

/// How the end of a response's body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A request has no body if it has no length.
    Request,
    /// The body of a response without length ends with the connection.
    Response { is_to_head: bool },
}

/// The received bytes of a connection.
#[derive(Default)]
pub struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    /// Reads more bytes. Returns false at the end of the connection.
    async fn more(&mut self, peer: &Peer) -> bool {
        let mut piece = [0; PIECE];
        let n = peer.read(&mut piece).await.unwrap_or(0);
        self.bytes.extend(&piece[..n]);
        n > 0
    }

    /// Reads a message, without interim responses. Returns `None` if the connection ends before it.
    pub async fn message(&mut self, peer: &Peer, side: Side) -> Option<Message> {
        loop {
            let mut message = self.head(peer).await?;
            let status = message.status().unwrap_or_default();
            if side != Side::Request && (100..200).contains(&status) && status != 101 {
                continue;
            }
            message.is_cut = !self.body(&mut message, peer, side).await;
            return Some(message);
        }
    }

    async fn head(&mut self, peer: &Peer) -> Option<Message> {
        let mut searched = 0;
        let end = loop {
            if let Some(at) = self.bytes[searched..].windows(4).position(|four| four == b"\r\n\r\n") {
                break searched + at;
            }
            searched = self.bytes.len().saturating_sub(3);
            if self.bytes.len() > MAX_HEAD || !self.more(peer).await {
                return None;
            }
        };
        let head: Vec<u8> = self.bytes.drain(..end + 4).collect();
        let text = String::from_utf8_lossy(&head[..end]).into_owned();
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().to_owned()))
        };
        Some(Message { start, headers: lines.filter_map(header).collect(), ..Message::default() })
    }

    /// Reads a body. Returns whether it is complete.
    async fn body(&mut self, message: &mut Message, peer: &Peer, side: Side) -> bool {
        let status = message.status().unwrap_or_default();
        let has_none = side == (Side::Response { is_to_head: true })
            || side != Side::Request && matches!(status, 101 | 204 | 304);
        if has_none {
            return true;
        }
        let chunked =
            message.get("Transfer-Encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        if chunked {
            return self.chunks(message, peer).await;
        }
        match (message.get("Content-Length").map(str::parse), side) {
            (Some(Ok(length)), _) => self.take(length, &mut message.body, peer).await,
            (Some(Err(_)), _) => false,
            (None, Side::Request) => true,
            (None, Side::Response { .. }) => {
                while self.bytes.len() < MAX_BODY && self.more(peer).await {}
                message.body.append(&mut self.bytes);
                true
            }
        }
    }

    async fn chunks(&mut self, message: &mut Message, peer: &Peer) -> bool {
        loop {
            let Some(line) = self.line(peer).await else { return false };
            let size = line.split(';').next().map(str::trim).unwrap_or_default();
            let Ok(size) = usize::from_str_radix(size, 16) else { return false };
            if size == 0 {
                // Trailers are skipped.
                while self.line(peer).await.is_some_and(|line| !line.is_empty()) {}
                return true;
            }
            if !self.take(size, &mut message.body, peer).await || self.line(peer).await.is_none() {
                return false;
            }
        }
    }

    async fn line(&mut self, peer: &Peer) -> Option<String> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.bytes.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.bytes.len() > MAX_HEAD || !self.more(peer).await {
                return None;
            }
        }
    }

    /// Moves so many bytes. Returns whether the connection had them.
    async fn take(&mut self, length: usize, to: &mut Vec<u8>, peer: &Peer) -> bool {
        let end = to.len().saturating_add(length);
        if end > MAX_BODY {
            return false;
        }
        loop {
            let n = self.bytes.len().min(end - to.len());
            to.extend(self.bytes.drain(..n));
            if to.len() == end {
                return true;
            }
            if !self.more(peer).await {
                return false;
            }
        }
    }
}
