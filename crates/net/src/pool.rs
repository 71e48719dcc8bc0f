//! The pools of idle connections to origins, one for each reactor.
//!
//! A reactor takes a connection from its own pool. Other reactors rarely use that pool, so its lock is seldom
//! contended. Only if it has no usable connection are the other pools searched: a new connection costs more than a
//! lock. The connection that was returned last is taken first, because it is the least likely to have been closed by
//! the origin.
//!
//! A connection's socket is checked before reuse. Unread bytes belong to no request; a request sent now would get
//! them as its response. A connection rests after each response: it stays idle for a while, so that late bytes can
//! arrive (see [`crate::record`]). Each pool has a watcher task that is woken when bytes arrive on idle connections.
//! Resting connections make more connections necessary, so most rests are cut short where the origin has as many as
//! it was observed to serve.

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
use crate::trust::{Unsolicited, Watch};

/// The maximum number of connections to one endpoint that rest in full in one pool. A request that would add one more
/// retires its connection, so that many responses without a body exhaust neither the descriptors nor the origin's
/// connections.
const MOST_RESTING: usize = 32;
/// The maximum number of connections to one endpoint, in all pools, that are left to rest although their rest could
/// be cut short.
const MOST_SPARED: usize = 64;

/// An idle connection for reuse.
struct Pooled {
    connection: Box<Connection>,
    reactor: usize,
    since: Instant,
    /// The time at which its rest ends.
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
struct ReactorPool {
    idle: BTreeMap<u64, Idle>,
    watcher: Option<Waker>,
}

/// The idle connections to one endpoint. They are closed when no backend refers to the endpoint anymore.
struct Idle {
    endpoint: Weak<Endpoint>,
    /// Connections whose rest may be cut short, the most recently returned one last.
    ready: VecDeque<Pooled>,
    /// Connections that rest in full.
    resting: Vec<Pooled>,
    retired: Retired,
}

/// The requirements of a search for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The silence that proves that no response is missing. Zero disables the check.
    pub quiet: Duration,
    /// The number of connections in use, the wanted one included.
    pub in_use: u32,
    /// The connection limit in the backend's declaration.
    pub declared: u32,
}

/// A resting connection that becomes usable when its rest ends.
#[derive(Clone, Copy, Debug)]
pub struct Resting {
    pub until: Instant,
    /// A connection is opened rather than wait for it, even if the origin has as many as it was seen to serve.
    pub must: bool,
}

impl Resting {
    /// Returns the one that a request should wait for.
    fn better(one: Option<Resting>, other: Option<Resting>) -> Option<Resting> {
        one.into_iter().chain(other).min_by_key(|resting| (resting.must, resting.until))
    }
}

/// The result of a search for a connection.
pub enum Taken {
    Connection(Box<Connection>),
    /// The next usable connection is still resting.
    Resting(Resting),
    /// Some connections rest whose rest is cut short only if no connection may be opened.
    Spared,
    None,
}

/// A connection that was closed because the origin sent bytes that belong to no request.
pub struct Surplus {
    pub endpoint: Weak<Endpoint>,
    /// Both addresses, in the format of the log.
    pub ends: Box<str>,
    /// The first of the bytes.
    pub sample: Vec<u8>,
    pub unsolicited: Unsolicited,
    /// Cached objects that were received over the connection.
    pub received: Vec<Received>,
}

impl Surplus {
    pub fn new(endpoint: Weak<Endpoint>, connection: &Connection, sample: Vec<u8>) -> Surplus {
        let record = &connection.record;
        Surplus {
            endpoint,
            ends: connection.facts.ends().into(),
            sample,
            unsolicited: record.unsolicited(),
            received: record.received().collect(),
        }
    }
}

/// The result of a sweep of one pool: the number of connections that the peer had closed, of those that were idle for
/// too long, of those that remain, and the faulty ones.
#[derive(Default)]
pub struct PoolSweep {
    pub gone: u64,
    pub old: u64,
    pub kept: usize,
    pub surplus: Vec<Surplus>,
    /// Cached objects that may be responses to other requests, although no surplus bytes were found.
    pub unproven: Vec<Received>,
}

impl ReactorPool {
    /// Registers the task that sweeps the pool to be woken when something arrives on the connection.
    fn watch(&mut self, connection: &Connection) {
        if let Some(watcher) = self.watcher.take() {
            // The event may be new or an old one. The sweep finds out, and checks all connections that are added
            // until then.
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
        self.idle.entry(endpoint.id()).or_insert_with(new)
    }

    /// Returns a connection that was not used.
    fn give_back(&mut self, endpoint: &Arc<Endpoint>, pooled: Pooled) {
        self.idle_of(endpoint).resting.push(pooled);
    }

    /// Takes a usable connection. Leaves `spared` of the connections whose rest may be cut short.
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

/// A search for an idle connection. In each pool it leaves `spared` resting connections alone.
struct Search<'s> {
    reactor: usize,
    endpoint: &'s Arc<Endpoint>,
    wanted: Wanted,
    trial: Stage,
    now: Instant,
    spared: usize,
}

/// The outcome of searching one pool.
enum Found {
    Usable(Pooled),
    Resting(Resting),
    Spared,
    None,
}

impl Idle {
    /// Returns the index of the latest ready connection whose rest has ended. If there is none, returns one whose
    /// rest is cut short: the first, which has rested longest, if `spared` is 0; else the last but `spared`, or
    /// `None` if there are no more than that.
    fn ready_at(&self, spared: usize, now: Instant) -> Option<usize> {
        let latest = self.ready.len().checked_sub(1)?;
        let has_rested = |pooled: &Pooled| pooled.usable <= now;
        if has_rested(&self.ready[latest]) {
            return Some(latest);
        }
        // Earlier entries finish their rest first, unless their responses took much longer.
        let rested = self.ready.partition_point(has_rested).checked_sub(1);
        rested.or(if spared == 0 { Some(0) } else { latest.checked_sub(spared) })
    }

    fn has_reusable(&self) -> bool {
        !self.ready.is_empty() || !self.resting.is_empty()
    }

    /// Returns the number of idle connections that the origin has closed.
    fn closed(&self) -> usize {
        let is_closed = |pooled: &&Pooled| matches!(pooled.connection.rx.peek(), Peeked::Closed);
        self.ready.iter().chain(&self.resting).filter(is_closed).count()
    }
}

impl Pooled {
    /// Returns whether the connection has been quiet for too short a time to prove anything.
    fn is_young(&self, now: Instant, quiet: Duration) -> bool {
        now.saturating_duration_since(self.since) < quiet
    }
}

/// The pools of all reactors.
pub struct Pools {
    reactors: Vec<Mutex<ReactorPool>>,
    /// The number of connections that searches found closed or faulty since the last sweep.
    lost: AtomicU64,
}

impl Pools {
    pub fn new(reactors: usize) -> Pools {
        Pools {
            reactors: (0..reactors).map(|_| Mutex::new(ReactorPool::default())).collect(),
            lost: AtomicU64::new(0),
        }
    }

    /// Returns an idle connection to the endpoint that has no unread bytes. Faulty ones that the search found are
    /// added to `surplus`.
    pub fn take(
        &self,
        reactor: usize,
        endpoint: &Arc<Endpoint>,
        wanted: Wanted,
        surplus: &mut Vec<Surplus>,
    ) -> Taken {
        let now = Instant::now();
        let trust = endpoint.trust();
        if trust.is_suspected(now) {
            return Taken::None;
        }
        let trial = trust.trial(now);
        if let Stage::Running(millis) = trial {
            return self.wait_for_trial(endpoint, now + Duration::from_millis(millis));
        }
        let n = self.reactors.len();
        let mut search =
            |spared| self.search(&Search { reactor, endpoint, wanted, trial, now, spared }, surplus);
        if !trust.is_full(wanted.declared, now) {
            return search(MOST_SPARED.div_ceil(n));
        }
        // Connections in another pool may have rested for longer, if that has more of them.
        let idle = trust.capacity().alive().saturating_sub(wanted.in_use) as usize;
        match search(idle / n) {
            Taken::Spared => search(0),
            taken => taken,
        }
    }

    fn search(&self, search: &Search<'_>, surplus: &mut Vec<Surplus>) -> Taken {
        let Search { reactor, endpoint, wanted, trial, now, spared } = *search;
        let trust = endpoint.trust();
        let mut soonest: Option<Resting> = None;
        let mut has_spared = false;
        let n = self.reactors.len();
        for i in 0..n {
            let candidate = &self.reactors[(reactor + i) % n];
            loop {
                let found = candidate.lock().take(endpoint.id(), spared, now);
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
                match pooled.connection.rx.peek() {
                    Peeked::Quiet => {}
                    Peeked::Closed | Peeked::Broken => {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                        if pooled.is_young(now, wanted.quiet) {
                            trust.closed_cleanly();
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

    /// Returns the time when the trial of another connection ends, if there are idle connections to wait for.
    fn wait_for_trial(&self, endpoint: &Endpoint, until: Instant) -> Taken {
        let has_idle =
            |pool: &Mutex<ReactorPool>| pool.lock().idle.get(&endpoint.id()).is_some_and(Idle::has_reusable);
        if self.reactors.iter().any(has_idle) {
            Taken::Resting(Resting { until, must: false })
        } else {
            Taken::None
        }
    }

    /// Adds a connection to the pool of the reactor that it is registered with.
    pub fn put(
        &self,
        reactor: usize,
        endpoint: &Arc<Endpoint>,
        mut connection: Box<Connection>,
        exchange: &Exchange,
        quiet: Duration,
    ) {
        let since = Instant::now();
        let record = &mut connection.record;
        record.add(exchange);
        endpoint.trust().record_response_time(exchange.took);
        let rest = record.rest(quiet, since, endpoint.trust().closes_soon(record.responses()));
        record.count(|| endpoint.trust().capacity().serve());
        record.end_trial(quiet);
        if !quiet.is_zero() {
            self.record_capacity(endpoint, since);
        }
        let mut own = self.reactors[reactor].lock();
        own.watch(&connection);
        let idle = own.idle_of(endpoint);
        let (must, rests, rest) = match rest {
            Rest::Must(rest) => (true, true, rest),
            Rest::Prove(rest) => (false, true, rest),
            Rest::Should(rest) => (false, false, rest),
        };
        let is_crowded = idle.resting.len() >= MOST_RESTING;
        if must && is_crowded {
            idle.retired.add(connection, since + endpoint.trust().watch_time(Watch::Short, quiet));
            return;
        }
        let entry = Pooled { connection, reactor, since, usable: since + rest, must };
        if rests && !is_crowded {
            idle.resting.push(entry);
        } else {
            idle.ready.push_back(entry);
        }
        drop(own);
        endpoint.trust().waiters().wake_one();
    }

    /// Records the number of connections that the origin serves at once, if that is larger than before. Connections
    /// that it has closed in favor of others do not count.
    fn record_capacity(&self, endpoint: &Endpoint, now: Instant) {
        let (capacity, minute) = (endpoint.trust().capacity(), endpoint.trust().minute(now));
        let served = capacity.served();
        if capacity.is_worth_recording(served, minute) {
            let closed =
                |pool: &Mutex<ReactorPool>| pool.lock().idle.get(&endpoint.id()).map_or(0, Idle::closed);
            let closed: usize = self.reactors.iter().map(closed).sum();
            capacity.record(served.saturating_sub(u32::try_from(closed).unwrap_or(u32::MAX)), minute);
        }
    }

    /// Watches a connection that is not reused for a while, and then closes it. `exchange` is the last one, unless it
    /// is already recorded.
    pub fn retire(
        &self,
        reactor: usize,
        endpoint: &Arc<Endpoint>,
        mut connection: Box<Connection>,
        exchange: Option<&Exchange>,
        (watch, quiet): (Watch, Duration),
    ) {
        if quiet.is_zero() {
            return connection.tx.reset();
        }
        if let Some(exchange) = exchange {
            connection.record.add(exchange);
            endpoint.trust().record_response_time(exchange.took);
            if watch == Watch::Long {
                endpoint.trust().closed_after(connection.record.responses());
            }
        }
        let until = Instant::now() + endpoint.trust().watch_time(watch, quiet);
        let mut own = self.reactors[reactor].lock();
        own.watch(&connection);
        own.idle_of(endpoint).retired.add(connection, until);
        drop(own);
        endpoint.trust().waiters().wake_one();
    }

    /// Retires all idle connections to an endpoint. Returns the cached objects that were received over them and may
    /// be the responses to other requests.
    pub fn retire_all(&self, endpoint: &Endpoint, quiet: Duration) -> Vec<Received> {
        let now = Instant::now();
        let until = now + endpoint.trust().watch_time(Watch::Long, quiet);
        let mut unproven = Vec::new();
        for pool in &self.reactors {
            let mut own = pool.lock();
            let Some(Idle { ready, resting, retired, .. }) = own.idle.get_mut(&endpoint.id()) else {
                continue;
            };
            for pooled in ready.drain(..).chain(resting.drain(..)) {
                let idle = now.saturating_duration_since(pooled.since);
                unproven.extend(pooled.connection.record.unproven_after(idle, quiet));
                retired.add(pooled.connection, until);
            }
        }
        unproven
    }

    /// Closes connections that the peer has closed, that have surplus bytes, that were idle for longer than `limit`
    /// seconds, or whose endpoint no backend uses. The task of `cx` is woken when something arrives on one of the
    /// others.
    pub fn sweep(&self, reactor: usize, limit: f64, quiet: Duration, cx: &mut Context<'_>) -> PoolSweep {
        let mut swept = PoolSweep { gone: self.lost.swap(0, Ordering::Relaxed), ..PoolSweep::default() };
        let limit = Duration::from_secs_f64(limit.clamp(0.0, 1e9));
        let now = Instant::now();
        let mut own = self.reactors[reactor].lock();
        if !own.watcher.as_ref().is_some_and(|watcher| watcher.will_wake(cx.waker())) {
            own.watcher = Some(cx.waker().clone());
        }
        own.idle.retain(|_, idle| {
            let (is_useless, gone) = (idle.endpoint.strong_count() == 0, swept.gone);
            let Idle { endpoint, ready, resting, retired } = idle;
            let mut stays = |pooled: &mut Pooled| {
                match pooled.connection.rx.poll_peek(cx) {
                    Poll::Pending => {
                        let is_old = is_useless || now.saturating_duration_since(pooled.since) >= limit;
                        swept.old += u64::from(is_old);
                        return !is_old;
                    }
                    Poll::Ready(Peeked::Bytes(sample)) => {
                        let found = Surplus::new(endpoint.clone(), &pooled.connection, sample);
                        swept.surplus.push(found);
                    }
                    Poll::Ready(_) => {
                        if let Some(endpoint) = endpoint.upgrade().filter(|_| pooled.is_young(now, quiet)) {
                            endpoint.trust().closed_cleanly();
                        }
                    }
                }
                swept.gone += 1;
                false
            };
            ready.retain_mut(&mut stays);
            resting.retain_mut(stays);
            let seen = retired.sweep(now, cx);
            let faulty = |(connection, sample): (Box<Connection>, _)| {
                Surplus::new(endpoint.clone(), &connection, sample)
            };
            swept.surplus.extend(seen.surplus.into_iter().map(faulty));
            swept.unproven.extend(seen.unproven);
            swept.gone += seen.closed;
            swept.kept += ready.len() + resting.len() + retired.len();
            if let Some(endpoint) = endpoint.upgrade().filter(|_| swept.gone > gone) {
                endpoint.trust().waiters().wake_all();
            }
            idle.has_reusable() || idle.retired.len() > 0
        });
        swept
    }

    /// Closes all idle connections in a reactor's pool.
    pub fn clear(&self, reactor: usize) {
        let closed = std::mem::take(&mut self.reactors[reactor].lock().idle);
        drop(closed);
    }

    /// Returns the number of idle connections in all pools.
    pub fn idle(&self) -> usize {
        let count = |idle: &Idle| idle.ready.len() + idle.resting.len();
        self.reactors.iter().map(|pool| pool.lock().idle.values().map(count).sum::<usize>()).sum()
    }
}
