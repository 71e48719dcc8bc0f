//! The state of the worker process that its main thread and its helper threads use: the state that reactors share,
//! and access to the reactors and to shared memory.

use std::sync::{Arc, OnceLock};

use lacquer_cli::link::WorkerConfig;
use lacquer_engine::{Shared, Watched};
use lacquer_shm::VsmDir;
use lacquer_tls::Store;
use parking_lot::Mutex;

use crate::disk_counters::CountedDisk;
use crate::locks::Locks;
use crate::runtimes::Runtimes;
use crate::tag_counters::TagCounters;

pub struct Process {
    pub shared: Arc<Shared>,
    pub config: WorkerConfig,
    pub vsm: Mutex<VsmDir>,
    pub runtimes: Runtimes,
    pub locks: Locks,
    pub tag_counters: TagCounters,
    /// Set once the manager allows clients to connect.
    pub accepting: OnceLock<()>,
    /// The certificates, if a listener has TLS.
    pub certificates: Option<Store>,
    /// The stores on disks.
    pub disks: Vec<CountedDisk>,
    /// The state of each reactor that the watchdog reads.
    pub watched: Vec<Arc<Watched>>,
}
