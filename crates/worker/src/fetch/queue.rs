//! A place among an origin's connections, waited for where the limits allow it.

use lacquer_params::Params;
use lacquer_shm::{Main, TxLog};
use lacquer_vcl_runtime::{BackendId, Instance};
use tokio::time::{Instant, timeout_at};

use crate::backends::Origin;
use crate::clock;

/// Who wants to connect, and by which rules.
pub struct Entry<'e> {
    pub origin: &'e Origin,
    pub id: BackendId,
    pub instance: &'e Instance,
    pub params: &'e Params,
    pub counters: &'e Main,
}

/// A place in the queue, given back when this is dropped.
struct Queued<'o>(&'o Origin);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.unqueue();
    }
}

impl Entry<'_> {
    /// Takes a place, to be given back by [`Origin::leave`]; what stands in the way is logged and counted.
    pub async fn pass(&self, log: &mut TxLog) -> bool {
        let origin = self.origin;
        let name = &origin.spec.name;
        if !self.is_healthy() {
            super::connection::log_failure(log, format_args!("backend {name}: unhealthy"));
            origin.count(|c| c.unhealthy.add(1));
            self.counters.backend_unhealthy.add(1);
            return false;
        }
        let entered = origin.enter_directly() || self.wait().await;
        if !entered {
            super::connection::log_failure(log, format_args!("backend {name}: busy"));
            origin.count(|c| c.busy.add(1));
            self.counters.backend_busy.add(1);
        }
        entered
    }

    fn is_healthy(&self) -> bool {
        self.instance.directors.healthy(self.id, self.instance).healthy
    }

    async fn wait(&self) -> bool {
        let spec = &self.origin.spec;
        let places = spec.wait_limit.filter(|&n| n > 0).unwrap_or(self.params.backend_wait_limit);
        let patience = spec.wait_timeout.filter(|&t| t >= 0.0).unwrap_or(self.params.backend_wait_timeout);
        if places == 0 || patience <= 0.0 || !self.origin.queue(places) {
            return false;
        }
        let _queued = Queued(self.origin);
        self.counters.backend_wait.add(1);
        let deadline = Instant::now() + clock::seconds(patience);
        let entered = loop {
            let freed = self.origin.freed.notified();
            if !self.is_healthy() {
                break false;
            }
            if self.origin.enter() {
                break true;
            }
            if timeout_at(deadline, freed).await.is_err() {
                break self.is_healthy() && self.origin.enter();
            }
        };
        if !entered {
            self.counters.backend_wait_fail.add(1);
        }
        entered
    }
}
