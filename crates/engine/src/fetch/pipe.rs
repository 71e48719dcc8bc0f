//! Opens a connection to an origin for a pipe, in the same way as for a fetch.

use std::sync::Arc;

use lacquer_net::{Taken, Watch};
use lacquer_vcl_runtime::BackendId;

use super::connection::{
    OriginConnection, log_connect_failure, log_failure, log_open, proxy_header, take_idle, wait_or_connect,
};
use super::limits::Limits;
use super::multiplexed::{NO_HTTP1, speaks_only_http2};
use super::queue::SlotRequest;
use crate::backends::Origin;
use crate::client::PipeRequest;
use crate::notes::Observation;
use crate::spans::log_tls;
use crate::task::Task;

pub struct PipeCall<'p> {
    pub task: &'p mut Task,
    pub pipe: &'p mut PipeRequest,
}

impl PipeCall<'_> {
    /// Opens or reuses a connection. Returns `None`, with the reason in the log, on failure.
    pub async fn open(self, id: BackendId, origin: Arc<Origin>) -> Option<OriginConnection> {
        if speaks_only_http2(&origin) {
            let name = &origin.spec.name;
            log_failure(&mut self.pipe.log, format_args!("backend {name}: fail ({NO_HTTP1})"));
            return None;
        }
        let shared = self.task.services().shared();
        let instance = self.task.vcl().loaded.instance();
        let request = SlotRequest::new((id, &origin), instance, self.task.params(), shared);
        let slot = request.acquire(&mut self.pipe.log).await?;
        let limits = Limits::of(&origin, self.task.params(), self.pipe.connect_timeout);
        let (services, log) = (self.task.services(), &mut self.pipe.log);
        let taken = match take_idle(services, &slot, limits.quiet, log) {
            // A pipe does not check that responses belong to requests, so it uses no connection that may be out of
            // sync.
            Taken::Connection(idle) if !idle.record().is_in_step() => {
                shared.pools().retire(
                    services.id(),
                    &origin.endpoint,
                    idle,
                    None,
                    (Watch::Long, limits.quiet),
                );
                Taken::None
            }
            taken => taken,
        };
        let hello = proxy_header(&origin, self.task.sess());
        match wait_or_connect(services, slot, &limits, (taken, &hello), log).await {
            Ok(mut connection) => {
                let now = self.pipe.stamp("Connected");
                log_open(&mut self.pipe.log, &connection, now);
                if self.task.observation().has(Observation::SPANS) && connection.facts().tls().is_some() {
                    log_tls(&mut self.pipe.log);
                }
                connection.count_request();
                // A pipe may last for hours, so it does not count as waiting for a response.
                connection.mark_answered();
                Some(connection)
            }
            Err(e) => {
                log_connect_failure(services, &mut self.pipe.log, &origin, &e);
                None
            }
        }
    }
}
