//! The services of a reactor that transactions use: the cache, the log, counters, parameters, transaction ids,
//! deadlines, and recycled memory. Some belong to the reactor alone, the rest to [`Shared`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::disk::Ring;
use lacquer_cache::{Cache, FrontTable, Lookup, LookupArgs, Resumed};
use lacquer_http::date::DateCache;
use lacquer_net::deadlines::{Deadlines, Idleness};
use lacquer_net::descriptors::{Descriptors, Need};
use lacquer_net::multiplex::Connections;
use lacquer_net::{HandshakeTurns, Pools};
use lacquer_params::Params;
use lacquer_shm::Log;
use lacquer_shm::vsc::{LocalMain, LocalSet};
use lacquer_sources::clock::{self, Instant};
use tokio::sync::Notify;

use crate::activity::Activity;
use crate::addresses::AddressTable;
use crate::admission::{Admission, Bound};
use crate::drain::Phase;
use crate::emulated::pool_counters::LocalPoolCounters;
use crate::h2;
use crate::notes::Observation;
use crate::recycle_pool::RecyclePool;
use crate::shared::Shared;
use crate::slices::LongWorkSlot;
use crate::stevedores::Stevedores;
use crate::vcl_table::{VclRef, VclTable};
use crate::watched::Watched;

/// Memory that a transaction leaves for the next one of its kind. The type is erased, because this module does not
/// depend on theirs.
pub type Recycled = Box<dyn Any>;

/// The functions that create spare items when there are too few.
#[derive(Clone, Copy)]
pub struct Makers {
    pub request: fn(&Services, &Params) -> Recycled,
    pub fetch: fn(&Services, &Params) -> Recycled,
}

/// The services of one reactor. They are used on its thread only.
pub struct Services {
    shared: Arc<Shared>,
    id: usize,
    own: Own,
    live: Live,
    spares: Spares,
    flushes: Flushes,
    deadlines: Deadlines,
    http2: h2::ReactorState,
    handshakes: HandshakeTurns,
    long_work: LongWorkSlot,
    watched: Arc<Watched>,
    is_draining: Cell<bool>,
}

/// The reactor's own counters, transaction ids, cached texts and queue of reads.
struct Own {
    counters: LocalMain,
    pool_counters: LocalPoolCounters,
    vxid_chunk: Cell<(u64, u64)>,
    front: RefCell<FrontTable>,
    date: RefCell<DateCache>,
    via: Rc<str>,
    /// Reads disks, if the kernel can do that without a thread.
    ring: Option<Rc<Ring>>,
    /// The connections to origins over HTTP/2.
    multiplexed: Connections,
    /// Wakes connections when the drain begins.
    drain_begun: Notify,
}

/// Copies of shared values that rarely change, each with its generation.
struct Live {
    params: RefCell<Rc<Params>>,
    params_generation: Cell<u64>,
    /// The observation of requests that these parameters ask for.
    observation: Cell<Observation>,
    vcl: RefCell<Option<Rc<VclRef>>>,
    vcl_generation: Cell<u64>,
}

/// Recycled memory for the next transactions.
struct Spares {
    makers: Makers,
    requests: RecyclePool<Recycled>,
    fetches: RecyclePool<Recycled>,
    /// The time of the last [`Services::tidy`].
    tidied: Cell<Instant>,
}

/// The state of flushing counters to shared memory.
#[derive(Default)]
struct Flushes {
    /// The number of transactions since the last flush.
    pending: Cell<u32>,
    /// The time of the last flush.
    last: Cell<f64>,
}

const FRONT_ENTRIES: usize = 4096;
/// The number of idle client connections that are closed at a time when descriptors are needed.
const SHED_AT_ONCE: usize = 8;
/// Clients that have sent a request within this time stay connected then, in seconds.
const ACTIVE: f64 = 1.0;
const FLUSH_EVERY: u32 = 64;
/// The age in seconds after which counters are flushed.
const FLUSH_AFTER: f64 = 0.001;

impl Services {
    /// Creates the services of the reactor with this number.
    pub fn new(shared: Arc<Shared>, id: usize, watched: Arc<Watched>, makers: Makers) -> Rc<Services> {
        Rc::new(Services {
            id,
            own: Own {
                counters: LocalMain::default(),
                pool_counters: LocalPoolCounters::new(shared.pool_counters(), id),
                vxid_chunk: Cell::new((0, 0)),
                front: RefCell::new(FrontTable::new(FRONT_ENTRIES)),
                date: RefCell::new(DateCache::default()),
                via: format!("1.1 {} (Varnish/7.7)", shared.identity()).into(),
                ring: shared.cache().take_ring().map(Rc::new),
                multiplexed: Connections::default(),
                drain_begun: Notify::new(),
            },
            live: Live {
                params_generation: Cell::new(shared.params_generation()),
                params: RefCell::new(Rc::new(Params::clone(&shared.params()))),
                observation: Cell::new(Observation::of_requests(&shared.params())),
                vcl: RefCell::new(None),
                vcl_generation: Cell::new(0),
            },
            spares: Spares {
                makers,
                requests: RecyclePool::default(),
                fetches: RecyclePool::default(),
                tidied: Cell::new(Instant::now()),
            },
            flushes: Flushes::default(),
            deadlines: Deadlines::default(),
            http2: h2::ReactorState::default(),
            handshakes: HandshakeTurns::default(),
            long_work: LongWorkSlot::default(),
            watched,
            is_draining: Cell::new(false),
            shared,
        })
    }

    /// Returns the number of the reactor.
    pub fn id(&self) -> usize {
        self.id
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn log(&self) -> &Arc<Log> {
        self.shared.log()
    }

    pub fn cache(&self) -> &Arc<Cache> {
        self.shared.cache()
    }

    /// Returns the reactor's queue of reads from disks, if the kernel has such queues.
    pub fn ring(&self) -> Option<&Rc<Ring>> {
        self.own.ring.as_ref()
    }

    pub fn stevedores(&self) -> &Stevedores {
        self.shared.stevedores()
    }

    /// Returns the connections of this reactor to origins over HTTP/2.
    pub fn multiplexed(&self) -> &Connections {
        &self.own.multiplexed
    }

    /// Returns the pools of idle connections to origins.
    pub fn pools(&self) -> &Pools {
        self.shared.pools()
    }

    pub fn vcls(&self) -> &VclTable {
        self.shared.vcls()
    }

    pub fn addresses(&self) -> &Arc<AddressTable> {
        self.shared.addresses()
    }

    pub fn admission(&self) -> &Arc<Admission> {
        self.shared.admission()
    }

    pub fn descriptors(&self) -> &Descriptors {
        self.shared.descriptors()
    }

    /// Returns the bound on waiting requests under these parameters.
    pub fn bound(&self, params: &Params) -> Bound {
        self.shared.bound(params)
    }

    /// Returns the reactor's own counters, which are flushed to the shared ones periodically.
    pub fn counters(&self) -> &LocalMain {
        &self.own.counters
    }

    pub fn pool_counters(&self) -> &LocalPoolCounters {
        &self.own.pool_counters
    }

    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Returns the state that the HTTP/2 connections of this reactor share.
    pub fn http2(&self) -> &h2::ReactorState {
        &self.http2
    }

    /// Returns the turns of this reactor's handshakes.
    pub fn handshakes(&self) -> &HandshakeTurns {
        &self.handshakes
    }

    /// Returns the reactor's slot for long work.
    pub fn long_work(&self) -> &LongWorkSlot {
        &self.long_work
    }

    pub fn watched(&self) -> &Arc<Watched> {
        &self.watched
    }

    pub fn activity(&self) -> &Activity {
        &self.watched.activity
    }

    /// Returns the id of a new transaction.
    pub fn vxid(&self) -> u64 {
        self.shared.vxids().take(&self.own.vxid_chunk)
    }

    pub fn params(&self) -> Rc<Params> {
        let (live, generation) = (&self.live, self.shared.params_generation());
        if generation != live.params_generation.get() {
            let params = Rc::new(Params::clone(&self.shared.params()));
            live.observation.set(Observation::of_requests(&params));
            *live.params.borrow_mut() = params;
            live.params_generation.set(generation);
        }
        live.params.borrow().clone()
    }

    /// Returns how the parameters want requests to be observed.
    #[inline]
    pub fn observation(&self) -> Observation {
        self.live.observation.get()
    }

    /// Returns the VCL for a new transaction.
    pub fn vcl(&self) -> Option<Rc<VclRef>> {
        self.drop_old_vcl();
        let mut vcl = self.live.vcl.borrow_mut();
        if vcl.is_none() {
            *vcl = self.vcls().active().map(|active| Rc::new(VclRef::new(active)));
        }
        vcl.clone()
    }

    /// Drops a VCL that is no longer the active one.
    fn drop_old_vcl(&self) {
        let generation = self.vcls().generation();
        if generation != self.live.vcl_generation.get() {
            self.live.vcl_generation.set(generation);
            *self.live.vcl.borrow_mut() = None;
        }
    }

    /// Drops this reactor's reference to a VCL that runs no task here, so that the VCL is not busy.
    fn drop_idle_vcl(&self) {
        self.drop_old_vcl();
        self.live.vcl.borrow_mut().take_if(|vcl| Rc::strong_count(vcl) == 1);
    }

    /// Takes the recycled memory of a request, if there is any.
    pub fn take_request(&self) -> Option<Recycled> {
        self.spares.requests.take(&self.own.pool_counters.req)
    }

    pub fn give_request(&self, spare: Recycled) {
        let pool = &self.own.pool_counters;
        let limits = pool.share(self.live.params.borrow().pool_req);
        self.spares.requests.give(spare, self.spares.tidied.get(), limits, &pool.req);
    }

    /// Takes a recycled fetch driver, if there is any.
    pub fn take_fetch(&self) -> Option<Recycled> {
        self.spares.fetches.take(&self.own.pool_counters.busyobj)
    }

    pub fn give_fetch(&self, spare: Recycled) {
        let pool = &self.own.pool_counters;
        let limits = pool.share(self.live.params.borrow().pool_vbo);
        self.spares.fetches.give(spare, self.spares.tidied.get(), limits, &pool.busyobj);
    }

    /// Formats a time as an HTTP date.
    pub fn http_date(&self, now: f64) -> [u8; 29] {
        *self.own.date.borrow_mut().at(now)
    }

    /// Returns the value that this server appends to `Via`.
    pub fn via(&self) -> Rc<str> {
        self.own.via.clone()
    }

    /// Looks up a key in the cache, through this reactor's own table of recent hits.
    pub fn lookup(&self, digest: &[u8; 32], args: &LookupArgs<'_>, resumed: Option<Resumed>) -> Lookup {
        self.own.front.borrow_mut().lookup(self.cache(), digest, args, resumed)
    }

    pub fn flush_counters(&self) {
        self.flush_counters_at(clock::real());
    }

    fn flush_counters_at(&self, now: f64) {
        self.own.counters.flush(self.shared.counters());
        self.own.pool_counters.flush(self.shared.pool_counters());
        self.flushes.pending.set(0);
        self.flushes.last.set(now);
    }

    /// Flushes the counters to shared memory, after every `FLUSH_EVERY` transactions or `FLUSH_AFTER` seconds.
    /// `now` may be slightly old.
    #[inline]
    pub fn flush_if_due(&self, now: f64) {
        let n = self.flushes.pending.get() + 1;
        self.flushes.pending.set(n);
        if n >= FLUSH_EVERY || (now - self.flushes.last.get()).abs() > FLUSH_AFTER {
            self.flush_counters_at(now);
        }
    }

    /// Frees descriptors on this reactor at once, and requests the same from the other reactors.
    pub fn need_descriptors(&self, need: Need) {
        self.descriptors().call(need);
        self.shed_idle(need);
    }

    /// Closes idle connections to clients and to origins.
    pub fn shed_idle(&self, need: Need) {
        let (descriptors, now) = (self.descriptors(), clock::monotonic());
        if self.deadlines.shed(Idleness::Silent, 0.0, SHED_AT_ONCE) > 0 {
            descriptors.spare_kept(now);
        } else if need == Need::Urgent && descriptors.may_close_kept(now) {
            self.deadlines.shed(Idleness::Kept, ACTIVE, SHED_AT_ONCE);
        }
        self.pools().clear(self.id);
    }

    /// Returns whether connections end with the response in progress, because the worker is about to stop.
    pub fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// Returns whether the drain has lasted so long that idle connections end.
    pub fn closes_idle(&self) -> bool {
        self.is_draining() && self.shared.drain().closes_idle(clock::monotonic())
    }

    /// Waits for the beginning of the drain.
    pub async fn drain_begun(&self) {
        if !self.is_draining() {
            self.own.drain_begun.notified().await;
        }
    }

    /// Follows the worker's drain on this reactor. The reactor calls it after each sweep of the deadlines.
    pub fn follow_drain(&self) {
        let phase = self.shared.drain().phase(clock::monotonic());
        if !self.is_draining.replace(phase != Phase::None) && phase != Phase::None {
            self.own.drain_begun.notify_waiters();
        }
        if phase == Phase::ClosingIdle {
            self.deadlines.shed(Idleness::Silent, 0.0, usize::MAX);
            self.deadlines.shed(Idleness::Kept, 0.0, usize::MAX);
        }
    }

    /// Performs periodic work that must not wait for the next request. The reactor calls it about once per second.
    pub fn tidy(&self) {
        self.tidy_spares();
        self.flush_counters();
        self.drop_idle_vcl();
        self.own.front.borrow_mut().sweep(self.cache());
    }

    fn tidy_spares(&self) {
        let (spares, pool, now) = (&self.spares, &self.own.pool_counters, Instant::now());
        spares.tidied.set(now);
        let (makers, params) = (spares.makers, self.params());
        let limits = pool.share(params.pool_req);
        spares.requests.tidy(now, limits, &pool.req, || (makers.request)(self, &params));
        let limits = pool.share(params.pool_vbo);
        spares.fetches.tidy(now, limits, &pool.busyobj, || (makers.fetch)(self, &params));
    }
}
