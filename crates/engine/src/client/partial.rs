//! Responses to range requests: selects the part or parts of the body to send, and changes the head to match.

use lacquer_cache::{Object, flag};
use lacquer_deliver::Source;
use lacquer_flow::delivery::{self, SeveralFacts};
use lacquer_http::header_table as h;
use lacquer_http::multipart::Multipart;
use lacquer_http::range::{self, Decision, Rules, Several};
use lacquer_shm::Tag;
use lacquer_sources::random;

use super::Req;
use super::plan::{Change, Plan, Portion};
use crate::task::TaskParts;

/// Selects the part of the body that the request's `Range` asks for. `plan` contains the filters that run before the
/// range is applied. Not inlined, because few requests have a `Range`.
#[inline(never)]
pub(super) fn choose(req: &Req, source: &Source, plan: &Plan) -> Portion {
    let ws = req.task.ws();
    if plan.esi && range::needs_entity_tag(&req.request.http, ws) {
        // ESI weakens the entity tag, and a weak tag never matches `If-Range`.
        return Portion::Whole;
    }
    if req.inclusion.level > 0 && plan.is_plain() && source.object().is_some_and(|o| o.is(flag::GZIPED)) {
        // A part of a gzip stream cannot become part of another one.
        return Portion::Whole;
    }
    let rules = Rules { several: several(req, source, plan), has_exact_dates: req.follows_rfc9111() };
    match range::decide(&req.request.http, ws, &req.response.http, ws, plan.length, rules) {
        Decision::Whole => Portion::Whole,
        Decision::Part { low, high } => Portion::Part { low, high },
        Decision::Parts(ranges) => {
            let (whole, seed) = (plan.length.unwrap_or_default(), random::bits64());
            Portion::Parts(Multipart::new(ranges, whole, req.response.http.get(ws, h::CONTENT_TYPE), seed))
        }
        Decision::Unsatisfiable(why) => Portion::Unsatisfiable(why),
    }
}

fn several(req: &Req, source: &Source, plan: &Plan) -> Several {
    delivery::several_ranges(SeveralFacts {
        most: req.task.params().http_max_ranges,
        is_complete: source.is_complete() && !source.object().is_some_and(Object::has_one_reader),
        is_unfiltered: plan.is_plain(),
        is_included: req.inclusion.level > 0,
    })
}

/// Changes the response's head as the plan specifies.
pub(super) fn apply(req: &mut Req, plan: &Plan) {
    for change in &plan.changes {
        match *change {
            Change::Unpacked => {
                req.task.services().counters().n_gunzip.add(1);
                req.resp_headers().unset(h::CONTENT_ENCODING);
            }
            Change::Included => req.resp_headers().weaken_etag(),
            Change::Part { low, high, whole } => name_part(req, (low, high), whole),
            Change::Parts => {
                if let Some(parts) = &plan.parts {
                    let mut headers = req.resp_headers();
                    headers.unset(h::CONTENT_TYPE);
                    headers.unset(h::CONTENT_RANGE);
                    headers.add(h::CONTENT_TYPE, &parts.media_type());
                    headers.respond(206, None);
                }
            }
            Change::Unsatisfiable { why, whole } => refuse(req, why, whole),
        }
    }
}

fn name_part(req: &mut Req, (low, high): (u64, u64), whole: Option<u64>) {
    req.resp_headers().unset(h::CONTENT_RANGE);
    let TaskParts { ws, log, .. } = req.task.parts();
    if let Ok(line) = range::append_content_range(&mut req.response.http, ws, low, high, whole) {
        log.put(Tag::RespHeader, ws.get(line));
    }
    req.resp_headers().respond(206, None);
}

fn refuse(req: &mut Req, why: &str, whole: Option<u64>) {
    req.task.log_mut().put_fmt(Tag::Debug, format_args!("RANGE_FAIL {why}"));
    req.resp_headers().unset(h::CONTENT_RANGE);
    let TaskParts { ws, log, .. } = req.task.parts();
    if let Some(length) = whole
        && let Ok(line) = range::append_unsatisfied_range(&mut req.response.http, ws, length)
    {
        log.put(Tag::RespHeader, ws.get(line));
    }
    req.resp_headers().respond(416, None);
}
