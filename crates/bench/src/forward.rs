//! The floor of a pass: reads a request, writes it to the origin, reads the response, writes it back. Each client has
//! an origin connection of its own. Nothing is parsed or buffered. If the other side cannot take all bytes at once, the
//! connection ends, so this server is only for the small responses of the bench. With `--close` every request uses a
//! new origin connection.

use crate::options::Options;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

const LISTENER: u64 = u64::MAX;

/// A client and its connection to the origin, which may have ended after a response.
struct Pair {
    client: TcpStream,
    origin: Option<TcpStream>,
}

struct Forwarder {
    origin: SocketAddr,
    close: bool,
    epoll: OwnedFd,
    listener: TcpListener,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

pub fn run(options: &Options) -> Result<(), String> {
    let address = options.address("listen")?;
    let origin = options.address("to")?;
    Forwarder::new(address, origin, options.is_set("close"))
        .and_then(Forwarder::run)
        .map_err(|error| format!("{address}: {error}"))
}

impl Forwarder {
    fn new(address: SocketAddr, origin: SocketAddr, close: bool) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        rustix::net::listen(&listener, 4096)?; // the standard library's backlog is 128
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let (pairs, free, buffer) = (Vec::new(), Vec::new(), vec![0; 64 * 1024]);
        Ok(Self { origin, close, epoll, listener, pairs, free, buffer })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    token => self.forward((token / 2) as usize, token % 2 == 1),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((client, _)) = self.listener.accept() {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.pairs.push(None);
                self.pairs.len() - 1
            });
            self.watch(&client, slot, false)?;
            self.pairs[slot] = Some(Pair { client, origin: None });
        }
        Ok(())
    }

    fn watch(&self, stream: &TcpStream, slot: usize, is_origin: bool) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let token = slot as u64 * 2 + u64::from(is_origin);
        Ok(epoll::add(&self.epoll, stream, EventData::new_u64(token), EventFlags::IN)?)
    }

    fn forward(&mut self, slot: usize, from_origin: bool) {
        let Some(mut pair) = self.pairs.get_mut(slot).and_then(Option::take) else { return };
        let outcome =
            if from_origin { self.return_response(&mut pair) } else { self.send_request(&mut pair, slot) };
        match outcome {
            Ok(()) => self.pairs[slot] = Some(pair),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.pairs[slot] = Some(pair),
            Err(_) => self.free.push(slot),
        }
    }

    fn send_request(&mut self, pair: &mut Pair, slot: usize) -> io::Result<()> {
        let got = pair.client.read(&mut self.buffer)?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if pair.origin.is_none() {
            let origin = TcpStream::connect(self.origin)?;
            self.watch(&origin, slot, true)?;
            pair.origin = Some(origin);
        }
        match pair.origin.as_mut() {
            Some(origin) => whole(origin.write_all(&self.buffer[..got])),
            None => Ok(()),
        }
    }

    fn return_response(&mut self, pair: &mut Pair) -> io::Result<()> {
        let Some(origin) = pair.origin.as_mut() else { return Ok(()) };
        let got = origin.read(&mut self.buffer)?;
        if got == 0 || self.close {
            pair.origin = None;
        }
        whole(pair.client.write_all(&self.buffer[..got]))
    }
}

/// Turns `WouldBlock` into an error that ends the connection: a part was written, so the write cannot be repeated.
fn whole(written: io::Result<()>) -> io::Result<()> {
    written.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::WriteZero.into(),
        _ => error,
    })
}
