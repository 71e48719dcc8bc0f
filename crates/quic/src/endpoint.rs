//! An endpoint: receives the datagrams of a socket, accepts connections, and passes datagrams to them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use lacquer_sources::clock;
use quinn_proto::{DatagramEvent, Incoming};

use crate::admission::{Load, Queue, Treatment, Turn, treatment};
use crate::connection::{Admitted, Connection};
use crate::core::Core;
use crate::forward::{Datagram, Forwarded, Forwarder};
use crate::group_name::GroupName;
use crate::handshakes::Handshake;
use crate::ids::{self, ANY_WORKER, IdKey, Neutral, Owner};
use crate::relay::{Predecessor, Relayed};
use crate::server::Server;
use crate::settings::Settings;
use crate::socket::Buffers;

/// The maximum number of calls of the system in one round, and of datagrams that other reactors have received.
const ROUND: usize = 8;
const FORWARDED: usize = 256;

/// The party that serves the connections of an endpoint.
pub trait Host {
    /// Returns the settings for new connections.
    fn settings(&self) -> Settings;

    /// Returns whether no connections are to be accepted.
    fn is_closing(&self) -> bool;

    /// Serves a new connection, which is in its handshake.
    fn serve(&self, connection: Rc<Connection>);

    /// Counts a datagram for the worker before this one, which was passed to it or is lost.
    fn count_relayed(&self, is_lost: bool);
}

thread_local! {
    /// The buffers of all endpoints of a reactor.
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// The place of an endpoint among those of other reactors and workers.
pub struct Place {
    pub owner: Owner,
    pub group: GroupName,
    pub ids: IdKey,
    pub neutral: Neutral,
    pub predecessor: Option<Predecessor>,
    /// The socket of the first reactor, if it is one of the system.
    pub first: Arc<Option<UdpSocket>>,
    pub forwarder: Forwarder,
    pub forwarded: Forwarded,
}

pub struct Endpoint<H> {
    core: Rc<Core>,
    place: Place,
    server: Server,
    queue: Queue,
    host: H,
}

fn now() -> Instant {
    clock::Instant::now().into_std()
}

impl<H: Host> Endpoint<H> {
    pub(crate) fn new(core: Core, place: Place, server: Server, host: H) -> Endpoint<H> {
        Endpoint { core: Rc::new(core), place, server, queue: Queue::default(), host }
    }

    /// Serves the socket, for as long as it is polled.
    pub async fn run(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    /// Leaves the reception to another worker, which has the sockets of this number of reactors. That one passes on the
    /// datagrams for connections of this one. The other sockets are closed: datagrams that they received would be lost.
    pub fn stop_receiving(&self, sockets: usize) -> io::Result<()> {
        let is_shared = usize::from(self.place.owner.reactor) < sockets;
        let first = Option::as_ref(&self.place.first).filter(|_| !is_shared);
        self.core.socket.stop_receiving(first.map(UdpSocket::try_clone).transpose()?)
    }

    /// Receives again, because the other worker has failed.
    pub fn receive_again(&self) -> io::Result<()> {
        self.core.socket.receive_again()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.core.drive(cx);
        let config = self.server.config(&self.host.settings());
        self.core.endpoint.borrow_mut().set_server_config(Some(config));
        let has_more = self.receive(cx) | self.receive_forwarded(cx) | self.accept_waiting();
        if has_more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Receives datagrams. Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        BUFFERS.with_borrow_mut(|buffers| {
            for _ in 0..ROUND {
                match self.core.socket.poll_receive(cx, buffers) {
                    Poll::Ready(Ok(filled)) => buffers.each(filled, |datagram| self.route(datagram)),
                    // The system reports that an earlier datagram did not arrive.
                    Poll::Ready(Err(_)) => {}
                    Poll::Pending => return false,
                }
            }
            true
        })
    }

    fn receive_forwarded(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..FORWARDED {
            let Some(datagram) = self.place.forwarded.poll(cx) else { return false };
            self.handle(datagram);
        }
        true
    }

    /// Handles a datagram, or passes it to the worker and the reactor that its connection id names.
    fn route(&mut self, datagram: Datagram) {
        let place = &self.place;
        let id = ids::destination(&datagram.bytes);
        let owner = id.and_then(|id| place.ids.owner(id)).unwrap_or(place.owner);
        let is_ours = owner.worker == place.owner.worker || owner.worker == ANY_WORKER;
        if !is_ours && let Some(predecessor) = place.predecessor.as_ref().filter(|it| it.is(owner.worker)) {
            match predecessor.pass(&place.group, owner.reactor, &datagram) {
                Relayed::Gone => self.handle(datagram),
                relayed => self.host.count_relayed(relayed == Relayed::Lost),
            }
        } else if is_ours && owner.reactor != place.owner.reactor && place.forwarder.has(owner.reactor) {
            place.forwarder.pass(owner.reactor, datagram);
        } else {
            self.handle(datagram);
        }
    }

    fn handle(&mut self, datagram: Datagram) {
        let Datagram { remote, local, ecn, bytes } = datagram;
        let core = self.core.clone();
        core.with_output(|output| {
            let event = core.endpoint.borrow_mut().handle(now(), remote, local, ecn, bytes, output);
            match event {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => core.deliver(handle, event),
                Some(DatagramEvent::Response(transmit)) => core.respond(&transmit, output),
                Some(DatagramEvent::NewConnection(incoming)) => self.admit(incoming, output),
                None => {}
            }
        });
    }

    /// Decides about a new connection.
    fn admit(&mut self, incoming: Incoming, output: &mut Vec<u8>) {
        let client = incoming.remote_address().ip();
        let load = Load {
            handshakes: self.core.handshakes.all(),
            of_network: self.core.handshakes.of_network(client),
            connections: self.core.connections(),
            limit: self.host.settings().connections,
            is_closing: self.host.is_closing(),
        };
        let mut endpoint = self.core.endpoint.borrow_mut();
        output.clear();
        let response = match treatment(&load, self.queue.len(), incoming.remote_address_validated()) {
            Treatment::Accept => return self.queue.push(incoming, self.core.handshakes.begin(client)),
            Treatment::Refuse => endpoint.refuse(incoming, output),
            // The worker that receives the reply serves the client.
            Treatment::Retry => match self.place.neutral.during(|| endpoint.retry(incoming, output)) {
                Ok(transmit) => transmit,
                Err(error) => endpoint.refuse(error.into_incoming(), output),
            },
        };
        drop(endpoint);
        self.core.respond(&response, output);
    }

    /// Begins the handshakes of clients that wait, for a share of the time. Returns whether some are left.
    fn accept_waiting(&mut self) -> bool {
        let turn = Turn::begin(now());
        while let Some((incoming, handshake)) = self.queue.pop() {
            self.accept(incoming, handshake);
            if turn.is_over(now()) {
                break;
            }
        }
        self.queue.len() > 0
    }

    fn accept(&self, incoming: Incoming, handshake: Handshake) {
        let admitted = Admitted { handshake, is_validated: incoming.remote_address_validated() };
        let accepted = self.core.with_output(|output| {
            let accepted = self.core.endpoint.borrow_mut().accept(incoming, now(), output, None);
            accepted.map_err(|error| {
                if let Some(response) = error.response {
                    self.core.respond(&response, output);
                }
            })
        });
        if let Ok(accepted) = accepted {
            let send_window = self.host.settings().send_window;
            self.host.serve(Connection::new(&self.core, accepted, send_window, admitted));
        }
    }
}
