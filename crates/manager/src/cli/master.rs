//! `-M`: connects to a client that then sends commands. There is one connection at a time. When it ends or cannot be
//! made, the next address is tried after a pause that grows.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::sockets::prepare;
use crate::fault::{Fault, Outcome};
use crate::resolve::resolve;

const FIRST_PAUSE: f64 = 0.1;
const LONGEST_PAUSE: f64 = 10.0;

#[derive(Debug)]
enum Step {
    /// Waits until this time before it connects.
    Wait(Instant),
    Connecting(Socket),
    Connected,
}

/// Maintains one connection to the addresses of `-M`.
#[derive(Debug)]
pub struct Master {
    addresses: Vec<SocketAddr>,
    step: Step,
    pause: f64,
}

impl Master {
    /// Resolves the arguments. Returns `None` if there are none.
    pub fn new(arguments: &[String]) -> Outcome<Option<Master>> {
        let mut addresses = Vec::new();
        for argument in arguments {
            addresses.extend(resolve(argument, 0).map_err(|fault| {
                Fault::usage(format!("Could not resolve -M argument to address\n\t{fault}"))
            })?);
        }
        let step = Step::Wait(Instant::now());
        Ok((!addresses.is_empty()).then_some(Master { addresses, step, pause: FIRST_PAUSE }))
    }

    /// Returns the time of the next attempt, unless a connection exists or is being made.
    pub fn deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Wait(until) => Some(until),
            _ => None,
        }
    }

    /// Returns the socket to poll for the end of the connection attempt.
    pub fn connecting(&self) -> Option<BorrowedFd<'_>> {
        match &self.step {
            Step::Connecting(socket) => Some(socket.as_fd()),
            _ => None,
        }
    }

    fn start(&mut self) -> io::Result<Socket> {
        let address = self.addresses[0];
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        Ok(socket)
    }

    fn later(&mut self) {
        self.addresses.rotate_left(1);
        self.step = Step::Wait(Instant::now() + Duration::from_secs_f64(self.pause));
        self.pause = (self.pause + 1.0).min(LONGEST_PAUSE);
    }

    /// Starts a connection attempt when it is due.
    pub fn tick(&mut self) {
        if self.deadline().is_some_and(|until| until <= Instant::now()) {
            match self.start() {
                Ok(socket) => self.step = Step::Connecting(socket),
                Err(_) => self.later(),
            }
        }
    }

    /// Takes the new connection, or fails with the reason why the attempt failed.
    pub fn finish(&mut self) -> io::Result<TcpStream> {
        let Step::Connecting(socket) = std::mem::replace(&mut self.step, Step::Connected) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if let Some(error) = socket.take_error()? {
            self.later();
            return Err(error);
        }
        self.pause = 1.0;
        let stream = TcpStream::from(socket);
        prepare(&stream);
        Ok(stream)
    }

    /// Records that the connection has ended.
    pub fn disconnected(&mut self) {
        self.step = Step::Wait(Instant::now() + Duration::from_secs_f64(self.pause));
    }
}
