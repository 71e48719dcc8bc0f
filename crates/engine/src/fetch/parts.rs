//! The parts of a fetch. Most of their fields are visible only to the steps in this folder.

use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{Busy, Object};
use lacquer_deliver::Pace;
use lacquer_flow::Lifetime;
use lacquer_flow::rfc9111::parts::{Marks, Sent};
use lacquer_http::{Mark, Message, Text};
use lacquer_net::deadlines::Deadline;
use lacquer_vcl_runtime::BackendId;

use super::connection::OriginConnection;
use super::events::FetchEvents;
use super::overlap::Overlap;
use super::upgraded::Wanted;
use crate::admission::Permit;
use crate::cache_key::CacheKey;
use crate::req_body::ReqBody;
use crate::trailers::Trailers;

/// The request to the origin, and the settings that VCL made for it.
pub struct Request {
    pub(super) http: Message,
    /// The request before VCL changed it, for rollback and for the checks of its range and of bans.
    pub(super) original: Message,
    /// The body, if it is forwarded from the client.
    pub(super) body: Option<ReqBody>,
    /// The body, if the client's request has cached it.
    pub(super) cached_body: Option<Arc<Object>>,
    /// The value of `bereq.filters`.
    pub(super) filters: Text,
    pub(super) identity: Text,
    pub(super) key: CacheKey,
    /// VCL allows another attempt on a new connection if the origin has closed a reused one (`bereq.retry_connect`).
    pub(super) may_reconnect: bool,
    /// The state of the workspace before VCL changed the request.
    pub(super) snapshot: Mark,
}

/// The response, and the settings that VCL made for it.
pub struct Response {
    pub(super) http: Message,
    /// The time when its head was received.
    pub(super) entered: f64,
    /// The backend that sent it.
    pub(super) backend: BackendId,
    pub(super) filters: Text,
    pub(super) do_gzip: bool,
    pub(super) do_gunzip: bool,
    pub(super) lifetime: Lifetime,
    pub(super) is_uncacheable: bool,
    pub(super) is_hit_for_pass: bool,
    /// The status and reason for `vcl_backend_error`.
    pub(crate) status: u16,
    pub(crate) reason: Text,
    /// The body that VCL sets in `vcl_backend_error`.
    pub(crate) body: Vec<u8>,
}

/// The exchange with the origin.
pub struct Exchange {
    /// The backend or director that VCL has set.
    pub(super) backend: BackendId,
    /// The connection of the response, lent to VCL from `vcl_backend_response` until the next step takes it. VCL reads
    /// its facts, and a rollback closes it. It stays here meanwhile because it is too large to be part of a [`Step`].
    pub(super) lent: Option<OriginConnection>,
    /// The place of the trailers of the response, if they are passed on.
    pub(super) trailers: Option<Rc<Trailers>>,
    /// The upload that goes on during the response.
    pub(super) overlap: Option<Box<Overlap>>,
    pub(super) account: Account,
    pub(super) deadline: Rc<Deadline>,
    /// The time when the request was sent.
    pub(super) requested: f64,
    /// The type of the origin's last failure, for `Proxy-Status`.
    pub(super) failure: &'static str,
    /// The client's request is the reason of the failure, which says nothing about the origin and the page.
    pub(super) is_fault_of_client: bool,
}

impl Exchange {
    #[inline]
    pub fn new(backend: BackendId, deadline: Rc<Deadline>, now: f64) -> Exchange {
        Exchange {
            backend,
            lent: None,
            trailers: None,
            overlap: None,
            account: Account::default(),
            deadline,
            requested: now,
            failure: "",
            is_fault_of_client: false,
        }
    }
}

/// The destination of the object that the fetch creates, and the stale object that it replaces.
pub struct Product {
    pub(super) target: Target,
    /// The stale object, as VCL reads it. The new object replaces it.
    pub(super) stale: Option<Arc<Object>>,
    /// The number of objects evicted for this one.
    pub(super) nuked: u32,
    pub(super) transit_buffer: u64,
    /// VCL has set `beresp.ttl`.
    pub(super) is_ttl_set: bool,
    /// The seconds after its lifetime for which the object may be used if its origin fails.
    pub(super) stale_if_error: f32,
}

/// The reason for the fetch.
pub struct Purpose {
    pub(super) is_pass: bool,
    pub(super) is_background: bool,
    pub(super) is_hitpass: bool,
    pub(super) is_hitmiss: bool,
    /// The client accepts trailers, and its protocol has a place for them.
    pub(super) wants_trailers: bool,
    /// The client's connection has streams, so that its body may arrive while the response is sent.
    pub(super) may_overlap: bool,
    /// The client has sent the request as early data, and this daemon has marked it as such.
    pub(super) is_early: bool,
    /// The protocol that the origin is asked for.
    pub(super) upgrade: Option<Box<Wanted>>,
}

/// The request that waits for the fetch.
pub struct Waiter {
    pub(super) events: Rc<FetchEvents>,
    /// The event that the fetch has started or failed was sent.
    pub(super) is_notified: bool,
    /// The permit to wait, held for as long as the fetch runs.
    pub(super) permit: Option<Permit>,
}

/// The retries that VCL has made.
#[derive(Default)]
pub struct Retries {
    pub(super) count: u32,
    /// The reason why no more are possible.
    pub(super) forbidden: Option<&'static str>,
}

/// The part of the response that the cache has, and the progress of its completion.
#[derive(Default)]
pub struct Completion {
    /// The part for which the request to the origin has a `Range`.
    pub(super) part: Option<Arc<Object>>,
    /// VCL has left the `Range` as it was.
    pub(super) is_asked: bool,
    /// The response is the rest of the part.
    pub(super) is_rest: bool,
    /// The client has asked for a range, so a range that VCL requests can be stored as a part.
    pub(super) is_range_wanted: bool,
    /// Boxed, because most fetches have none and all of them are moved.
    pub(super) proof: Option<Box<Proof>>,
}

/// Facts of the exchange, before VCL saw the response, that prove whether other bytes belong to the response.
pub struct Proof {
    /// The range that the response contains, if it can be stored as a part.
    pub(super) sent: Option<Sent>,
    pub(super) marks: Marks,
    /// The `Host` of the request that was sent.
    pub(super) host: Text,
    /// The URL of the request that was sent.
    pub(super) url: Text,
}

impl Completion {
    pub(super) fn new(is_range_wanted: bool) -> Self {
        Self { is_range_wanted, ..Self::default() }
    }

    /// Returns the range that the response contains, if it can be stored as a part.
    #[inline]
    pub(super) fn sent(&self) -> Option<Sent> {
        self.proof.as_ref().and_then(|proof| proof.sent)
    }

    /// Returns the part of which the response is the rest.
    #[inline]
    pub(super) fn continued(&self) -> Option<Arc<Object>> {
        self.part.clone().filter(|_| self.is_rest)
    }
}

/// The timeouts that VCL has set, in seconds.
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
    /// The number of reads in which the body was received.
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

/// The destination of the object that the fetch creates.
pub enum Target {
    /// The cache, with the right to fetch that the lookup returned.
    Cache(Busy),
    /// Only the request that started the fetch.
    Private,
    /// The object was handed over while its body is incomplete. If the fetch fails, so does the object.
    Streaming(Arc<Object>),
    /// The complete object was handed over, or the fetch has failed.
    Delivered,
}

/// The fetch's next step, with the values that only this step has.
pub enum Step {
    Start,
    Retry,
    /// Takes the connection from VCL, and stores the response.
    Body,
    /// Takes the connection from VCL, and stores the head of a 304 with the body of the object that it confirms.
    Refresh(Arc<Object>),
    Error,
    Fail,
    /// The end of the fetch, with the object that it has completed.
    Done(Option<Arc<Object>>),
}

/// The settings and results of one attempt. A retry begins with a new one.
#[derive(Default)]
pub struct Attempt {
    /// The number of the storage. If VCL has set none, the fetch fails.
    pub(super) storage: Option<u32>,
    pub(super) do_stream: bool,
    pub(super) do_esi: bool,
    pub(super) was_304: bool,
    pub(super) gzipped: bool,
    pub(super) has_esi: bool,
    pub(super) encoding_changed: bool,
    pub(super) error_action: bool,
    /// The request asks for another protocol.
    pub(super) asks_upgrade: bool,
    pub(super) timeouts: Timeouts,
    /// Limits the bytes that are stored or filtered before other tasks run.
    pub(super) pace: Pace,
    /// The number of evictions that `pace` has counted.
    pub(super) nuked_before: u32,
}

impl Attempt {
    pub fn new() -> Attempt {
        Attempt { do_stream: true, ..Attempt::default() }
    }
}
