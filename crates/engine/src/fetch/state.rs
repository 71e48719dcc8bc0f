//! A fetch: its state, and the operations that several steps share.

use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{BodyState, BodyWriter, Busy, Object};
use lacquer_deliver::Pace;
use lacquer_flow::Lifetime;
use lacquer_flow::reuse::End;
use lacquer_http::{Message, SessClose, Text};
use lacquer_net::deadlines::Deadline;
use lacquer_params::Params;
use lacquer_shm::Tag;
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::BackendId;

use super::connection::OriginConnection;
use super::events::{FetchEvents, Started};
use crate::admission::Permit;
use crate::req_body::ReqBody;
use crate::task::{BEREQ, BERESP, Logged, Task, VclTask, run_vcl};
use crate::transaction_buffers::TransactionBuffers;
use crate::transaction_slot::Transaction;

/// The purpose of a fetch.
pub enum Mode {
    Pass,
    Fetch { busy: Busy, stale: Option<Arc<Object>> },
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    pub bereq_header: u64,
    pub bereq_body: u64,
    pub beresp_header: u64,
    pub beresp_body: u64,
    /// The number of reads in which the body came.
    pub beresp_reads: u64,
}

impl Account {
    /// Returns the numbers in the order of `BereqAcct`.
    pub fn numbers(&self) -> [u64; 6] {
        let (request, response) =
            (self.bereq_header + self.bereq_body, self.beresp_header + self.beresp_body);
        [self.bereq_header, self.bereq_body, request, self.beresp_header, self.beresp_body, response]
    }
}

/// The destination of the object that the fetch makes.
pub enum Target {
    /// The cache, with the right to fetch that the lookup gave.
    Cache(Busy),
    /// The one request that started the fetch.
    Private,
    /// The object was handed out: streaming, complete or failed.
    Delivered,
}

/// The fetch's next step.
pub enum Step {
    Start,
    Retry,
    Body,
    Refresh,
    Error,
    Fail,
    Done,
}

/// Settings and results of one attempt at the origin. A retry begins with a new one.
#[derive(Default)]
pub struct Attempt {
    /// The storage. If VCL chooses none, the fetch fails.
    pub storage: Option<u32>,
    pub do_stream: bool,
    pub do_esi: bool,
    pub was_304: bool,
    pub gzipped: bool,
    pub has_esi: bool,
    pub encoding_changed: bool,
    pub error_action: bool,
    /// The response may be another request's, so lookups do not find the object.
    pub is_foreign: bool,
    pub connect_timeout: Option<f64>,
    pub first_byte_timeout: Option<f64>,
    pub between_bytes_timeout: Option<f64>,
    /// The pace by the bytes that are stored and that filters make.
    pub pace: Pace,
    /// Evictions that the pace has counted.
    pub nuked_before: u32,
}

impl Attempt {
    pub fn new() -> Attempt {
        Attempt { do_stream: true, ..Attempt::default() }
    }
}

pub struct Fetch {
    pub task: Task,
    pub bereq: Message,
    /// The request before VCL saw it, for retries and rollback.
    pub bereq0: Message,
    pub beresp: Message,
    pub target: Target,
    pub object: Option<Arc<Object>>,
    pub writer: Option<BodyWriter>,
    pub stale: Option<Arc<Object>>,
    pub client_body: Option<ReqBody>,
    pub cached_body: Option<Arc<Object>>,
    pub(super) events: Rc<FetchEvents>,
    pub(super) announced: bool,
    pub origin: Option<OriginConnection>,
    /// The connection that is about to go back to the pool.
    pub(super) leaving: Option<(OriginConnection, End)>,
    /// The address of the last connection. VCL may read it after the connection is closed.
    pub origin_addr: Option<SocketAddr>,
    pub account: Account,
    pub digest: [u8; 32],
    pub is_pass: bool,
    pub is_bgfetch: bool,
    pub is_hitpass: bool,
    pub is_hitmiss: bool,
    pub uncacheable: bool,
    pub hit_for_pass: bool,
    pub retries: u32,
    pub attempt: Attempt,
    pub no_retry: Option<&'static str>,
    pub do_gzip: bool,
    pub do_gunzip: bool,
    /// The number of objects evicted for this one.
    pub nuked: u32,
    pub backend: BackendId,
    pub backend_resp: BackendId,
    pub lifetime: Lifetime,
    pub t_resp: f64,
    pub err_code: u16,
    pub err_reason: Text,
    pub filters: Text,
    pub bereq_filters: Text,
    pub synth_body: Vec<u8>,
    pub identity: Text,
    pub retry_connect: bool,
    pub transit_buffer: u64,
    pub snapshot: lacquer_http::Mark,
    /// A buffer for assembling output.
    pub out: Vec<u8>,
    pub deadline: Rc<Deadline>,
    /// The permit to wait, held for as long as the fetch runs.
    pub(super) _permit: Option<Permit>,
}

impl Transaction for Fetch {
    fn workspace(params: &Params) -> u64 {
        params.workspace_backend
    }

    fn take_buffers(&mut self) -> TransactionBuffers {
        TransactionBuffers {
            ws: mem::take(&mut self.task.ws),
            log: mem::take(&mut self.task.log),
            request: mem::take(&mut self.bereq),
            request0: mem::take(&mut self.bereq0),
            response: mem::take(&mut self.beresp),
            out: mem::take(&mut self.out),
            synth_body: mem::take(&mut self.synth_body),
        }
    }
}

impl VclTask for Fetch {
    fn task(&mut self) -> &mut Task {
        &mut self.task
    }
}

impl Fetch {
    pub fn bereq_headers(&mut self) -> Logged<'_> {
        Logged { message: &mut self.bereq, ws: &mut self.task.ws, log: &mut self.task.log, tags: BEREQ }
    }

    pub fn beresp_headers(&mut self) -> Logged<'_> {
        Logged { message: &mut self.beresp, ws: &mut self.task.ws, log: &mut self.task.log, tags: BERESP }
    }

    pub fn vcl(&mut self, method: Method) -> impl Future<Output = Action> {
        run_vcl(self, method)
    }

    /// Logs a failure of the fetch.
    pub fn fetch_error(&mut self, text: &str) {
        self.task.log.put(Tag::FetchError, text.as_bytes());
    }

    /// Logs that the fetch ends early because nobody waits for it.
    pub(super) fn log_abandoned(&mut self) {
        self.fetch_error("abandoned, the client is gone");
        self.task.services.counters().fetch_abandoned.add(1);
    }

    /// Returns the request's body, which the fetch does not need any more.
    pub fn release_request(&mut self) {
        if let Some(body) = self.client_body.take() {
            self.events.body.set(Some(body));
        }
    }

    /// Sends the event that the object can be delivered to the waiting request.
    pub fn announce(&mut self, object: Option<Arc<Object>>) {
        self.release_request();
        if !mem::replace(&mut self.announced, true) {
            self.events.started.set(Some(Started(object)));
        }
    }

    pub(super) fn fail(&mut self) {
        self.close_origin(Some(SessClose::RxBody));
        self.writer = None;
        if let Some(object) = &self.object {
            self.task.services.cache().fail(object);
        }
        // Dropping the right to fetch wakes the requests that wait for it.
        self.target = Target::Delivered;
        let object = self.object.take();
        drop(object);
        self.announce(None);
    }

    pub(super) fn finish(&mut self) {
        if let Some(object) = &self.object
            && object.state() == BodyState::Complete
        {
            let length = object.body_len();
            self.task.log.put_numbers(Tag::Length, [length]);
        }
        self.task.log.put_numbers(Tag::BereqAcct, self.account.numbers());
        self.task.log.end();
        if self.task.ws.overflowed() {
            self.task.services.counters().ws_backend_overflow.add(1);
        }
        self.announce(None);
    }
}
