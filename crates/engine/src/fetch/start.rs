//! The request to the origin: created from the client's request, changed by `vcl_backend_fetch`, and sent.

use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{BodyState, Object, flag};
use lacquer_flow::Lifetime;
use lacquer_flow::rfc9111::control::CDN_CACHE_CONTROL;
use lacquer_flow::validation::{self, NotModified, Validated};
use lacquer_http::h1::Framing;
use lacquer_http::{
    BodyStatus, Filter, Message, SessClose, Slot, Text, Workspace, fixed, header_table as h, pack,
};
use lacquer_net::deadlines::Deadline;
use lacquer_params::Params;
use lacquer_shm::vsl::text;
use lacquer_shm::{Tag, TxLog, Vxid};
use lacquer_sources::clock;
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::{BackendId, NoBackend};

use super::connection::OriginConnection;
use super::events::FetchEvents;
use super::parts::{
    Attempt, Completion, Exchange, Product, Purpose, Request, Response, Retries, Step, Target, Waiter,
};
use super::upgraded::Wanted;
use super::upload::describe_no_body;
use super::{Fetch, Mode, completion, gone, response, stale, upgrade};
use crate::client::Req;
use crate::notes::Observation;
use crate::task::{Task, TaskBuffers, TaskContext};
use crate::transaction_buffers::TransactionBuffers;

/// Creates a fetch from the request that starts it. Texts are copied into the fetch's own workspace.
// Inlined, so that the fetch is constructed in place. It is too large to be moved.
#[inline]
pub fn from_request(
    req: &mut Req,
    mode: Mode,
    vxid: Vxid,
    params: Rc<Params>,
    mut memory: TransactionBuffers,
    (events, deadline): (Rc<FetchEvents>, Rc<Deadline>),
) -> Fetch {
    memory.log.begin(vxid);
    let (target, stale, is_pass) = match mode {
        Mode::Pass => (Target::Private, None, true),
        Mode::Fetch { busy, stale } => (Target::Cache(busy), stale, false),
    };
    copy_head(req, is_pass, &mut memory.request0, &mut memory.ws);
    let identity = copy_identity(req, &mut memory.ws);
    let (upgrade, wants_trailers) = wishes(req, is_pass);
    let (snapshot, transit_buffer) = (memory.ws.mark(), params.transit_buffer);
    let task = new_task(req, params, memory.ws, memory.log, memory.out);
    let (now, inputs) = (task.now(), req.take_fetch_inputs());
    Fetch {
        task,
        request: Request {
            http: memory.request,
            original: memory.request0,
            body: inputs.body,
            cached_body: inputs.cached_body,
            filters: Text::NONE,
            identity,
            key: inputs.key,
            may_reconnect: true,
            snapshot,
        },
        response: Response {
            http: memory.response,
            entered: now,
            backend: BackendId::NONE,
            filters: Text::NONE,
            do_gzip: false,
            do_gunzip: false,
            lifetime: Lifetime::none(now),
            is_uncacheable: is_pass,
            is_hit_for_pass: false,
            status: 0,
            reason: Text::NONE,
            body: memory.synth_body,
        },
        exchange: Exchange::new(inputs.backend, deadline, now),
        product: Product { target, stale, nuked: 0, transit_buffer, is_ttl_set: false, stale_if_error: 0.0 },
        purpose: Purpose {
            is_pass,
            is_background: false,
            is_hitpass: inputs.is_hitpass,
            is_hitmiss: inputs.is_hitmiss,
            wants_trailers,
            may_overlap: is_pass && req.transport().whole_connection().is_none(),
            is_early: req.is_early(),
            upgrade,
        },
        waiter: Waiter { events, is_notified: false, permit: inputs.permit },
        attempt: Attempt::new(),
        retries: Retries::default(),
        completion: Completion::new(!is_pass && inputs.takes_part),
    }
}

/// Returns the protocol that the client asks to change to, and whether the trailers of the response can be passed on to it.
fn wishes(req: &Req, is_pass: bool) -> (Option<Box<Wanted>>, bool) {
    if !is_pass {
        return (None, false);
    }
    let accepts_trailers = !req.is_included() && req.http().has_token(req.task.ws(), h::TE, b"trailers");
    (upgrade::wanted(req), accepts_trailers)
}

fn copy_identity(req: &Req, ws: &mut Workspace) -> Text {
    req.identity().and_then(|identity| ws.copy(identity).ok()).unwrap_or(Text::NONE)
}

fn new_task(req: &mut Req, params: Rc<Params>, ws: Workspace, log: TxLog, out: Vec<u8>) -> Task {
    let now = clock::real();
    let context = TaskContext {
        services: req.task.services().clone(),
        params,
        sess: req.task.sess().clone(),
        vcl: req.task.vcl().clone(),
    };
    let buffers = TaskBuffers { ws, log, out };
    let observation = req.task.observation().of_fetch();
    let mut task = Task::new(context, buffers, now, (Method::BackendFetch, now, observation));
    NoBackend::pass_on(req.task.privates(), task.privates());
    req.task.note(|notes| notes.fetch = Some(task.share_notes()));
    task
}

/// Copies the request's head for the origin. Its framing headers match the filtered body.
fn copy_head(req: &mut Req, is_pass: bool, bereq0: &mut Message, ws: &mut Workspace) {
    req.filter_body_for_fetch();
    let filter = if is_pass { Filter::PASS } else { Filter::FETCH };
    if bereq0.copy_from(ws, req.http(), req.task.ws(), filter).is_err() {
        ws.set_overflowed();
    }
    if let Some(filters) = req.body_filters() {
        filters.change_framing(bereq0, ws);
    }
}

/// Completes the request to the origin before VCL sees it. A request for the cache differs from the client's request.
pub fn make_bereq(f: &mut Fetch) {
    std::mem::swap(&mut f.request.http, &mut f.request.original);
    let (gzip, for_cache) = (f.task.params().http_gzip_support, !f.purpose.is_pass);
    let mut headers = f.bereq_headers();
    // The log shows the client's request first, then the changes for the cache.
    headers.log_all();
    if for_cache {
        headers.force_slot(Slot::Method, fixed::GET);
        if gzip {
            headers.force(h::ACCEPT_ENCODING, fixed::ACCEPT_ENCODING_GZIP);
        }
    }
    headers.force_slot(Slot::Proto, fixed::HTTP_11);
    if !completion::ask(f) {
        add_conditions(f);
    }
    if f.purpose.upgrade.is_some() {
        upgrade::ask(f);
    }
    f.request.snapshot = f.task.ws().mark();
    f.request.original.clone_from(&f.request.http);
    if f.request.body.is_none() {
        f.release_request();
    }
}

/// Adds the conditional headers by which the origin may confirm the stale object.
fn add_conditions(f: &mut Fetch) {
    let Some(stale) = f.product.stale.clone() else { return };
    if stale.state() == BodyState::Failed {
        // The failed object cannot be refreshed by a 304.
        f.product.stale = None;
        return f.task.services().cache().fail(&stale);
    }
    if stale.is(flag::DYING) {
        return; // It was purged or banned, so a 304 must not confirm it.
    }
    let Some(head) = pack::PackedHead::new(stale.head()) else { return };
    let conditions = validation::conditions(head, stale.is(flag::IMSCAND));
    if let Some(modified) = conditions.if_modified_since {
        f.bereq_headers().add(h::IF_MODIFIED_SINCE, modified);
    }
    if let Some(tag) = conditions.if_none_match {
        f.bereq_headers().add(h::IF_NONE_MATCH, tag);
    }
}

/// Runs `vcl_backend_fetch`, exchanges messages with the origin, and applies the protocol's rules to the response.
pub async fn start(f: &mut Fetch) -> Step {
    let stevedores = f.task.services().stevedores();
    f.attempt.storage =
        Some(if f.response.is_uncacheable { stevedores.transient() } else { f.storage_choice() });
    let vxid = f.task.vxid().number();
    let retried = f.retries.count > 0;
    let has_body = f.request.cached_body.is_some() || f.request.body.is_some();
    let mut digits = [0; 24];
    let mut headers = f.bereq_headers();
    if retried {
        headers.unset(crate::logged::names::X_VARNISH);
    }
    headers.add(crate::logged::names::X_VARNISH, text::digits(vxid, &mut digits));
    if !has_body {
        describe_no_body(&mut headers);
    }
    if f.task.observation().has(Observation::SPANS) {
        let span = *f.task.span();
        span.pass_on(&mut f.bereq_headers());
    }
    if f.product.stale.as_ref().is_some_and(|stale| stale.is(flag::DYING)) {
        gone::drop_conditions(f);
    }
    if f.completion.part.is_some() {
        Box::pin(completion::recheck(f)).await;
    }
    match f.vcl(Method::BackendFetch).await {
        Action::Fetch => {}
        Action::Error => {
            f.attempt.error_action = true;
            f.response.http.clear();
            return Step::Error;
        }
        // Boxed: this is rare, and the future is large.
        Action::Abandon => return Box::pin(stale::abandoned(f)).await,
        _ => return Step::Fail,
    }
    settle(f);
    f.response.http.clear();
    f.attempt.error_action = false;
    f.exchange.is_fault_of_client = false;
    f.exchange.requested = f.task.stamp("Fetch");
    let responded = f.get_head().await;
    let now = f.task.stamp("Beresp");
    f.response.entered = now;
    let Some(mut connection) = responded else { return Step::Error };
    connection.reply_mut().head_received(now);
    let took = connection.reply().microseconds();
    connection.origin().outcomes.responded(f.response.http.status(), took);
    if f.attempt.asks_upgrade && f.response.http.status() == 101 {
        return Box::pin(upgrade::accept(f, connection)).await;
    }
    if connection.reply().framing().status == BodyStatus::Error {
        f.close_origin(connection, Some(SessClose::RxBody));
        f.task.log_mut().put(Tag::Error, b"Body cannot be fetched");
        return Step::Error;
    }
    if f.completion.is_asked {
        connection = match Box::pin(completion::interpret(f, connection)).await {
            Ok(connection) => connection,
            Err(step) => return step,
        };
    }
    normalize_response(f, now, connection.reply().framing());
    if f.response.http.status() == 304 {
        return accept_304(f, connection).await;
    }
    response::lend(f, connection);
    response::respond(f, None).await
}

/// Applies what VCL has decided about an upgrade and a range.
fn settle(f: &mut Fetch) {
    if f.purpose.upgrade.is_some() {
        upgrade::settle(f);
    }
    completion::settle(f);
}

/// Adds a missing `Date`, joins the lines of list headers, and sets the lifetimes from the headers.
fn normalize_response(f: &mut Fetch, now: f64, framing: Framing) {
    if !f.response.http.has(f.task.ws(), h::DATE) {
        let date = f.task.services().http_date(now);
        f.beresp_headers().add(h::DATE, &date);
    }
    for name in [h::CACHE_CONTROL, h::VARY] {
        let _ = f.response.http.collect(f.task.ws_mut(), name, b", ");
    }
    if f.follows_rfc9111() {
        let _ = f.response.http.collect(f.task.ws_mut(), CDN_CACHE_CONTROL, b", ");
        completion::mark(f, framing);
    }
    let fresh = f.set_lifetimes(now);
    if !f.purpose.is_pass {
        f.log_lifetimes(now, &fresh);
    }
}

/// Returns whether the 304 confirms a response that the request did not name.
fn confirms_another(f: &Fetch) -> bool {
    let ws = f.task.ws();
    let asked = f.request.http.get(ws, h::IF_NONE_MATCH);
    validation::confirms_another(f.response.http.get(ws, h::ETAG), asked)
}

/// Handles a 304: it confirms the stale object, is passed on, or is refused.
async fn accept_304(f: &mut Fetch, connection: OriginConnection) -> Step {
    let stale = f.product.stale.clone();
    let is_of_another = f.follows_rfc9111() && confirms_another(f);
    let is_gone = match &stale {
        Some(stale) => is_of_another || stale.is(flag::IMSCAND) && gone::is_gone(f, stale).await,
        None => false,
    };
    let why = if is_of_another { gone::OF_ANOTHER } else { gone::GONE };
    let facts = |s: &Arc<Object>| Validated {
        is_possible: s.is(flag::IMSCAND),
        is_response: !s.is(flag::HFM | flag::HFP | flag::PRIVATE),
        is_recoded: s.is(flag::CHGCE),
        is_gone,
    };
    match validation::not_modified(stale, facts, f.response.is_uncacheable) {
        NotModified::Update { stale, weaken_etag } => {
            f.attempt.was_304 = true;
            f.task.note(|notes| notes.is_confirmed = true);
            response::lend(f, connection);
            response::respond(f, Some((stale, weaken_etag))).await
        }
        NotModified::Forward => {
            response::lend(f, connection);
            response::respond(f, None).await
        }
        NotModified::Repeat => gone::ask_again_before_vcl(f, connection, why),
        NotModified::Refuse => {
            f.task.log_mut().put(Tag::Error, b"304 response but not conditional fetch");
            f.close_origin(connection, Some(SessClose::RxBad));
            Step::Error
        }
    }
}
