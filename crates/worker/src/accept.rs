//! Accepting connections: one thread per socket accepts connections and assigns each to the reactor with the lowest
//! load.
//!
//! If the reactors waited on the sockets, the kernel would wake all of them for each client. A dedicated thread also
//! accepts connections while a reactor is busy with long work.

use std::cell::Cell;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lacquer_cli::link::{ListenAddress, ListenSocket};
use lacquer_net::descriptors::Need;
use lacquer_net::{Listener, Stage};
use lacquer_quic::Group;
use lacquer_sources::clock::{self, Instant};
use lacquer_tls::Store;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::balancer::{Accepted, ConnectionBalancer, Datagrams};
use crate::process::Process;
use crate::udp_handover::UdpSockets;

/// The longest wait for free descriptors before idle connections that have already served a request are closed.
const URGENT_AFTER: Duration = Duration::from_millis(250);

/// A listening socket of the configuration.
#[derive(Clone)]
pub struct Inherited {
    fd: Arc<OwnedFd>,
    listener: Arc<Listener>,
    /// Its UDP sockets, until the reactors take them.
    datagrams: Arc<Mutex<Vec<Datagrams>>>,
}

/// The seconds for which clients remember that a service is available by HTTP/3.
const REMEMBERED: u32 = 86400;

/// Returns the value of `Alt-Svc` for the clients of a listener (RFC 9114 section 3.1.1).
fn alternative(config: &ListenSocket) -> Option<String> {
    match &config.address {
        ListenAddress::Ip(address) if !config.datagrams.is_empty() => {
            Some(format!("h3=\":{}\"; ma={REMEMBERED}", address.port()))
        }
        _ => None,
    }
}

impl Inherited {
    /// `certificates` has those of the listeners with TLS.
    pub fn new(
        config: &ListenSocket,
        certificates: Option<&Store>,
        udp: &mut UdpSockets,
    ) -> Result<Inherited, String> {
        let path = match &config.address {
            ListenAddress::Ip(_) => None,
            ListenAddress::Unix(path) => Some(path.clone()),
        };
        let proxy = config.transport.is_proxy().then_some(Stage::ProxyHeader);
        let certificates = certificates.filter(|_| config.transport.is_tls());
        let frontend = certificates.and_then(|store| store.frontend(&config.name));
        let sockets =
            config.datagrams.iter().map(|fd| UdpSocket::from(lacquer_system::inherit(*fd))).collect();
        let seeds = match (&frontend, certificates) {
            (Some(frontend), Some(store)) if !config.datagrams.is_empty() => {
                let group = Group::new(sockets)?;
                udp.add_group(&group);
                group.seeds(frontend, store.quic_secret(), &udp.workers)?
            }
            _ => Vec::new(),
        };
        // The clients of HTTP/3 need no other protocol.
        let listener = Arc::new(Listener::new(config.name.clone(), config.endpoint.clone(), None, []));
        let datagrams = seeds
            .into_iter()
            .map(|seed| Datagrams { seed, listener: listener.clone(), orders: udp.add_endpoint() })
            .collect();
        let stages: Vec<Stage> = proxy.into_iter().chain(frontend.map(Stage::Tls)).collect();
        let listener = Listener::new(config.name.clone(), config.endpoint.clone(), path, stages);
        Ok(Inherited {
            fd: Arc::new(lacquer_system::inherit(config.fd)),
            listener: Arc::new(listener.with_alternative(alternative(config))),
            datagrams: Arc::new(Mutex::new(datagrams)),
        })
    }

    /// Refuses further connections, and ends the thread that accepts them. The kernel does so for all descriptors of
    /// the socket, the manager's included.
    fn close(&self) {
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Read);
    }
}

/// The sockets and connections of the clients.
pub struct Entrance {
    sockets: Vec<Inherited>,
    balancer: Arc<ConnectionBalancer>,
    /// Wakes the threads that accept connections, to make them end.
    stop: Arc<OwnedFd>,
    /// The number of these threads.
    acceptors: Arc<AtomicUsize>,
    has_retired: Cell<bool>,
}

impl Entrance {
    /// Refuses further connections.
    pub fn close(&self, process: &Process) {
        self.stop(process);
        self.sockets.iter().for_each(Inherited::close);
    }

    /// Leaves further connections to another worker.
    pub fn retire(&self, process: &Process) {
        self.has_retired.set(true);
        self.stop(process);
    }

    pub fn has_retired(&self) -> bool {
        self.has_retired.get()
    }

    fn stop(&self, process: &Process) {
        process.shared().drain().begin(clock::monotonic());
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// Publishes the counts of all reactors.
    pub fn publish_counts(&self) {
        self.balancer.publish_counts();
    }

    /// Returns whether no connection is open, and none is being accepted.
    pub fn is_empty(&self) -> bool {
        self.acceptors.load(Ordering::Acquire) == 0 && self.balancer.connections() == 0
    }
}

/// Starts a thread for each socket. It accepts connections once the manager allows it.
pub fn start(
    process: &Arc<Process>,
    balancer: Arc<ConnectionBalancer>,
    sockets: Vec<Inherited>,
) -> Result<Entrance, String> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let stop = eventfd(0, flags).map_err(|e| format!("cannot create an event: {e}"))?;
    let (stop, acceptors) = (Arc::new(stop), Arc::new(AtomicUsize::new(sockets.len())));
    for socket in &sockets {
        let acceptor = Acceptor {
            process: process.clone(),
            balancer: balancer.clone(),
            socket: socket.clone(),
            stop: stop.clone(),
            acceptors: acceptors.clone(),
        };
        std::thread::Builder::new()
            .name(format!("accept-{}", acceptor.socket.listener.name()))
            .spawn(move || acceptor.run())
            .map_err(|e| format!("cannot start a thread that accepts connections: {e}"))?;
    }
    Ok(Entrance { sockets, balancer, stop, acceptors, has_retired: Cell::new(false) })
}

struct Acceptor {
    process: Arc<Process>,
    balancer: Arc<ConnectionBalancer>,
    socket: Inherited,
    stop: Arc<OwnedFd>,
    acceptors: Arc<AtomicUsize>,
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.acceptors.fetch_sub(1, Ordering::Release);
    }
}

impl Acceptor {
    /// Accepts connections until the entrance closes.
    fn run(&self) {
        lacquer_system::prepare_thread();
        self.process.wait_until_accepting();
        let Inherited { fd, listener, datagrams } = &self.socket;
        for (reactor, datagrams) in std::mem::take(&mut *datagrams.lock()).into_iter().enumerate() {
            self.balancer.send_socket(reactor, datagrams);
        }
        if let Err(e) = rustix::io::ioctl_fionbio(fd, true) {
            eprintln!("Cannot accept connections on {}: {e}", listener.name());
            return;
        }
        let mut pause = 0.0f64;
        // Another worker may accept connections on the same socket: a thread that waits in `accept` could not be stopped
        // without taking one of them.
        while !self.process.shared().drain().has_begun() {
            match accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    let params = self.process.shared().params();
                    pause *= params.acceptor_sleep_decay;
                    if fd.as_raw_fd() >= self.process.shared().descriptors().marks(&params).crowded {
                        pause = self.make_room(&fd, pause);
                    }
                    self.balancer.send(Accepted { fd, listener: listener.clone() });
                }
                Err(Errno::AGAIN) => self.wait_for_connection(),
                Err(_) if self.process.shared().drain().has_begun() => return,
                Err(e) => pause = self.handle_failure(e, pause),
            }
        }
    }

    fn wait_for_connection(&self) {
        let mut fds = [PollFd::new(&self.socket.fd, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        let _ = poll(&mut fds, None);
    }

    /// Requests that idle connections are closed, and waits while only reserved descriptors are left. Meanwhile, new
    /// clients wait in the kernel's queue.
    fn make_room(&self, accepted: &OwnedFd, mut pause: f64) -> f64 {
        let mut lowest = accepted.as_raw_fd();
        let since = Instant::now();
        loop {
            // New clients count as idle only after a while, and are closed first.
            let need = if since.elapsed() > URGENT_AFTER { Need::Urgent } else { Need::Soon };
            self.process.shared().descriptors().call(need);
            if lowest < self.process.shared().descriptors().marks(&self.process.shared().params()).clients {
                return pause;
            }
            pause = self.handle_failure(Errno::MFILE, pause);
            lowest = lacquer_system::lowest_free_descriptor(accepted.as_fd());
        }
    }

    /// Counts a failure. If the process lacks descriptors or memory, sleeps, a little longer each time. Returns the
    /// new pause in seconds.
    fn handle_failure(&self, e: Errno, pause: f64) -> f64 {
        let c = &self.process.shared().counters();
        c.sess_fail.add(1);
        let (counter, exhausted) = match e {
            Errno::CONNABORTED => (&c.sess_fail_econnaborted, false),
            Errno::INTR => (&c.sess_fail_eintr, false),
            Errno::MFILE | Errno::NFILE => (&c.sess_fail_emfile, true),
            Errno::BADF => (&c.sess_fail_ebadf, true),
            Errno::NOMEM | Errno::NOBUFS => (&c.sess_fail_enomem, true),
            _ => (&c.sess_fail_other, true),
        };
        counter.add(1);
        if !exhausted {
            return pause;
        }
        let p = self.process.shared().params();
        let next = (pause + p.acceptor_sleep_incr.max(0.001)).min(p.acceptor_sleep_max.max(0.001));
        std::thread::sleep(clock::seconds(next));
        next
    }
}
