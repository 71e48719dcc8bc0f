//! The endpoints of an address, one for each reactor.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use lacquer_tls::{Frontend, QuicSecret};

use crate::core::Core;
use crate::endpoint::{Endpoint, Host, Place};
use crate::forward::{Forwarded, Forwarder};
use crate::group_name::GroupName;
use crate::ids::{Neutral, Owner};
#[cfg(any(test, feature = "memory"))]
use crate::memory::Wire;
use crate::relay::Predecessor;
use crate::server::{Keys, Server};
use crate::socket::Socket;

/// A socket that is not on its reactor yet.
enum Unstarted {
    System(UdpSocket),
    #[cfg(any(test, feature = "memory"))]
    Memory(Wire),
}

impl Unstarted {
    fn start(self) -> io::Result<Socket> {
        match self {
            Unstarted::System(socket) => Socket::new(socket),
            #[cfg(any(test, feature = "memory"))]
            Unstarted::Memory(wire) => Ok(Socket::in_memory(wire)),
        }
    }

    /// Returns the address to which the socket is bound.
    fn local(&self) -> io::Result<SocketAddr> {
        match self {
            Unstarted::System(socket) => socket.local_addr(),
            #[cfg(any(test, feature = "memory"))]
            Unstarted::Memory(wire) => Ok(wire.local()),
        }
    }

    /// Returns another descriptor of the socket, if it has one.
    fn duplicate(&self) -> io::Result<Option<UdpSocket>> {
        match self {
            Unstarted::System(socket) => socket.try_clone().map(Some),
            #[cfg(any(test, feature = "memory"))]
            Unstarted::Memory(_) => Ok(None),
        }
    }
}

/// The sockets of an address, which share their port.
pub struct Group {
    sockets: Vec<Unstarted>,
    name: GroupName,
    forwarder: Forwarder,
    queues: Vec<Forwarded>,
}

/// The workers that connection ids name.
#[derive(Clone)]
pub struct Workers {
    pub own: u8,
    pub predecessor: Option<Predecessor>,
}

/// An endpoint that has not been started on its reactor.
pub struct Seed {
    socket: Unstarted,
    place: Place,
    keys: Keys,
    server: Server,
}

impl Group {
    /// Creates a group of sockets that are bound to the same address. There must be at least one.
    pub fn new(sockets: Vec<UdpSocket>) -> Result<Group, String> {
        Group::over(sockets.into_iter().map(Unstarted::System).collect())
    }

    /// Creates a group of sockets in memory.
    #[cfg(any(test, feature = "memory"))]
    pub fn in_memory(wires: Vec<Wire>) -> Result<Group, String> {
        Group::over(wires.into_iter().map(Unstarted::Memory).collect())
    }

    fn over(sockets: Vec<Unstarted>) -> Result<Group, String> {
        let bound = sockets.first().ok_or("HTTP/3 needs a UDP socket")?.local();
        let bound = bound.map_err(|e| format!("cannot use a UDP socket: {e}"))?;
        let (forwarder, queues) = Forwarder::new(sockets.len());
        Ok(Group { sockets, name: GroupName::of(bound), forwarder, queues })
    }

    pub fn name(&self) -> GroupName {
        self.name
    }

    /// Returns the queues of the reactors, for datagrams that the next worker passes on.
    pub fn forwarder(&self) -> Forwarder {
        self.forwarder.clone()
    }

    /// Returns the endpoints, in the order of the reactors.
    pub fn seeds(
        self,
        frontend: &Frontend,
        secret: &QuicSecret,
        workers: &Workers,
    ) -> Result<Vec<Seed>, String> {
        let keys = Keys::of(secret, &self.name);
        let Some(first) = self.sockets.first() else { return Ok(Vec::new()) };
        let first = Arc::new(first.duplicate().map_err(|e| format!("cannot use a UDP socket: {e}"))?);
        let sockets = self.sockets.into_iter().zip(self.queues).enumerate();
        sockets
            .map(|(at, (socket, forwarded))| {
                let reactor =
                    u8::try_from(at).map_err(|_| format!("HTTP/3 has no more than {} reactors", u8::MAX))?;
                let place = Place {
                    owner: Owner { worker: workers.own, reactor },
                    group: self.name,
                    ids: keys.ids,
                    neutral: Neutral::default(),
                    predecessor: workers.predecessor.clone(),
                    first: first.clone(),
                    forwarder: self.forwarder.clone(),
                    forwarded,
                };
                let server = Server::new(&keys, frontend.clone())?;
                Ok(Seed { socket, place, keys: keys.clone(), server })
            })
            .collect()
    }
}

impl Seed {
    /// Creates the endpoint. Must be called on its reactor.
    pub fn start<H: Host>(self, host: H) -> io::Result<Endpoint<H>> {
        let Seed { socket, place, keys, mut server } = self;
        let socket = socket.start()?;
        let config = server.config(&host.settings());
        let is_whole = !socket.may_fragment();
        let settings = keys.endpoint(place.owner, &place.neutral);
        let endpoint = quinn_proto::Endpoint::new(settings, Some(config), is_whole, None);
        Ok(Endpoint::new(Core::new(socket, endpoint), place, server, host))
    }
}
