//! A client that sends bytes as they are: HTTP/1 that need not be any.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::patience::PATIENCE;

/// The result of an exchange of bytes.
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
