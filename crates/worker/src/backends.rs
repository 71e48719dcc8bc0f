//! The backends that a VCL declares: leaves of the tree of directors, with their counters and limits.

use std::any::Any;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lacquer_backend::Endpoint;
use lacquer_shm::{Segment, VsmDir, vsc::Vbe};
use lacquer_vcl::program::Backend;
use lacquer_vcl_runtime::{BackendId, Ctx, Director, Health, Instance};
use parking_lot::RwLock;

pub struct Origin {
    pub spec: Backend,
    pub endpoint: Arc<Endpoint>,
    pub created: f64,
    vcl_name: String,
    counters: RwLock<Option<Arc<Segment<Vbe>>>>,
    connections: AtomicU32,
    waiting: AtomicU32,
    pub freed: tokio::sync::Notify,
    healthy: AtomicBool,
}

impl Origin {
    pub fn new(spec: Backend, vcl_name: &str, now: f64) -> Origin {
        let endpoint = Endpoint::new(spec.ipv4, spec.ipv6, spec.path.clone(), spec.preamble.clone());
        Origin {
            endpoint,
            created: now,
            vcl_name: vcl_name.to_owned(),
            counters: RwLock::new(None),
            connections: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            freed: tokio::sync::Notify::new(),
            healthy: AtomicBool::new(!spec.none),
            spec,
        }
    }

    /// Counters are there from load to discard, and shown while the VCL is warm.
    pub fn publish(&self, vsm: &VsmDir) {
        let ident = format!("{}.{}", self.vcl_name, self.spec.name);
        if let Ok(segment) = Segment::<Vbe>::create(vsm, &ident) {
            segment.happy.set(u64::MAX);
            *self.counters.write() = Some(Arc::new(segment));
        }
    }

    pub fn show(&self, shown: bool) {
        if let Some(counters) = &*self.counters.read() {
            if shown {
                counters.reveal();
            } else {
                counters.hide();
            }
        }
    }

    /// Counts something, if the counters are there.
    pub fn count(&self, what: impl FnOnce(&Vbe)) {
        if let Some(counters) = &*self.counters.read() {
            what(counters);
        }
    }

    pub fn count_failure(&self, errno: i32) {
        self.count(|c| match errno {
            0 => c.helddown.add(1),
            1 | 13 => c.fail_eacces.add(1),
            99 => c.fail_eaddrnotavail.add(1),
            101 => c.fail_enetunreach.add(1),
            110 => c.fail_etimedout.add(1),
            111 => c.fail_econnrefused.add(1),
            _ => c.fail_other.add(1),
        });
    }

    pub fn is_full(&self) -> bool {
        let limit = self.spec.max_connections.unwrap_or(0);
        limit > 0 && self.connections.load(Ordering::Relaxed) >= limit
    }

    /// Takes a place among the connections; false if there is none.
    pub fn enter(&self) -> bool {
        let limit = self.spec.max_connections.unwrap_or(0);
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        if limit > 0 && before >= limit {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub fn leave(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.freed.notify_one();
    }

    /// Takes a place in the queue for a connection; false if it is full.
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

    pub fn vcl_name(&self) -> &str {
        &self.vcl_name
    }
}

/// An origin's place in the tree of directors.
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
        Health { healthy: self.0.healthy.load(Ordering::Relaxed), changed: self.0.created }
    }

    fn list(&self, _vcl: &Instance, details: bool, json: bool) -> String {
        let healthy = self.0.healthy.load(Ordering::Relaxed);
        let word = if healthy { "healthy" } else { "sick" };
        if json {
            return format!("[0, 0, \"{word}\"]");
        }
        if !details {
            return format!("0/0\t{word}");
        }
        let mut text = String::new();
        for (family, addr) in [("IPv4", self.0.spec.ipv4), ("IPv6", self.0.spec.ipv6)] {
            if let Some(addr) = addr {
                let _ = write!(text, "\n  {family}: {}:{}", addr.ip(), addr.port());
            }
        }
        text
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
