//! A reactor: one thread, one single-threaded runtime, its own connections, counters and caches.
//!
//! Nothing here is shared with other threads. Shared state is in [`Shared`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{FrontTable, Lookup, LookupArgs, Resumed};
use lacquer_http::date::DateCache;
use lacquer_params::Params;
use lacquer_shm::vsc::{LocalMain, LocalSet};
use lacquer_sources::clock::{self, Instant};

use crate::deadlines::{Deadlines, Idleness};
use crate::descriptors::Need;
use crate::h2;
use crate::pool_counters::LocalPoolCounters;
use crate::recycle_pool::RecyclePool;
use crate::shared::Shared;
use crate::slices::Shift;
use crate::vcl_table::VclRef;
use crate::watched::Watched;

/// Memory that a transaction leaves to the next one of its kind. The reactor does not see its type.
pub type Recycled = Box<dyn Any>;

/// The functions that make spares when there are too few.
#[derive(Clone, Copy)]
pub struct Makers {
    pub request: fn(&Reactor, &Params) -> Recycled,
    pub fetch: fn(&Reactor, &Params) -> Recycled,
}

pub struct Reactor {
    pub shared: Arc<Shared>,
    pub id: usize,
    pub counters: LocalMain,
    pub pool_counters: LocalPoolCounters,
    vxid_chunk: Cell<(u64, u64)>,
    params: RefCell<Rc<Params>>,
    params_generation: Cell<u64>,
    vcl: RefCell<Option<Rc<VclRef>>>,
    vcl_generation: Cell<u64>,
    makers: Makers,
    requests: RecyclePool<Recycled>,
    fetches: RecyclePool<Recycled>,
    /// The time of the last housekeeping.
    tidied: Cell<Instant>,
    date: RefCell<DateCache>,
    via: Rc<str>,
    front: RefCell<FrontTable>,
    pub deadlines: Deadlines,
    pub h2_buffers: h2::Buffers,
    pub h2_turns: h2::Turns,
    pub long_work: Shift,
    pub watched: Arc<Watched>,
    unflushed: Cell<u32>,
    last_flush: Cell<f64>,
}

const FRONT_ENTRIES: usize = 4096;
/// The number of idle connections that are closed at a time when descriptors are needed.
const SHED_AT_ONCE: usize = 8;
const FLUSH_EVERY: u32 = 64;
/// The age in seconds after which counters are flushed.
const FLUSH_AFTER: f64 = 0.001;

impl Reactor {
    pub fn new(shared: Arc<Shared>, id: usize, makers: Makers) -> Rc<Reactor> {
        let params = Rc::new(Params::clone(&shared.params()));
        Rc::new(Reactor {
            params_generation: Cell::new(shared.params.generation()),
            params: RefCell::new(params),
            id,
            counters: LocalMain::default(),
            pool_counters: LocalPoolCounters::new(&shared.pool_counters, id),
            vxid_chunk: Cell::new((0, 0)),
            vcl: RefCell::new(None),
            vcl_generation: Cell::new(0),
            makers,
            requests: RecyclePool::default(),
            fetches: RecyclePool::default(),
            tidied: Cell::new(Instant::now()),
            date: RefCell::new(DateCache::default()),
            via: format!("1.1 {} (Varnish/7.7)", shared.config.identity).into(),
            front: RefCell::new(FrontTable::new(FRONT_ENTRIES)),
            deadlines: Deadlines::default(),
            h2_buffers: h2::Buffers::default(),
            h2_turns: h2::Turns::default(),
            long_work: Shift::default(),
            watched: shared.watched[id].clone(),
            unflushed: Cell::new(0),
            last_flush: Cell::new(0.0),
            shared,
        })
    }

    pub fn vxid(&self) -> u64 {
        self.shared.vxids.take(&self.vxid_chunk)
    }

    pub fn params(&self) -> Rc<Params> {
        let generation = self.shared.params.generation();
        if generation != self.params_generation.get() {
            *self.params.borrow_mut() = Rc::new(Params::clone(&self.shared.params()));
            self.params_generation.set(generation);
        }
        self.params.borrow().clone()
    }

    /// Returns the VCL for a new transaction.
    pub fn vcl(&self) -> Option<Rc<VclRef>> {
        self.refresh_vcl();
        self.vcl.borrow().clone()
    }

    /// Finds the active VCL if it is not known or has changed.
    fn refresh_vcl(&self) {
        self.drop_old_vcl();
        if self.vcl.borrow().is_none() {
            *self.vcl.borrow_mut() = self.shared.vcls.active().map(|v| Rc::new(VclRef::new(v)));
        }
    }

    /// Drops a VCL that is no longer the active one.
    fn drop_old_vcl(&self) {
        let generation = self.shared.vcls.generation();
        if generation != self.vcl_generation.get() {
            self.vcl_generation.set(generation);
            *self.vcl.borrow_mut() = None;
        }
    }

    /// Drops a VCL that runs nothing here, so that it is not busy.
    fn drop_idle_vcl(&self) {
        self.drop_old_vcl();
        self.vcl.borrow_mut().take_if(|vcl| Rc::strong_count(vcl) == 1);
    }

    pub fn flush_counters(&self) {
        self.flush_counters_at(clock::real());
    }

    fn flush_counters_at(&self, now: f64) {
        self.counters.flush(&self.shared.counters);
        self.pool_counters.flush(&self.shared.pool_counters);
        self.unflushed.set(0);
        self.last_flush.set(now);
    }

    /// Returns the memory that a request left, if any.
    pub fn take_request(&self) -> Option<Recycled> {
        self.requests.take(&self.pool_counters.req)
    }

    pub fn give_request(&self, spare: Recycled) {
        let limits = self.pool_counters.share(self.params.borrow().pool_req);
        self.requests.give(spare, self.tidied.get(), limits, &self.pool_counters.req);
    }

    /// Returns the memory that a fetch left, if any.
    pub fn take_fetch(&self) -> Option<Recycled> {
        self.fetches.take(&self.pool_counters.busyobj)
    }

    pub fn give_fetch(&self, spare: Recycled) {
        let limits = self.pool_counters.share(self.params.borrow().pool_vbo);
        self.fetches.give(spare, self.tidied.get(), limits, &self.pool_counters.busyobj);
    }

    /// Returns the time in HTTP's form.
    pub fn http_date(&self, now: f64) -> [u8; 29] {
        *self.date.borrow_mut().at(now)
    }

    /// Returns the text that this server adds to `Via`.
    pub fn via(&self) -> Rc<str> {
        self.via.clone()
    }

    /// Looks a key up in the cache, through this reactor's own table of recent hits.
    pub fn lookup(&self, digest: &[u8; 32], args: &LookupArgs<'_>, resumed: Option<Resumed>) -> Lookup {
        self.front.borrow_mut().lookup(&self.shared.cache, digest, args, resumed)
    }

    /// Flushes the counters to shared memory: with every request while there are few, else now and then.
    /// `now` may be a little old.
    pub fn flush_if_due(&self, now: f64) {
        let n = self.unflushed.get() + 1;
        self.unflushed.set(n);
        if n >= FLUSH_EVERY || (now - self.last_flush.get()).abs() > FLUSH_AFTER {
            self.flush_counters_at(now);
        }
    }

    fn tidy_spares(&self) {
        let now = Instant::now();
        self.tidied.set(now);
        let params = self.params();
        let limits = self.pool_counters.share(params.pool_req);
        self.requests.tidy(now, limits, &self.pool_counters.req, || (self.makers.request)(self, &params));
        let limits = self.pool_counters.share(params.pool_vbo);
        self.fetches.tidy(now, limits, &self.pool_counters.busyobj, || (self.makers.fetch)(self, &params));
    }

    /// Sweeps the deadlines for as long as the worker runs, and helps at once where descriptors are needed.
    pub async fn keep_sweeping(self: Rc<Self>) {
        let descriptors = &self.shared.descriptors;
        let mut heard = descriptors.calls();
        loop {
            let mut turn = pin!(self.deadlines.next_turn());
            let mut is_over = false;
            while !is_over {
                is_over = tokio::select! {
                    () = &mut turn => true,
                    () = descriptors.called() => false,
                };
                let calls = descriptors.calls();
                if let Some(need) = calls.since(std::mem::replace(&mut heard, calls)) {
                    self.shed_idle(need);
                }
            }
        }
    }

    /// Frees descriptors here at once, and calls on the other reactors to do so.
    pub fn need_descriptors(&self, need: Need) {
        self.shared.descriptors.call(need);
        self.shed_idle(need);
    }

    /// Closes idle connections, to clients and to origins.
    fn shed_idle(&self, need: Need) {
        let (descriptors, now) = (&self.shared.descriptors, clock::monotonic());
        if self.deadlines.shed(Idleness::Silent, SHED_AT_ONCE) > 0 {
            descriptors.spare_kept(now);
        } else if need == Need::Urgent && descriptors.may_close_kept(now) {
            self.deadlines.shed(Idleness::Kept, SHED_AT_ONCE);
        }
        self.shared.pools.clear(self.id);
    }

    /// Runs once a second the work that must not wait for the next request.
    pub async fn housekeeping(self: Rc<Self>) {
        loop {
            self.tidy_spares();
            self.flush_counters();
            self.drop_idle_vcl();
            self.front.borrow_mut().sweep(&self.shared.cache);
            // A change of VCL is handled at once, because the old one may be about to be discarded.
            let _ = tokio::time::timeout(clock::seconds(0.5), self.shared.vcls.changes.notified()).await;
        }
    }
}
