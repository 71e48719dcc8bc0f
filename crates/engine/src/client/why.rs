//! The header `X-Lacquer-Why`: explains a response to clients that the parameter `why_header` lists.

use lacquer_cache::{BodyState, Object, flag};
use lacquer_deliver::Source;
use lacquer_flow::why::{self, Forbidden, Line, PassReason, X_LACQUER_WHY};
use lacquer_http::trace_context::TraceContext;
use lacquer_http::{HeaderName, header_table as h, pack};
use lacquer_params::clients;
use lacquer_shm::Tag;
use lacquer_vcl::types::Method;

use super::{Req, Step};
use crate::notes::{Absence, Notes, Observation, Place, Steps};
use crate::spans::Span;

/// Caches behind this one must not store the explanation (RFC 9111 section 5.2.2.7).
const NOT_FOR_CACHES: &[u8] = b"private=\"X-Lacquer-Why\"";

/// Notes a step before it is taken. The last one is `Transmit`, to whose head the explanation is added.
pub fn observe(req: &mut Req, step: &Step) {
    if matches!(step, Step::Recv) && !is_admitted(req) {
        return req.task.stop_observing(Observation::NOTES);
    }
    match step {
        Step::Transmit(source) => return add_header(req, source),
        Step::Restart => return req.task.note(forget),
        _ => {}
    }
    let always_misses = req.request.rules.always_miss;
    req.task.note(|notes| {
        let last = notes.last;
        match step {
            Step::Purge => notes.steps.add(Steps::PURGED),
            Step::VclFail => notes.steps.add(Steps::FAILED),
            Step::Miss { stale: Some(_), .. } if !always_misses => notes.steps.add(Steps::STALE),
            Step::Pass => {
                notes.steps.add(Steps::PASSED);
                notes.decided = last.and_then(|method| notes.returned(method, "pass"));
            }
            // A fetch that gave no object leads to a synthetic response too.
            Step::Synth if notes.fetch.is_none() || last == Some(Method::Deliver) => {
                notes.steps.add(Steps::SYNTH);
                notes.decided = last.and_then(|method| notes.returned(method, "synth"));
            }
            _ => {}
        }
        notes.last = method_of(step).or(last);
    });
}

/// Returns the subroutine that a step runs last before it decides.
fn method_of(step: &Step) -> Option<Method> {
    Some(match step {
        Step::Recv => Method::Recv,
        Step::Lookup => Method::Hit,
        Step::Miss { .. } => Method::Miss,
        Step::Pass => Method::Pass,
        Step::Purge => Method::Purge,
        Step::Deliver(_) => Method::Deliver,
        _ => return None,
    })
}

/// Forgets the facts before a restart.
fn forget(notes: &mut Notes) {
    *notes = Notes::default();
    notes.steps.add(Steps::ADMITTED);
}

/// Returns whether the client may see the explanation. Removes the header that asks for it, so that neither VCL nor the
/// origin nor the log receives the secret.
fn is_admitted(req: &mut Req) -> bool {
    let mut is_known = false;
    req.task.note(|notes| is_known = notes.steps.has(Steps::ADMITTED));
    if is_known {
        return true;
    }
    if req.inclusion.level > 0 {
        return false;
    }
    let address = req.task.sess().client_ip().parse().ok();
    let secret = req.request.http.get(req.task.ws(), X_LACQUER_WHY);
    let is_admitted = clients::contains(&req.task.params().why_header, address, secret);
    let ws = req.task.ws();
    req.request.http.unset(ws, X_LACQUER_WHY, |_| {});
    req.request.original.unset(ws, X_LACQUER_WHY, |_| {});
    if is_admitted {
        req.task.note(forget);
    }
    is_admitted
}

/// Adds the header to the response.
fn add_header(req: &mut Req, source: &Source) {
    let notes = req.task.take_notes();
    let line = explain(req, &notes, source);
    req.task.stop_observing(Observation::NOTES);
    let mut headers = req.resp_headers();
    headers.unset(X_LACQUER_WHY);
    headers.add(X_LACQUER_WHY, line.as_bytes());
    headers.append_value(h::CACHE_CONTROL, NOT_FOR_CACHES);
}

fn explain(req: &Req, notes: &Notes, source: &Source) -> Line {
    let fetch = notes.fetch.as_ref().map(|fetch| fetch.0.borrow());
    let fetch = fetch.as_deref();
    let steps = notes.steps;
    if steps.has(Steps::FAILED) {
        return Line::new("vcl-failed");
    }
    if steps.has(Steps::PURGED) {
        return Line::new("purged");
    }
    if steps.has(Steps::SYNTH) {
        return decided("synth", notes);
    }
    let has_failed = fetch.is_some_and(|fetch| fetch.has_run(Method::BackendError));
    let object = match source {
        Source::Object(object) if !has_failed || req.found.is_hit && !steps.has(Steps::PASSED) => object,
        _ => return failed(fetch),
    };
    if req.found.is_hitpass {
        return Line::new("hit-for-pass");
    }
    if steps.has(Steps::PASSED) {
        return passed(req, notes);
    }
    if req.found.is_hit {
        return hit(req, notes, object);
    }
    let mut line = match fetch {
        _ if req.found.is_hitmiss => Line::new("hit-for-miss"),
        Some(fetch) if fetch.is_confirmed => Line::new("revalidated"),
        _ => Line::new(missing(req, notes)),
    };
    add_storing(&mut line, req, fetch, object);
    line
}

fn decided(outcome: &str, notes: &Notes) -> Line {
    let mut line = Line::new(outcome);
    add_place(&mut line, notes.decided.as_ref());
    line
}

fn add_place(line: &mut Line, place: Option<&Place>) {
    if let Some(place) = place {
        line.text("vcl", &place.text);
    }
}

fn failed(fetch: Option<&Notes>) -> Line {
    let mut line = Line::new("origin-failed");
    match fetch.and_then(|fetch| fetch.failure.as_ref()) {
        Some(failure) => line.text("because", failure),
        None => add_place(
            &mut line,
            fetch.and_then(|fetch| fetch.returned(Method::BackendResponse, "error")).as_ref(),
        ),
    }
    line
}

fn passed(req: &Req, notes: &Notes) -> Line {
    let (http, ws) = (&req.request.http, req.task.ws());
    let reason = match &notes.decided {
        Some(place) => PassReason::of_sub(&place.sub),
        None => PassReason::of_request(
            &String::from_utf8_lossy(http.method(ws)),
            http.has(ws, h::AUTHORIZATION),
            http.has(ws, h::COOKIE),
        ),
    };
    decided(reason.name(), notes)
}

fn hit(req: &Req, notes: &Notes, object: &Object) -> Line {
    let limits = req.request.rules.limits();
    let ttl = object.fresh_until(limits) - req.request.received;
    let outcome = match object.state() {
        _ if notes.steps.has(Steps::WAITED) => "coalesced-hit",
        _ if ttl < 0.0 => "graced-hit",
        BodyState::Fetching => "hit-in-progress",
        _ => "hit",
    };
    let mut line = Line::new(outcome);
    line.seconds("ttl", ttl);
    let timers = object.timers();
    line.seconds("grace", f64::from(timers.grace));
    line.seconds("keep", f64::from(timers.keep));
    line.text("by", &set_by(req, None, object));
    line
}

fn missing(req: &Req, notes: &Notes) -> &'static str {
    match notes.absence {
        _ if req.request.rules.always_miss => "miss-forced",
        Absence::Banned => "miss-banned",
        _ if notes.steps.has(Steps::STALE) => "miss-expired",
        Absence::OtherVariant => "miss-variant",
        Absence::Nothing => "miss",
    }
}

/// Adds whether the response of a fetch was stored, for how long, and why.
fn add_storing(line: &mut Line, req: &Req, fetch: Option<&Notes>, object: &Object) {
    let lifetime = object.lifetime();
    if object.is(flag::HFM | flag::HFP | flag::PRIVATE) || lifetime.ttl <= 0.0 {
        line.flag("not-stored");
        return line.text("because", &obstacle(fetch, object));
    }
    line.flag("stored");
    line.seconds("ttl", lifetime.ttl);
    line.seconds("grace", lifetime.grace);
    line.seconds("keep", lifetime.keep);
    line.text("by", &set_by(req, fetch, object));
}

/// Returns the value of a header of an object.
fn value_of(object: &Object, name: &str) -> Option<String> {
    let head = pack::PackedHead::new(object.head())?;
    head.header(HeaderName::new(name.as_bytes())).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Returns what has set the lifetime of an object. Without notes of its fetch, VCL is assumed if no header accounts for it.
fn set_by(req: &Req, fetch: Option<&Notes>, object: &Object) -> String {
    if let Some(words) = fetch.and_then(|fetch| fetch.ttl.words()) {
        return words;
    }
    let ttl = object.lifetime().ttl;
    let by_default = (ttl - req.task.params().default_ttl).abs() < 1.0;
    match why::lifetime_header(&|name| value_of(object, name)) {
        Some((name, value)) if fetch.is_some() || accounts_for(name, &value, ttl) => {
            format!("{name}: {value}")
        }
        None if fetch.is_some() || by_default => "default_ttl".to_owned(),
        _ => "VCL".to_owned(),
    }
}

/// Returns whether a header contains the lifetime. One with a date may.
fn accounts_for(name: &str, value: &str, ttl: f64) -> bool {
    let mut numbers =
        value.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<f64>().ok());
    name == "Expires" || numbers.any(|seconds| (seconds - ttl).abs() < 1.0)
}

/// Returns what forbids to cache the response of a fetch.
fn obstacle(fetch: Option<&Notes>, object: &Object) -> String {
    let at = |place: &Place| format!("VCL {}", place.text);
    if let Some(place) = fetch.and_then(|fetch| fetch.uncacheable.place()).filter(|place| !place.is_builtin) {
        return at(place);
    }
    if let Some(place) = fetch.and_then(|fetch| fetch.returned(Method::BackendResponse, "pass")) {
        return at(&place);
    }
    let value = |name: &str| value_of(object, name);
    match why::forbidden_by(&value) {
        Some(Forbidden::SetCookie) => return "Set-Cookie".to_owned(),
        Some(Forbidden::Directive(name)) => {
            return format!("{name}: {}", value(name).unwrap_or_default());
        }
        Some(Forbidden::VaryAll) => return "Vary: *".to_owned(),
        None => {}
    }
    let status = pack::PackedHead::new(object.head()).map_or(0, |head| head.status());
    if !why::is_cacheable(status) {
        return format!("status {status}");
    }
    if let Some(words) = fetch.and_then(|fetch| fetch.ttl.words()) {
        return words;
    }
    match why::lifetime_header(&value) {
        Some((name, value)) => format!("{name}: {value}"),
        None => "no lifetime".to_owned(),
    }
}

impl Req {
    /// Logs and notes a step before it is taken.
    #[cold]
    pub(super) fn observe(&mut self, step: &Step) {
        if self.task.observation().has(Observation::STEPS) {
            self.diagnose(step);
        }
        if self.task.observation().has(Observation::SPANS) && matches!(step, Step::Recv) {
            let context = TraceContext::of(&self.request.http, self.task.ws());
            let above = *self.task.span();
            let span = Span::of_request(above, context, self.inclusion.level > 0, self.task.params());
            self.task.set_span(span);
        }
        if self.task.observation().has(Observation::NOTES) {
            observe(self, step);
        }
    }

    fn diagnose(&mut self, step: &Step) {
        let (vxid, name) = (self.task.vxid(), step.name());
        self.task.log_mut().put_fmt(Tag::Debug, format_args!("vxid {vxid} STP_Req Step {name}"));
        self.task.log_mut().flush();
    }
}
