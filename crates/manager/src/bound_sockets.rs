//! The sockets that the program before this one in this process has bound.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lacquer_cli::link::ListenAddress;
use socket2::Socket;

use crate::datagrams::Datagrams;
use crate::upgrade::{ListenerState, take};

/// A socket, with its UDP sockets for HTTP/3.
#[derive(Debug)]
pub struct BoundSocket {
    pub name: String,
    pub address: ListenAddress,
    pub socket: Socket,
    pub datagrams: Datagrams,
    pub is_listening: bool,
}

/// All sockets that no listener has taken.
#[derive(Debug, Default)]
pub struct BoundSockets(Vec<BoundSocket>);

impl BoundSockets {
    pub fn adopt(states: Vec<ListenerState>) -> io::Result<BoundSockets> {
        let adopt = |state: ListenerState| {
            let ListenerState { name, address, fd, datagrams, is_listening } = state;
            let udp = datagrams.into_iter().map(take).collect::<io::Result<Vec<OwnedFd>>>()?;
            let datagrams = match &address {
                ListenAddress::Ip(at) if !udp.is_empty() => Datagrams::adopt(*at, udp),
                _ => Datagrams::default(),
            };
            Ok(BoundSocket { name, address, socket: Socket::from(take(fd)?), datagrams, is_listening })
        };
        Ok(BoundSockets(states.into_iter().map(adopt).collect::<io::Result<_>>()?))
    }

    /// Takes the socket for an address of a listener. Port 0 stands for any port.
    pub fn take_tcp(&mut self, name: &str, wanted: SocketAddr) -> Option<BoundSocket> {
        self.take(name, |address| match address {
            ListenAddress::Ip(bound) => {
                bound.ip() == wanted.ip() && (wanted.port() == 0 || bound.port() == wanted.port())
            }
            ListenAddress::Unix(_) => false,
        })
    }

    /// Takes the UNIX socket with a path.
    pub fn take_unix(&mut self, name: &str, path: &str) -> Option<BoundSocket> {
        self.take(name, |address| matches!(address, ListenAddress::Unix(bound) if bound == path))
    }

    fn take(&mut self, name: &str, is_wanted: impl Fn(&ListenAddress) -> bool) -> Option<BoundSocket> {
        let at = self.0.iter().position(|bound| bound.name == name && is_wanted(&bound.address))?;
        Some(self.0.remove(at))
    }
}
