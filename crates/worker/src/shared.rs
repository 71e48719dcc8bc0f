//! What all reactors share: configuration, parameters, counters, log, cache, VCLs, idle connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lacquer_backend::Pools;
use lacquer_cache::Cache;
use lacquer_cli::link::WorkerConfig;
use lacquer_params::Params;
use lacquer_shm::{Log, Main, Segment, VsmDir};
use parking_lot::{Mutex, RwLock};

use crate::addresses::AddressTable;
use crate::admission::{Admission, Bound};
use crate::descriptors::Descriptors;
use crate::locks::Locks;
use crate::pool_counters::PoolCounters;
use crate::probes::Runtimes;
use crate::stevedores::Stevedores;
use crate::tag_counters::TagCounters;
use crate::vcl_table::VclTable;
use crate::watchdog::Watched;

pub struct Shared {
    pub config: WorkerConfig,
    pub params: LiveParams,
    pub counters: Arc<Segment<Main>>,
    pub log: Arc<Log>,
    pub locks: Locks,
    pub tag_counters: TagCounters,
    pub vsm: Mutex<VsmDir>,
    pub cache: Arc<Cache>,
    pub stevedores: Stevedores,
    pub pool_counters: PoolCounters,
    pub pools: Pools,
    pub vcls: VclTable,
    pub vxids: Vxids,
    pub addresses: Arc<AddressTable>,
    pub runtimes: Runtimes,
    /// Set once the manager says that clients may come.
    pub accepting: tokio::sync::watch::Sender<bool>,
    pub hostname: String,
    /// One for each reactor.
    pub watched: Vec<Arc<Watched>>,
    pub admission: Arc<Admission>,
    pub descriptors: Descriptors,
}

impl Shared {
    /// Returns how many requests may wait at once under these parameters.
    pub fn bound(&self, params: &Params) -> Bound {
        Bound::of(params, self.descriptors.limit())
    }

    pub fn params(&self) -> Arc<Params> {
        self.params.now.read().clone()
    }

    pub fn set_params(&self, params: Params) {
        self.apply_settings(&params);
        *self.params.now.write() = Arc::new(params);
        self.params.generation.fetch_add(1, Ordering::Release);
    }

    fn apply_settings(&self, params: &Params) {
        crate::boot::apply_settings(&self.log, params);
        self.cache.set_trace(!self.log.is_masked(lacquer_shm::Tag::ExpKill));
    }
}

/// The parameters, as the manager last told them.
pub struct LiveParams {
    now: RwLock<Arc<Params>>,
    generation: AtomicU64,
}

impl LiveParams {
    pub fn new(params: Params) -> LiveParams {
        LiveParams { now: RwLock::new(Arc::new(params)), generation: AtomicU64::new(1) }
    }

    /// Changes with every change of a parameter; cheap to look at.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// Transaction numbers. Reactors take them in chunks so that they do not meet at one counter.
pub struct Vxids {
    next: AtomicU64,
    exact: AtomicBool,
}

const CHUNK: u64 = 1 << 15;

impl Default for Vxids {
    fn default() -> Self {
        Vxids { next: AtomicU64::new(1), exact: AtomicBool::new(false) }
    }
}

impl Vxids {
    /// From now on numbers are given one by one, in order, starting here (`debug.xid`).
    pub fn restart_at(&self, next: u64) {
        self.exact.store(true, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
    }

    /// The next number for a reactor that holds `chunk` (first unused, end).
    pub fn take(&self, chunk: &std::cell::Cell<(u64, u64)>) -> u64 {
        if self.exact.load(Ordering::Relaxed) {
            return self.next.fetch_add(1, Ordering::Relaxed);
        }
        let (mut next, mut end) = chunk.get();
        if next == end {
            next = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            end = next + CHUNK;
        }
        chunk.set((next + 1, end));
        next
    }

    pub fn peek(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}
