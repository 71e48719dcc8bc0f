//! `-T`: sockets on which the CLI can be reached.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::fault::{Fault, Outcome};
use crate::jail::Jail;
use crate::resolve::resolve;

const BACKLOG: i32 = 10;
/// A client that does not read its answers must not hold everybody up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Listening sockets of the CLI.
#[derive(Debug, Default)]
pub struct CliSockets {
    listeners: Vec<TcpListener>,
}

/// `address port`, as readers of the `-T` argument in shared memory expect.
fn pair(address: SocketAddr) -> String {
    format!("{} {}", address.ip(), address.port())
}

/// Names a connection in the log: the other side, then ours.
pub fn ident(kind: &str, stream: &TcpStream) -> String {
    let shown = |address: std::io::Result<SocketAddr>| address.map_or_else(|_| "- -".to_owned(), pair);
    format!("{kind} {} {}", shown(stream.peer_addr()), shown(stream.local_addr()))
}

/// Makes a connection fit for a session.
pub fn prepare(stream: &TcpStream) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let _ = stream.set_nodelay(true);
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
    /// Listens on what one `-T` means; returns the addresses for shared memory.
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

    /// What to poll for new connections.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.as_fd())
    }

    /// Accepts from the socket with this number.
    pub fn accept(&self, at: usize) -> Option<TcpStream> {
        let (stream, _) = self.listeners.get(at)?.accept().ok()?;
        prepare(&stream);
        Some(stream)
    }
}
