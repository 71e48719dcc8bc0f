//! `-T`: the listening sockets of the CLI.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::fault::{Fault, Outcome};
use crate::jail::Jail;
use crate::resolve::resolve;

/// Length of the accept queue, as long as the system allows: a flood must not keep others from connecting.
const BACKLOG: i32 = 4096;
/// Idle time after which TCP keepalive checks whether the client still exists.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Listening sockets of the CLI.
#[derive(Debug, Default)]
pub struct CliSockets {
    listeners: Vec<TcpListener>,
}

/// `address port`, as readers of the `-T` argument in shared memory expect.
fn pair(address: SocketAddr) -> String {
    format!("{} {}", address.ip(), address.port())
}

/// Returns a connection's name in the log: the peer's address, then ours.
pub fn ident(kind: &str, stream: &TcpStream) -> String {
    let shown = |address: std::io::Result<SocketAddr>| address.map_or_else(|_| "- -".to_owned(), pair);
    format!("{kind} {} {}", shown(stream.peer_addr()), shown(stream.local_addr()))
}

/// Sets the socket options that a session needs.
pub fn prepare(stream: &TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl CliSockets {
    /// Listens on the addresses of one `-T`. Returns the text to publish in shared memory.
    pub fn add(&mut self, argument: &str, jail: &Jail) -> Outcome<String> {
        let addresses = resolve(argument, 0)
            .map_err(|fault| Fault::usage(format!("Could not resolve -T argument to address\n\t{fault}")))?;
        let mut shown = String::new();
        for address in addresses {
            let _root = jail.raise();
            if let Ok(listener) = listen(address) {
                let bound = listener.local_addr().unwrap_or(address);
                shown.push_str(&pair(bound));
                shown.push('\n');
                self.listeners.push(listener);
            }
        }
        if shown.is_empty() {
            return Err(Fault::usage(format!("-T {argument} could not be listened on.")));
        }
        Ok(shown)
    }

    /// Takes over sockets. Also returns the text to publish in shared memory.
    pub fn adopt(sockets: Vec<OwnedFd>) -> (CliSockets, String) {
        let listeners: Vec<TcpListener> = sockets.into_iter().map(TcpListener::from).collect();
        let bound = listeners.iter().filter_map(|listener| listener.local_addr().ok());
        let shown = bound.map(|address| pair(address) + "\n").collect();
        (CliSockets { listeners }, shown)
    }

    /// Returns the descriptors to poll for new connections.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.as_fd())
    }

    /// Accepts a connection from the socket with this number. Returns `None` if none is waiting. Fails when descriptors
    /// or memory are exhausted.
    pub fn accept(&self, at: usize) -> std::io::Result<Option<TcpStream>> {
        let Some(listener) = self.listeners.get(at) else { return Ok(None) };
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset => {}
                    ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(error),
                },
            }
        }
    }
}
