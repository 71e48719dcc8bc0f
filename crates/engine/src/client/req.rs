//! A client's request: its state, and the operations that several steps share.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{Busy, ObjRef, Object};
use lacquer_deliver::{EsiInclude, Source};
use lacquer_http::{Message, SessClose, Text};
use lacquer_params::Params;
use lacquer_params::bits::FeatureBits;
use lacquer_shm::Tag;
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::BackendId;
use lacquer_vcl_runtime::instance::PrivateMap;
use sha2::Sha256;

use super::pipe_request::PipeRequest;
use super::top::Top;
use crate::account::Account;
use crate::addresses::RequestAtWork;
use crate::admission::Permit;
use crate::client_transport::ClientTransport;
use crate::exit::Exit;
use crate::req_body::ReqBody;
use crate::services::Services;
use crate::session::Sess;
use crate::task::{Logged, REQ, RESP, Task, VclTask, run_vcl};
use crate::transaction_buffers::TransactionBuffers;
use crate::transaction_slot::{Transaction, TransactionSlot};
use crate::vcl_table::VclRef;

/// The request's current step, with the values that this step needs.
pub enum Step {
    Recv,
    Lookup,
    Miss { busy: Busy, stale: Option<Arc<Object>> },
    Pass,
    Pipe,
    Purge,
    Synth,
    VclFail,
    Restart,
    Deliver(ObjRef),
    Transmit(Source),
    Done,
}

/// Settings of VCL about the objects that a look-up may find. Times are in seconds; a negative one sets no limit.
pub struct LookupRules {
    pub ttl: f64,
    pub grace: f64,
    pub max_age: f64,
    pub always_miss: bool,
    pub ignore_busy: bool,
    pub ignore_vary: bool,
}

impl Default for LookupRules {
    fn default() -> LookupRules {
        LookupRules {
            ttl: -1.0,
            grace: -1.0,
            max_age: -1.0,
            always_miss: false,
            ignore_busy: false,
            ignore_vary: false,
        }
    }
}

pub struct Req {
    pub task: Task,
    /// The request as VCL sees and changes it.
    pub http: Message,
    /// The request as it came in, for restarts.
    pub http0: Message,
    pub resp: Message,
    /// The request to the origin, in `vcl_pipe` only.
    pub bereq: Option<Box<PipeRequest>>,
    pub tx: ClientTransport,
    pub body: ReqBody,
    pub out: Vec<u8>,
    /// The body that VCL makes in `vcl_synth`.
    pub synth_body: Vec<u8>,
    pub account: Account,
    pub close: Option<SessClose>,
    pub t_request: f64,
    pub t_resp: f64,
    pub restarts: u32,
    pub err_code: u16,
    pub err_reason: Text,
    pub want_100: bool,
    pub late_100: bool,
    pub is_hit: bool,
    pub is_hitmiss: bool,
    pub is_hitpass: bool,
    pub can_esi: bool,
    pub backend_hint: BackendId,
    pub storage: u32,
    pub rules: LookupRules,
    pub identity: Text,
    pub filters: Text,
    pub resp_filters: Text,
    pub digest: [u8; 32],
    pub hasher: Option<Sha256>,
    /// The object under the running subroutine, for `obj.*`.
    pub object: Option<ObjRef>,
    pub top_privates: PrivateMap,
    /// Set by `return (vcl(label))`.
    pub next_vcl: Option<Rc<VclRef>>,
    pub snapshot: lacquer_http::Mark,
    pub streaming: bool,
    pub piped: bool,
    pub reset: bool,
    pub esi_level: u32,
    /// The destination of an included response.
    pub include: Option<Box<EsiInclude<Exit>>>,
    /// The permit to wait, while the request has it. A fetch takes it along.
    pub permit: Option<Permit>,
    /// The client's own request, for those that it includes.
    pub top: Option<Rc<Top>>,
    /// The VCL before `return (vcl(label))`, which included requests begin with.
    pub first_vcl: Option<Rc<VclRef>>,
    pub next_label: Option<String>,
    /// Counts this request while requests of an address are limited.
    pub at_work: Option<RequestAtWork>,
}

/// Facts that a request needs from its session.
pub struct Start {
    pub services: Rc<Services>,
    pub params: Rc<Params>,
    pub sess: Rc<Sess>,
    pub vcl: Rc<VclRef>,
    pub tx: ClientTransport,
    pub t_first: f64,
    pub t_req: f64,
}

impl Transaction for Req {
    fn workspace(params: &Params) -> u64 {
        params.workspace_client
    }

    fn take_buffers(&mut self) -> TransactionBuffers {
        TransactionBuffers {
            ws: mem::take(&mut self.task.ws),
            log: mem::take(&mut self.task.log),
            request: mem::take(&mut self.http),
            request0: mem::take(&mut self.http0),
            response: mem::take(&mut self.resp),
            out: mem::take(&mut self.out),
            synth_body: mem::take(&mut self.synth_body),
        }
    }
}

impl TransactionSlot<Req> {
    /// Returns the slot for the next request: a spare one with its memory, or an empty one.
    pub fn take(services: &Services) -> TransactionSlot<Req> {
        services.take_request().and_then(TransactionSlot::found).unwrap_or_default()
    }

    /// Gives the slot back to the reactor. The request in it has ended.
    pub fn give(mut self, services: &Services) {
        self.vacate();
        services.give_request(self.hide());
    }
}

impl VclTask for Req {
    fn task(&mut self) -> &mut Task {
        &mut self.task
    }

    fn is_reset(&mut self) -> bool {
        match &self.tx {
            ClientTransport::Socket(_) => self.reset,
            ClientTransport::Stream(stream) => stream.error().is_some() && self.interrupt(),
        }
    }
}

impl Req {
    pub fn new(start: Start, memory: TransactionBuffers) -> Req {
        let snapshot = memory.ws.mark();
        Req {
            task: Task {
                params: start.params,
                services: start.services,
                sess: start.sess,
                vcl: start.vcl,
                ws: memory.ws,
                log: memory.log,
                privates: PrivateMap::default(),
                method: Method::Recv,
                t_first: start.t_first,
                t_prev: start.t_first,
                now: start.t_req,
                trace: false,
                failed: false,
            },
            http: memory.request,
            http0: memory.request0,
            resp: memory.response,
            bereq: None,
            tx: start.tx,
            body: ReqBody::none(),
            out: memory.out,
            synth_body: memory.synth_body,
            account: Account::default(),
            close: None,
            t_request: start.t_req,
            t_resp: start.t_req,
            restarts: 0,
            err_code: 0,
            err_reason: Text::NONE,
            want_100: false,
            late_100: false,
            is_hit: false,
            is_hitmiss: false,
            is_hitpass: false,
            can_esi: true,
            backend_hint: BackendId::NONE,
            storage: 0,
            rules: LookupRules::default(),
            identity: Text::NONE,
            filters: Text::NONE,
            resp_filters: Text::NONE,
            digest: [0; 32],
            hasher: None,
            object: None,
            top_privates: PrivateMap::default(),
            next_vcl: None,
            snapshot,
            streaming: false,
            piped: false,
            reset: false,
            esi_level: 0,
            include: None,
            permit: None,
            top: None,
            first_vcl: None,
            next_label: None,
            at_work: None,
        }
    }

    pub fn req_headers(&mut self) -> Logged<'_> {
        Logged { message: &mut self.http, ws: &mut self.task.ws, log: &mut self.task.log, tags: REQ }
    }

    pub fn resp_headers(&mut self) -> Logged<'_> {
        Logged { message: &mut self.resp, ws: &mut self.task.ws, log: &mut self.task.log, tags: RESP }
    }

    pub fn vcl(&mut self, method: Method) -> impl Future<Output = Action> {
        run_vcl(self, method)
    }

    /// Undoes VCL's changes to the request.
    pub fn rollback(&mut self) {
        self.http.clone_from(&self.http0);
        self.task.privates.clear();
        if self.esi_level == 0 {
            self.top_privates.clear();
        }
        self.filters = Text::NONE;
        self.resp_filters = Text::NONE;
        if self.task.ws.overflowed() {
            self.task.services.counters().ws_client_overflow.add(1);
        }
        self.task.ws.clear_overflowed();
        self.task.ws.roll_back(self.snapshot);
    }

    /// Interrupts VCL if the client has reset the stream, unless the parameter forbids it.
    #[cold]
    fn interrupt(&mut self) -> bool {
        if self.reset {
            return true;
        }
        if !self.task.params.feature.has(FeatureBits::VCL_REQ_RESET) {
            return false;
        }
        self.task.stamp("Reset");
        self.task.services.counters().req_reset.add(1);
        self.reset = true;
        true
    }

    /// Logs a response that did not come from VCL.
    pub(super) fn log_minimal(&mut self, protocol: &str, status: u16) {
        let log = &mut self.task.log;
        log.put(Tag::RespProtocol, protocol.as_bytes());
        log.put_fmt(Tag::RespStatus, format_args!("{status:03}"));
        log.put(Tag::RespReason, lacquer_http::reason_of(status).as_bytes());
        if status >= 400 {
            self.err_code = status;
        }
    }

    /// Logs the storage that holds objects made for this request only.
    pub fn log_storage(&mut self, place: u32) {
        let Some(place) = self.task.services.stevedores().get(place) else { return };
        crate::task::log_storage(&mut self.task.log, place.kind().name(), place.name());
    }

    pub fn log_error(&mut self, text: &str) {
        self.task.log.put(Tag::Error, text.as_bytes());
    }

    /// Logs and counts the bytes of the request that ends.
    pub fn charge(&mut self) {
        let a = std::mem::take(&mut self.account);
        if !self.piped && !self.task.vxid().is_none() {
            self.task.log.put_numbers(Tag::ReqAcct, a.numbers());
        }
        if self.esi_level > 0 {
            return;
        }
        a.count(self.task.services.counters());
    }
}
