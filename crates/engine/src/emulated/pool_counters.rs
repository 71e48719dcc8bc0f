//! The counters of pools and waiters, for monitoring tools. Each reactor is assigned to one of Varnish's thread
//! pools.

use std::sync::Arc;

use lacquer_params::{Params, PoolParam};
use lacquer_shm::vsc::{LocalMempool, LocalSet, LocalWaiter, Mempool, Vcp, Waiter};
use lacquer_shm::{Segment, VsmDir};

/// The counters of one thread pool.
pub struct Pool {
    pub req: Segment<Mempool>,
    pub sess: Segment<Mempool>,
    pub waiter: Segment<Waiter>,
}

pub struct PoolCounters {
    pools: Vec<Arc<Pool>>,
    reactors: usize,
    pub busyobj: Segment<Mempool>,
    /// The pools of origin connections.
    connections: Segment<Vcp>,
}

impl PoolCounters {
    pub fn create(vsm: &VsmDir, params: &Params, reactors: usize) -> Result<PoolCounters, String> {
        let text = |e: lacquer_shm::vsm::VsmError| e.to_string();
        let pool = |n: u32| -> Result<Arc<Pool>, String> {
            Ok(Arc::new(Pool {
                req: mempool(vsm, &format!("req{n}"), params.workspace_client)?,
                sess: mempool(vsm, &format!("sess{n}"), params.workspace_session)?,
                waiter: Segment::create(vsm, &format!("pool{n}")).map_err(text)?,
            }))
        };
        Ok(PoolCounters {
            reactors,
            pools: (0..params.thread_pools.max(1)).map(pool).collect::<Result<_, _>>()?,
            busyobj: mempool(vsm, "busyobj", params.workspace_backend)?,
            connections: Segment::create(vsm, "").map_err(text)?,
        })
    }

    /// Counts a new backend. `shares` means that it uses the connections of other backends with the same address.
    pub fn count_backend(&self, shares: bool) {
        if shares { &self.connections.ref_hit } else { &self.connections.ref_miss }.add(1);
    }

    /// Returns the pool that a reactor is assigned to.
    pub fn pool(&self, reactor: usize) -> Arc<Pool> {
        self.pools[reactor % self.pools.len()].clone()
    }
}

fn mempool(vsm: &VsmDir, name: &str, size: u64) -> Result<Segment<Mempool>, String> {
    let pool: Segment<Mempool> = Segment::create(vsm, name).map_err(|e| e.to_string())?;
    pool.sz_wanted.set(size);
    pool.sz_actual.set(size);
    Ok(pool)
}

/// The counters of one reactor, which are flushed to its pool.
pub struct LocalPoolCounters {
    pool: Arc<Pool>,
    /// The number of reactors that are assigned to the pool.
    sharers: u32,
    pub req: LocalMempool,
    pub sess: LocalMempool,
    pub waiter: LocalWaiter,
    pub busyobj: LocalMempool,
}

impl LocalPoolCounters {
    pub fn new(all: &PoolCounters, reactor: usize) -> LocalPoolCounters {
        LocalPoolCounters {
            pool: all.pool(reactor),
            sharers: all.reactors.div_ceil(all.pools.len()).max(1) as u32,
            req: LocalMempool::default(),
            sess: LocalMempool::default(),
            waiter: LocalWaiter::default(),
            busyobj: LocalMempool::default(),
        }
    }

    /// Returns this reactor's share of limits that apply to a pool.
    pub fn share(&self, of: PoolParam) -> PoolParam {
        let share = |n: u32| n.div_ceil(self.sharers);
        PoolParam { min_pool: share(of.min_pool), max_pool: share(of.max_pool), ..of }
    }

    pub fn flush(&self, all: &PoolCounters) {
        self.req.flush(&self.pool.req);
        self.sess.flush(&self.pool.sess);
        self.waiter.flush(&self.pool.waiter);
        self.busyobj.flush(&all.busyobj);
    }
}

/// Counts an element that was taken from the pool.
pub fn taken(pool: &LocalMempool) {
    pool.live.add(1);
    pool.allocs.add(1);
}

pub fn given(pool: &LocalMempool) {
    pool.live.sub(1);
    pool.frees.add(1);
}
