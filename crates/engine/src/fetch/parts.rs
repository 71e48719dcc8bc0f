//! The parts of a fetch. Only the steps of this folder see their fields.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{BodyWriter, Busy, Object};
use lacquer_deliver::Pace;
use lacquer_flow::Lifetime;
use lacquer_flow::reuse::End;
use lacquer_http::{Mark, Message, Text};
use lacquer_net::deadlines::Deadline;
use lacquer_vcl_runtime::BackendId;

use super::connection::OriginConnection;
use super::events::FetchEvents;
use crate::admission::Permit;
use crate::req_body::ReqBody;

/// The request to the origin and VCL's settings of it.
pub struct Request {
    pub(super) http: Message,
    /// The request before VCL saw it, for retries and rollback.
    pub(super) original: Message,
    /// The body, which comes from the client.
    pub(super) body: Option<ReqBody>,
    /// The body, if the client's request kept it.
    pub(super) cached_body: Option<Arc<Object>>,
    /// The filters of the body.
    pub(super) filters: Text,
    pub(super) identity: Text,
    pub(super) digest: [u8; 32],
    /// VCL allows another connection where the first one failed.
    pub(super) may_reconnect: bool,
    /// The workspace before VCL changed the request.
    pub(super) snapshot: Mark,
}

/// The response and VCL's settings of it.
pub struct Response {
    pub(super) http: Message,
    /// The time when its head came.
    pub(super) entered: f64,
    /// The backend that made it.
    pub(super) backend: BackendId,
    pub(super) filters: Text,
    pub(super) do_gzip: bool,
    pub(super) do_gunzip: bool,
    pub(super) lifetime: Lifetime,
    pub(super) is_uncacheable: bool,
    pub(super) is_hit_for_pass: bool,
    /// Status and reason for `vcl_backend_error`.
    pub(crate) status: u16,
    pub(crate) reason: Text,
    /// The body that VCL makes in `vcl_backend_error`.
    pub(crate) body: Vec<u8>,
}

/// The exchange with the origin.
pub struct Exchange {
    /// The backend or director that VCL chose.
    pub(super) backend: BackendId,
    pub(super) connection: Option<OriginConnection>,
    /// The connection that is about to go back to the pool.
    pub(super) leaving: Option<(OriginConnection, End)>,
    /// The address of the last connection. VCL may read it after the connection is closed.
    pub(super) address: Option<SocketAddr>,
    pub(super) account: Account,
    /// A buffer for assembling output.
    pub(super) out: Vec<u8>,
    pub(super) deadline: Rc<Deadline>,
}

/// The object that the fetch makes, and the one that it renews.
pub struct Product {
    pub(super) target: Target,
    pub(super) object: Option<Arc<Object>>,
    pub(super) writer: Option<BodyWriter>,
    pub(super) stale: Option<Arc<Object>>,
    /// The number of objects evicted for this one.
    pub(super) nuked: u32,
    pub(super) transit_buffer: u64,
}

/// The reason for the fetch.
pub struct Purpose {
    pub(super) is_pass: bool,
    pub(super) is_background: bool,
    pub(super) is_hitpass: bool,
    pub(super) is_hitmiss: bool,
}

/// The request that waits for the fetch.
pub struct Waiter {
    pub(super) events: Rc<FetchEvents>,
    /// It knows the object, or that there will be none.
    pub(super) is_notified: bool,
    /// The permit to wait, held for as long as the fetch runs.
    pub(super) _permit: Option<Permit>,
}

/// The retries that VCL made.
#[derive(Default)]
pub struct Retries {
    pub(super) count: u32,
    /// The reason why there can be no more.
    pub(super) forbidden: Option<&'static str>,
}

/// Limits that VCL set, in seconds.
#[derive(Default)]
pub struct Timeouts {
    pub(super) connect: Option<f64>,
    pub(super) first_byte: Option<f64>,
    pub(super) between_bytes: Option<f64>,
}

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
    pub(super) storage: Option<u32>,
    pub(super) do_stream: bool,
    pub(super) do_esi: bool,
    pub(super) was_304: bool,
    pub(super) gzipped: bool,
    pub(super) has_esi: bool,
    pub(super) encoding_changed: bool,
    pub(super) error_action: bool,
    /// The response may be another request's, so lookups do not find the object.
    pub(super) is_foreign: bool,
    pub(super) timeouts: Timeouts,
    /// The pace by the bytes that are stored and that filters make.
    pub(super) pace: Pace,
    /// Evictions that the pace has counted.
    pub(super) nuked_before: u32,
}

impl Attempt {
    pub fn new() -> Attempt {
        Attempt { do_stream: true, ..Attempt::default() }
    }
}
