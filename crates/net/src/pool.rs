//! Idle connections to origins, one shelf for each reactor.
//!
//! A reactor takes from its own shelf, which others seldom want, so that its lock is hardly ever waited for. Only
//! when that is empty does it look at the others': a connection costs more than a lock. The last one put
//! back is taken first: it is the least likely to have been closed by the origin meanwhile.
//!
//! A connection is looked at, in the kernel, before it is used again. Bytes that wait there belong to no
//! request; a request sent now would get them as its response. Connections rest after each response (see
//! [`crate::record`]), and each shelf has a watcher that learns of bytes on idle connections when they arrive.
//! Rests cost connections, so that most of them are cut short where the origin has as many as it was seen to serve.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lacquer_sources::clock::Instant;
use parking_lot::Mutex;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::peek::Peeked;
use crate::record::{Exchange, Received, Rest};
use crate::retired::Retired;
use crate::trial::Stage;
use crate::trust::{SpokeFirst, Watch};

/// Most connections to one endpoint that rest on a shelf. A request that would leave one more behind retires it, so
/// that many responses without a body take neither the descriptors nor the origin's connections.
const MOST_RESTING: usize = 32;
/// Most connections to one endpoint, on all shelves, that rest without having to.
const MOST_SPARED: usize = 64;

/// A connection that may be used again.
struct Pooled {
    connection: Connection,
    reactor: usize,
    since: Instant,
    /// The time from which on it may be used.
    usable: Instant,
    /// A connection is opened rather than wait for it, even if the origin has as many as it was seen to serve.
    must: bool,
}

impl Pooled {
    fn resting(&self) -> Resting {
        Resting { until: self.usable, must: self.must }
    }
}

#[derive(Default)]
struct Shelf {
    idle: BTreeMap<u64, Idle>,
    watcher: Option<Waker>,
}

/// The idle connections to one endpoint. They are closed when no backend has it any more.
struct Idle {
    endpoint: Weak<Endpoint>,
    /// Connections whose rest may be cut short, the latest last.
    ready: VecDeque<Pooled>,
    /// Connections that rest in full.
    resting: Vec<Pooled>,
    retired: Retired,
}

/// The connection that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The time after which silence proves that no response is missing.
    pub quiet: Duration,
    /// The number of connections in use, this one included.
    pub in_use: u32,
    /// The limit of connections that the origin's declaration sets.
    pub declared: u32,
}

/// The rest of a connection that is usable after it.
#[derive(Clone, Copy, Debug)]
pub struct Resting {
    pub until: Instant,
    /// A connection is opened rather than wait for it, even if the origin has as many as it was seen to serve.
    pub must: bool,
}

impl Resting {
    /// Returns the one to wait for.
    fn better(one: Option<Resting>, other: Option<Resting>) -> Option<Resting> {
        one.into_iter().chain(other).min_by_key(|resting| (resting.must, resting.until))
    }
}

/// The result of a search for a connection.
pub enum Taken {
    Connection(Connection),
    /// A connection rests until then.
    Resting(Resting),
    /// Some connections rest. One of these rests is cut short if no connection may be opened.
    Spared,
    None,
}

/// A connection that was closed because the origin sent bytes that belong to no request.
pub struct Surplus {
    pub endpoint: Weak<Endpoint>,
    /// Both addresses, as the log shows them.
    pub ends: Box<str>,
    /// The first of the bytes.
    pub sample: Vec<u8>,
    pub spoke_first: SpokeFirst,
    /// Objects that came over the connection.
    pub received: Vec<Received>,
}

impl Surplus {
    pub fn new(endpoint: Weak<Endpoint>, connection: &Connection, sample: Vec<u8>) -> Surplus {
        let record = &connection.record;
        Surplus {
            endpoint,
            ends: connection.facts.ends.clone(),
            sample,
            spoke_first: record.spoke_first(),
            received: record.received().collect(),
        }
    }
}

/// Outcome of tending a shelf: how many connections the peer had closed, how many were idle for too long,
/// and the faulty ones.
#[derive(Default)]
pub struct Tended {
    pub gone: u64,
    pub old: u64,
    pub kept: usize,
    pub surplus: Vec<Surplus>,
    /// Objects that may be the responses to other requests, although no surplus was seen.
    pub doubtful: Vec<Received>,
}

impl Shelf {
    /// Has the task that tends the shelf woken when something arrives on the connection.
    fn watch(&mut self, connection: &Connection) {
        if let Some(watcher) = self.watcher.take() {
            // By an event of the past or a new one: tending finds out, and looks at all that come until then.
            if connection.rx.poll_readable(&mut Context::from_waker(&watcher)).is_ready() {
                watcher.wake();
            } else {
                self.watcher = Some(watcher);
            }
        }
    }

    fn idle_of(&mut self, endpoint: &Arc<Endpoint>) -> &mut Idle {
        let new = || Idle {
            endpoint: Arc::downgrade(endpoint),
            ready: VecDeque::new(),
            resting: Vec::new(),
            retired: Retired::default(),
        };
        self.idle.entry(endpoint.id).or_insert_with(new)
    }

    /// Puts back a connection that was not used.
    fn give_back(&mut self, endpoint: &Arc<Endpoint>, pooled: Pooled) {
        self.idle_of(endpoint).resting.push(pooled);
    }

    /// Takes a usable connection. Of those whose rest may be cut short, `spared` are left in peace.
    fn take(&mut self, endpoint: u64, spared: usize, now: Instant) -> Found {
        let Some(idle) = self.idle.get_mut(&endpoint) else { return Found::None };
        if let Some(ready) = idle.ready_at(spared, now).and_then(|at| idle.ready.remove(at)) {
            return Found::Usable(ready);
        }
        if let Some(at) = idle.resting.iter().position(|pooled| pooled.usable <= now) {
            return Found::Usable(idle.resting.swap_remove(at));
        }
        let better = |one, pooled: &Pooled| Resting::better(one, Some(pooled.resting()));
        match idle.resting.iter().fold(None, better) {
            _ if !idle.ready.is_empty() => Found::Spared,
            Some(resting) => Found::Resting(resting),
            None => Found::None,
        }
    }
}

/// A search for an idle connection that leaves some on each shelf in peace.
struct Search<'s> {
    reactor: usize,
    endpoint: &'s Arc<Endpoint>,
    wanted: Wanted,
    trial: Stage,
    now: Instant,
    spared: usize,
}

/// Outcome of looking at one shelf.
enum Found {
    Usable(Pooled),
    Resting(Resting),
    Spared,
    None,
}

impl Idle {
    /// Returns the place of the latest ready connection that has rested. If none has, the rest of one is cut short: of the
    /// first, which has rested for longest, or of the last but `spared`; of none if there are no more than these.
    fn ready_at(&self, spared: usize, now: Instant) -> Option<usize> {
        let latest = self.ready.len().checked_sub(1)?;
        let has_rested = |pooled: &Pooled| pooled.usable <= now;
        if has_rested(&self.ready[latest]) {
            return Some(latest);
        }
        // Those put here earlier have rested first, unless their responses took much longer.
        let rested = self.ready.partition_point(has_rested).checked_sub(1);
        rested.or(if spared == 0 { Some(0) } else { latest.checked_sub(spared) })
    }

    fn has_some(&self) -> bool {
        !self.ready.is_empty() || !self.resting.is_empty()
    }

    /// Returns the number of these connections that the origin has closed.
    fn closed(&self) -> usize {
        let is_closed = |pooled: &&Pooled| matches!(pooled.connection.rx.look(), Peeked::Closed);
        self.ready.iter().chain(&self.resting).filter(is_closed).count()
    }
}

impl Pooled {
    /// Returns whether the connection has not been quiet for long enough to prove anything.
    fn is_young(&self, now: Instant, quiet: Duration) -> bool {
        now.saturating_duration_since(self.since) < quiet
    }
}

/// The idle connections of all reactors.
pub struct Pools {
    shelves: Vec<Mutex<Shelf>>,
    /// Closed outside of tending, since the last time.
    lost: AtomicU64,
}

impl Pools {
    pub fn new(reactors: usize) -> Pools {
        Pools {
            shelves: (0..reactors).map(|_| Mutex::new(Shelf::default())).collect(),
            lost: AtomicU64::new(0),
        }
    }

    /// Returns an idle connection to the endpoint on which nothing waits to be read. Faulty ones that were
    /// found on the way are added to `surplus`.
    pub fn take(
        &self,
        reactor: usize,
        endpoint: &Arc<Endpoint>,
        wanted: Wanted,
        surplus: &mut Vec<Surplus>,
    ) -> Taken {
        let now = Instant::now();
        let trust = &endpoint.trust;
        if trust.is_suspected(now) {
            return Taken::None;
        }
        let trial = trust.trial(now);
        if let Stage::Runs(millis) = trial {
            return self.wait_for_trial(endpoint, now + Duration::from_millis(millis));
        }
        let n = self.shelves.len();
        let mut search =
            |spared| self.search(&Search { reactor, endpoint, wanted, trial, now, spared }, surplus);
        if !trust.is_full(wanted.declared, now) {
            return search(MOST_SPARED.div_ceil(n));
        }
        // Those on another shelf may have rested for longer, if there are more of them.
        let idle = trust.capacity().alive().saturating_sub(wanted.in_use) as usize;
        match search(idle / n) {
            Taken::Spared => search(0),
            taken => taken,
        }
    }

    fn search(&self, search: &Search<'_>, surplus: &mut Vec<Surplus>) -> Taken {
        let Search { reactor, endpoint, wanted, trial, now, spared } = *search;
        let trust = &endpoint.trust;
        let mut soonest: Option<Resting> = None;
        let mut has_spared = false;
        let n = self.shelves.len();
        for i in 0..n {
            let candidate = &self.shelves[(reactor + i) % n];
            loop {
                let found = candidate.lock().take(endpoint.id, spared, now);
                let mut pooled = match found {
                    Found::Usable(pooled) => pooled,
                    Found::Resting(resting) => {
                        soonest = Resting::better(soonest, Some(resting));
                        break;
                    }
                    Found::Spared => {
                        has_spared = true;
                        break;
                    }
                    Found::None => break,
                };
                match pooled.connection.rx.look() {
                    Peeked::Quiet => {}
                    Peeked::Closed | Peeked::Broken => {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                        if pooled.is_young(now, wanted.quiet) {
                            trust.closed_in_order();
                        }
                        continue;
                    }
                    Peeked::Bytes(sample) => {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                        surplus.push(Surplus::new(Arc::downgrade(endpoint), &pooled.connection, sample));
                        return Taken::None;
                    }
                }
                if trial == Stage::NotBegun && !wanted.quiet.is_zero() {
                    let until = pooled.since + wanted.quiet;
                    if until > now {
                        candidate.lock().give_back(endpoint, pooled);
                        return Taken::Resting(Resting { until, must: false });
                    }
                    let Some(run) = trust.begin_trial(now) else {
                        candidate.lock().give_back(endpoint, pooled);
                        return self.wait_for_trial(endpoint, now + Duration::from_millis(1));
                    };
                    pooled.connection.record.begin_trial(run);
                }
                let idle = now.saturating_duration_since(pooled.since);
                pooled.connection.record.was_quiet(idle, wanted.quiet, now);
                if pooled.reactor == reactor {
                    return Taken::Connection(pooled.connection);
                }
                if let Some(moved) = pooled.connection.rebind() {
                    return Taken::Connection(moved);
                }
            }
        }
        if has_spared { Taken::Spared } else { soonest.map_or(Taken::None, Taken::Resting) }
    }

    /// Returns when the trial of another connection ends, if there are idle ones to wait for.
    fn wait_for_trial(&self, endpoint: &Endpoint, until: Instant) -> Taken {
        let has_idle = |shelf: &Mutex<Shelf>| shelf.lock().idle.get(&endpoint.id).is_some_and(Idle::has_some);
        if self.shelves.iter().any(has_idle) {
            Taken::Resting(Resting { until, must: false })
        } else {
            Taken::None
        }
    }

    /// Keeps a connection for the next request, on the shelf of the reactor it is registered with.
    pub fn put(
        &self,
        reactor: usize,
        endpoint: &Arc<Endpoint>,
        mut connection: Connection,
        exchange: &Exchange,
        quiet: Duration,
    ) {
        let since = Instant::now();
        let record = &mut connection.record;
        record.add(exchange);
        endpoint.trust.took(exchange.took);
        let rest = record.rest(quiet, since, endpoint.trust.closes_soon(record.responses()));
        record.count(|| endpoint.trust.capacity().serve());
        record.end_trial(quiet);
        if !quiet.is_zero() {
            self.learn(endpoint, since);
        }
        let mut own = self.shelves[reactor].lock();
        own.watch(&connection);
        let idle = own.idle_of(endpoint);
        let (must, rests, rest) = match rest {
            Rest::Must(rest) => (true, true, rest),
            Rest::Prove(rest) => (false, true, rest),
            Rest::Should(rest) => (false, false, rest),
        };
        let is_crowded = idle.resting.len() >= MOST_RESTING;
        if must && is_crowded {
            idle.retired.add(connection, since + endpoint.trust.watch_time(Watch::Short, quiet));
            return;
        }
        let entry = Pooled { connection, reactor, since, usable: since + rest, must };
        if rests && !is_crowded {
            idle.resting.push(entry);
        } else {
            idle.ready.push_back(entry);
        }
        drop(own);
        endpoint.trust.waiters().wake_one();
    }

    /// Records the number of connections that the origin serves at once, if it is larger than before. Connections that
    /// it has closed in favour of others do not count.
    fn learn(&self, endpoint: &Endpoint, now: Instant) {
        let (capacity, minute) = (endpoint.trust.capacity(), endpoint.trust.minute(now));
        let served = capacity.served();
        if capacity.is_news(served, minute) {
            let closed = |shelf: &Mutex<Shelf>| shelf.lock().idle.get(&endpoint.id).map_or(0, Idle::closed);
            let closed: usize = self.shelves.iter().map(closed).sum();
            capacity.saw(served.saturating_sub(u32::try_from(closed).unwrap_or(u32::MAX)), minute);
        }
    }

    /// Watches a connection for a while that is not used again, and closes it then. `exchange` is the last one, if it was
    /// not recorded before.
    pub fn retire(
        &self,
        reactor: usize,
        endpoint: &Arc<Endpoint>,
        mut connection: Connection,
        exchange: Option<&Exchange>,
        (watch, quiet): (Watch, Duration),
    ) {
        if quiet.is_zero() {
            return connection.tx.reset();
        }
        if let Some(exchange) = exchange {
            connection.record.add(exchange);
            endpoint.trust.took(exchange.took);
            if watch == Watch::Long {
                endpoint.trust.closed_after(connection.record.responses());
            }
        }
        let until = Instant::now() + endpoint.trust.watch_time(watch, quiet);
        let mut own = self.shelves[reactor].lock();
        own.watch(&connection);
        own.idle_of(endpoint).retired.add(connection, until);
        drop(own);
        endpoint.trust.waiters().wake_one();
    }

    /// Retires all idle connections to an endpoint. Returns the objects that came over them and may be the responses to
    /// other requests.
    pub fn retire_all(&self, endpoint: &Endpoint, quiet: Duration) -> Vec<Received> {
        let now = Instant::now();
        let until = now + endpoint.trust.watch_time(Watch::Long, quiet);
        let mut doubtful = Vec::new();
        for shelf in &self.shelves {
            let mut own = shelf.lock();
            let Some(Idle { ready, resting, retired, .. }) = own.idle.get_mut(&endpoint.id) else {
                continue;
            };
            for pooled in ready.drain(..).chain(resting.drain(..)) {
                let idle = now.saturating_duration_since(pooled.since);
                doubtful.extend(pooled.connection.record.doubtful(idle, quiet));
                retired.add(pooled.connection, until);
            }
        }
        doubtful
    }

    /// Closes connections that the peer has closed, that have surplus bytes, that were idle for longer than
    /// `limit` seconds, and that no backend can use. The task of `cx` is woken when something arrives on one
    /// of those that stay.
    pub fn tend(&self, reactor: usize, limit: f64, quiet: Duration, cx: &mut Context<'_>) -> Tended {
        let mut tended = Tended { gone: self.lost.swap(0, Ordering::Relaxed), ..Tended::default() };
        let limit = Duration::from_secs_f64(limit.clamp(0.0, 1e9));
        let now = Instant::now();
        let mut own = self.shelves[reactor].lock();
        if !own.watcher.as_ref().is_some_and(|watcher| watcher.will_wake(cx.waker())) {
            own.watcher = Some(cx.waker().clone());
        }
        own.idle.retain(|_, idle| {
            let (is_useless, gone) = (idle.endpoint.strong_count() == 0, tended.gone);
            let Idle { endpoint, ready, resting, retired } = idle;
            let mut stays = |pooled: &mut Pooled| {
                match pooled.connection.rx.poll_peek(cx) {
                    Poll::Pending => {
                        let is_old = is_useless || now.saturating_duration_since(pooled.since) >= limit;
                        tended.old += u64::from(is_old);
                        return !is_old;
                    }
                    Poll::Ready(Peeked::Bytes(sample)) => {
                        let found = Surplus::new(endpoint.clone(), &pooled.connection, sample);
                        tended.surplus.push(found);
                    }
                    Poll::Ready(_) => {
                        if let Some(endpoint) = endpoint.upgrade().filter(|_| pooled.is_young(now, quiet)) {
                            endpoint.trust.closed_in_order();
                        }
                    }
                }
                tended.gone += 1;
                false
            };
            ready.retain_mut(&mut stays);
            resting.retain_mut(stays);
            let seen = retired.look(now, cx);
            let faulty = |(connection, sample)| Surplus::new(endpoint.clone(), &connection, sample);
            tended.surplus.extend(seen.surplus.into_iter().map(faulty));
            tended.doubtful.extend(seen.doubtful);
            tended.gone += seen.closed;
            tended.kept += ready.len() + resting.len() + retired.len();
            if let Some(endpoint) = endpoint.upgrade().filter(|_| tended.gone > gone) {
                endpoint.trust.waiters().wake_all();
            }
            idle.has_some() || idle.retired.len() > 0
        });
        tended
    }

    /// Closes all idle connections on a reactor's shelf.
    pub fn clear(&self, reactor: usize) {
        let closed = std::mem::take(&mut self.shelves[reactor].lock().idle);
        drop(closed);
    }

    /// Returns the number of idle connections on all shelves.
    pub fn idle(&self) -> usize {
        let count = |idle: &Idle| idle.ready.len() + idle.resting.len();
        self.shelves.iter().map(|shelf| shelf.lock().idle.values().map(count).sum::<usize>()).sum()
    }
}
