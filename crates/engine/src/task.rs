//! The common part of a client request and a fetch: the workspace, the log, the VCL and the times.

use std::rc::Rc;

use lacquer_cache::invalidation::{Source, Ticket};
use lacquer_filters::Report;
use lacquer_http::{
    HeaderName, Message, Overflow, Slot, Text, Workspace, conditional, fixed, fixed_text_table,
    header_table as h,
};
use lacquer_params::Params;
use lacquer_shm::vsl::Field;
use lacquer_shm::{Tag, TxLog, Vxid};
use lacquer_sources::clock;
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::instance::PrivateMap;
use lacquer_vcl_runtime::{Ctx, Host};

use crate::activity::Work;
use crate::services::Services;
use crate::session::Sess;
use crate::vcl_table::VclRef;

pub struct Task {
    pub services: Rc<Services>,
    pub params: Rc<Params>,
    pub sess: Rc<Sess>,
    pub vcl: Rc<VclRef>,
    pub ws: Workspace,
    pub log: TxLog,
    /// A buffer for assembling output.
    pub out: Vec<u8>,
    pub privates: PrivateMap,
    pub times: Times,
    pub run: Run,
}

/// The times of the first and of the last timestamp in the log.
pub struct Times {
    pub first: f64,
    pub last: f64,
}

/// The VCL subroutine that runs, or ran last.
pub struct Run {
    pub method: Method,
    /// VCL's `now`: the time when the subroutine was entered.
    pub now: f64,
    /// VCL has enabled tracing.
    pub trace: bool,
    pub ending: Ending,
}

/// The outcome of a subroutine, in addition to its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    Usual,
    /// The subroutine has made bans that listeners have not recorded yet.
    Unrecorded,
    /// The subroutine has failed the transaction.
    Failed,
}

/// The tickets of bans that VCL made. They are stored with the private data of modules, because bans are rare.
#[derive(Default)]
struct Tickets(Vec<Ticket>);

impl Task {
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

    /// Waits until the subroutine's bans are recorded, and returns its action.
    #[cold]
    async fn finish_subroutine(&mut self, action: Action) -> Action {
        for ticket in std::mem::take(&mut self.privates.get::<Tickets>(0).0) {
            ticket.await;
        }
        if self.run.ending == Ending::Failed { Action::Fail } else { action }
    }

    /// Logs a timestamp, with the time since the first and since the last one.
    pub fn timestamp(&mut self, event: &str, now: f64) {
        self.log.put_timestamp(event, now, self.times.first, self.times.last);
        self.times.last = now;
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
    let (vcl, trace) = (task.vcl.clone(), task.run.trace);
    let before = task.services.activity().step(Work::Vcl(vcl.id, method));
    let mut ctx = Ctx::new(transaction, vcl.loaded.instance());
    ctx.trace = u32::from(trace);
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

/// The log tags for one kind of message.
#[derive(Clone, Copy)]
pub struct Tags {
    pub method: Tag,
    pub url: Tag,
    pub protocol: Tag,
    pub status: Tag,
    pub reason: Tag,
    pub header: Tag,
    pub unset: Tag,
}

impl Tags {
    fn of(self, slot: Slot) -> Tag {
        match slot {
            Slot::Method => self.method,
            Slot::Url => self.url,
            Slot::Proto => self.protocol,
            Slot::Status => self.status,
            Slot::Reason => self.reason,
        }
    }
}

macro_rules! tags {
    ($name:ident $m:ident $u:ident $p:ident $s:ident $r:ident $h:ident $un:ident) => {
        pub const $name: Tags = Tags {
            method: Tag::$m,
            url: Tag::$u,
            protocol: Tag::$p,
            status: Tag::$s,
            reason: Tag::$r,
            header: Tag::$h,
            unset: Tag::$un,
        };
    };
}

tags!(REQ ReqMethod ReqURL ReqProtocol ReqStatus ReqReason ReqHeader ReqUnset);
tags!(RESP RespMethod RespURL RespProtocol RespStatus RespReason RespHeader RespUnset);
tags!(BEREQ BereqMethod BereqURL BereqProtocol BereqStatus BereqReason BereqHeader BereqUnset);
tags!(BERESP BerespMethod BerespURL BerespProtocol BerespStatus BerespReason BerespHeader BerespUnset);

/// A message with the workspace and the log that changes to it need.
pub struct Logged<'t> {
    pub message: &'t mut Message,
    pub ws: &'t mut Workspace,
    pub log: &'t mut TxLog,
    pub tags: Tags,
}

/// Marks the workspace as overflowed, and logs the overflow.
pub fn out_of_workspace(ws: &mut Workspace, log: &mut TxLog) {
    let kind = if log.vxid().is_client() { "req" } else { "bo" };
    log.put_fmt(Tag::Error, format_args!("out of workspace ({kind})"));
    ws.set_overflowed();
}

impl Logged<'_> {
    /// Logs the whole message.
    pub fn log_all(&mut self) {
        self.log_first_line();
        let (m, ws, t) = (&*self.message, &*self.ws, self.tags);
        for field in m.fields() {
            self.log.put(t.header, field.line(ws));
        }
    }

    pub fn log_first_line(&mut self) {
        let (m, ws, t) = (&*self.message, &*self.ws, self.tags);
        if m.text(Slot::Method).is_some() {
            self.log.put(t.method, m.method(ws));
            self.log.put(t.url, m.url(ws));
            self.log.put(t.protocol, m.proto(ws));
        } else {
            self.log.put(t.protocol, m.proto(ws));
            self.log.put(t.status, m.status_text(ws));
            self.log.put(t.reason, m.reason(ws));
        }
    }

    pub fn unset(&mut self, name: HeaderName<'_>) {
        let (log, tag) = (&mut *self.log, self.tags.unset);
        self.message.unset(self.ws, name, |line| log.put(tag, line));
    }

    /// Adds a header line. Returns false if there is no room.
    pub fn add(&mut self, name: HeaderName<'_>, value: &[u8]) -> bool {
        match self.message.append(self.ws, name, value) {
            Ok(line) => {
                self.log.put(self.tags.header, self.ws.get(line));
                true
            }
            Err(_) => {
                self.lost(&[name.as_bytes(), b":"]);
                false
            }
        }
    }

    /// Adds a header line with a fixed text.
    pub fn add_line(&mut self, name: HeaderName<'_>, line: Text) {
        match self.message.append_named_line(self.ws, name, line) {
            Ok(line) => self.log.put(self.tags.header, self.ws.get(line)),
            Err(_) => self.lost(&[name.as_bytes(), b":"]),
        }
    }

    /// Makes this fixed line the only one of its name. Changes nothing if it already is.
    pub fn force(&mut self, name: HeaderName<'_>, line: Text) {
        let value = self.ws.get(line.tail(name.as_bytes().len() + 2));
        if self.message.value_is(self.ws, name, value) && self.message.count(self.ws, name) == 1 {
            return;
        }
        self.unset(name);
        self.add_line(name, line);
    }

    /// Sets a field of the start line to a fixed text. Logs it if the field changes.
    pub fn force_slot(&mut self, slot: Slot, text: Text) {
        let changes = self.ws.get(self.message.text(slot)) != self.ws.get(text);
        self.message.put(self.ws, slot, text);
        if changes {
            self.log.put(self.tags.of(slot), self.ws.get(text));
        }
    }

    /// Changes the headers for a body whose encoding changes.
    pub fn change_encoding(&mut self) {
        self.unset(h::CONTENT_ENCODING);
        self.unset(h::CONTENT_LENGTH);
        self.weaken_etag();
    }

    /// Weakens the ETag, because the body is changed.
    pub fn weaken_etag(&mut self) {
        let (log, tag) = (&mut *self.log, self.tags.unset);
        let line = conditional::weaken_etag(self.message, self.ws, |line| log.put(tag, line));
        self.log_changed(line);
    }

    /// Adds `Accept-Encoding` to `Vary`, because other clients receive the body in another encoding.
    pub fn vary_on_encoding(&mut self) {
        let (log, tag) = (&mut *self.log, self.tags.unset);
        let line = conditional::vary_on_encoding(self.message, self.ws, |line| log.put(tag, line));
        self.log_changed(line);
    }

    /// Logs the new line, if one was needed and there was room for it.
    fn log_changed(&mut self, line: Result<Option<Text>, Overflow>) {
        if let Ok(Some(line)) = line {
            self.log.put(self.tags.header, self.ws.get(line));
        }
    }

    /// Logs a text that did not fit into the message, and marks the workspace as overflowed.
    pub fn lost(&mut self, what: &[&[u8]]) {
        out_of_workspace(self.ws, self.log);
        self.log.put(Tag::LostHeader, &what.concat());
    }

    pub fn put(&mut self, slot: Slot, bytes: &[u8]) -> bool {
        if self.message.put_copy(self.ws, slot, bytes).is_err() {
            self.lost(&[bytes]);
            return false;
        }
        self.log.put(self.tags.of(slot), bytes);
        true
    }

    /// Turns the message into a response with this status. Without a reason, it gets the standard one.
    pub fn respond(&mut self, status: u16, reason: Option<&[u8]>) {
        let made = match reason {
            None => self.message.set_response(self.ws, status),
            Some(reason) => self
                .message
                .set_response(self.ws, status)
                .and_then(|()| self.message.put_copy(self.ws, Slot::Reason, reason).map(|_| ())),
        };
        self.responds(made.is_ok());
    }

    /// Like [`Logged::respond`], with a reason that is in the workspace or fixed. `NONE` stands for the standard
    /// reason.
    pub fn respond_with(&mut self, status: u16, reason: Text) {
        let reason = if reason.is_none() { fixed_text_table::reason_text(status) } else { reason };
        self.message.put(self.ws, Slot::Proto, fixed::HTTP_11);
        let made = self.message.set_status_reason(self.ws, status, reason);
        self.responds(made.is_ok());
    }

    fn responds(&mut self, complete: bool) {
        if !complete {
            self.ws.set_overflowed();
        }
        self.log_first_line();
    }
}

/// Header names that the crate `lacquer-http` does not define.
pub mod names {
    use lacquer_http::HeaderName;

    /// The tags of an object, for purges.
    pub const XKEY: HeaderName<'static> = HeaderName::new(b"xkey");
    pub const X_HASH_TWO: HeaderName<'static> = HeaderName::new(b"X-HashTwo");
    pub const X_VARNISH: HeaderName<'static> = HeaderName::new(b"X-Varnish");
}
