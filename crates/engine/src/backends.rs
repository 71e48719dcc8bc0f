//! The backends that a VCL declares: leaves of the directors' tree, with their counters and limits.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lacquer_net::{Addresses, Cause, ConnectError, Endpoint, LocalServer, SharedName};
use lacquer_shm::vsc::Vbe;
use lacquer_shm::vsm::Cluster;
use lacquer_shm::{Segment, VsmDir};
use lacquer_tls::origin::OriginTls;
use lacquer_vcl::Text;
use lacquer_vcl::program::{Backend, Probe};
use lacquer_vcl_runtime::{BackendId, Ctx, Director, Health, Instance, Load};
use parking_lot::RwLock;

use crate::outcomes::Outcomes;
use crate::probes::Prober;

pub struct Origin {
    pub spec: Backend,
    pub endpoint: Arc<Endpoint>,
    pub created: f64,
    /// The `Host` header for requests that have none.
    pub host: Text,
    pub prober: Option<Prober>,
    vcl_name: String,
    counters: RwLock<Option<Arc<Segment<Vbe>>>>,
    connections: AtomicU32,
    /// The number of these connections whose response has begun, including pipes.
    answered: AtomicU32,
    waiting: AtomicU32,
    pub(crate) outcomes: Outcomes,
    pub freed: tokio::sync::Notify,
}

/// The inputs for creating an origin, in addition to its declaration.
#[derive(Default)]
pub struct OriginContext<'s> {
    pub vcl_name: &'s str,
    pub probe: Option<&'s Probe>,
    /// The backend through which connections are made (`.via`).
    pub via: Option<Via<'s>>,
    /// The settings for TLS, if the connections use it.
    pub tls: Option<OriginTls>,
    /// The name that the address belongs to: that of the other backend, if connections are made through one.
    pub name: Option<SharedName>,
    /// The server within this process that is the backend.
    pub local: Option<LocalServer>,
    pub prefer_ipv6: bool,
    pub now: f64,
}

/// The backend through which connections are made.
#[derive(Clone, Copy)]
pub struct Via<'s> {
    pub origin: &'s Origin,
    /// Its address, if its host is a name.
    pub address: Option<SocketAddr>,
}

fn addresses(of: &Backend, preamble: Option<Vec<u8>>) -> Addresses {
    let (v4, v6) = (of.address.ipv4, of.address.ipv6);
    Addresses { v4, v6, path: of.address.path.clone(), preamble, ..Addresses::default() }
}

impl Origin {
    pub fn new(mut spec: Backend, context: OriginContext<'_>) -> Origin {
        let address = if context.prefer_ipv6 {
            spec.address.ipv6.or(spec.address.ipv4)
        } else {
            spec.address.ipv4.or(spec.address.ipv6)
        };
        let name = context.name;
        let addresses = match context.via {
            None => Addresses { name, local: context.local, ..addresses(&spec, spec.preamble.clone()) },
            Some(Via { origin, address: resolved }) => {
                inherit_timeouts(&mut spec, &origin.spec);
                let preamble =
                    address.map(|to| lacquer_net::proxy_out::onward(to, spec.authority.as_deref()));
                let declared = addresses(&origin.spec, preamble);
                match resolved {
                    None => declared,
                    Some(to) if to.is_ipv4() => Addresses { name, v4: Some(to), v6: None, ..declared },
                    Some(to) => Addresses { name, v4: None, v6: Some(to), ..declared },
                }
            }
        };
        let endpoint = Endpoint::new(addresses, context.tls);
        let numeric = || address.map_or_else(|| "0.0.0.0".into(), |a| a.ip().to_string().into());
        let host = spec.host_header.clone().unwrap_or_else(numeric);
        Origin {
            endpoint,
            created: context.now,
            prober: context.probe.map(|probe| Prober::new(probe, &host, context.now)),
            host,
            vcl_name: context.vcl_name.to_owned(),
            counters: RwLock::new(None),
            connections: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            outcomes: Outcomes::default(),
            freed: tokio::sync::Notify::new(),
            spec,
        }
    }

    /// Returns the use of the origin, for directors.
    pub(crate) fn load(&self) -> Load {
        Load {
            in_use: self.in_use().saturating_add(self.waiting.load(Ordering::Relaxed)),
            failures: self.outcomes.failures(),
            latency: self.outcomes.latency(),
            setback: self.outcomes.setback(),
        }
    }

    /// Wakes the requests in the queue, so that they notice that the origin is sick.
    pub fn wake_all(&self) {
        self.freed.notify_waiters();
    }

    /// Publishes the counters. They exist from load to discard, and are visible while the VCL is warm.
    pub fn publish(&self, vsm: &VsmDir, cluster: Option<&Cluster>) {
        let ident = format!("{}.{}", self.vcl_name, self.spec.name);
        let made = Segment::<Vbe>::create_in(vsm, cluster, &ident);
        if let Ok(segment) = made {
            if self.prober.is_none() {
                segment.happy.set(u64::MAX);
            }
            segment.healthy.set(1);
            segment.hide();
            *self.counters.write() = Some(Arc::new(segment));
        }
    }

    /// Counts in the counters of another origin.
    pub(crate) fn count_with(&self, other: &Origin) {
        self.counters.write().clone_from(&other.counters.read());
    }

    /// Shows or hides the counters.
    pub fn show(&self, shown: bool) {
        if let Some(counters) = &*self.counters.read() {
            if shown {
                counters.reveal();
            } else {
                counters.hide();
            }
        }
    }

    /// Updates the counters, if they exist.
    pub fn count(&self, what: impl FnOnce(&Vbe)) {
        if let Some(counters) = &*self.counters.read() {
            what(counters);
        }
    }

    /// Counts a failure to connect by its errno. 0 means that no attempt was made, because a recent one failed.
    pub fn count_failure(&self, error: &ConnectError) {
        let Cause::Errno(errno) = *error.shown() else { return self.count(|c| c.fail_other.add(1)) };
        self.count(|c| match errno {
            0 => c.helddown.add(1),
            libc::EPERM | libc::EACCES => c.fail_eacces.add(1),
            libc::EADDRNOTAVAIL => c.fail_eaddrnotavail.add(1),
            libc::ENETUNREACH => c.fail_enetunreach.add(1),
            libc::ETIMEDOUT => c.fail_etimedout.add(1),
            libc::ECONNREFUSED => c.fail_econnrefused.add(1),
            _ => c.fail_other.add(1),
        });
    }

    /// Returns `max_connections` of the backend.
    pub fn declared_limit(&self) -> u32 {
        self.spec.limits.max_connections.filter(|&n| n > 0).unwrap_or(u32::MAX)
    }

    /// Takes a slot, which [`OriginSlot`] returns. Two limits apply: `max_connections` for all connections, and
    /// `most` for those that wait for a response. Returns false if no slot is free.
    ///
    /// [`OriginSlot`]: crate::origin_slot::OriginSlot
    pub(crate) fn enter(&self, most: u32) -> bool {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let unanswered = before.saturating_sub(self.answered.load(Ordering::Relaxed));
        if before >= self.declared_limit() || unanswered >= most {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Records that the holder of a slot has its response or is a pipe. It no longer counts as waiting.
    pub(crate) fn count_answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if self.has_queue() {
            self.freed.notify_one();
        }
    }

    /// Undoes [`Origin::count_answered`], before the slot is returned.
    pub(crate) fn uncount_answered(&self) {
        self.answered.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.freed.notify_one();
    }

    /// Returns whether requests are in the queue for a slot. They go first.
    pub fn has_queue(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of connections that are in use or about to be.
    pub fn in_use(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Takes a place in the queue for a slot. Returns false if the queue is full.
    pub fn queue(&self, limit: u32) -> bool {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < limit {
            return true;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        false
    }

    pub fn unqueue(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Copies the timeouts of the `.via` backend to a backend that declares none.
fn inherit_timeouts(spec: &mut Backend, via: &Backend) {
    let pairs = [
        (&mut spec.limits.connect_timeout, via.limits.connect_timeout),
        (&mut spec.limits.first_byte_timeout, via.limits.first_byte_timeout),
        (&mut spec.limits.between_bytes_timeout, via.limits.between_bytes_timeout),
    ];
    for (own, theirs) in pairs {
        if own.is_none_or(|t| t < 0.0) {
            *own = theirs;
        }
    }
}

/// An origin as a leaf of the directors' tree.
pub struct OriginLeaf(pub Arc<Origin>);

impl Director for OriginLeaf {
    fn name(&self) -> &str {
        &self.0.spec.name
    }

    fn kind(&self) -> &'static str {
        "backend"
    }

    fn resolve(&self, _ctx: &mut Ctx<'_>, me: BackendId) -> BackendId {
        me
    }

    fn healthy(&self, _vcl: &Instance) -> Health {
        let changed = self.0.health_changed();
        let changed = if self.0.prober.is_some() { changed } else { changed.max(self.0.created) };
        Health { healthy: self.0.is_healthy(), changed }
    }

    fn determines_health(&self) -> bool {
        self.0.prober.is_some() || self.0.endpoint.is_breaker_open()
    }

    fn sickness(&self) -> Option<String> {
        self.0.sickness()
    }

    fn load(&self) -> Load {
        self.0.load()
    }

    fn list(&self, _vcl: &Instance, details: bool, json: bool) -> String {
        self.0.list(details, json)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
