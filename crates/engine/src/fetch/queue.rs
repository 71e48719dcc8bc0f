//! The queue for a slot among an origin's connections.

use std::sync::Arc;
use std::time::Duration;

use lacquer_params::Params;
use lacquer_shm::TxLog;
use lacquer_sources::clock::{self, Instant};
use lacquer_vcl_runtime::{BackendId, Instance};
use tokio::time::timeout_at;

use crate::backends::Origin;
use crate::origin_slot::OriginSlot;
use crate::shared::Shared;

/// The seconds of the wait for a slot when a backend has its share of all waiting requests.
const SHARE_PATIENCE: f64 = 1.0;
/// The time between checks whether a fetch without client may give way.
const ORPHANS_AFTER: Duration = Duration::from_millis(10);

/// A fetch or a pipe that needs a slot of an origin, and the limits that apply to it.
pub struct Entry<'e> {
    origin: &'e Arc<Origin>,
    id: BackendId,
    instance: &'e Instance,
    params: &'e Params,
    shared: &'e Shared,
    /// The limit of connections in use that applies beside the declared one.
    most: u32,
}

/// A place in the queue for a slot, given up when this is dropped.
struct Queued<'o>(&'o Origin);

impl<'o> Queued<'o> {
    fn enter(origin: &'o Origin, places: u32) -> Option<Queued<'o>> {
        // The value is made only with a place, because dropping it gives one back.
        origin.queue(places).then(|| Queued(origin))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.unqueue();
    }
}

impl<'e> Entry<'e> {
    pub fn new(
        (id, origin): (BackendId, &'e Arc<Origin>),
        instance: &'e Instance,
        params: &'e Params,
        shared: &'e Shared,
    ) -> Entry<'e> {
        Entry { origin, id, instance, params, shared, most: shared.bound(params).per_backend() }
    }

    /// Takes a slot if one is free and nobody is in the queue.
    pub fn try_acquire(&self) -> Option<OriginSlot> {
        if self.origin.has_queue() || !self.is_healthy() {
            return None;
        }
        OriginSlot::take(self.origin, self.most)
    }

    /// Takes a slot, and waits for one where the limits allow it. On failure logs and counts the reason.
    pub async fn pass(&self, log: &mut TxLog) -> Option<OriginSlot> {
        let origin = self.origin;
        let name = &origin.spec.name;
        if !self.is_healthy() {
            super::connection::log_failure(log, format_args!("backend {name}: unhealthy"));
            origin.count(|c| c.unhealthy.add(1));
            self.shared.counters().backend_unhealthy.add(1);
            return None;
        }
        let slot = match self.try_acquire() {
            Some(slot) => Some(slot),
            None => self.wait().await,
        };
        if slot.is_none() {
            super::connection::log_failure(log, format_args!("backend {name}: busy"));
            origin.count(|c| c.busy.add(1));
            self.shared.counters().backend_busy.add(1);
        }
        slot
    }

    fn is_healthy(&self) -> bool {
        self.instance.directors.healthy(self.id, self.instance).healthy
    }

    /// Returns whether the limit is the share of all waiting requests, not the declared one.
    fn is_share(&self) -> bool {
        self.origin.declared_limit() >= self.most
    }

    async fn wait(&self) -> Option<OriginSlot> {
        let (places, patience) = self.queue_limits();
        if places == 0 || patience <= 0.0 {
            return None;
        }
        let _queued = Queued::enter(self.origin, places)?;
        self.shared.counters().backend_wait.add(1);
        let slot = self.wait_until(Instant::now() + clock::seconds(patience)).await;
        if slot.is_none() {
            self.shared.counters().backend_wait_fail.add(1);
        }
        slot
    }

    /// Returns the length of the queue and the longest wait in seconds: as declared if `max_connections` is the limit.
    /// Room within the share of all waiting requests often comes a moment later.
    fn queue_limits(&self) -> (u32, f64) {
        let spec = &self.origin.spec;
        let places = spec.wait_limit.filter(|&n| n > 0).unwrap_or(self.params.backend_wait_limit);
        let patience = spec.wait_timeout.filter(|&t| t >= 0.0).unwrap_or(self.params.backend_wait_timeout);
        if !self.is_share() {
            return (places, patience);
        }
        (places.max(self.most / 2), patience.max(SHARE_PATIENCE))
    }

    async fn wait_until(&self, deadline: Instant) -> Option<OriginSlot> {
        loop {
            let freed = self.origin.freed.notified();
            if !self.is_healthy() {
                return None;
            }
            if let Some(slot) = OriginSlot::take(self.origin, self.most) {
                return Some(slot);
            }
            if self.is_share() {
                // A fetch without client gives way.
                self.shared.admission().evict(Some(self.origin.endpoint.id));
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            // No event reports that a fetch has lost its client.
            let _ = timeout_at(deadline.min(now + ORPHANS_AFTER), freed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::OriginContext;

    #[test]
    fn a_full_queue_keeps_count() {
        let around = OriginContext { vcl_name: "boot", probe: None, via: None, prefer_ipv6: false, now: 0.0 };
        let origin = Origin::new(lacquer_vcl::program::Backend::default(), &around);
        let first = Queued::enter(&origin, 1).expect("there is a place");
        for _ in 0..3 {
            assert!(Queued::enter(&origin, 1).is_none(), "the place is taken");
        }
        assert!(origin.has_queue(), "the first still waits");
        drop(first);
        assert!(!origin.has_queue());
    }
}
