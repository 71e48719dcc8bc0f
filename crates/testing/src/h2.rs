//! An HTTP/2 client that sends arbitrary frames, valid or not.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait::SOCKET_TIMEOUT;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 section 6).
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The identifier of SETTINGS_INITIAL_WINDOW_SIZE.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// Appends a frame.
pub fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Returns a header block of a request, uncompressed and without entries for the dynamic table.
pub fn block(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":path", path), (":authority", "robust")];
    // Scheme "http", from the static table.
    [vec![0x86], literals(&[&fields[..], more].concat())].concat()
}

/// Returns the header block of a CONNECT without a protocol.
pub fn connect_block(authority: &str) -> Vec<u8> {
    literals(&[(":method", "CONNECT"), (":authority", authority)])
}

/// Returns a header block of arbitrary fields; each name and value must be shorter than 127 bytes.
fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "the length fits into one byte");
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// Returns the payload of a SETTINGS frame.
pub fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let bytes = |&(number, value): &(u16, u32)| [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
    entries.iter().flat_map(bytes).collect()
}

/// The outcome of the request on the only stream of a connection.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The status of the response, or 0 without one.
    pub status: u16,
    pub body: Vec<u8>,
    /// The error code with which the stream or the connection ended.
    pub reset: Option<u32>,
}

/// Sends one request with arbitrary fields and no body on a new connection.
pub fn ask(address: SocketAddr, fields: &[(&str, &str)]) -> io::Result<Outcome> {
    let mut client = H2Client::connect(address, &[])?;
    let stream = client.new_stream();
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &literals(fields))?;
    client.outcome()
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a GOAWAY with this code.
    GoAway(u32),
    /// Without a GOAWAY.
    Closed,
    /// It was still open when the time had passed.
    Open,
}

/// One connection to the daemon, with prior knowledge.
pub struct H2Client {
    stream: BufReader<TcpStream>,
    next: u32,
}

impl H2Client {
    /// Connects and sends the preface with these settings.
    pub fn connect(address: SocketAddr, entries: &[(u16, u32)]) -> io::Result<H2Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
        let mut client = H2Client { stream: BufReader::new(stream), next: 1 };
        let mut first = PREFACE.to_vec();
        put(&mut first, kind::SETTINGS, 0, 0, &settings(entries));
        client.send_bytes(&first)?;
        Ok(client)
    }

    /// Returns another handle of the socket, for writing.
    pub fn socket(&self) -> io::Result<TcpStream> {
        self.stream.get_ref().try_clone()
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        put(&mut out, kind, flags, stream, payload);
        self.send_bytes(&out)
    }

    /// Returns the identifier of a new stream.
    pub fn new_stream(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Sends a GET. Returns its stream.
    pub fn get(&mut self, path: &str) -> io::Result<u32> {
        let stream = self.new_stream();
        self.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block("GET", path, &[]))?;
        Ok(stream)
    }

    /// Resets a stream with the code CANCEL.
    pub fn reset(&mut self, stream: u32) -> io::Result<()> {
        self.send(kind::RST_STREAM, 0, stream, &8u32.to_be_bytes())
    }

    /// Reads one frame.
    pub fn frame(&mut self) -> io::Result<Frame> {
        let mut head = [0u8; 9];
        self.stream.read_exact(&mut head)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let mut frame = Frame { kind: head[3], flags: head[4], stream, payload: vec![0; len as usize] };
        self.stream.read_exact(&mut frame.payload)?;
        Ok(frame)
    }

    /// Reads until a stream has ended. Returns the status, or `None` if the stream was reset, and the body.
    pub fn response(&mut self, stream: u32) -> io::Result<(Option<u16>, Vec<u8>)> {
        let (mut status, mut body) = (None, Vec::new());
        loop {
            let frame = self.frame()?;
            match frame.kind {
                kind::GOAWAY => return Err(ErrorKind::ConnectionAborted.into()),
                _ if frame.stream != stream => continue,
                kind::RST_STREAM => return Ok((None, body)),
                kind::HEADERS => status = status_of(&frame.payload),
                kind::DATA => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            if matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & END_STREAM != 0 {
                return Ok((status, body));
            }
        }
    }

    /// Reads until the only stream, or the connection, has ended.
    pub fn outcome(&mut self) -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        loop {
            let frame = self.frame()?;
            let number = |at: usize| {
                let bytes = frame.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u32::from_be_bytes)
            };
            match frame.kind {
                kind::HEADERS => outcome.status = status_of(&frame.payload).unwrap_or(0),
                kind::DATA => outcome.body.extend_from_slice(&frame.payload),
                kind::RST_STREAM => outcome.reset = Some(number(0)),
                kind::GOAWAY => outcome.reset = Some(number(4)),
                _ => {}
            }
            let ended = matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & END_STREAM != 0;
            if ended || outcome.reset.is_some() {
                return Ok(outcome);
            }
        }
    }

    /// Reads until the connection ends or the time has passed.
    pub fn end(&mut self, within: Duration) -> End {
        let begun = std::time::Instant::now();
        let mut end = End::Closed;
        loop {
            let left = within.saturating_sub(begun.elapsed());
            if left.is_zero() || self.stream.get_ref().set_read_timeout(Some(left)).is_err() {
                return End::Open;
            }
            match self.frame() {
                Ok(frame) if frame.kind == kind::GOAWAY => {
                    let code = frame.payload.get(4..8).and_then(|code| code.try_into().ok());
                    end = End::GoAway(code.map_or(0, u32::from_be_bytes));
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return End::Open;
                }
                Err(_) => return end,
            }
        }
    }

    /// Closes both directions.
    pub fn close(self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }
}

/// Returns the status in a response's header block, which is the first field.
fn status_of(block: &[u8]) -> Option<u16> {
    match *block.first()? {
        row @ 0x88..=0x8e => Some([200, 204, 206, 304, 400, 404, 500][usize::from(row - 0x88)]),
        _ => std::str::from_utf8(block.get(2..5)?).ok()?.parse().ok(),
    }
}
