//! The common part of a client request and a fetch: the workspace, the log, the VCL and the times.

use std::mem;
use std::rc::Rc;

use lacquer_cache::invalidation::{Source, Ticket};
use lacquer_filters::Report;
use lacquer_http::{Message, Text, Workspace};
use lacquer_params::Params;
use lacquer_shm::vsl::Field;
use lacquer_shm::{Tag, TxLog, Vxid};
use lacquer_sources::clock;
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::instance::PrivateMap;
use lacquer_vcl_runtime::{Ctx, Host};

use crate::activity::Work;
use crate::logged::{Logged, Tags};
use crate::notes::{Notes, Observation, SharedNotes};
use crate::services::Services;
use crate::session::Sess;
use crate::spans::Span;
use crate::vcl_table::VclRef;

pub struct Task {
    services: Rc<Services>,
    params: Rc<Params>,
    sess: Rc<Sess>,
    vcl: Rc<VclRef>,
    ws: Workspace,
    log: TxLog,
    /// A buffer for assembling output.
    out: Vec<u8>,
    privates: PrivateMap,
    times: Times,
    run: Run,
}

/// The state outside the transaction that a task uses.
pub struct TaskContext {
    pub services: Rc<Services>,
    pub params: Rc<Params>,
    pub sess: Rc<Sess>,
    pub vcl: Rc<VclRef>,
}

/// The parts of a task that are used together.
pub struct TaskParts<'t> {
    pub services: &'t Rc<Services>,
    pub params: &'t Rc<Params>,
    pub sess: &'t Rc<Sess>,
    pub vcl: &'t Rc<VclRef>,
    pub ws: &'t mut Workspace,
    pub log: &'t mut TxLog,
}

/// The recycled memory of a task.
pub struct TaskBuffers {
    pub ws: Workspace,
    pub log: TxLog,
    pub out: Vec<u8>,
}

/// The times of the first and of the last timestamp in the log.
struct Times {
    first: f64,
    last: f64,
}

/// The VCL subroutine that runs, or ran last.
struct Run {
    method: Method,
    /// VCL's `now`: the time when the subroutine was entered.
    now: f64,
    observation: Observation,
    ending: Ending,
}

/// The outcome of a subroutine, in addition to its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Usual,
    /// The time of the subroutine will be logged.
    Timed,
    /// The subroutine has made bans that listeners have not recorded yet.
    Unrecorded,
    /// The subroutine has failed the transaction.
    Failed,
}

/// The tickets of bans that VCL made. They are stored with the private data of modules, because bans are rare.
#[derive(Default)]
struct Tickets(Vec<Ticket>);

impl Task {
    /// Creates a task whose first event was at `first`. Its first subroutine is `method`, and VCL's `now` is `now`.
    #[inline]
    pub fn new(
        context: TaskContext,
        buffers: TaskBuffers,
        first: f64,
        (method, now, observation): (Method, f64, Observation),
    ) -> Task {
        Task {
            params: context.params,
            services: context.services,
            sess: context.sess,
            vcl: context.vcl,
            ws: buffers.ws,
            log: buffers.log,
            out: buffers.out,
            privates: PrivateMap::default(),
            times: Times { first, last: first },
            run: Run { method, now, observation, ending: Ending::Usual },
        }
    }

    /// Takes the memory, which is recycled for another transaction.
    #[inline]
    pub fn take_buffers(&mut self) -> TaskBuffers {
        TaskBuffers {
            ws: mem::take(&mut self.ws),
            log: mem::take(&mut self.log),
            out: mem::take(&mut self.out),
        }
    }

    // The surroundings.

    #[inline]
    pub fn services(&self) -> &Rc<Services> {
        &self.services
    }

    #[inline]
    pub fn params(&self) -> &Rc<Params> {
        &self.params
    }

    #[inline]
    pub fn sess(&self) -> &Rc<Sess> {
        &self.sess
    }

    #[inline]
    pub fn vcl(&self) -> &Rc<VclRef> {
        &self.vcl
    }

    /// Continues with another program. Returns the previous one.
    pub fn switch_vcl(&mut self, next: Rc<VclRef>) -> Rc<VclRef> {
        mem::replace(&mut self.vcl, next)
    }

    // The memory.

    #[inline]
    pub fn ws(&self) -> &Workspace {
        &self.ws
    }

    #[inline]
    pub fn ws_mut(&mut self) -> &mut Workspace {
        &mut self.ws
    }

    #[inline]
    pub fn log(&self) -> &TxLog {
        &self.log
    }

    #[inline]
    pub fn log_mut(&mut self) -> &mut TxLog {
        &mut self.log
    }

    /// Returns the parts that cannot be borrowed one by one, because some of them change.
    #[inline]
    pub fn parts(&mut self) -> TaskParts<'_> {
        TaskParts {
            services: &self.services,
            params: &self.params,
            sess: &self.sess,
            vcl: &self.vcl,
            ws: &mut self.ws,
            log: &mut self.log,
        }
    }

    /// Returns a message of the task with the means to change and log it.
    #[inline]
    pub fn logged<'t>(&'t mut self, message: &'t mut Message, tags: Tags) -> Logged<'t> {
        Logged { message, ws: &mut self.ws, log: &mut self.log, tags }
    }

    /// Takes the buffer for output, which is empty. [`Task::return_output`] puts it back.
    #[inline]
    pub fn take_output(&mut self) -> Vec<u8> {
        let mut out = mem::take(&mut self.out);
        out.clear();
        out
    }

    #[inline]
    pub fn return_output(&mut self, out: Vec<u8>) {
        self.out = out;
    }

    /// Returns the private data of modules and of the engine.
    #[inline]
    pub fn privates(&mut self) -> &mut PrivateMap {
        &mut self.privates
    }

    pub fn privates_and_ws(&mut self) -> (&mut PrivateMap, &mut Workspace) {
        (&mut self.privates, &mut self.ws)
    }

    // The subroutine.

    /// Returns the subroutine that runs, or ran last.
    #[inline]
    pub fn method(&self) -> Method {
        self.run.method
    }

    /// Returns VCL's `now`.
    #[inline]
    pub fn now(&self) -> f64 {
        self.run.now
    }

    #[inline]
    pub fn set_now(&mut self, now: f64) {
        self.run.now = now;
    }

    // The observation.

    #[inline]
    pub fn observation(&self) -> Observation {
        self.run.observation
    }

    /// Returns whether trace points are logged.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.run.observation.has(Observation::TRACE)
    }

    #[inline]
    pub fn set_trace(&mut self, trace: bool) {
        self.run.observation.set(Observation::TRACE, trace);
    }

    /// Logs and notes a trace point. `text` is its log record.
    pub fn trace(&mut self, text: &str) {
        if self.is_traced() {
            self.log.put(Tag::VCL_trace, text.as_bytes());
        }
        let (vcl, method) = (self.vcl.clone(), self.run.method);
        self.note(|notes| notes.pass_point(&vcl, method, text));
    }

    /// Changes the notes, if there are any.
    #[inline]
    pub fn note(&mut self, change: impl FnOnce(&mut Notes)) {
        if self.run.observation.has(Observation::NOTES) {
            change(&mut self.privates.get::<SharedNotes>(0).0.borrow_mut());
        }
    }

    /// Takes notes for another transaction, which reads them.
    pub fn share_notes(&mut self) -> SharedNotes {
        self.privates.get::<SharedNotes>(0).clone()
    }

    pub fn take_notes(&mut self) -> Notes {
        mem::take(&mut *self.privates.get::<SharedNotes>(0).0.borrow_mut())
    }

    pub fn stop_observing(&mut self, observation: Observation) {
        self.run.observation.set(observation, false);
    }

    /// Returns the span of the transaction. It is empty if the transaction is not traced.
    pub fn span(&mut self) -> &mut Span {
        self.privates.get::<Span>(0)
    }

    /// Begins the span of the transaction, or ends the tracing if there is none.
    pub fn set_span(&mut self, span: Option<Span>) {
        let Some(span) = span else { return self.stop_observing(Observation::SPANS) };
        *self.span() = span;
        span.log(&mut self.log);
    }

    /// Drops the private data of modules. Notes and span remain.
    pub fn clear_privates(&mut self) {
        let has_notes = self.run.observation.has(Observation::NOTES);
        let notes = has_notes.then(|| self.share_notes());
        let span = self.run.observation.has(Observation::SPANS).then(|| *self.span());
        self.privates.clear();
        if let Some(span) = span {
            *self.span() = span;
        }
        if let Some(notes) = notes {
            *self.privates.get::<SharedNotes>(0) = notes;
        }
    }

    /// Fails the transaction at the end of the subroutine.
    pub fn mark_failed(&mut self) {
        self.run.ending = Ending::Failed;
    }

    // The log.

    #[inline]
    pub fn vxid(&self) -> Vxid {
        self.log.vxid()
    }

    /// Returns the source of the invalidations that VCL requests.
    pub fn source(&self) -> Source {
        let vxid = self.vxid().number();
        if self.vxid().is_client() { Source::Request { vxid } } else { Source::Fetch { vxid } }
    }

    /// Delays the end of the subroutine until listeners have recorded a ban.
    pub fn await_recording(&mut self, ticket: Ticket) {
        if !ticket.is_recorded() {
            self.privates.get::<Tickets>(0).0.push(ticket);
            self.run.ending = self.run.ending.max(Ending::Unrecorded);
        }
    }

    /// Logs the time of the subroutine, waits until its bans are recorded, and returns its action.
    #[cold]
    async fn finish_subroutine(&mut self, action: Action) -> Action {
        if self.run.observation.has(Observation::SPANS) {
            let (span, name) = (*self.span(), self.run.method.sub_name());
            span.end_subroutine(name, &mut self.log);
        }
        for ticket in mem::take(&mut self.privates.get::<Tickets>(0).0) {
            ticket.await;
        }
        if self.run.ending == Ending::Failed { Action::Fail } else { action }
    }

    /// Logs a timestamp, with the time since the first and since the last one.
    pub fn timestamp(&mut self, event: &str, now: f64) {
        self.log.put_timestamp(event, now, self.times.first, self.times.last);
        self.times.last = now;
    }

    /// Returns the time of the first timestamp.
    #[inline]
    pub fn first_event(&self) -> f64 {
        self.times.first
    }

    /// Returns the time of the last timestamp.
    #[inline]
    pub fn last_event(&self) -> f64 {
        self.times.last
    }

    /// Ends the log records of this transaction, and begins those of `next`, which continues it.
    pub fn continue_as(&mut self, kind: &str, why: &str, next: Vxid) {
        self.log.continue_as(kind, why, next);
        self.timestamp("Start", self.times.last);
    }

    /// Logs a text of the workspace.
    #[inline]
    pub fn put_text(&mut self, tag: Tag, text: Text) {
        self.log.put(tag, self.ws.get(text));
    }

    /// Logs bytes of the workspace.
    #[inline]
    pub fn put_from(&mut self, tag: Tag, bytes: impl FnOnce(&Workspace) -> &[u8]) {
        self.log.put(tag, bytes(&self.ws));
    }

    /// Logs the name of the program that will run.
    #[inline]
    pub fn log_vcl(&mut self) {
        self.log.put(Tag::VCL_use, self.vcl.name.as_bytes());
    }

    /// Logs a timestamp with the current time, and returns the time.
    pub fn stamp(&mut self, event: &str) -> f64 {
        let now = clock::real();
        self.timestamp(event, now);
        now
    }

    /// Logs the work of the filters on a received body.
    pub fn log_filtered_in(&mut self, report: &Report) {
        for record in &report.gzip {
            self.log.put(Tag::Gzip, record.as_bytes());
        }
        for work in &report.work {
            self.log.put_fmt(Tag::VfpAcct, format_args!("{} {} {}", work.name, work.calls, work.made));
        }
    }

    /// Logs the number of bytes and reads of a received body.
    pub fn log_received(&mut self, receiver: &str, reads: u64, bytes: u64) {
        if !receiver.is_empty() {
            let fields = [Field::Text(receiver.as_bytes()), Field::Number(reads), Field::Number(bytes)];
            self.log.put_fields(Tag::VfpAcct, &fields);
        }
    }

    /// Logs the work of the filters on a sent body, the last filter first.
    pub fn log_filtered_out(&mut self, report: &Report) {
        for work in report.work.iter().rev() {
            self.log.put_fmt(Tag::VdpAcct, format_args!("{} {} {}", work.name, work.calls, work.taken));
        }
        for record in &report.gzip {
            self.log.put(Tag::Gzip, record.as_bytes());
        }
    }

    /// Logs the number of bytes and pieces of a sent body.
    pub fn log_sent(&mut self, by: &str, pieces: u64, bytes: u64) {
        let fields = [Field::Text(by.as_bytes()), Field::Number(pieces), Field::Number(bytes)];
        self.log.put_fields(Tag::VdpAcct, &fields);
    }

    pub fn link(&mut self, kind: &str, to: Vxid, why: &str) {
        self.log.put_relation(Tag::Link, kind, to, why);
    }
}

/// Logs the storage of a new object or body.
pub fn log_storage(log: &mut TxLog, kind: &str, name: &str) {
    log.put_fields(Tag::Storage, &[Field::Text(kind.as_bytes()), Field::Text(name.as_bytes())]);
}

/// A transaction that runs VCL.
pub trait VclTask: Host + Sized {
    fn task(&mut self) -> &mut Task;

    /// Returns whether nobody waits for the transaction any more, so that VCL is not run.
    fn is_reset(&mut self) -> bool {
        false
    }
}

/// Runs one VCL subroutine, and logs the call and its result.
pub async fn run_vcl<S: VclTask>(transaction: &mut S, method: Method) -> Action {
    if transaction.is_reset() {
        return Action::Fail;
    }
    let task = transaction.task();
    task.run.method = method;
    task.run.ending = Ending::Usual;
    task.run.now = task.times.last;
    task.log.put(Tag::VCL_call, method.log_name().as_bytes());
    let (vcl, observation) = (task.vcl.clone(), task.run.observation);
    let before = task.services.activity().step(Work::Vcl(vcl.id, method));
    if observation.has(Observation::SPANS) {
        task.run.ending = Ending::Timed;
        task.span().begin_subroutine();
    }
    let mut ctx = Ctx::new(transaction, vcl.loaded.instance());
    ctx.trace = observation.trace_points();
    let action = if vcl.loaded.may_suspend(method) {
        Box::pin(vcl.loaded.run_suspendable(method, &mut ctx)).await
    } else {
        vcl.loaded.run(method, &mut ctx)
    };
    let task = transaction.task();
    task.services.activity().restore(before);
    let is_usual = task.run.ending == Ending::Usual;
    let action = if is_usual { action } else { Box::pin(task.finish_subroutine(action)).await };
    if action == Action::Fail {
        task.services.counters().vcl_fail.add(1);
    }
    task.log.put(Tag::VCL_return, action.name().as_bytes());
    action
}
