//! A client that sends arbitrary bytes, which need not be valid HTTP/1.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::wait::SOCKET_TIMEOUT;

/// The result of an exchange of bytes.
#[derive(Debug)]
pub struct Exchange {
    pub answer: Vec<u8>,
    /// True if the daemon closed the connection in order, false if it reset it or left it open.
    pub closed: bool,
    pub took: Duration,
}

impl Exchange {
    /// Returns the status of the first response, or 0 without one.
    pub fn status(&self) -> u16 {
        let digits = self.answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
        digits.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.answer).into_owned()
    }
}

/// Sends all of `bytes`, then reads until the connection ends. If `finish` is set, shuts down the sending side first.
pub fn exchange(address: SocketAddr, bytes: &[u8], finish: bool) -> io::Result<Exchange> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    // The daemon may close before it has read everything.
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
