//! Counters of the parts that Varnish is made of and tools ask for: memory pools and waiters. Reactors
//! stand in for its thread pools.

use std::sync::Arc;

use lacquer_params::Params;
use lacquer_shm::vsc::{LocalMempool, LocalSet, LocalWaiter, Mempool, Waiter};
use lacquer_shm::{Segment, VsmDir};

/// What belongs to one thread pool.
pub struct Pool {
    pub req: Segment<Mempool>,
    pub sess: Segment<Mempool>,
    pub waiter: Segment<Waiter>,
}

pub struct Parts {
    pools: Vec<Arc<Pool>>,
    pub busyobj: Segment<Mempool>,
}

impl Parts {
    pub fn create(vsm: &VsmDir, params: &Params) -> Result<Parts, String> {
        let text = |e: lacquer_shm::vsm::VsmError| e.to_string();
        let pool = |n: u32| -> Result<Arc<Pool>, String> {
            Ok(Arc::new(Pool {
                req: mempool(vsm, &format!("req{n}"), params.workspace_client)?,
                sess: mempool(vsm, &format!("sess{n}"), params.workspace_session)?,
                waiter: Segment::create(vsm, &format!("pool{n}")).map_err(text)?,
            }))
        };
        Ok(Parts {
            pools: (0..params.thread_pools.max(1)).map(pool).collect::<Result<_, _>>()?,
            busyobj: mempool(vsm, "busyobj", params.workspace_backend)?,
        })
    }

    /// The pool that a reactor counts for.
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

/// A reactor's share.
pub struct LocalParts {
    pool: Arc<Pool>,
    pub req: LocalMempool,
    pub sess: LocalMempool,
    pub waiter: LocalWaiter,
    pub busyobj: LocalMempool,
}

impl LocalParts {
    pub fn new(parts: &Parts, reactor: usize) -> LocalParts {
        LocalParts {
            pool: parts.pool(reactor),
            req: LocalMempool::default(),
            sess: LocalMempool::default(),
            waiter: LocalWaiter::default(),
            busyobj: LocalMempool::default(),
        }
    }

    pub fn flush(&self, parts: &Parts) {
        self.req.flush(&self.pool.req);
        self.sess.flush(&self.pool.sess);
        self.waiter.flush(&self.pool.waiter);
        self.busyobj.flush(&parts.busyobj);
    }
}

/// One is in use now, or not any more.
pub fn taken(pool: &LocalMempool) {
    pool.live.add(1);
    pool.allocs.add(1);
}

pub fn given(pool: &LocalMempool) {
    pool.live.sub(1);
    pool.frees.add(1);
}
