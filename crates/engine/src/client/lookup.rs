//! The lookup in the cache, with `vcl_hit` and `vcl_purge`.

use std::cell::{Cell, RefCell};
use std::pin::pin;

use lacquer_cache::{BodyState, Busy, Lookup, LookupArgs, ObjRef, Object, Resumed, Wait};
use lacquer_flow::lookup::Limits;
use lacquer_flow::rfc9111::status::Forward;
use lacquer_http::vary;
use lacquer_net::disconnect::HalfClosed;
use lacquer_params::bits::{DebugBits, FeatureBits};
use lacquer_shm::Tag;
use lacquer_shm::vsl::Field;
use lacquer_vcl::types::{Action, Method};

use super::admit::admit;
use super::disk::{self, Searched};
use super::parts::LookupRules;
use super::rfc9111::{self, Use};
use super::{Req, Step, invalidate, presence, stored_part, tunnel};
use crate::fetch::{self, Mode, Outcome};
use crate::notes::Steps;
use crate::slices::{LongWorkLease, Slice};
use crate::task::TaskParts;

impl LookupRules {
    pub(super) fn limits(&self) -> Limits {
        Limits { ttl: self.ttl, grace: self.grace }
    }
}

pub async fn lookup(req: &mut Req) -> Step {
    let mut resumed = None;
    let (mut waited, mut has_searched, mut has_read) = (false, false, false);
    let mut predicted = Vec::new();
    let mut lease = LongWorkLease::default();
    let mut has_flushed = req.inclusion.into.is_none();
    let mut lent = None;
    let found = loop {
        let looked_up = match lent.take() {
            None => lookup_once(req, resumed.take(), &mut predicted, &lease),
            Some(object) => Lookup::Hit(object),
        };
        match looked_up {
            Lookup::Hit(object) if !rfc9111::accepts(req, &object) => {
                break validate(req, &object);
            }
            Lookup::Hit(object) => {
                if waited {
                    after_wait(req);
                }
                if (waited || has_read) && object.state() == BodyState::Complete {
                    req.client.permit = None;
                }
                log_hit(req, &object);
                return hit(req, object, None).await;
            }
            Lookup::Unfinished(next) => {
                resumed = next;
                Box::pin(lease.next(req.task.services().clone().long_work())).await;
            }
            // The client may take long to read what precedes an include. No other request may wait for it meanwhile.
            found if !has_flushed && delays_others(&found) => {
                give_up(found);
                req.flush_enclosing().await;
                has_flushed = true;
            }
            Lookup::Wait(wait) => {
                waited = true;
                resumed = match Box::pin(wait_for_other(req, wait)).await {
                    Ok(resumed) => Some(resumed),
                    Err(step) => return step,
                };
            }
            Lookup::Miss { busy, stale: None }
                if !has_searched && req.task.services().cache().has_disks() =>
            {
                has_searched = true;
                match Box::pin(disk::search(req, busy)).await {
                    Ok(Searched::Found) => has_read = true,
                    Ok(Searched::Lent(object)) => (has_read, lent) = (true, Some(object)),
                    Ok(Searched::Nothing(busy)) => break Lookup::Miss { busy, stale: None },
                    Err(step) => return step,
                }
            }
            found => break found,
        }
    };
    if waited {
        after_wait(req);
    }
    if req.follows_rfc9111() {
        return by_rfc9111(req, found, &predicted).await;
    }
    not_fresh(req, found, &predicted).await
}

/// Returns the step that follows with the mode `feature=+rfc9111` from a lookup that found no fresh object.
async fn by_rfc9111(req: &mut Req, found: Lookup, predicted: &[u8]) -> Step {
    let found = match stored_part::instead_of_fetch(req, found).await {
        Ok(object) => {
            log_hit(req, &object);
            return hit(req, object, None).await;
        }
        Err(found) => found,
    };
    match rfc9111::without_hit(req, found, predicted.len() > NO_VARIANT) {
        Use::Found(found) => not_fresh(req, found, predicted).await,
        Use::Stale(object) => {
            log_hit(req, &object);
            hit(req, object, None).await
        }
        Use::Validate(object) => {
            let found = validate(req, &object);
            not_fresh(req, found, predicted).await
        }
        Use::End(step) => step,
    }
}

/// Returns the step that follows from a lookup that found no fresh object. `predicted` contains the headers by which the
/// response is likely to vary.
async fn not_fresh(req: &mut Req, found: Lookup, predicted: &[u8]) -> Step {
    match found {
        Lookup::Grace { object, busy } => {
            log_hit(req, &object);
            hit(req, object, busy).await
        }
        Lookup::Miss { busy, stale } => {
            if predicted.len() > NO_VARIANT {
                busy.predict_vary(predicted);
            }
            Step::Miss { busy, stale }
        }
        Lookup::HitMiss { busy, marker, stale } => {
            log_marker(req, Tag::HitMiss, &marker);
            req.task.services().counters().cache_hitmiss.add(1);
            req.found.is_hitmiss = true;
            Step::Miss { busy, stale }
        }
        Lookup::HitPass(marker) => {
            log_marker(req, Tag::HitPass, &marker);
            req.task.services().counters().cache_hitpass.add(1);
            req.found.is_hitpass = true;
            Step::Pass
        }
        Lookup::Hit(_) | Lookup::Wait(_) | Lookup::Unfinished(_) => Step::VclFail,
    }
}

/// Turns a hit into a miss that validates the object. Other requests for the object do not wait for it.
fn validate(req: &mut Req, object: &ObjRef) -> Lookup {
    let wanted = std::mem::replace(&mut req.request.rules.always_miss, true);
    let found = lookup_once(req, None, &mut Vec::new(), &LongWorkLease::default());
    req.request.rules.always_miss = wanted;
    req.found.forward = Forward::Request;
    match found {
        Lookup::Miss { busy, .. } => Lookup::Miss { busy, stale: Some(object.to_shared()) },
        found => found,
    }
}

/// The length of a Vary specification without names.
const NO_VARIANT: usize = 3;

/// Returns whether other requests may wait until this one goes on.
fn delays_others(found: &Lookup) -> bool {
    matches!(found, Lookup::Miss { .. } | Lookup::HitMiss { .. } | Lookup::Wait(_))
}

/// Lets another request take the place of this one, which will look up again.
fn give_up(found: Lookup) {
    if let Lookup::Miss { busy, .. } | Lookup::HitMiss { busy, .. } = found {
        busy.release();
    }
}

/// Logs and notes that the request has waited for another one's fetch.
fn after_wait(req: &mut Req) {
    req.task.stamp("Waitinglist");
    req.task.note(|notes| notes.steps.add(Steps::WAITED));
}

/// Waits for another request's fetch. Returns the step that ends the request if it is not admitted or its client
/// leaves.
async fn wait_for_other(req: &mut Req, wait: Wait) -> Result<Resumed, Step> {
    if let Some(step) = rfc9111::instead_of_wait(req) {
        return Err(step);
    }
    req.task.services().flush_counters();
    admit(req).await?;
    if req.task.params().debug.has(DebugBits::WAITINGLIST) {
        req.task.log_mut().put(Tag::Debug, b"on waiting list");
    }
    let shared = req.task.services().shared();
    let is_under_pressure = shared.admission().is_under_pressure(shared.bound(req.task.params()));
    let treatment = HalfClosed::of_waiting(req.inclusion.level > 0, false, is_under_pressure);
    let resumed = presence::while_waiting(&req.client.tx, req.task.params(), treatment, pin!(wait)).await;
    resumed.ok_or_else(|| presence::abandon(req))
}

fn log_marker(req: &mut Req, tag: Tag, marker: &Object) {
    let ttl = marker.fresh_until(req.request.rules.limits()) - req.request.received;
    req.task.log_mut().put_fmt(tag, format_args!("{} {ttl:.6}", marker.vxid()));
}

/// Performs one pass of the lookup. If it is not a hit, `predicted` receives the headers by which the response is
/// likely to vary, taken from the existing variants. Requests that differ in these headers need not wait for this
/// one.
fn lookup_once(
    req: &mut Req,
    resumed: Option<Resumed>,
    predicted: &mut Vec<u8>,
    lease: &LongWorkLease,
) -> Lookup {
    let services = req.task.services().clone();
    let http = &req.request.http;
    let TaskParts { params, ws, log, .. } = req.task.parts();
    // The log, and whether an object was banned.
    let (ws, gzip, log) = (&*ws, params.http_gzip_support, RefCell::new((log, false)));
    let by_meaning = params.feature.has(FeatureBits::RFC9111);
    let other_variant = RefCell::new(Vec::new());
    let slice = Slice::default();
    let args = LookupArgs {
        t_req: req.request.received,
        limits: req.request.rules.limits(),
        always_miss: req.request.rules.always_miss,
        ignore_busy: req.request.rules.ignore_busy,
        ignore_vary: req.request.rules.ignore_vary,
        ban_any_variant: params.ban_any_variant,
        vary: &|spec| {
            let matches = vary::matches(spec, http, ws, gzip)
                || by_meaning && vary::matches_by_meaning(spec, http, ws, gzip);
            if !matches {
                let mut other = other_variant.borrow_mut();
                other.clear();
                other.extend_from_slice(spec);
            }
            matches
        },
        ban: &crate::ban_subjects::RequestSubject { http, ws },
        pause: &|| slice.is_over() || !lease.may_work(services.long_work()),
        banned: &|vxid| {
            let (log, was_banned) = &mut *log.borrow_mut();
            *was_banned = true;
            log.put_fmt(Tag::ExpBan, format_args!("{vxid} banned lookup"));
        },
        mismatches: Cell::new(0),
    };
    let found = services.lookup(req.key.digest(), &args, resumed);
    let variants = args.mismatches.get();
    if variants >= params.vary_notice {
        let text = format_args!("vsl: High number of variants ({variants})");
        log.borrow_mut().0.put_fmt(Tag::Notice, text);
    }
    predicted.clear();
    if !matches!(found, Lookup::Hit(_)) {
        vary::predict(&other_variant.borrow(), http, ws, predicted);
        let was_banned = log.into_inner().1;
        req.task.note(|notes| notes.miss(was_banned, predicted.len() > NO_VARIANT));
    }
    found
}

/// Logs `Hit`: the object, its lifetime, and the progress of its fetch if that is not finished.
fn log_hit(req: &mut Req, object: &Object) {
    let ttl = object.fresh_until(req.request.rules.limits()) - req.request.received;
    let timers = object.timers();
    let (grace, keep) = (f64::from(timers.grace), f64::from(timers.keep));
    let vxid = Field::Number(object.vxid());
    let [ttl, grace, keep] = [ttl, grace, keep].map(Field::Seconds);
    if object.state() != BodyState::Fetching {
        return req.task.log_mut().put_fields(Tag::Hit, &[vxid, ttl, grace, keep]);
    }
    let length = lacquer_http::pack::packed_header(object.head(), lacquer_http::header_table::CONTENT_LENGTH);
    let came = Field::Number(object.body_len());
    let fields = [vxid, ttl, grace, keep, came, Field::Text(length.unwrap_or_default())];
    req.task.log_mut().put_fields(Tag::Hit, if length.is_some() { &fields } else { &fields[..5] });
}

async fn hit(req: &mut Req, object: ObjRef, refresh: Option<Busy>) -> Step {
    req.found.object = Some(object.clone());
    let handling = req.vcl(Method::Hit).await;
    req.found.object = None;
    match handling {
        Action::Deliver => {
            let c = req.task.services().counters();
            c.cache_hit.add(1);
            if object.fresh_until(req.request.rules.limits()) < req.request.received {
                c.cache_hit_grace.add(1);
            }
            req.found.is_hit = true;
            if let Some(busy) = refresh {
                Box::pin(fetch::in_background(req, busy, object.to_shared())).await;
            } else {
                req.ignore_body().await;
            }
            Step::Deliver(object)
        }
        Action::Restart => Step::Restart,
        Action::Synth => Step::Synth,
        Action::Pass => {
            req.task.services().counters().cache_hit.add(1);
            req.found.is_hit = true;
            Step::Pass
        }
        _ => Step::VclFail,
    }
}

pub async fn purge(req: &mut Req) -> Step {
    crate::purge::by_action(&req.task, req.key.digest()).await;
    match req.vcl(Method::Purge).await {
        Action::Restart => Step::Restart,
        Action::Synth => Step::Synth,
        _ => Step::VclFail,
    }
}

/// Starts a fetch for this request, and waits until there is an object to deliver or the fetch fails.
pub async fn fetch_and_deliver(req: &mut Req, mode: Mode) -> Step {
    if let Err(step) = admit(req).await {
        return step;
    }
    req.task.services().counters().s_fetch.add(1);
    let is_pass = matches!(mode, Mode::Pass);
    if is_pass {
        req.flush_enclosing().await;
    }
    let outcome = fetch::for_request(req, mode).await;
    if matches!(outcome, Outcome::ClientGone) {
        return presence::abandon(req);
    }
    req.ignore_body().await;
    match outcome {
        Outcome::Object(object) => {
            if is_pass && req.follows_rfc9111() {
                Box::pin(invalidate::after(req, &object)).await;
            }
            Step::Deliver(ObjRef::shared(object))
        }
        Outcome::Tunnel(tunnel) => Box::pin(tunnel::run(req, tunnel)).await,
        Outcome::Nothing | Outcome::ClientGone => {
            req.response.status = 503;
            Step::Synth
        }
    }
}
