//! The state that all reactors share: parameters, counters, log, cache, storages, VCLs, idle connections, limits.

use std::sync::Arc;

use lacquer_cache::disk::OpenDisks;
use lacquer_cache::invalidation::InvalidationListener;
use lacquer_cache::{Cache, Config, Hooks, Recovery};
use lacquer_net::Pools;
use lacquer_net::descriptors::Descriptors;
use lacquer_params::Params;
use lacquer_shm::vsm::VsmError;
use lacquer_shm::{Log, Main, Numbering, Segment, Tag, VsmDir};
use lacquer_sources::clock;
use lacquer_storage::Stevedore;

use crate::addresses::AddressTable;
use crate::admission::{Admission, Bound};
use crate::ban_subjects::PackedHeads;
use crate::challenges::Challenges;
use crate::drain::Drain;
use crate::emulated::pool_counters::PoolCounters;
use crate::live_params::{self, LiveParams};
use crate::stevedores::Stevedores;
use crate::vcl_table::VclTable;
use crate::vxids::Vxids;

pub struct Shared {
    names: Names,
    params: LiveParams,
    counters: Counters,
    log: Arc<Log>,
    cache: Arc<Cache>,
    recovery: Recovery,
    stevedores: Stevedores,
    pools: Pools,
    vcls: VclTable,
    vxids: Vxids,
    intake: Intake,
    descriptors: Descriptors,
}

/// The conditions under which connections and requests are accepted.
#[derive(Default)]
struct Intake {
    addresses: Arc<AddressTable>,
    admission: Arc<Admission>,
    drain: Drain,
    challenges: Challenges,
}

/// Counters in shared memory.
struct Counters {
    main: Arc<Segment<Main>>,
    pools: PoolCounters,
}

/// The names of this server.
pub struct Names {
    /// The hostname of the machine.
    pub host: String,
    /// The identity of the instance, from the option `-i`.
    pub identity: String,
}

/// The inputs for creating the shared state.
pub struct Setup {
    pub names: Names,
    pub params: Params,
    /// The storages. The last one must be Transient.
    pub stevedores: Vec<Stevedore>,
    pub hooks: Hooks,
    /// The listeners that receive purges and bans, such as a journal.
    pub invalidation_listeners: Vec<Box<dyn InvalidationListener>>,
    /// The number of descriptors that the process may have.
    pub descriptors: u64,
    /// The stores on disks.
    pub disks: OpenDisks,
}

impl Shared {
    /// Creates the shared state, with its counters and its log in the shared-memory directory `vsm`.
    pub fn create(vsm: &VsmDir, setup: Setup) -> Result<Shared, String> {
        let text = |e: VsmError| e.to_string();
        let Setup { names, params, stevedores, hooks, invalidation_listeners, descriptors, disks } = setup;
        let counters: Arc<Segment<Main>> = Arc::new(Segment::create(vsm, "").map_err(text)?);
        counters.pools.set(u64::from(params.thread_pools));
        let numbering = if params.vsl_varnish9 { Numbering::Varnish9 } else { Numbering::Varnish7 };
        let log = Log::create(vsm, params.vsl_space as usize, numbering, counters.clone()).map_err(text)?;
        live_params::apply_settings(&log, &params);
        let stevedores = Stevedores::new(stevedores, vsm);
        stevedores.publish();
        let config = Config {
            stevedores: stevedores.all().to_vec(),
            heads: Box::new(PackedHeads),
            hooks,
            rush_exponent: params.rush_exponent,
            ban_dups: params.ban_dups,
            invalidation_listeners,
        };
        let cache = Cache::with_disks(config, disks, clock::real());
        live_params::apply_to_disks(&cache, &params);
        let recovery = cache.recover().map_err(|e| format!("a storage cannot be read: {e}"))?;
        let reactors = params.reactor_count();
        let vxids = Vxids::new(stevedores.all());
        Ok(Shared {
            names,
            counters: Counters { main: counters, pools: PoolCounters::create(vsm, &params, reactors)? },
            pools: Pools::new(reactors),
            log,
            cache,
            recovery,
            stevedores,
            params: LiveParams::new(params),
            vcls: VclTable::default(),
            vxids,
            intake: Intake::default(),
            descriptors: Descriptors::new(descriptors),
        })
    }

    /// Returns the hostname of the machine.
    pub fn hostname(&self) -> &str {
        &self.names.host
    }

    /// Returns the identity of the instance.
    pub fn identity(&self) -> &str {
        &self.names.identity
    }

    pub fn counters(&self) -> &Arc<Segment<Main>> {
        &self.counters.main
    }

    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns the number of objects that the storages contained at the start.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    pub fn stevedores(&self) -> &Stevedores {
        &self.stevedores
    }

    pub fn pool_counters(&self) -> &PoolCounters {
        &self.counters.pools
    }

    /// Returns the pools of idle connections to origins.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    pub fn vcls(&self) -> &VclTable {
        &self.vcls
    }

    pub fn vxids(&self) -> &Vxids {
        &self.vxids
    }

    /// Returns the table of client addresses with limits.
    pub fn addresses(&self) -> &Arc<AddressTable> {
        &self.intake.addresses
    }

    pub fn admission(&self) -> &Arc<Admission> {
        &self.intake.admission
    }

    /// Returns the state of the worker's orderly end.
    pub fn drain(&self) -> &Drain {
        &self.intake.drain
    }

    /// Returns the pages for ACME servers, which requests get before VCL sees them.
    pub fn challenges(&self) -> &Challenges {
        &self.intake.challenges
    }

    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Returns the bound on waiting requests under these parameters.
    pub fn bound(&self, params: &Params) -> Bound {
        Bound::of(params, self.descriptors.limit())
    }

    pub fn params(&self) -> Arc<Params> {
        self.params.now()
    }

    /// Returns a number that changes whenever a parameter changes. Cheap to read.
    pub fn params_generation(&self) -> u64 {
        self.params.generation()
    }

    pub fn set_params(&self, params: Params) {
        live_params::apply_settings(&self.log, &params);
        self.cache.set_trace(!self.log.is_masked(Tag::ExpKill));
        self.cache.set_ban_dups(params.ban_dups);
        live_params::apply_to_disks(&self.cache, &params);
        self.params.set(params);
    }
}
