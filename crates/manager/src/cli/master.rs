//! `-M`: connects to a client that then sends commands. There is one connection at a time. When it ends or cannot be
//! made, the next address is tried after a pause that grows.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::sockets::prepare;
use crate::fault::{Fault, Outcome};
use crate::lookup::{Lookup, Resolved};
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
    arguments: Vec<String>,
    /// Empty until the names are resolved.
    addresses: Vec<SocketAddr>,
    lookup: Lookup,
    step: Step,
    pause: f64,
}

impl Master {
    /// Resolves the arguments. Returns `None` if there are none.
    pub fn new(arguments: &[String]) -> Outcome<Option<Master>> {
        let addresses = resolve_all(arguments)
            .map_err(|fault| Fault::usage(format!("Could not resolve -M argument to address\n\t{fault}")))?;
        Ok(Master::unresolved(arguments).map(|master| Master { addresses, ..master }))
    }

    /// Creates a master whose names are resolved while the daemon serves. Returns `None` without arguments.
    pub fn unresolved(arguments: &[String]) -> Option<Master> {
        let step = Step::Wait(Instant::now());
        (!arguments.is_empty()).then(|| Master {
            arguments: arguments.to_vec(),
            addresses: Vec::new(),
            lookup: Lookup::default(),
            step,
            pause: FIRST_PAUSE,
        })
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

    /// Begins to resolve the names, or takes the result, unless they are resolved.
    fn look_up(&mut self) {
        if !self.addresses.is_empty() {
            return;
        }
        if let Some(Ok(addresses)) = self.lookup.result() {
            self.addresses = addresses;
            return;
        }
        let arguments = self.arguments.clone();
        self.lookup.start(move || resolve_all(&arguments));
    }

    fn start(&mut self) -> io::Result<Socket> {
        self.look_up();
        let address = *self.addresses.first().ok_or(io::ErrorKind::NotFound)?;
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
        if !self.addresses.is_empty() {
            self.addresses.rotate_left(1);
        }
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
        if let Some(error) = socket.take_error().unwrap_or_else(Some) {
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

fn resolve_all(arguments: &[String]) -> Resolved {
    let mut addresses = Vec::new();
    for argument in arguments {
        addresses.extend(resolve(argument, 0)?);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn names_may_be_resolved_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let arguments = [listener.local_addr().unwrap().to_string()];
        assert!(Master::new(&[]).unwrap().is_none() && Master::unresolved(&[]).is_none());
        assert!(Master::new(&["nosuch:nonsense".to_owned()]).is_err());
        let mut master = Master::unresolved(&arguments).unwrap();
        master.tick();
        assert!(master.connecting().is_none(), "nothing blocks");
        while master.connecting().is_none() {
            std::thread::sleep(Duration::from_millis(5));
            master.tick();
        }
        listener.accept().unwrap();
        master.finish().unwrap();
    }
}
