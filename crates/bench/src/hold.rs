//! Connections that only consume resources: idle ones that never send, idle ones of TLS that have had one response, and
//! slow ones. Half of the slow ones send a request and half read a response, one byte a second, spread evenly over the
//! second. They stay open until this program is ended.

use crate::options::Options;
use crate::secure;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The start of a request whose header never ends.
const ENDLESS: &[u8] = b"GET /1400/page HTTP/1.1\r\nHost: bench\r\nX-Slow: ";
const LARGE: &[u8] = b"GET /1000000/page HTTP/1.1\r\nHost: bench\r\n\r\n";

pub fn run(options: &Options) -> Result<(), String> {
    let address = options.address("connect")?;
    let failed = |error: io::Error| format!("{address}: {error}");
    let idle = open(address, options.number("idle", 0)?).map_err(failed)?;
    let secure = secure::open(address, options)?;
    let slow: usize = options.number("slow", 0)?;
    let mut senders = open(address, slow / 2).map_err(failed)?;
    let mut readers = open(address, slow - slow / 2).map_err(failed)?;
    for reader in &mut readers {
        rustix::net::sockopt::set_socket_recv_buffer_size(&*reader, 4096).map_err(|e| failed(e.into()))?;
        reader.write_all(LARGE).map_err(failed)?;
    }
    println!("holding {} idle and {slow} slow connections", idle.len() + secure.len());
    for second in 0.. {
        let byte = ENDLESS.get(second).copied().unwrap_or(b'x');
        let mut pace = Pace::new(senders.len() + readers.len());
        senders.retain_mut(|sender| {
            pace.wait();
            sender.write_all(&[byte]).is_ok()
        });
        readers.retain_mut(|reader| {
            pace.wait();
            reader.read(&mut [0]).is_ok_and(|n| n > 0)
        });
        pace.end();
    }
    Ok(())
}

/// Spreads operations evenly over a second.
struct Pace {
    begun: Instant,
    each: Duration,
    count: u32,
}

impl Pace {
    fn new(count: usize) -> Self {
        Self { begun: Instant::now(), each: Duration::from_secs(1) / count.max(1) as u32, count: 0 }
    }

    fn wait(&mut self) {
        thread::sleep((self.each * self.count).saturating_sub(self.begun.elapsed()));
        self.count += 1;
    }

    fn end(self) {
        thread::sleep(Duration::from_secs(1).saturating_sub(self.begun.elapsed()));
    }
}

fn open(address: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    let connect = |_| {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        Ok(stream)
    };
    (0..count).map(connect).collect()
}
