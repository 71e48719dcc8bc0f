//! A client's request on its way through VCL: the steps of the flow chart and the loop that joins them.
//!
//! Every step is a function that takes the request and what only this step may hold, and says which
//! step comes next. `Step` carries what was found out, so that for example a hit cannot be delivered
//! without an object, nor a miss go on without the right to fetch.

mod admit;
mod body;
mod deliver;
mod esi;
mod host;
mod lookup;
mod miss;
mod on_socket;
mod on_stream;
mod partial;
mod pipe;
mod presence;
mod recv;
mod synth;
mod transmit;

pub use pipe::PipeRequest;
pub use presence::{HalfClosed, Patience, while_fetching, while_waiting};
pub use recv::log_start;

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{Busy, ObjRef, Object};
use lacquer_deliver::{Seam, Source};
use lacquer_flow::retry;
use lacquer_http::{Message, SessClose, Text};
use lacquer_params::Params;
use lacquer_params::bits::DebugBits as Debug;
use lacquer_shm::vsc::LocalMain;
use lacquer_shm::{Tag, Vxid};
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::BackendId;
use lacquer_vcl_runtime::instance::PrivateMap;
use sha2::Sha256;

use crate::addresses::RequestAtWork;
use crate::admission::Permit;
use crate::exit::Exit;
use crate::faults::apart;
use crate::memory::Memory;
use crate::reactor::Reactor;
use crate::req_body::ReqBody;
use crate::seat::Seated;
use crate::session::Sess;
use crate::task::{Logged, REQ, RESP, Scene, Task, run_vcl};
use crate::vcl_table::VclRef;
use crate::wire::Wire;

/// Bytes of one request, for `ReqAcct`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    pub req_header: u64,
    pub req_body: u64,
    pub resp_header: u64,
    pub resp_body: u64,
}

impl Account {
    /// As `ReqAcct` has them.
    pub fn numbers(&self) -> [u64; 6] {
        let (request, response) = (self.req_header + self.req_body, self.resp_header + self.resp_body);
        [self.req_header, self.req_body, request, self.resp_header, self.resp_body, response]
    }

    pub fn count(&self, counters: &LocalMain) {
        counters.s_req_hdrbytes.add(self.req_header);
        counters.s_req_bodybytes.add(self.req_body);
        counters.s_resp_hdrbytes.add(self.resp_header);
        counters.s_resp_bodybytes.add(self.resp_body);
    }
}

/// Where the request is, with what this place may hold.
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

/// What VCL says about which object will do. Times are in seconds; a negative one says nothing.
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
    /// As it came in, for restarts.
    pub http0: Message,
    pub resp: Message,
    /// In vcl_pipe only.
    pub bereq: Option<Box<pipe::PipeRequest>>,
    pub tx: Wire,
    pub body: ReqBody,
    pub out: Vec<u8>,
    /// Body made by VCL, in vcl_synth.
    pub synth_body: Vec<u8>,
    pub account: Account,
    pub close: Option<SessClose>,
    pub t_req: f64,
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
    /// For an included response: where it goes.
    pub seam: Option<Box<Seam<Exit>>>,
    /// Leave to wait, while the request has it; a fetch takes it along.
    pub permit: Option<Permit>,
    /// The client's own request, for those that it includes.
    pub top: Option<Rc<esi::Top>>,
    /// The VCL before `return (vcl(label))`, which included requests begin with.
    pub first_vcl: Option<Rc<VclRef>>,
    pub next_label: Option<String>,
    /// Counts this request while requests of an address are limited.
    pub at_work: Option<RequestAtWork>,
}

/// What a request needs from its session.
pub struct Start {
    pub reactor: Rc<Reactor>,
    pub params: Rc<Params>,
    pub sess: Rc<Sess>,
    pub vcl: Rc<VclRef>,
    pub tx: Wire,
    pub t_first: f64,
    pub t_req: f64,
}

impl Seated for Req {
    fn workspace(params: &Params) -> u64 {
        params.workspace_client
    }

    fn take_memory(&mut self) -> Memory {
        Memory {
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

impl Scene for Req {
    fn task(&mut self) -> &mut Task {
        &mut self.task
    }

    fn is_reset(&mut self) -> bool {
        match &self.tx {
            Wire::Socket(_) => self.reset,
            Wire::Stream(stream) => stream.error().is_some() && on_stream::interrupt(self),
        }
    }
}

impl Req {
    pub fn new(start: Start, memory: Memory) -> Req {
        let snapshot = memory.ws.mark();
        Req {
            task: Task {
                params: start.params,
                reactor: start.reactor,
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
            t_req: start.t_req,
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
            seam: None,
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

    /// Runs the flow chart from the beginning to the end of the response. Steps that a hit does not take are
    /// boxed: their size would be that of every connection.
    pub async fn run(&mut self) {
        let mut step = recv::transport(self).await;
        loop {
            if self.task.params.debug.has(Debug::REQ_STATE) {
                self.diagnose(&step);
            }
            step = match step {
                Step::Recv => recv::recv(self).await,
                Step::Lookup => lookup::lookup(self).await,
                Step::Miss { busy, stale } => Box::pin(miss::miss(self, busy, stale)).await,
                Step::Pass => Box::pin(miss::pass(self)).await,
                Step::Pipe => Box::pin(pipe::pipe(self)).await,
                Step::Purge => Box::pin(lookup::purge(self)).await,
                Step::Synth => Box::pin(synth::synth(self)).await,
                Step::VclFail => synth::vcl_fail(self),
                Step::Restart => self.restart(),
                Step::Deliver(object) => deliver::deliver(self, object).await,
                Step::Transmit(source) => transmit::transmit(self, source).await,
                Step::Done => break,
            }
        }
        self.object = None;
        self.task.privates.clear();
        if self.esi_level == 0 {
            self.top_privates.clear();
        }
    }

    fn diagnose(&mut self, step: &Step) {
        let name = match step {
            Step::Recv => "Req Step recv",
            Step::Lookup => "Req Step lookup",
            Step::Miss { .. } => "Req Step miss",
            Step::Pass => "Req Step pass",
            Step::Pipe => "Req Step pipe",
            Step::Purge => "Req Step purge",
            Step::Synth => "Req Step synth",
            Step::VclFail => "Req Step vclfail",
            Step::Restart => "Req Step restart",
            Step::Deliver(_) => "Req Step deliver",
            Step::Transmit(_) => "Req Step transmit",
            Step::Done => "Req Step finish",
        };
        let vxid = self.task.vxid();
        self.task.log.put_fmt(Tag::Debug, format_args!("vxid {vxid} STP_{name}"));
        self.task.log.flush();
    }

    fn restart(&mut self) -> Step {
        self.restarts += 1;
        if !retry::is_within(self.restarts, self.task.params.max_restarts) {
            self.task.log.put(Tag::VCL_Error, b"Too many restarts");
            self.err_code = 503;
            return Step::Synth;
        }
        self.task.stamp("Restart");
        let next = Vxid::client(self.task.reactor.vxid());
        self.task.log.continue_as("req", "restart", next);
        let previous = self.task.t_prev;
        self.task.timestamp("Start", previous);
        self.err_code = 0;
        Step::Recv
    }

    pub fn vcl(&mut self, method: Method) -> impl Future<Output = Action> {
        run_vcl(self, method)
    }

    /// Undoes what VCL did to the request, as for a new start of the same one.
    pub fn rollback(&mut self) {
        self.http.clone_from(&self.http0);
        self.task.privates.clear();
        if self.esi_level == 0 {
            self.top_privates.clear();
        }
        self.filters = Text::NONE;
        self.resp_filters = Text::NONE;
        if self.task.ws.overflowed() {
            self.task.reactor.counters.ws_client_overflow.add(1);
        }
        self.task.ws.clear_overflowed();
        self.task.ws.roll_back(self.snapshot);
    }

    /// Sends a response that has no body and did not come from VCL; false if the client is gone.
    pub async fn minimal_response(&mut self, status: u16) -> bool {
        if self.seam.is_some() {
            return true;
        }
        match self.tx.clone() {
            Wire::Socket(tx) => on_socket::minimal(self, &tx, status).await,
            Wire::Stream(stream) => apart(|| on_stream::minimal(self, &stream, status)).await,
        }
    }

    /// The records of a response that did not come from VCL.
    fn log_minimal(&mut self, protocol: &str, status: u16) {
        let log = &mut self.task.log;
        log.put(Tag::RespProtocol, protocol.as_bytes());
        log.put_fmt(Tag::RespStatus, format_args!("{status:03}"));
        log.put(Tag::RespReason, lacquer_http::reason_of(status).as_bytes());
        if status >= 400 {
            self.err_code = status;
        }
    }

    /// Tells which storage holds what is made for this request only.
    pub fn log_storage(&mut self, place: u32) {
        let Some(place) = self.task.reactor.shared.stevedores.get(place) else { return };
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
        a.count(&self.task.reactor.counters);
    }
}
