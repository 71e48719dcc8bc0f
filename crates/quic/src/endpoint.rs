//! An endpoint: receives the datagrams of a socket, accepts connections, and passes datagrams to them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use lacquer_sources::clock;
use quinn_proto::{DatagramEvent, Incoming};

use crate::admission::{Load, Queue, Treatment, Turn, treatment};
use crate::connection::Connection;
use crate::core::Core;
use crate::forward::{Datagram, Forwarded, Forwarder};
use crate::ids::{self, IdKey};
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
}

thread_local! {
    /// The buffers of all endpoints of a reactor.
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// The place of an endpoint among those of other reactors.
pub struct Place {
    pub reactor: u8,
    pub ids: IdKey,
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

    /// Serves the socket for as long as the reactor runs.
    pub async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
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

    /// Handles a datagram, or passes it to the reactor that its connection id names.
    fn route(&mut self, datagram: Datagram) {
        let id = ids::destination(&datagram.bytes);
        let reactor = id.and_then(|id| self.place.ids.reactor(id)).unwrap_or(self.place.reactor);
        if reactor == self.place.reactor || !self.place.forwarder.has(reactor) {
            self.handle(datagram);
        } else {
            self.place.forwarder.pass(reactor, datagram);
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
        let load = Load {
            handshakes: self.core.handshakes(),
            connections: self.core.connections(),
            limit: self.host.settings().connections,
            is_closing: self.host.is_closing(),
        };
        let mut endpoint = self.core.endpoint.borrow_mut();
        output.clear();
        let response = match treatment(&load, self.queue.len(), incoming.remote_address_validated()) {
            Treatment::Accept => return self.queue.push(incoming),
            Treatment::Refuse => endpoint.refuse(incoming, output),
            Treatment::Retry => match endpoint.retry(incoming, output) {
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
        while let Some(incoming) = self.queue.pop() {
            self.accept(incoming);
            if turn.is_over(now()) {
                break;
            }
        }
        self.queue.len() > 0
    }

    fn accept(&self, incoming: Incoming) {
        let accepted = self.core.with_output(|output| {
            let accepted = self.core.endpoint.borrow_mut().accept(incoming, now(), output, None);
            accepted.map_err(|error| {
                if let Some(response) = error.response {
                    self.core.respond(&response, output);
                }
            })
        });
        if let Ok((handle, state)) = accepted {
            let send_window = self.host.settings().send_window;
            self.host.serve(Connection::new(&self.core, handle, state, send_window));
        }
    }
}
