//! Starts the worker: from the manager's configuration to running reactors.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, mpsc};

use lacquer_backend::Pools;
use lacquer_cache::Cache;
use lacquer_cli::link::{self, FromWorker, ToWorker, WorkerConfig};
use lacquer_shm::{Log, Main, Segment, VsmDir, vsm};
use lacquer_sources::clock;
use lacquer_storage::Stevedore;
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::accept::{self, Inherited};
use crate::arrivals;
use crate::balancer::{Arrival, ConnectionBalancer};
use crate::client::Req;
use crate::descriptors::Descriptors;
use crate::fetch::FetchDriver;
use crate::live_params::{LiveParams, apply_settings};
use crate::locks::Locks;
use crate::pool_counters::PoolCounters;
use crate::reactor::{Makers, Reactor};
use crate::runtimes::Runtimes;
use crate::shared::Shared;
use crate::stevedores::{self, Stevedores};
use crate::tag_counters::TagCounters;
use crate::transaction_slot::TransactionSlot;
use crate::turn::{Place, in_turns};
use crate::vcl_table::VclTable;
use crate::vxids::Vxids;

/// The number of descriptors for which the kernel's table is allocated at the start. It takes eight bytes for each.
const DESCRIPTORS_AT_ONCE: u64 = 1 << 16;

pub const MAKERS: Makers = Makers {
    request: |reactor, params| TransactionSlot::<Req>::new(&reactor.shared.log, params).hide(),
    fetch: |reactor, params| FetchDriver::new(reactor, params).hide(),
};

/// Sets everything up. When it returns, the reactors run and wait for permission to accept.
pub fn boot(link: RawFd) -> Result<(Arc<Shared>, UnixStream), String> {
    crate::sys::prepare_heap();
    crate::sys::watch_for_faults(crate::control::panics::last_words);
    crate::sys::die_with_parent();
    let mut link = UnixStream::from(crate::sys::inherit(link));
    let config = match link::receive(&mut link) {
        Ok(ToWorker::Configure(config)) => *config,
        Ok(_) => return Err("the manager did not send the configuration first".into()),
        Err(e) => return Err(format!("no configuration from the manager: {e}")),
    };
    if let Some(heaps) = config.address_space.heaps {
        crate::sys::limit_heaps(heaps);
    }
    make_room_for_descriptors(&link);
    crate::sys::set_last_words_fd(config.panic_fd);
    std::panic::set_hook(Box::new(crate::control::panics::hook));
    let sockets = config.sockets.iter().map(Inherited::new).collect();
    if let Some(line) = crate::jail::enter(&config)?.line() {
        eprintln!("{line}");
    }
    let shared = share_inherited(config)?;
    let balancer = start_reactors(&shared)?;
    accept::start(&shared, &balancer, sockets)?;
    crate::helpers::start(&shared)?;
    link::send(&mut link, &FromWorker::Ready).map_err(|e| format!("cannot answer the manager: {e}"))?;
    Ok((shared, link))
}

/// Returns the number of descriptors that the process may have.
fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Grows the table of descriptors while there is one thread. With more threads the kernel waits for all cores
/// whenever the table grows, and `accept` waits too: for ten milliseconds the reactor serves nobody.
fn make_room_for_descriptors(any: &UnixStream) {
    let highest = descriptor_limit().min(DESCRIPTORS_AT_ONCE).saturating_sub(1);
    drop(rustix::io::fcntl_dupfd_cloexec(any, highest as RawFd)); // if this fails, the table grows later
}

/// Takes over the directory of shared memory and the storages from the manager.
fn share_inherited(config: WorkerConfig) -> Result<Arc<Shared>, String> {
    let dir = open_dir(crate::sys::inherit(config.vsm_fd))?;
    let stevedores = stevedores::inherited(&config.storages, config.address_space.reserve)?;
    share(config, dir, stevedores)
}

pub fn open_dir(dir: OwnedFd) -> Result<VsmDir, String> {
    let owner = vsm::Owner { pid: std::process::id(), birth: clock::real() as u64 };
    VsmDir::adopt(dir, owner).map_err(|e| e.to_string())
}

/// Makes what the reactors share.
pub fn share(config: WorkerConfig, dir: VsmDir, stevedores: Vec<Stevedore>) -> Result<Arc<Shared>, String> {
    let text = |e: vsm::VsmError| e.to_string();
    let counters: Arc<Segment<Main>> = Arc::new(Segment::create(&dir, "").map_err(text)?);
    let space = config.params.vsl_space as usize;
    let log = Log::create(&dir, space, counters.clone()).map_err(text)?;
    apply_settings(&log, &config.params);
    let stevedores = Stevedores::new(stevedores, &dir);
    stevedores.publish();
    let cache = Cache::new(crate::helpers::cache_config(&config.params, &stevedores), clock::real());
    counters.pools.set(u64::from(config.params.thread_pools));
    let reactors = config.params.reactor_count();
    Ok(Arc::new(Shared {
        params: LiveParams::new(config.params.clone()),
        pool_counters: PoolCounters::create(&dir, &config.params, reactors)?,
        pools: Pools::new(reactors),
        locks: Locks::open(&dir),
        vsm: Mutex::new(dir),
        config,
        counters,
        log,
        tag_counters: TagCounters::default(),
        cache,
        stevedores,
        vcls: VclTable::default(),
        vxids: Vxids::default(),
        addresses: Arc::default(),
        runtimes: Runtimes::default(),
        accepting: OnceLock::new(),
        admission: Arc::default(),
        descriptors: Descriptors::new(descriptor_limit()),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        watched: crate::watched::watched(reactors),
    }))
}

fn start_reactors(shared: &Arc<Shared>) -> Result<Arc<ConnectionBalancer>, String> {
    let (balancer, ends) = ConnectionBalancer::new(shared.watched.len());
    for (id, arrivals) in ends.into_iter().enumerate() {
        let shared = shared.clone();
        let (started, outcome) = mpsc::channel();
        std::thread::Builder::new()
            .name(format!("reactor-{id}"))
            .spawn(move || match reactor_runtime() {
                Ok(runtime) => {
                    shared.runtimes.add(runtime.handle().clone());
                    let _ = started.send(Ok(()));
                    react(&runtime, &Reactor::new(shared, id, MAKERS), arrivals);
                }
                Err(e) => drop(started.send(Err(e))),
            })
            .map_err(|e| format!("cannot start a reactor: {e}"))?;
        let outcome = outcome.recv().map_err(|e| format!("a reactor did not start: {e}"))?;
        outcome.map_err(|e| format!("cannot make a reactor: {e}"))?;
    }
    Ok(balancer)
}

/// Makes an event loop for tasks that stay on their thread. It cannot be moved, so each reactor makes its own.
fn reactor_runtime() -> io::Result<LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(61)
        .build_local(LocalOptions::default())
}

/// Starts a task that the watchdog sees.
fn spawn(
    runtime: &LocalRuntime,
    reactor: &Rc<Reactor>,
    place: Place,
    work: impl Future<Output = ()> + 'static,
) {
    let watched = reactor.watched.clone();
    let mut work = Box::pin(work);
    runtime.spawn_local(async move { in_turns(&watched.turn, place, work.as_mut()).await });
}

fn react(runtime: &LocalRuntime, reactor: &Rc<Reactor>, arrivals: UnboundedReceiver<Arrival>) {
    crate::sys::prepare_thread();
    reactor.watched.on_this_thread();
    spawn(runtime, reactor, Place::Accepting, arrivals::serve(reactor.clone(), arrivals));
    spawn(runtime, reactor, Place::Sweeping, reactor.clone().keep_sweeping());
    // A round checks all connections, however many there are.
    let watching = tokio::task::unconstrained(crate::origin_watch::watch(reactor.clone()));
    spawn(runtime, reactor, Place::Housekeeping, watching);
    let work = pin!(Rc::clone(reactor).housekeeping());
    runtime.block_on(in_turns(&reactor.watched.turn, Place::Housekeeping, work));
}
