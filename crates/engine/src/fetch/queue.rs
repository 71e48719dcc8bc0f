//! The queue for a slot among an origin's connections.

use std::sync::Arc;
use std::time::Duration;

use lacquer_params::Params;
use lacquer_shm::TxLog;
use lacquer_sources::clock::{self, Instant};
use lacquer_vcl_runtime::{AdminHealth, BackendId, Instance};
use tokio::time::timeout_at;

use crate::backends::Origin;
use crate::origin_slot::OriginSlot;
use crate::shared::Shared;

/// The longest wait in seconds for a slot, when the backend has used up its share of all waiting requests.
const SHARE_MAX_WAIT: f64 = 1.0;
/// The interval between checks for a fetch without a client that can be evicted.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A request by a fetch or a pipe for a slot of an origin, with the limits that apply to it.
pub struct SlotRequest<'e> {
    origin: &'e Arc<Origin>,
    id: BackendId,
    instance: &'e Instance,
    params: &'e Params,
    shared: &'e Shared,
    /// The limit on connections in use that applies in addition to `max_connections`.
    most: u32,
}

/// A place in the queue for a slot. Dropping it leaves the queue.
struct Queued<'o>(&'o Origin);

impl<'o> Queued<'o> {
    fn enter(origin: &'o Origin, places: u32) -> Option<Queued<'o>> {
        // Constructed only when the origin has counted the place, because dropping it uncounts the place.
        origin.queue(places).then(|| Queued(origin))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.unqueue();
    }
}

impl<'e> SlotRequest<'e> {
    pub fn new(
        (id, origin): (BackendId, &'e Arc<Origin>),
        instance: &'e Instance,
        params: &'e Params,
        shared: &'e Shared,
    ) -> SlotRequest<'e> {
        SlotRequest { origin, id, instance, params, shared, most: shared.bound(params).per_backend() }
    }

    /// Takes a slot if one is free and the queue is empty.
    pub fn try_acquire(&self) -> Option<OriginSlot> {
        if self.origin.has_queue() || !self.is_healthy() {
            return None;
        }
        OriginSlot::take(self.origin, self.most)
    }

    /// Takes a slot. Waits for one if the limits allow it. Logs and counts the reason on failure.
    pub async fn acquire(&self, log: &mut TxLog) -> Option<OriginSlot> {
        let origin = self.origin;
        let name = &origin.spec.name;
        if !self.is_healthy() {
            let why = self.instance.directors.why_sick(self.id);
            let why = why.strip_prefix(&format!("{name}: ")).map_or(String::new(), |why| format!(" ({why})"));
            super::connection::log_failure(log, format_args!("backend {name}: unhealthy{why}"));
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

    /// Returns whether the backend may be asked. An open circuit breaker is no reason against it, as there may be an idle
    /// connection; it refuses the attempt to open one.
    fn is_healthy(&self) -> bool {
        let directors = &self.instance.directors;
        directors.healthy(self.id, self.instance).healthy || self.is_only_broken()
    }

    #[cold]
    fn is_only_broken(&self) -> bool {
        let cell = self.instance.directors.get(self.id);
        cell.is_some_and(|cell| cell.admin() == AdminHealth::Auto)
            && self.origin.endpoint.is_breaker_open()
            && !self.origin.is_sick()
    }

    /// Returns whether the effective limit is the share of all waiting requests, not `max_connections`.
    fn is_share(&self) -> bool {
        self.origin.declared_limit() >= self.most
    }

    async fn wait(&self) -> Option<OriginSlot> {
        let (places, max_wait) = self.queue_limits();
        if places == 0 || max_wait <= 0.0 {
            return None;
        }
        let _queued = Queued::enter(self.origin, places)?;
        self.shared.counters().backend_wait.add(1);
        let slot = self.wait_until(Instant::now() + clock::seconds(max_wait)).await;
        if slot.is_none() {
            self.shared.counters().backend_wait_fail.add(1);
        }
        slot
    }

    /// Returns the length of the queue, and the longest wait in seconds. They are as configured if `max_connections`
    /// is the limit. If the share is the limit, they are larger, because room within the share is often freed a
    /// moment later.
    fn queue_limits(&self) -> (u32, f64) {
        let spec = &self.origin.spec;
        let places = spec.limits.wait_limit.filter(|&n| n > 0).unwrap_or(self.params.backend_wait_limit);
        let max_wait =
            spec.limits.wait_timeout.filter(|&t| t >= 0.0).unwrap_or(self.params.backend_wait_timeout);
        if !self.is_share() {
            return (places, max_wait);
        }
        (places.max(self.most / 2), max_wait.max(SHARE_MAX_WAIT))
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
                // Evict a fetch without a client.
                self.shared.admission().evict(Some(self.origin.endpoint.id()));
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            // No event reports that a fetch has lost its client, so check periodically.
            let _ = timeout_at(deadline.min(now + ORPHAN_CHECK_INTERVAL), freed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::OriginContext;

    #[test]
    fn a_rejected_entry_does_not_change_the_count() {
        let around = OriginContext { vcl_name: "boot", ..OriginContext::default() };
        let origin = Origin::new(lacquer_vcl::program::Backend::default(), around);
        let first = Queued::enter(&origin, 1).expect("the queue has a free place");
        for _ in 0..3 {
            assert!(Queued::enter(&origin, 1).is_none(), "the queue is full");
        }
        assert!(origin.has_queue(), "the first entry is still queued");
        drop(first);
        assert!(!origin.has_queue());
    }
}
