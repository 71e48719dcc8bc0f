//! The endpoints of an address, one for each reactor.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use lacquer_tls::{Frontend, QuicSecret};

use crate::core::Core;
use crate::endpoint::{Endpoint, Host, Place};
use crate::forward::{Forwarded, Forwarder};
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
    /// The number of the address, by which workers that follow each other know it.
    number: u8,
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

fn too_many<T>(what: &str) -> impl Fn(T) -> String {
    move |_| format!("HTTP/3 has no more than {} {what}", u8::MAX)
}

impl Group {
    /// The number must differ from those of other groups.
    pub fn new(number: usize, sockets: Vec<UdpSocket>) -> Result<Group, String> {
        Group::over(number, sockets.into_iter().map(Unstarted::System).collect())
    }

    /// Creates a group of sockets in memory.
    #[cfg(any(test, feature = "memory"))]
    pub fn in_memory(wires: Vec<Wire>) -> Result<Group, String> {
        Group::over(0, wires.into_iter().map(Unstarted::Memory).collect())
    }

    fn over(number: usize, sockets: Vec<Unstarted>) -> Result<Group, String> {
        let (forwarder, queues) = Forwarder::new(sockets.len());
        Ok(Group { sockets, number: u8::try_from(number).map_err(too_many("addresses"))?, forwarder, queues })
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
        let keys = Keys::of(secret);
        let Some(first) = self.sockets.first() else { return Ok(Vec::new()) };
        let first = Arc::new(first.duplicate().map_err(|e| format!("cannot use a UDP socket: {e}"))?);
        let sockets = self.sockets.into_iter().zip(self.queues).enumerate();
        sockets
            .map(|(at, (socket, forwarded))| {
                let reactor = u8::try_from(at).map_err(too_many("reactors"))?;
                let place = Place {
                    owner: Owner { worker: workers.own, reactor },
                    group: self.number,
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
