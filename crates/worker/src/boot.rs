//! The start of the worker: from the manager's configuration to running reactors.

use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use lacquer_cache::Recovery;
use lacquer_cache::invalidation::InvalidationListener;
use lacquer_cli::link::{self, FromWorker, ToWorker, WorkerConfig};
use lacquer_engine::{MAKERS, Names, Services, Shared, watched};
use lacquer_params::FeatureBits;
use lacquer_shm::{VsmDir, vsm};
use lacquer_sources::clock;
use lacquer_storage::Stevedore;
use lacquer_tls::{Setup, Store};
use rustix::process::{Resource, getrlimit};

use crate::accept::{self, Entrance, Inherited};
use crate::balancer::ConnectionBalancer;
use crate::disks::{Devices, FoundDisks};
use crate::peers::Peers;
use crate::process::Process;
use crate::successor::Handover;
use crate::udp_handover::{UdpHandover, UdpSockets};
use crate::{disk_counters, disks, reactor, storages};

/// The number of descriptors for which the kernel's table is allocated at the start. Each takes eight bytes.
const DESCRIPTORS_AT_ONCE: u64 = 1 << 16;

/// Sets everything up. When it returns, the reactors run, and wait for permission to accept connections.
pub fn boot(link: RawFd) -> Result<(Arc<Process>, Entrance, UnixStream), String> {
    lacquer_system::prepare_heap();
    lacquer_system::watch_for_faults(crate::control::panics::panic_report);
    lacquer_system::die_with_parent();
    let mut link = UnixStream::from(lacquer_system::inherit(link));
    let mut config = match link::receive(&mut link) {
        Ok(ToWorker::Configure(config)) => *config,
        Ok(_) => return Err("the manager did not send the configuration first".into()),
        Err(e) => return Err(format!("no configuration from the manager: {e}")),
    };
    if let Some(heaps) = config.address_space.heaps {
        lacquer_system::limit_heaps(heaps);
    }
    grow_descriptor_table(&link);
    lacquer_system::set_panic_fd(config.panic_fd);
    std::panic::set_hook(Box::new(crate::control::panics::hook));
    let certificates = certificates(&mut config)?;
    let mut udp = UdpSockets::new(config.peers.datagrams);
    let sockets = config.sockets.iter().map(|socket| Inherited::new(socket, certificates.as_ref(), &mut udp));
    let sockets = sockets.collect::<Result<Vec<Inherited>, String>>()?;
    let devices = Devices::prepare(&config.storages, config.params.reactor_count());
    if let Some(line) = lacquer_jail::enter(&config, devices.has_rings())?.line("worker") {
        eprintln!("{line}");
    }
    let process = share_inherited(config, devices, certificates, udp.finish())?;
    let balancer = start_reactors(&process)?;
    let entrance = accept::start(&process, balancer, sockets)?;
    crate::helpers::start(&process)?;
    link::send(&mut link, &FromWorker::Ready).map_err(|e| format!("cannot reply to the manager: {e}"))?;
    Ok((process, entrance, link))
}

/// Returns the number of descriptors that the process may have.
fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Grows the kernel's descriptor table while the process has only one thread. With more threads, the kernel waits for
/// all cores whenever the table grows, and `accept` waits too: the reactor serves nobody for ten milliseconds.
fn grow_descriptor_table(any: &UnixStream) {
    let highest = descriptor_limit().min(DESCRIPTORS_AT_ONCE).saturating_sub(1);
    drop(rustix::io::fcntl_dupfd_cloexec(any, highest as RawFd)); // if this fails, the table grows later
}

/// Takes over the shared-memory directory and the storages from the manager.
fn share_inherited(
    config: WorkerConfig,
    devices: Devices,
    certificates: Option<Store>,
    udp: UdpHandover,
) -> Result<Arc<Process>, String> {
    let dir = open_dir(lacquer_system::inherit(config.vsm_fd))?;
    let storages = storages::inherited(&config.storages, config.address_space.reserve)?;
    let disks = disks::open(&config.storages, devices);
    let socket = |fd: Option<RawFd>| fd.map(|fd| UnixStream::from(lacquer_system::inherit(fd)));
    let (successor, predecessor) = (socket(config.peers.successor), socket(config.peers.predecessor));
    let peers = Peers::default();
    let listeners: Vec<Box<dyn InvalidationListener>> = vec![Box::new(peers.clone())];
    let process = share(config, dir, storages.stevedores, disks, listeners, certificates)?;
    process.set_handover(Handover { peers: peers.clone(), successor, pins: storages.pins, udp });
    if let Some(predecessor) = predecessor {
        peers.open(process.shared(), predecessor)?;
    }
    let Recovery { indexed, refused } = process.shared().recovery();
    if indexed + refused > 0 {
        eprintln!(
            "Took over {indexed} objects of the last worker, dropped {refused} that have expired or are damaged"
        );
    }
    disks::start(process.disks())?;
    Ok(process)
}

/// Returns the place of the certificates, if a listener has TLS. The secrets leave the configuration.
fn certificates(config: &mut WorkerConfig) -> Result<Option<Store>, String> {
    let Some(setup) = config.tls.take() else { return Ok(None) };
    let store = Store::new(Setup::decode(&setup)?, config.params.tls_early_data);
    store.offer_http2(config.params.feature.has(FeatureBits::HTTP2));
    Ok(Some(store))
}

pub fn open_dir(dir: OwnedFd) -> Result<VsmDir, String> {
    let owner = vsm::Owner { pid: std::process::id(), birth: clock::real() as u64 };
    VsmDir::adopt(dir, owner).map_err(|e| e.to_string())
}

/// Creates the state of the process from its configuration, shared-memory directory, storages, listeners and
/// certificates.
pub fn share(
    config: WorkerConfig,
    dir: VsmDir,
    stevedores: Vec<Stevedore>,
    disks: FoundDisks,
    invalidation_listeners: Vec<Box<dyn InvalidationListener>>,
    certificates: Option<Store>,
) -> Result<Arc<Process>, String> {
    let counted_disks = disk_counters::count(&disks.open.disks, disks.refused, &config.storages, &dir);
    let names = Names {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        identity: config.identity.clone(),
    };
    let setup = lacquer_engine::Setup {
        names,
        params: config.params.clone(),
        stevedores,
        hooks: crate::helpers::hooks(),
        invalidation_listeners,
        disks: disks.open,
        descriptors: descriptor_limit(),
    };
    let shared = Shared::create(&dir, setup)?;
    let watched = watched(config.params.reactor_count());
    Ok(Arc::new(Process::new(shared, dir, config.sockets, certificates, counted_disks, watched)))
}

fn start_reactors(process: &Arc<Process>) -> Result<Arc<ConnectionBalancer>, String> {
    let (balancer, ends) = ConnectionBalancer::new(process.watched().len());
    for (id, arrivals) in ends.into_iter().enumerate() {
        let process = process.clone();
        let (started, outcome) = mpsc::channel();
        std::thread::Builder::new()
            .name(format!("reactor-{id}"))
            .spawn(move || match reactor::runtime() {
                Ok(runtime) => {
                    process.runtimes().add(runtime.handle().clone());
                    let _ = started.send(Ok(()));
                    let watched = process.watched()[id].clone();
                    let services = Services::new(process.shared().clone(), id, watched, MAKERS);
                    reactor::run(&runtime, &services, arrivals);
                }
                Err(e) => drop(started.send(Err(e))),
            })
            .map_err(|e| format!("cannot start a reactor: {e}"))?;
        let outcome = outcome.recv().map_err(|e| format!("a reactor did not start: {e}"))?;
        outcome.map_err(|e| format!("cannot create a reactor: {e}"))?;
    }
    Ok(balancer)
}
