//! Clients that send bytes as they are: HTTP/1 that need not be any, and HTTP/2 streams from literal fields.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::daemon::PATIENCE;

/// How an exchange of bytes ended.
#[derive(Debug)]
pub struct Exchange {
    pub answer: Vec<u8>,
    /// The daemon ended the connection in order, rather than by a reset or not at all.
    pub closed: bool,
    pub took: Duration,
}

impl Exchange {
    /// Status of the first response; 0 without one.
    pub fn status(&self) -> u16 {
        let digits = self.answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
        digits.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.answer).into_owned()
    }
}

/// Sends all of `bytes`, then reads until the connection ends. With `finish` the sending side ends first.
pub fn exchange(address: SocketAddr, bytes: &[u8], finish: bool) -> io::Result<Exchange> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // A daemon that has heard enough may close meanwhile.
    let _ = stream.write_all(bytes);
    if finish {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let closed = loop {
        match stream.read(&mut piece) {
            Ok(0) => break true,
            Ok(n) => answer.extend_from_slice(&piece[..n]),
            Err(_) => break false,
        }
    };
    Ok(Exchange { answer, closed, took: begun.elapsed() })
}

/// What came of one stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Status of the response; 0 without one.
    pub status: u16,
    pub body: Vec<u8>,
    /// The stream or the connection was ended with this error.
    pub reset: Option<u32>,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface of a client and its settings.
pub fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Fields as literals that change no table. A field may be anything that is shorter than 127 bytes.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Sends one request without a body on a new HTTP/2 connection.
pub fn h2(address: SocketAddr, fields: &[(&str, &str)]) -> io::Result<Stream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[preface(), frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(fields))].concat())?;
    read_stream(&mut stream)
}

/// Reads frames to the end of the first stream or of the connection.
pub fn read_stream(stream: &mut TcpStream) -> io::Result<Stream> {
    let mut result = Stream::default();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        let number =
            |at: usize| payload.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        match kind {
            HEADERS => result.status = status(&payload),
            DATA => result.body.extend_from_slice(&payload),
            RST_STREAM => result.reset = Some(number(0)),
            GOAWAY => result.reset = Some(number(4)),
            _ => {}
        }
        let ended = matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
        if ended || result.reset.is_some() {
            return Ok(result);
        }
    }
}

/// The status at the start of a header block: an entry of the static table, or a literal with its name.
fn status(block: &[u8]) -> u16 {
    match block {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        [_, 3, digits @ ..] => {
            std::str::from_utf8(&digits[..3]).ok().and_then(|d| d.parse().ok()).unwrap_or(0)
        }
        _ => 0,
    }
}
