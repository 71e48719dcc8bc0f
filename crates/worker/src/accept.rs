//! Accepting connections. Every reactor waits on every socket; the kernel gives each client to one, which hands it on
//! where another has less to do.

use std::io;
use std::net::TcpListener as StdTcp;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnix;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lacquer_backend::{Stream, endpoint};
use lacquer_cli::link::{ListenAddress, ListenSocket, Transport};
use lacquer_sources::clock::{self, Instant};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::balancer::{Arrival, ConnectionBalancer, ConnectionLease};
use crate::descriptors::Need;
use crate::reactor::Reactor;
use crate::session::{self, Listener};
use crate::turn::{self, in_turns};

/// The longest wait for free descriptors before idle clients are closed that have asked for something before.
const URGENT_AFTER: Duration = Duration::from_millis(250);

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Socket {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Socket::Tcp(l) => l.accept().await.map(|(s, _)| Stream::Tcp(s)),
            Socket::Unix(l) => l.accept().await.map(|(s, _)| Stream::Unix(s)),
        }
    }
}

/// A listening socket of the configuration, not yet on a reactor.
pub struct Inherited {
    pub fd: OwnedFd,
    pub listener: Arc<Listener>,
}

impl Inherited {
    pub fn new(config: &ListenSocket) -> Inherited {
        let path = match &config.address {
            ListenAddress::Ip(_) => None,
            ListenAddress::Unix(path) => Some(path.clone()),
        };
        Inherited {
            fd: crate::sys::inherit(config.fd),
            listener: Arc::new(Listener {
                name: config.name.clone(),
                endpoint: config.endpoint.clone(),
                proxy: config.transport == Transport::Proxy,
                path,
            }),
        }
    }

    fn on_this_reactor(&self) -> io::Result<Socket> {
        let fd = self.fd.try_clone()?;
        if self.listener.path.is_some() {
            let listener = StdUnix::from(fd);
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener).map(Socket::Unix)
        } else {
            let listener = StdTcp::from(fd);
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Socket::Tcp)
        }
    }
}

/// Accepts on one socket for as long as the worker runs.
pub async fn accept_loop(reactor: Rc<Reactor>, balancer: Arc<ConnectionBalancer>, inherited: Arc<Inherited>) {
    let mut accepting = reactor.shared.accepting.subscribe();
    let mut pause = 0.0f64;
    if accepting.wait_for(|&go| go).await.is_err() {
        return;
    }
    let socket = match inherited.on_this_reactor() {
        Ok(socket) => socket,
        Err(e) => {
            eprintln!("Cannot listen on {}: {e}", inherited.listener.name);
            return;
        }
    };
    loop {
        match socket.accept().await {
            Ok(stream) => {
                reactor.counters.sess_conn.add(1);
                pause *= reactor.params().acceptor_sleep_decay;
                if stream.raw_fd() >= reactor.shared.descriptors.marks(&reactor.params()).crowded {
                    pause = make_room(&reactor, &stream, pause).await;
                }
                let lease = balancer.lease(reactor.id);
                let listener = inherited.listener.clone();
                if lease.reactor == reactor.id {
                    welcome(&reactor, stream, listener, lease);
                } else {
                    balancer.send(Arrival { stream, listener, lease });
                }
            }
            Err(e) => pause = failed(&reactor, &e, pause).await,
        }
    }
}

/// Closes idle connections, and waits while only reserved descriptors are left. New clients wait in the kernel's queue
/// meanwhile.
async fn make_room(reactor: &Reactor, accepted: &Stream, mut pause: f64) -> f64 {
    let mut lowest = accepted.raw_fd();
    let since = Instant::now();
    loop {
        // The newest clients count as idle only after a while, and are closed first.
        let need = if since.elapsed() > URGENT_AFTER { Need::Urgent } else { Need::Soon };
        reactor.need_descriptors(need);
        if lowest < reactor.shared.descriptors.marks(&reactor.params()).clients {
            return pause;
        }
        pause = failed(reactor, &io::Error::from_raw_os_error(libc::EMFILE), pause).await;
        lowest = crate::sys::lowest_free_descriptor(accepted.as_fd());
    }
}

/// Serves connections that other reactors have accepted for this one.
pub async fn arrivals_loop(reactor: Rc<Reactor>, mut arrivals: UnboundedReceiver<Arrival>) {
    while let Some(Arrival { stream, listener, lease }) = arrivals.recv().await {
        match stream.rebind() {
            Ok(stream) => welcome(&reactor, stream, listener, lease),
            Err(e) => drop(failed(&reactor, &e, 0.0).await),
        }
    }
}

fn welcome(reactor: &Rc<Reactor>, stream: Stream, listener: Arc<Listener>, lease: ConnectionLease) {
    tune(reactor, &stream);
    let reactor = reactor.clone();
    tokio::task::spawn_local(async move {
        let _place = lease;
        let watched = reactor.watched.clone();
        let session = pin!(session::run(reactor, stream, listener));
        in_turns(&watched.turn, turn::Place::Connection, session).await;
    });
}

fn tune(reactor: &Reactor, stream: &Stream) {
    let Stream::Tcp(tcp) = stream else { return };
    let _ = tcp.set_nodelay(true);
    let p = reactor.params();
    endpoint::set_keepalive(tcp.as_fd(), p.tcp_keepalive_time, p.tcp_keepalive_intvl, p.tcp_keepalive_probes);
}

/// Counts a failure; when the process lacks descriptors or memory, waits a little longer each time.
async fn failed(reactor: &Reactor, e: &io::Error, pause: f64) -> f64 {
    let c = &reactor.counters;
    c.sess_fail.add(1);
    let (counter, exhausted) = match e.raw_os_error() {
        Some(libc::ECONNABORTED) => (&c.sess_fail_econnaborted, false),
        Some(libc::EINTR) => (&c.sess_fail_eintr, false),
        Some(libc::EMFILE | libc::ENFILE) => (&c.sess_fail_emfile, true),
        Some(libc::EBADF) => (&c.sess_fail_ebadf, true),
        Some(libc::ENOMEM | libc::ENOBUFS) => (&c.sess_fail_enomem, true),
        _ => (&c.sess_fail_other, true),
    };
    counter.add(1);
    reactor.flush_counters();
    if !exhausted {
        return pause;
    }
    let p = reactor.params();
    let next = (pause + p.acceptor_sleep_incr.max(0.001)).min(p.acceptor_sleep_max.max(0.001));
    tokio::time::sleep(clock::seconds(next)).await;
    next
}
