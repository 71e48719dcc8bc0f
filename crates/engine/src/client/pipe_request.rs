//! The request to the origin in `vcl_pipe`.

use lacquer_http::Message;
use lacquer_shm::TxLog;
use lacquer_sources::clock;
use lacquer_vcl_runtime::BackendId;

/// The request to the origin, as `vcl_pipe` sees it.
pub struct PipeRequest {
    pub bereq: Message,
    pub log: TxLog,
    pub backend: BackendId,
    pub connect_timeout: Option<f64>,
    pub task_deadline: Option<f64>,
    pub t_first: f64,
    pub t_prev: f64,
}

impl PipeRequest {
    pub fn stamp(&mut self, event: &str) -> f64 {
        let now = clock::real();
        self.log.put_timestamp(event, now, self.t_first, self.t_prev);
        self.t_prev = now;
        now
    }
}
