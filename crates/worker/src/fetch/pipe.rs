//! A connection to an origin for a pipe: opened as a fetch opens it, then left to the pipe.

use std::sync::Arc;

use lacquer_http::h1::Framing;
use lacquer_shm::Tag;
use lacquer_vcl_runtime::BackendId;

use super::OriginConnection;
use super::connect::{Limits, connect_or_reuse, log_open};
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
        if !instance.directors.healthy(id, instance).healthy {
            self.pipe.log.put_fmt(Tag::FetchError, format_args!("backend {name}: unhealthy"));
            origin.count(|c| c.unhealthy.add(1));
            counters.backend_unhealthy.add(1);
            return None;
        }
        if !origin.enter() {
            self.pipe.log.put_fmt(Tag::FetchError, format_args!("backend {name}: busy"));
            origin.count(|c| c.busy.add(1));
            counters.backend_busy.add(1);
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
                origin.leave();
                origin.count_failure(if e.held_down { 0 } else { e.errno });
                let text = crate::sys::error_text(e.errno);
                let text = format_args!("backend {name}: fail errno {} ({text})", e.errno);
                self.pipe.log.put_fmt(Tag::FetchError, text);
                counters.backend_fail.add(1);
                None
            }
        }
    }
}
