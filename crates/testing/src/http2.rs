//! An HTTP/2 client that writes frames one by one and tells which responses began and which streams were reset.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::daemon::PATIENCE;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// One connection that speaks HTTP/2 from its first byte.
pub struct Http2 {
    stream: TcpStream,
    next: u32,
}

/// A frame from the daemon.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Http2 {
    pub fn connect(address: SocketAddr) -> io::Result<Http2> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Http2 { stream, next: 1 };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        client.write(SETTINGS, 0, 0, &[])?;
        Ok(client)
    }

    fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    /// Sends a GET without a body and returns the number of its stream.
    pub fn get(&mut self, path: &str) -> io::Result<u32> {
        let id = self.next;
        self.next += 2;
        // GET, the scheme http, then path and authority as literals (RFC 7541, sections 6.1 and 6.2.2).
        let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
        block.extend(path.as_bytes());
        block.extend([0x01, 6]);
        block.extend(b"robust");
        self.write(HEADERS, END_STREAM | END_HEADERS, id, &block)?;
        Ok(id)
    }

    /// Resets a stream with the code CANCEL.
    pub fn reset(&mut self, stream: u32) -> io::Result<()> {
        self.write(RST_STREAM, 0, stream, &8u32.to_be_bytes())
    }

    /// Reads the next frame that is neither about the connection nor part of a body.
    pub fn event(&mut self) -> io::Result<Frame> {
        loop {
            let frame = self.frame()?;
            if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                self.write(SETTINGS, ACK, 0, &[])?;
            }
            if frame.stream > 0 && frame.kind != DATA {
                return Ok(frame);
            }
        }
    }

    fn frame(&mut self) -> io::Result<Frame> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream) & (u32::MAX >> 1), payload })
    }
}

impl Frame {
    /// Whether this is the head of a response with status 200.
    pub fn is_ok(&self) -> bool {
        self.kind == HEADERS && self.payload.first() == Some(&0x88)
    }

    /// Whether this is a reset of the stream.
    pub fn is_reset(&self) -> bool {
        self.kind == RST_STREAM
    }
}
