//! A connection to an origin for a pipe: opened as a fetch opens it, then left to the pipe.

use std::sync::Arc;

use lacquer_http::h1::Framing;
use lacquer_vcl_runtime::BackendId;

use super::OriginConnection;
use super::connect::{Limits, connect_or_reuse, log_open, refused};
use super::queue::Entry;
use crate::backends::Origin;
use crate::client::PipeRequest;
use crate::clock;
use crate::req_body::Rx;
use crate::task::Task;

pub struct PipeCall<'p> {
    pub task: &'p mut Task,
    pub pipe: &'p mut PipeRequest,
}

impl PipeCall<'_> {
    /// Opens or reuses a connection; `None` with the reason in the log.
    pub async fn open(self, id: BackendId, origin: Arc<Origin>) -> Option<OriginConnection> {
        let name = origin.spec.name.clone();
        let counters = self.task.reactor.shared.counters.clone();
        let vcl = self.task.vcl.clone();
        let instance = vcl.loaded.instance();
        let params = self.task.params.clone();
        let entry = Entry { origin: &origin, id, instance, params: &params, counters: &counters };
        if !entry.pass(&mut self.pipe.log).await {
            return None;
        }
        let limits = Limits::of(&origin, &self.task.params, self.pipe.connect_timeout);
        match connect_or_reuse(&self.task.reactor, &origin, &limits, false).await {
            Ok((rx, tx, reused)) => {
                let now = clock::real();
                self.pipe.log.put_timestamp("Connected", now, self.pipe.t_first, self.pipe.t_prev);
                self.pipe.t_prev = now;
                let connection = OriginConnection {
                    fd: rx.raw_fd(),
                    remote: rx.peer_addr(),
                    rx: Rx::new(rx),
                    tx,
                    origin: origin.clone(),
                    framing: Framing::length(0),
                    close: None,
                    reused,
                    between_bytes: 0.0,
                    first_byte: 0.0,
                };
                if !reused {
                    super::connect::introduce(&connection, &self.task.sess).await;
                }
                log_open(&mut self.pipe.log, &connection, &name);
                origin.count(|c| {
                    c.conn.add(1);
                    c.req.add(1);
                });
                Some(connection)
            }
            Err(e) => {
                refused(&mut self.pipe.log, &origin, e);
                counters.backend_fail.add(1);
                None
            }
        }
    }
}
