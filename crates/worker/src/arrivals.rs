//! New connections on their reactor: from the acceptor's thread to a running session.

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_engine::Services;
use lacquer_engine::activity::{self, track_polls};
use lacquer_net::{Listener, Stream, endpoint};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::balancer::{Accepted, Arrival, ConnectionLease};
use crate::datagrams;

/// Serves the connections that the acceptor assigns to this reactor.
pub async fn serve(services: Rc<Services>, mut arrivals: UnboundedReceiver<Arrival>) {
    while let Some(arrival) = arrivals.recv().await {
        match arrival {
            Arrival::Connection(accepted, lease) => {
                lease.take();
                begin(&services, accepted, lease);
            }
            Arrival::Datagrams(datagrams, office) => datagrams::start(&services, *datagrams, office),
            Arrival::PublishCounts(done) => {
                services.flush_counters();
                // The main thread may not have waited.
                let _ = done.send(());
            }
        }
    }
}

fn begin(services: &Rc<Services>, accepted: Accepted, lease: ConnectionLease) {
    let Accepted { fd, listener } = accepted;
    services.counters().sess_conn.add(1);
    let stream = if listener.is_unix() {
        UnixStream::from_std(fd.into()).map(Stream::Unix)
    } else {
        TcpStream::from_std(fd.into()).map(Stream::Tcp)
    };
    match stream {
        Ok(stream) => start_session(services, stream, listener, lease),
        Err(e) => refuse(services, &e),
    }
}

/// Counts a connection that the kernel cannot watch, usually for lack of memory. It is closed.
fn refuse(services: &Services, e: &io::Error) {
    let enomem = matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::ENOSPC));
    let c = services.counters();
    c.sess_fail.add(1);
    if enomem { &c.sess_fail_enomem } else { &c.sess_fail_other }.add(1);
    services.flush_counters();
}

fn start_session(services: &Rc<Services>, stream: Stream, listener: Arc<Listener>, lease: ConnectionLease) {
    tune(services, &stream);
    let services = services.clone();
    tokio::task::spawn_local(async move {
        let _lease = lease;
        let watched = services.watched().clone();
        let session = pin!(lacquer_sessions::run(services, stream, listener));
        track_polls(&watched.activity, activity::Work::Connection, session).await;
    });
}

fn tune(services: &Services, stream: &Stream) {
    let Stream::Tcp(tcp) = stream else { return };
    let _ = tcp.set_nodelay(true);
    let p = services.params();
    endpoint::set_keepalive(tcp.as_fd(), p.tcp_keepalive_time, p.tcp_keepalive_intvl, p.tcp_keepalive_probes);
}
