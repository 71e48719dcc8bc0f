//! Responses to range requests: selects the part or parts of the body to send.

use lacquer_cache::Object;
use lacquer_deliver::Source;
use lacquer_filters::RangeOf;
use lacquer_flow::delivery::{self, SeveralFacts};
use lacquer_http::header_table as h;
use lacquer_http::multipart::Multipart;
use lacquer_http::range::{self, Decision, Several};
use lacquer_shm::Tag;
use lacquer_sources::random;

use super::Req;
use super::plan::Plan;

/// Applies the request's `Range` to the plan and the response. Not inlined, because few requests have a `Range`.
#[inline(never)]
pub(super) fn set_range(req: &mut Req, source: &Source, plan: &mut Plan) {
    let several = several(req, source, plan);
    let ws = &req.task.ws;
    let (low, high) = match range::decide(&req.request.http, ws, &req.response.http, ws, plan.length, several)
    {
        Decision::Whole => return,
        Decision::Part { low, high } => (low, high),
        Decision::Parts(ranges) => return set_parts(req, ranges, plan),
        Decision::Unsatisfiable(why) => return refuse(req, why, plan),
    };
    if let Ok(line) =
        range::append_content_range(&mut req.response.http, &mut req.task.ws, low, high, plan.length)
    {
        req.task.log.put(Tag::RespHeader, req.task.ws.get(line));
    }
    req.resp_headers().respond(206, None);
    let range = delivery::take_range(plan.length, (low, high), !plan.filters.is_empty() || plan.esi);
    plan.length = range.length;
    plan.ranged = range.length.is_some();
    if range.is_filtered {
        plan.filters.push(Box::new(RangeOf::new(low, high + 1)));
    } else {
        plan.from = low;
        plan.to = Some(high + 1);
    }
}

fn several(req: &Req, source: &Source, plan: &Plan) -> Several {
    delivery::several_ranges(SeveralFacts {
        most: req.task.params.http_max_ranges,
        is_complete: source.is_complete() && !source.object().is_some_and(Object::has_one_reader),
        is_unfiltered: plan.filters.is_empty() && !plan.esi,
        is_included: req.inclusion.level > 0,
    })
}

fn refuse(req: &mut Req, why: &str, plan: &mut Plan) {
    req.task.log.put_fmt(Tag::Debug, format_args!("RANGE_FAIL {why}"));
    let ws = &mut req.task.ws;
    if let Some(length) = plan.length
        && let Ok(line) = range::append_unsatisfied_range(&mut req.response.http, ws, length)
    {
        req.task.log.put(Tag::RespHeader, ws.get(line));
    }
    req.resp_headers().respond(416, None);
    plan.length = Some(0);
}

fn set_parts(req: &mut Req, ranges: Vec<(u64, u64)>, plan: &mut Plan) {
    let ws = &req.task.ws;
    let whole = plan.length.unwrap_or_default();
    let seed = random::bits64();
    let parts = Multipart::new(ranges, whole, req.response.http.get(ws, h::CONTENT_TYPE), seed);
    let media_type = parts.media_type();
    let mut headers = req.resp_headers();
    headers.unset(h::CONTENT_TYPE);
    headers.add(h::CONTENT_TYPE, &media_type);
    headers.respond(206, None);
    plan.length = Some(parts.length());
    plan.ranged = true;
    plan.parts = Some(Box::new(parts));
}
