//! The engine on the thread of its caller, without manager, listening sockets, helper threads and jail. A simulated
//! world runs it, and decides the order of events.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use lacquer_cache::Evicted;
use lacquer_cache::disk::OpenDisks;
use lacquer_cache::invalidation::InvalidationListener;
use lacquer_cli::link::{AddressSpace, PeerSockets, Request, WorkerConfig};
use lacquer_disk::Phase;
use lacquer_engine::activity::Work;
use lacquer_engine::{MAKERS, Services, origin_watch};
use lacquer_net::memory::Near;
use lacquer_net::{Listener, Stage, Stream};
use lacquer_params::Params;
use lacquer_quic::{Group, Wire, Workers};
use lacquer_sources::{clock, random};
use lacquer_storage::Stevedore;
use lacquer_tls::{Frontend, QuicSecret};

use crate::balancer::{ConnectionBalancer, Datagrams};
use crate::disks::FoundDisks;
use crate::process::Process;
use crate::{boot, control, datagrams, helpers, reactor, vcl_life};

/// The real time between two attempts to write the journals while a request waits for them.
const JOURNAL_EVERY: Duration = Duration::from_micros(100);

pub struct Engine {
    process: Arc<Process>,
    services: Vec<Rc<Services>>,
    listener: Arc<Listener>,
    /// The listener whose connections begin with a PROXY header.
    proxied: Arc<Listener>,
    begun: f64,
}

/// The resources that the engine holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    pub sessions: u64,
    pub requests: u64,
    pub fetches: u64,
    /// The requests that wait for an object or an origin.
    pub waiting: u64,
    /// The connections to origins that are in use.
    pub origin_slots: u64,
    pub objects: u64,
    pub keys: u64,
    /// The used bytes of all storages.
    pub stored: u64,
}

/// Returns the configuration of an engine without sockets, with its shared memory in a folder.
pub fn config(identity: &str, workdir: PathBuf, params: Params) -> WorkerConfig {
    WorkerConfig {
        identity: identity.to_owned(),
        workdir,
        sockets: Vec::new(),
        storages: Vec::new(),
        address_space: AddressSpace { reserve: 1 << 30, heaps: None },
        params,
        credentials: None,
        vsm_fd: -1,
        panic_fd: -1,
        manager_pid: std::process::id(),
        tls: None,
        peers: PeerSockets::default(),
    }
}

impl Engine {
    /// Starts the engine with the configured number of reactors. `dir` is an empty directory for its shared memory.
    /// The caller does the work of the threads of `disks`. Must be called in a task of the runtime that is to run the engine.
    pub fn start(
        config: WorkerConfig,
        dir: OwnedFd,
        storages: Vec<Stevedore>,
        disks: OpenDisks,
        listeners: Vec<Box<dyn InvalidationListener>>,
    ) -> Result<Engine, String> {
        let disks = FoundDisks { open: disks, refused: Vec::new() };
        let process = boot::share(config, boot::open_dir(dir)?, storages, disks, listeners, None)?;
        process.runtimes().add(tokio::runtime::Handle::current());
        let watched = process.watched().iter().enumerate();
        let services = watched
            .map(|(id, watched)| Services::new(process.shared().clone(), id, watched.clone(), MAKERS))
            .collect();
        let listener = |name: &str, stages: &[Stage]| {
            Arc::new(Listener::new(name.to_owned(), ":80".to_owned(), None, stages))
        };
        let (listener, proxied) = (listener("a0", &[]), listener("a1", &[Stage::ProxyHeader]));
        let engine = Engine { process, services, listener, proxied, begun: clock::real() };
        for services in &engine.services {
            reactor::spawn(services, Work::Sweeping, reactor::keep_sweeping(services.clone()));
            reactor::spawn(services, Work::Housekeeping, origin_watch::watch(services.clone()));
            reactor::spawn(services, Work::Housekeeping, reactor::housekeeping(services.clone()));
        }
        Ok(engine)
    }

    /// Serves a client on one of the reactors. The connection of a proxied client begins with a PROXY header.
    pub fn serve(&self, client: Near, number: usize, is_proxied: bool) {
        let services = &self.services[number % self.services.len()];
        let listener = if is_proxied { &self.proxied } else { &self.listener };
        services.counters().sess_conn.add(1);
        let session = lacquer_sessions::run(services.clone(), Stream::Memory(client), listener.clone());
        reactor::spawn(services, Work::Connection, session);
    }

    /// Serves the clients of HTTP/3 on these sockets, one for each reactor.
    pub fn serve_http3(&self, wires: Vec<Wire>, frontend: &Frontend) -> Result<(), String> {
        let mut secret = [0; 32];
        random::secret(&mut secret).map_err(|e| e.to_string())?;
        let workers = Workers { own: 1, predecessor: None };
        let seeds = Group::in_memory(wires)?.seeds(frontend, &QuicSecret::new(secret), &workers)?;
        let (balancer, _arrivals) = ConnectionBalancer::new(self.services.len());
        for (services, seed) in self.services.iter().zip(seeds) {
            let (_, orders) = tokio::sync::mpsc::unbounded_channel();
            let datagrams = Datagrams { seed, listener: self.listener.clone(), orders };
            datagrams::start(services, datagrams, balancer.office(services.id()));
        }
        Ok(())
    }

    /// Carries out a request of the manager. Returns the text of the reply; an error if the request was refused.
    pub fn carry_out(&self, request: Request) -> Result<String, String> {
        vcl_life::poll(&self.process);
        let reply = self.with_journals(|| control::serve_request(&self.process, request));
        let text = String::from_utf8_lossy(&reply.text).into_owned();
        if reply.status == lacquer_cli::status::OK { Ok(text) } else { Err(text) }
    }

    /// Performs work that may wait on this thread for the journals of disks, while another thread writes them. They are
    /// written before, so that the results of the two threads do not depend on their order.
    fn with_journals<T>(&self, work: impl FnOnce() -> T) -> T {
        let stores: Vec<_> = self.process.disks().iter().map(|disk| disk.running().store()).collect();
        if stores.is_empty() {
            return work();
        }
        // A journal that is full is written anew only when the index is known.
        stores.iter().filter(|store| store.phase() == Phase::Recovering).for_each(|store| store.recover());
        let write = || stores.iter().for_each(|store| while store.journal_step() {});
        write();
        let (is_done, end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while end.recv_timeout(JOURNAL_EVERY) == Err(RecvTimeoutError::Timeout) {
                    write();
                }
            });
            let done = work();
            drop(is_done);
            done
        })
    }

    /// Begins the orderly end of the worker. The world decides when it is over.
    pub fn drain(&self) {
        self.process.shared().drain().begin(clock::monotonic());
    }

    /// Removes all objects that no request uses.
    pub fn drop_objects(&self) {
        let cache = self.process.shared().cache();
        for stevedore in self.process.shared().stevedores().all() {
            while cache.nuke_one(stevedore.index(), false, &mut |_| {}) != Evicted::Nothing {}
        }
    }

    pub fn set_params(&self, params: Params) {
        self.process.shared().set_params(params);
    }

    /// Performs the work of the helper threads that is due.
    pub fn help(&self) {
        helpers::expire_some(&self.process);
        helpers::lurk_once(&self.process, &mut |_pause| {});
        vcl_life::poll(&self.process);
    }

    pub fn holdings(&self) -> Holdings {
        self.services.iter().for_each(|services| services.flush_counters());
        helpers::publish(&self.process, self.begun);
        let pool = self.process.shared().pool_counters().pool(0);
        let origins = vcl_life::origins(&self.process);
        Holdings {
            sessions: pool.sess.live.get(),
            requests: pool.req.live.get(),
            fetches: self.process.shared().pool_counters().busyobj.live.get(),
            waiting: self.process.shared().admission().waiting() + self.process.shared().admission().queued(),
            origin_slots: origins.iter().map(|origin| u64::from(origin.in_use())).sum(),
            objects: self.process.shared().counters().n_object.get(),
            keys: self.process.shared().counters().n_objecthead.get(),
            stored: self.process.shared().stevedores().all().iter().map(Stevedore::used_space).sum(),
        }
    }
}
