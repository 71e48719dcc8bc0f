//! A server with one thread and one epoll and as little code as possible: the cost of a request is that of the kernel.
//! Input that ends with an empty line counts as one whole request, as the bench's clients send it; other input waits
//! for more bytes.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

const LISTENER: u64 = u64::MAX;
const READ_SIZE: usize = 16 * 1024;

/// A prepared response: bytes to write, then a file to send.
pub struct Reply {
    pub bytes: Rc<[u8]>,
    pub file: Option<Rc<Body>>,
    pub delay: Duration,
    pub close: bool,
}

/// A body in the page cache, sent without copying it through this process.
pub struct Body {
    pub file: File,
    pub size: u64,
}

pub trait Answer {
    fn answer(&mut self, request: &[u8]) -> Reply;
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    reply: Option<Reply>,
    written: usize,
    sent: u64,
    due: Option<Instant>,
    blocked: bool,
}

pub struct Server<A> {
    answers: A,
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    waiting: Vec<usize>,
    scratch: Vec<u8>,
}

/// The event that a connection waits for, or its end.
enum Fate {
    Reads,
    Writes,
    Ends,
}

impl<A: Answer> Server<A> {
    pub fn new(address: SocketAddr, answers: A) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        rustix::net::listen(&listener, 4096)?; // the standard library's backlog is 128
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            answers,
            epoll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            scratch: vec![0; READ_SIZE],
        })
    }

    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let timeout = self.next_due().map(|d| rustix::time::Timespec {
                tv_sec: d.as_secs() as i64,
                tv_nsec: i64::from(d.subsec_nanos()),
            });
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    token => self.drive(token as usize),
                }
            }
            self.release_due();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let data = EventData::new_u64(slot as u64);
            epoll::add(&self.epoll, &stream, data, EventFlags::IN)?;
            self.connections[slot] = Some(Connection::new(stream));
        }
        Ok(())
    }

    fn drive(&mut self, slot: usize) {
        let Some(mut connection) = self.connections.get_mut(slot).and_then(Option::take) else { return };
        let blocked = match connection.drive(&mut self.answers, &mut self.scratch) {
            Fate::Reads => false,
            Fate::Writes => true,
            Fate::Ends => {
                self.free.push(slot);
                return;
            }
        };
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let flags = if blocked { EventFlags::OUT } else { EventFlags::IN };
            if epoll::modify(&self.epoll, &connection.stream, EventData::new_u64(slot as u64), flags).is_err()
            {
                return;
            }
        }
        if connection.due.is_some() && !self.waiting.contains(&slot) {
            self.waiting.push(slot);
        }
        self.connections[slot] = Some(connection);
    }

    /// Returns the time until the earliest delayed reply, or `None` if no reply is delayed.
    fn next_due(&self) -> Option<Duration> {
        let due = |slot: &usize| self.connections[*slot].as_ref().and_then(|c| c.due);
        let earliest = self.waiting.iter().filter_map(due).min()?;
        Some(earliest.saturating_duration_since(Instant::now()))
    }

    fn release_due(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        for slot in std::mem::take(&mut self.waiting) {
            let Some(connection) = self.connections[slot].as_mut() else { continue };
            match connection.due {
                Some(due) if due <= now => {
                    connection.due = None;
                    self.drive(slot);
                }
                Some(_) => self.waiting.push(slot),
                None => {}
            }
        }
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, input: Vec::new(), reply: None, written: 0, sent: 0, due: None, blocked: false }
    }

    /// Does one read and one write for one event; epoll reports again if there is more to read.
    fn drive(&mut self, answers: &mut impl Answer, scratch: &mut [u8]) -> Fate {
        if self.due.is_some() {
            return Fate::Reads;
        }
        if self.reply.is_none() {
            let got = match self.stream.read(scratch) {
                Ok(0) => return Fate::Ends,
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Fate::Reads,
                Err(_) => return Fate::Ends,
            };
            let Some(reply) = self.reply_to(&scratch[..got], answers) else { return Fate::Reads };
            let delayed = reply.delay > Duration::ZERO;
            self.due = delayed.then(|| Instant::now() + reply.delay);
            self.reply = Some(reply);
            if delayed {
                return Fate::Reads;
            }
        }
        match self.send() {
            Ok(true) => Fate::Reads,
            Ok(false) => Fate::Writes,
            Err(_) => Fate::Ends,
        }
    }

    /// Returns the reply if the request is complete; otherwise stores its beginning.
    fn reply_to(&mut self, bytes: &[u8], answers: &mut impl Answer) -> Option<Reply> {
        if self.input.is_empty() && bytes.ends_with(b"\r\n\r\n") {
            return Some(answers.answer(bytes));
        }
        self.input.extend_from_slice(bytes);
        if !self.input.ends_with(b"\r\n\r\n") {
            return None;
        }
        let reply = answers.answer(&self.input);
        self.input.clear();
        Some(reply)
    }

    /// Returns true if the whole reply was passed to the kernel.
    fn send(&mut self) -> io::Result<bool> {
        let Some(reply) = &self.reply else { return Ok(true) };
        while self.written < reply.bytes.len() {
            match self.stream.write(&reply.bytes[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if let Some(body) = &reply.file {
            while self.sent < body.size {
                let left = (body.size - self.sent) as usize;
                match rustix::fs::sendfile(&self.stream, &body.file, Some(&mut self.sent), left) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::AGAIN) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let close = reply.close;
        self.reply = None;
        (self.written, self.sent) = (0, 0);
        if close { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(true) }
    }
}
