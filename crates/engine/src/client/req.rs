//! A client's request: its state, and the operations that several steps use.

use std::mem;

use lacquer_http::{SessClose, Text};
use lacquer_params::Params;
use lacquer_params::bits::FeatureBits;
use lacquer_shm::Tag;
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::BackendId;

use super::parts::{Client, Expects, Found, Inclusion, LookupRules, Programs, Request, Response};
use super::pipe_request::PipeRequest;
use crate::account::Account;
use crate::cache_key::CacheKey;
use crate::client_transport::ClientTransport;
use crate::logged::{BEREQ, Logged, REQ, RESP};
use crate::req_body::ReqBody;
use crate::services::Services;
use crate::task::{Task, TaskBuffers, TaskContext, TaskParts, VclTask, run_vcl};
use crate::transaction_buffers::TransactionBuffers;
use crate::transaction_slot::{Transaction, TransactionSlot};

pub struct Req {
    pub(crate) task: Task,
    pub(super) request: Request,
    pub(crate) response: Response,
    pub(super) client: Client,
    pub(super) key: CacheKey,
    pub(super) found: Found,
    pub(super) inclusion: Inclusion,
    pub(super) programs: Programs,
    /// The request to the origin, lent to VCL while `vcl_pipe` runs.
    pub(super) pipe: Option<Box<PipeRequest>>,
}

/// The values that a request gets from its session.
pub struct Start {
    pub context: TaskContext,
    pub tx: ClientTransport,
    pub t_first: f64,
    pub t_req: f64,
}

impl Transaction for Req {
    fn workspace(params: &Params) -> u64 {
        params.workspace_client
    }

    fn take_buffers(&mut self) -> TransactionBuffers {
        let TaskBuffers { ws, log, out } = self.task.take_buffers();
        TransactionBuffers {
            ws,
            log,
            request: mem::take(&mut self.request.http),
            request0: mem::take(&mut self.request.original),
            response: mem::take(&mut self.response.http),
            out,
            synth_body: mem::take(&mut self.response.body),
        }
    }
}

impl TransactionSlot<Req> {
    /// Returns a slot for the next request: a recycled slot with its memory, or an empty one.
    pub fn take(services: &Services) -> TransactionSlot<Req> {
        services.take_request().and_then(TransactionSlot::from_any).unwrap_or_default()
    }

    /// Returns the slot of a finished request to the reactor's pool.
    pub fn recycle(mut self, services: &Services) {
        self.vacate();
        services.give_request(self.into_any());
    }
}

impl VclTask for Req {
    fn task(&mut self) -> &mut Task {
        &mut self.task
    }

    fn is_reset(&mut self) -> bool {
        self.client.is_reset || self.client.tx.is_reset() && self.interrupt()
    }
}

impl Req {
    // Inlined, so that the request is constructed in place. It is too large to be moved.
    #[inline]
    pub fn new(start: Start, memory: TransactionBuffers) -> Req {
        let observation = start.context.services.observation();
        Req {
            request: Request {
                snapshot: memory.ws.mark(),
                http: memory.request,
                original: memory.request0,
                body: ReqBody::none(),
                received: start.t_req,
                restarts: 0,
                expects: Expects::default(),
                identity: Text::NONE,
                filters: Text::NONE,
                rules: LookupRules::default(),
                backend_hint: BackendId::NONE,
                storage: 0,
            },
            response: Response {
                http: memory.response,
                entered: start.t_req,
                filters: Text::NONE,
                can_esi: true,
                is_streaming: false,
                status: 0,
                reason: Text::NONE,
                body: memory.synth_body,
                trailers: None,
            },
            client: Client {
                tx: start.tx,
                account: Account::default(),
                close: None,
                is_piped: false,
                is_extended: false,
                is_early: false,
                is_reset: false,
                permit: None,
                active_request: None,
            },
            task: Task::new(
                start.context,
                TaskBuffers { ws: memory.ws, log: memory.log, out: memory.out },
                start.t_first,
                (Method::Recv, start.t_req, observation),
            ),
            key: CacheKey::default(),
            found: Found::default(),
            inclusion: Inclusion::default(),
            programs: Programs::default(),
            pipe: None,
        }
    }

    pub fn req_headers(&mut self) -> Logged<'_> {
        self.task.logged(&mut self.request.http, REQ)
    }

    pub fn resp_headers(&mut self) -> Logged<'_> {
        self.task.logged(&mut self.response.http, RESP)
    }

    /// Returns `bereq` of `vcl_pipe`. Its texts are in the request's workspace, and its log records in a log of its
    /// own.
    pub fn pipe_headers(&mut self) -> Option<Logged<'_>> {
        let pipe = self.pipe.as_mut()?;
        Some(Logged { message: &mut pipe.bereq, ws: self.task.ws_mut(), log: &mut pipe.log, tags: BEREQ })
    }

    pub fn vcl(&mut self, method: Method) -> impl Future<Output = Action> {
        run_vcl(self, method)
    }

    /// Undoes VCL's changes to the request.
    pub fn rollback(&mut self) {
        self.request.http.clone_from(&self.request.original);
        self.task.clear_privates();
        if self.inclusion.level == 0 {
            self.inclusion.top_privates.clear();
        }
        self.request.filters = Text::NONE;
        self.response.filters = Text::NONE;
        if self.task.ws().overflowed() {
            self.task.services().counters().ws_client_overflow.add(1);
        }
        self.task.ws_mut().clear_overflowed();
        self.task.ws_mut().roll_back(self.request.snapshot);
    }

    /// Interrupts VCL because the client has reset the stream. Returns false if the feature `vcl_req_reset` is off.
    #[cold]
    fn interrupt(&mut self) -> bool {
        if !self.task.params().feature.has(FeatureBits::VCL_REQ_RESET) {
            return false;
        }
        self.task.stamp("Reset");
        self.task.services().counters().req_reset.add(1);
        self.client.is_reset = true;
        true
    }

    /// Logs a response that does not come from VCL.
    pub(super) fn log_minimal(&mut self, status: u16) {
        let log = self.task.log_mut();
        log.put(Tag::RespProtocol, self.client.tx.protocol().version.as_bytes());
        log.put_fmt(Tag::RespStatus, format_args!("{status:03}"));
        log.put(Tag::RespReason, lacquer_http::reason_of(status).as_bytes());
        if status >= 400 {
            self.response.status = status;
        }
    }

    /// Logs the storage that is used for this request only.
    pub fn log_storage(&mut self, place: u32) {
        let TaskParts { services, log, .. } = self.task.parts();
        let Some(place) = services.stevedores().get(place) else { return };
        crate::task::log_storage(log, place.kind().name(), place.name());
    }

    pub fn log_error(&mut self, text: &str) {
        self.task.log_mut().put(Tag::Error, text.as_bytes());
    }

    /// Logs the byte counts of the finished request, and adds them to the counters.
    pub fn charge(&mut self) {
        let a = mem::take(&mut self.client.account);
        if !self.client.is_piped && !self.task.vxid().is_none() {
            self.task.log_mut().put_numbers(Tag::ReqAcct, a.numbers());
        }
        if self.inclusion.level > 0 {
            return;
        }
        a.count(self.task.services().counters());
    }

    /// Records the reason why the connection must close.
    pub fn fail_session(&mut self, reason: SessClose) {
        self.client.close = Some(reason);
    }
}
