//! State that all reactors share: configuration, parameters, counters, log, cache, VCLs, idle connections.

use std::sync::{Arc, OnceLock};

use lacquer_backend::Pools;
use lacquer_cache::Cache;
use lacquer_cli::link::WorkerConfig;
use lacquer_params::Params;
use lacquer_shm::{Log, Main, Segment, VsmDir};
use parking_lot::Mutex;

use crate::addresses::AddressTable;
use crate::admission::{Admission, Bound};
use crate::descriptors::Descriptors;
use crate::live_params::{self, LiveParams};
use crate::locks::Locks;
use crate::pool_counters::PoolCounters;
use crate::runtimes::Runtimes;
use crate::stevedores::Stevedores;
use crate::tag_counters::TagCounters;
use crate::vcl_table::VclTable;
use crate::vxids::Vxids;
use crate::watched::Watched;

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
    /// Set once the manager allows clients to connect.
    pub accepting: OnceLock<()>,
    pub hostname: String,
    /// The watchdog's view of each reactor.
    pub watched: Vec<Arc<Watched>>,
    pub admission: Arc<Admission>,
    pub descriptors: Descriptors,
}

impl Shared {
    /// Returns the bound on requests that wait at once under these parameters.
    pub fn bound(&self, params: &Params) -> Bound {
        Bound::of(params, self.descriptors.limit())
    }

    pub fn params(&self) -> Arc<Params> {
        self.params.now()
    }

    pub fn set_params(&self, params: Params) {
        self.apply_settings(&params);
        self.params.set(params);
    }

    fn apply_settings(&self, params: &Params) {
        live_params::apply_settings(&self.log, params);
        self.cache.set_trace(!self.log.is_masked(lacquer_shm::Tag::ExpKill));
        self.cache.set_ban_dups(params.ban_dups);
    }
}
