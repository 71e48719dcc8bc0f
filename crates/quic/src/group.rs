//! The endpoints of an address, one for each reactor.

use std::io;
use std::net::UdpSocket;

use lacquer_tls::{Frontend, QuicSecret};

use crate::core::Core;
use crate::endpoint::{Endpoint, Host, Place};
use crate::forward::Forwarder;
use crate::server::{Keys, Server};
use crate::socket::Socket;

/// The sockets of an address, which share their port.
pub struct Group {
    sockets: Vec<UdpSocket>,
}

/// An endpoint that has not been started on its reactor.
pub struct Seed {
    socket: UdpSocket,
    place: Place,
    keys: Keys,
    server: Server,
}

impl Group {
    pub fn new(sockets: Vec<UdpSocket>) -> Group {
        Group { sockets }
    }

    /// Returns the endpoints, in the order of the reactors.
    pub fn seeds(self, frontend: &Frontend, secret: &QuicSecret) -> Result<Vec<Seed>, String> {
        let keys = Keys::of(secret);
        let (forwarder, queues) = Forwarder::new(self.sockets.len());
        let sockets = self.sockets.into_iter().zip(queues).enumerate();
        sockets
            .map(|(at, (socket, forwarded))| {
                let reactor =
                    u8::try_from(at).map_err(|_| format!("HTTP/3 has no more than {} reactors", u8::MAX))?;
                let place = Place { reactor, ids: keys.ids, forwarder: forwarder.clone(), forwarded };
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
        let socket = Socket::new(socket)?;
        let config = server.config(&host.settings());
        let is_whole = !socket.may_fragment();
        let endpoint = quinn_proto::Endpoint::new(keys.endpoint(place.reactor), Some(config), is_whole, None);
        Ok(Endpoint::new(Core::new(socket, endpoint), place, server, host))
    }
}
