//! New connections on their reactor: from the acceptor's thread to a running session.

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_backend::{Stream, endpoint};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::balancer::{Accepted, Arrival, ConnectionLease};
use crate::reactor::Reactor;
use crate::session::{self, Listener};
use crate::turn::{self, in_turns};

/// Serves the connections that the acceptor gives to this reactor.
pub async fn serve(reactor: Rc<Reactor>, mut arrivals: UnboundedReceiver<Arrival>) {
    while let Some(arrival) = arrivals.recv().await {
        let (Accepted { fd, listener }, lease) = arrival.take();
        reactor.counters.sess_conn.add(1);
        let stream = if listener.path.is_some() {
            UnixStream::from_std(fd.into()).map(Stream::Unix)
        } else {
            TcpStream::from_std(fd.into()).map(Stream::Tcp)
        };
        match stream {
            Ok(stream) => welcome(&reactor, stream, listener, lease),
            Err(e) => refuse(&reactor, &e),
        }
    }
}

/// The kernel does not watch the connection for lack of memory. It is closed.
fn refuse(reactor: &Reactor, e: &io::Error) {
    let enomem = matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::ENOSPC));
    let c = &reactor.counters;
    c.sess_fail.add(1);
    if enomem { &c.sess_fail_enomem } else { &c.sess_fail_other }.add(1);
    reactor.flush_counters();
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
