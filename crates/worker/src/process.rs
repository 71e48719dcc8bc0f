//! The state of the worker process that its main thread and its helper threads use: the state that reactors share,
//! and access to the reactors and to shared memory.

use std::sync::{Arc, OnceLock};

use lacquer_cli::link::ListenSocket;
use lacquer_engine::{Shared, Watched};
use lacquer_names::{Names, Settings};
use lacquer_params::Params;
use lacquer_shm::VsmDir;
use lacquer_sources::clock;
use lacquer_tls::Store;
use parking_lot::{Mutex, MutexGuard};

use crate::disk_counters::{CountedDisk, CountedDisks, CountedRefusal};
use crate::locks::Locks;
use crate::runtimes::Runtimes;
use crate::successor::Handover;
use crate::tag_counters::TagCounters;

pub struct Process {
    shared: Arc<Shared>,
    sockets: Vec<ListenSocket>,
    vsm: Mutex<VsmDir>,
    runtimes: Runtimes,
    locks: Locks,
    tag_counters: TagCounters,
    /// Set once the manager allows clients to connect.
    accepting: OnceLock<()>,
    /// The certificates, if a listener has TLS.
    certificates: Option<Store>,
    /// The stores on disks.
    disks: CountedDisks,
    /// The state of each reactor that the watchdog reads.
    watched: Vec<Arc<Watched>>,
    handover: OnceLock<Handover>,
    /// The hosts of backends.
    hosts: Names,
}

impl Process {
    pub fn new(
        shared: Shared,
        dir: VsmDir,
        sockets: Vec<ListenSocket>,
        certificates: Option<Store>,
        disks: CountedDisks,
        watched: Vec<Arc<Watched>>,
    ) -> Process {
        let shared = Arc::new(shared);
        let settings = shared.clone();
        Process {
            hosts: Names::new(move || dns_settings(&settings.params())),
            shared,
            sockets,
            runtimes: Runtimes::default(),
            locks: Locks::open(&dir),
            tag_counters: TagCounters::default(),
            vsm: Mutex::new(dir),
            accepting: OnceLock::new(),
            certificates,
            disks,
            watched,
            handover: OnceLock::new(),
        }
    }

    /// Returns the state that reactors share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the listening sockets in the order of the options.
    pub fn sockets(&self) -> &[ListenSocket] {
        &self.sockets
    }

    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// Returns the certificates, if a listener has TLS.
    pub fn certificates(&self) -> Option<&Store> {
        self.certificates.as_ref()
    }

    /// Returns the stores on disks.
    pub fn disks(&self) -> &[CountedDisk] {
        &self.disks.used
    }

    /// Returns the disks that cannot be used.
    pub fn refused_disks(&self) -> &[CountedRefusal] {
        &self.disks.refused
    }

    /// Returns the state of each reactor that the watchdog reads.
    pub fn watched(&self) -> &[Arc<Watched>] {
        &self.watched
    }

    /// Returns the hosts of backends, whose addresses are looked up.
    pub fn hosts(&self) -> &Names {
        &self.hosts
    }

    /// Sets what a handover to another worker requires. Only the first call has an effect.
    pub fn set_handover(&self, handover: Handover) {
        let _ = self.handover.set(handover);
    }

    pub fn handover(&self) -> Option<&Handover> {
        self.handover.get()
    }

    /// Locks the index of the shared memory.
    pub fn vsm(&self) -> MutexGuard<'_, VsmDir> {
        self.vsm.lock()
    }

    /// Adds the counters of tags to the shared memory, when the first program uses tags.
    pub fn show_tag_counters(&self) {
        self.tag_counters.show(&self.vsm());
    }

    /// Copies the counters of locks, tags and disks, and the events of disks, to the shared memory.
    pub fn publish_counters(&self) {
        self.locks.publish();
        self.disks.publish(self.shared.log());
        self.tag_counters.publish(self.shared.cache().tag_stats());
    }

    /// Allows clients to connect.
    pub fn begin_accepting(&self) {
        let _ = self.accepting.set(());
    }

    /// Waits until clients may connect.
    pub fn wait_until_accepting(&self) {
        self.accepting.wait();
    }
}

fn dns_settings(params: &Params) -> Settings {
    Settings {
        servers: params.dns_servers.clone(),
        ttl: (clock::seconds(params.dns_ttl_min), clock::seconds(params.dns_ttl_max)),
        retry: clock::seconds(params.dns_retry),
        prefer_ipv6: params.prefer_ipv6,
    }
}
