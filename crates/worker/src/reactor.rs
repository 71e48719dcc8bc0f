//! A reactor: one thread, one single-threaded runtime, its own connections, counters and caches.
//!
//! Nothing here is shared with other threads; what is, sits in [`Shared`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use lacquer_cache::{FrontTable, Lookup, LookupArgs, Resumed};
use lacquer_http::date::DateCache;
use lacquer_params::Params;
use lacquer_shm::vsc::{LocalMain, LocalSet};

use crate::client::{Memory, Req};
use crate::clock;
use crate::deadlines::Deadlines;
use crate::fetch;
use crate::parts::LocalParts;
use crate::shared::Shared;
use crate::spares::Spares;
use crate::vcl_table::VclRef;

pub struct Reactor {
    pub shared: Arc<Shared>,
    pub id: usize,
    pub counters: LocalMain,
    pub parts: LocalParts,
    vxid_chunk: Cell<(u64, u64)>,
    params: RefCell<Rc<Params>>,
    params_generation: Cell<u64>,
    vcl: RefCell<Option<Rc<VclRef>>>,
    vcl_generation: Cell<u64>,
    /// Memory of requests and fetches that ended, for the next ones.
    spare: Spares<Memory>,
    spare_fetch: Spares<fetch::Memory>,
    runners: fetch::Runners,
    /// The time of the last housekeeping.
    tidied: Cell<Instant>,
    date: RefCell<DateCache>,
    via: Rc<str>,
    front: RefCell<FrontTable>,
    pub deadlines: Deadlines,
    unflushed: Cell<u32>,
    last_flush: Cell<f64>,
    /// Where requests lie while they run; a place of one that ended is the next one's.
    places: RefCell<Vec<Place>>,
}

/// The memory of a request itself.
pub type Place = Box<Option<Req>>;

const FRONT_ENTRIES: usize = 4096;
const FLUSH_EVERY: u32 = 64;
/// Seconds.
const FLUSH_AFTER: f64 = 0.001;
const MOST_PLACES: usize = 100;

impl Reactor {
    pub fn new(shared: Arc<Shared>, id: usize) -> Rc<Reactor> {
        let params = Rc::new(Params::clone(&shared.params()));
        Rc::new(Reactor {
            params_generation: Cell::new(shared.params_generation()),
            params: RefCell::new(params),
            id,
            counters: LocalMain::default(),
            parts: LocalParts::new(&shared.parts, id),
            vxid_chunk: Cell::new((0, 0)),
            vcl: RefCell::new(None),
            vcl_generation: Cell::new(0),
            spare: Spares::default(),
            spare_fetch: Spares::default(),
            runners: fetch::Runners::default(),
            tidied: Cell::new(Instant::now()),
            date: RefCell::new(DateCache::default()),
            via: format!("1.1 {} (Varnish/7.7)", shared.config.identity).into(),
            front: RefCell::new(FrontTable::new(FRONT_ENTRIES)),
            deadlines: Deadlines::default(),
            unflushed: Cell::new(0),
            last_flush: Cell::new(0.0),
            places: RefCell::default(),
            shared,
        })
    }

    pub fn vxid(&self) -> u64 {
        self.shared.vxids.take(&self.vxid_chunk)
    }

    pub fn params(&self) -> Rc<Params> {
        let generation = self.shared.params_generation();
        if generation != self.params_generation.get() {
            *self.params.borrow_mut() = Rc::new(Params::clone(&self.shared.params()));
            self.params_generation.set(generation);
        }
        self.params.borrow().clone()
    }

    /// The VCL for a new transaction.
    pub fn vcl(&self) -> Option<Rc<VclRef>> {
        self.refresh_vcl();
        self.vcl.borrow().clone()
    }

    /// Finds the active VCL where it is not known or has changed.
    fn refresh_vcl(&self) {
        self.drop_old_vcl();
        if self.vcl.borrow().is_none() {
            *self.vcl.borrow_mut() = self.shared.vcls.active().map(|v| Rc::new(VclRef::new(v)));
        }
    }

    /// Lets go of a VCL that is no longer the active one.
    fn drop_old_vcl(&self) {
        let generation = self.shared.vcls.generation();
        if generation != self.vcl_generation.get() {
            self.vcl_generation.set(generation);
            *self.vcl.borrow_mut() = None;
        }
    }

    /// A VCL that runs nothing here is not busy.
    fn drop_idle_vcl(&self) {
        self.drop_old_vcl();
        self.vcl.borrow_mut().take_if(|vcl| Rc::strong_count(vcl) == 1);
    }

    pub fn flush_counters(&self) {
        self.flush_counters_at(clock::real());
    }

    fn flush_counters_at(&self, now: f64) {
        self.counters.flush(&self.shared.counters);
        self.parts.flush(&self.shared.parts);
        self.unflushed.set(0);
        self.last_flush.set(now);
    }

    /// Memory for a request.
    pub fn take_memory(&self, params: &Params) -> Memory {
        let spare = self.spare.take(&self.parts.req);
        let mut memory = spare.unwrap_or_else(|| Memory::new(self, params));
        memory.refresh(params);
        memory
    }

    pub fn give_memory(&self, memory: Memory) {
        let limits = self.parts.share(self.params.borrow().pool_req);
        self.spare.give(memory, self.tidied.get(), limits, &self.parts.req);
    }

    /// Memory for a fetch.
    pub fn take_fetch_memory(&self) -> fetch::Memory {
        let spare = self.spare_fetch.take(&self.parts.busyobj);
        let mut memory = spare.unwrap_or_else(|| fetch::Memory::new(self));
        memory.refresh(self);
        memory
    }

    pub fn give_fetch_memory(&self, memory: fetch::Memory) {
        let limits = self.parts.share(self.params.borrow().pool_vbo);
        self.spare_fetch.give(memory, self.tidied.get(), limits, &self.parts.busyobj);
    }

    pub fn take_runner(&self) -> fetch::Runner {
        self.runners.take()
    }

    pub fn give_runner(&self, runner: fetch::Runner) {
        self.runners.give(runner);
    }

    /// The time as HTTP writes it.
    pub fn http_date(&self, now: f64) -> [u8; 29] {
        *self.date.borrow_mut().at(now)
    }

    /// What this server adds to `Via`.
    pub fn via(&self) -> Rc<str> {
        self.via.clone()
    }

    /// A look into the cache, through this reactor's own table of recent hits.
    pub fn lookup(&self, digest: &[u8; 32], args: &LookupArgs<'_>, resumed: Option<Resumed>) -> Lookup {
        self.front.borrow_mut().lookup(&self.shared.cache, digest, args, resumed)
    }

    /// Counters reach shared memory with every request while there are few, else now and then. `now` may
    /// be a little old.
    pub fn flush_if_due(&self, now: f64) {
        let n = self.unflushed.get() + 1;
        self.unflushed.set(n);
        if n >= FLUSH_EVERY || (now - self.last_flush.get()).abs() > FLUSH_AFTER {
            self.flush_counters_at(now);
        }
    }

    pub fn take_place(&self) -> Place {
        self.places.borrow_mut().pop().unwrap_or_default()
    }

    /// The request has ended: its memory and its place are the next one's.
    pub fn vacate(&self, mut place: Place) {
        if let Some(req) = place.take() {
            self.give_memory(req.into_memory());
        }
        let mut places = self.places.borrow_mut();
        if places.len() < MOST_PLACES {
            places.push(place);
        }
    }

    fn tidy_spares(&self) {
        let now = Instant::now();
        self.tidied.set(now);
        let params = self.params();
        let limits = self.parts.share(params.pool_req);
        self.spare.tidy(now, limits, &self.parts.req, || Memory::new(self, &params));
    }

    /// Once a second: what must not wait for the next request.
    pub async fn housekeeping(self: Rc<Self>) {
        loop {
            self.tidy_spares();
            self.flush_counters();
            self.drop_idle_vcl();
            self.front.borrow_mut().sweep(&self.shared.cache);
            let params = self.params();
            let (gone, old) = self.shared.pools.sweep(self.id, params.backend_idle_timeout);
            self.parts.waiter.remclose.add(gone);
            self.parts.waiter.timeout.add(old);
            self.parts.waiter.conns.sub(gone + old);
            self.shared.vcls.reap();
            // A change of VCL does not wait: the old one may be about to be discarded.
            let _ = tokio::time::timeout(clock::seconds(0.5), self.shared.vcls.changes.notified()).await;
        }
    }
}
