//! Idle connections to origins, one shelf for each reactor.
//!
//! A reactor takes from its own shelf, which nobody else wants, so that its lock is never waited for. Only
//! when that is empty does it look at the others': a connection costs more than a lock. The last one put
//! back is taken first: it is the least likely to have been closed by the origin meanwhile.
//!
//! A connection is looked at, in the kernel, before it is used again. Bytes that wait there belong to no
//! request; a request sent now would get them as its response. Connections rest after each response (see
//! [`crate::record`]), and each shelf has a watcher that learns of bytes on idle connections when they arrive.
//! Rests cost connections, so that those which are not a must are cut short where too many rest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::record::{Exchange, Received, Rest};
use crate::stream::Look;
use crate::trust::SpokeFirst;

/// Most connections to one endpoint that rest on a shelf. A request that would leave one more behind closes it, so
/// that many responses without a body take neither the descriptors nor the origin's connections.
const MOST_RESTING: usize = 32;
/// Most connections to one endpoint, on all shelves, that rest without having to.
const MOST_SPARED: usize = 64;

/// A connection that may be used again.
struct Pooled {
    connection: Connection,
    reactor: usize,
    since: Instant,
    /// Not before this.
    usable: Instant,
    /// It rests to prove that no response is missing.
    proves: bool,
}

impl Pooled {
    fn resting(&self) -> Resting {
        Resting { until: self.usable, proves: self.proves }
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
    /// The last one is the latest. They should rest, but need not.
    ready: VecDeque<Pooled>,
    /// Proved nothing yet when they were put here.
    resting: Vec<Pooled>,
}

/// The connections to an origin that are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// In use, the one that is asked for included.
    pub in_use: u32,
    /// The most that there may be by the origin's declaration.
    pub declared: u32,
}

/// The rest of a connection that is usable after it.
#[derive(Clone, Copy, Debug)]
pub struct Resting {
    pub until: Instant,
    /// It proves that no response is missing, on a connection in steady use.
    pub proves: bool,
}

/// Outcome of asking for a connection.
pub enum Taken {
    Connection(Connection),
    /// There is one that rests until then.
    Resting(Resting),
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
}

impl Shelf {
    /// Takes a usable connection; the error is when the first of those that rest becomes usable. Of those that should
    /// rest, `spared` are left in peace.
    fn take(&mut self, endpoint: u64, spared: usize, now: Instant) -> Result<Pooled, Option<Resting>> {
        let idle = self.idle.get_mut(&endpoint).ok_or(None)?;
        if let Some(ready) = idle.ready_at(spared, now).and_then(|at| idle.ready.remove(at)) {
            return Ok(ready);
        }
        match idle.resting.iter().position(|pooled| pooled.usable <= now) {
            Some(at) => Ok(idle.resting.swap_remove(at)),
            None => Err(idle.resting.iter().map(Pooled::resting).min_by_key(|resting| resting.until)),
        }
    }
}

impl Idle {
    /// Returns the place of the latest ready connection that has rested. If none has, and there are more than `spared`,
    /// that of the one that rests longest of the latest ones.
    fn ready_at(&self, spared: usize, now: Instant) -> Option<usize> {
        let latest = self.ready.len().checked_sub(1)?;
        let has_rested = |pooled: &Pooled| pooled.usable <= now;
        if spared == 0 || has_rested(&self.ready[latest]) {
            return Some(latest);
        }
        // Those put here earlier have rested first, unless their responses took much longer.
        let rested = self.ready.partition_point(has_rested).checked_sub(1);
        rested.or(latest.checked_sub(spared))
    }

    /// Returns how many of these connections the origin has closed.
    fn closed(&self) -> usize {
        let is_closed = |pooled: &&Pooled| matches!(pooled.connection.rx.look(), Look::Closed);
        self.ready.iter().chain(&self.resting).filter(is_closed).count()
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
    /// found on the way are added to `surplus`. `quiet` is the time after which silence is a proof.
    pub fn take(
        &self,
        reactor: usize,
        endpoint: &Arc<Endpoint>,
        quiet: Duration,
        demand: Demand,
        surplus: &mut Vec<Surplus>,
    ) -> Taken {
        let now = Instant::now();
        if endpoint.trust.is_suspected(now) {
            return Taken::None;
        }
        let mut soonest: Option<Resting> = None;
        let n = self.shelves.len();
        let spared = self.spared(endpoint, demand, now);
        for i in 0..n {
            let shelf = &self.shelves[(reactor + i) % n];
            loop {
                let found = shelf.lock().take(endpoint.id, spared, now);
                let mut pooled = match found {
                    Ok(pooled) => pooled,
                    Err(usable) => {
                        soonest = soonest.into_iter().chain(usable).min_by_key(|resting| resting.until);
                        break;
                    }
                };
                match pooled.connection.rx.look() {
                    Look::Quiet => {}
                    Look::Closed => {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    Look::Bytes(sample) => {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                        surplus.push(Surplus::new(Arc::downgrade(endpoint), &pooled.connection, sample));
                        return Taken::None;
                    }
                }
                let idle = now.saturating_duration_since(pooled.since);
                if pooled.connection.record.was_quiet(idle, quiet, now) {
                    endpoint.trust.prove();
                }
                if pooled.reactor == reactor {
                    return Taken::Connection(pooled.connection);
                }
                if let Some(moved) = pooled.connection.rebind() {
                    return Taken::Connection(moved);
                }
            }
        }
        soonest.map_or(Taken::None, Taken::Resting)
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
        let rest = record.rest(endpoint.trust.is_proven(), quiet, since);
        record.count(|| endpoint.trust.capacity().serve());
        self.learn(endpoint, since);
        let mut shelf = self.shelves[reactor].lock();
        if let Some(watcher) = shelf.watcher.take() {
            // By an event of the past or a new one: tending finds out, and looks at all that come until then.
            if connection.rx.poll_readable(&mut Context::from_waker(&watcher)).is_ready() {
                watcher.wake();
            } else {
                shelf.watcher = Some(watcher);
            }
        }
        let new = || Idle { endpoint: Arc::downgrade(endpoint), ready: VecDeque::new(), resting: Vec::new() };
        let idle = shelf.idle.entry(endpoint.id).or_insert_with(new);
        let (must, proves, rest) = match rest {
            Rest::Must(rest) => (true, false, rest),
            Rest::Prove(rest) => (true, true, rest),
            Rest::Should(rest) => (false, false, rest),
        };
        if must && idle.resting.len() >= MOST_RESTING {
            connection.tx.reset();
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let entry = Pooled { connection, reactor, since, usable: since + rest, proves };
        if must { idle.resting.push(entry) } else { idle.ready.push_back(entry) }
    }

    /// Returns how many connections on a shelf can rest without having to: no more are opened for their sake than the
    /// origin was seen to serve.
    fn spared(&self, endpoint: &Endpoint, demand: Demand, now: Instant) -> usize {
        let trust = &endpoint.trust;
        let most = trust.capacity().most(trust.minute(now)).min(demand.declared);
        let room = most.saturating_sub(demand.in_use) as usize;
        let n = self.shelves.len();
        (room / n).min(MOST_SPARED.div_ceil(n))
    }

    /// Records how many connections the origin serves at once, if they are more than before. Those that it has closed
    /// in favour of others do not count.
    fn learn(&self, endpoint: &Endpoint, now: Instant) {
        let (capacity, minute) = (endpoint.trust.capacity(), endpoint.trust.minute(now));
        let open = capacity.open();
        if capacity.is_news(open, minute) {
            let closed = |shelf: &Mutex<Shelf>| shelf.lock().idle.get(&endpoint.id).map_or(0, Idle::closed);
            let closed: usize = self.shelves.iter().map(closed).sum();
            capacity.saw(open.saturating_sub(u32::try_from(closed).unwrap_or(u32::MAX)), minute);
        }
    }

    /// Closes all idle connections to an endpoint. Returns the objects that came over them and may be the
    /// responses to other requests.
    pub fn close_all(&self, endpoint: &Endpoint, quiet: Duration) -> Vec<Received> {
        let now = Instant::now();
        let mut doubtful = Vec::new();
        for shelf in &self.shelves {
            let Some(closed) = shelf.lock().idle.remove(&endpoint.id) else { continue };
            for pooled in closed.ready.iter().chain(&closed.resting) {
                self.lost.fetch_add(1, Ordering::Relaxed);
                let idle = now.saturating_duration_since(pooled.since);
                doubtful.extend(pooled.connection.record.doubtful(idle, quiet));
            }
        }
        doubtful
    }

    /// Closes connections that the peer has closed, that have surplus bytes, that were idle for longer than
    /// `limit` seconds, and that no backend can use. The task of `cx` is woken when something arrives on one
    /// of those that stay.
    pub fn tend(&self, reactor: usize, limit: f64, cx: &mut Context<'_>) -> Tended {
        let mut tended = Tended { gone: self.lost.swap(0, Ordering::Relaxed), ..Tended::default() };
        let limit = Duration::from_secs_f64(limit.clamp(0.0, 1e9));
        let now = Instant::now();
        let mut shelf = self.shelves[reactor].lock();
        if !shelf.watcher.as_ref().is_some_and(|watcher| watcher.will_wake(cx.waker())) {
            shelf.watcher = Some(cx.waker().clone());
        }
        shelf.idle.retain(|_, idle| {
            let is_useless = idle.endpoint.strong_count() == 0;
            let Idle { endpoint, ready, resting } = idle;
            let mut stays = |pooled: &mut Pooled| {
                match pooled.connection.rx.poll_look(cx) {
                    Poll::Pending => {
                        let is_old = is_useless || now.saturating_duration_since(pooled.since) >= limit;
                        tended.old += u64::from(is_old);
                        return !is_old;
                    }
                    Poll::Ready(Look::Bytes(sample)) => {
                        let found = Surplus::new(endpoint.clone(), &pooled.connection, sample);
                        tended.surplus.push(found);
                    }
                    Poll::Ready(_) => {}
                }
                tended.gone += 1;
                false
            };
            ready.retain_mut(&mut stays);
            resting.retain_mut(stays);
            tended.kept += ready.len() + resting.len();
            !ready.is_empty() || !resting.is_empty()
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
