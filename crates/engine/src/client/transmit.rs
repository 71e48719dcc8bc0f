//! Plans how the response is sent (length, filters and ranges), and sends it.

use std::borrow::Cow;

use lacquer_cache::{BodyState, flag};
use lacquer_deliver::{BodyPipeline, BodySink, Source};
use lacquer_flow::delivery::{self, LengthField};
use lacquer_flow::filters::{self, Delivered};
use lacquer_flow::inclusion::{self, Included, Inclusion};
use lacquer_flow::persistence;
use lacquer_http::{SessClose, Text, conditional, h1, header_table as h};
use lacquer_params::bits::FeatureBits;
use lacquer_shm::Tag;
use lacquer_shm::vsl::text;

use super::deliver::close_after_bad_body;
use super::pipeline::run_pipeline;
use super::plan::{Facts, Plan};
use super::{Req, Step, partial, respond};
use crate::emulated::workspace_costs;

pub async fn transmit(req: &mut Req, source: Source) -> Step {
    let announced = h1::content_length(&req.response.http, req.task.ws()).ok().flatten();
    let status = req.response.http.status();
    let is_head = req.request.original.method(req.task.ws()) == b"HEAD";

    let stored = stored_length(&source, announced);
    let filters = filter_list(req, &source);
    let Some(plan) = plan(req, &filters, &source, stored) else {
        req.task.log_mut().put(Tag::Error, b"Failure to push processors");
        req.client.close = Some(SessClose::Overload);
        return finish(req, &source);
    };
    let is_uncacheable = matches!(&source, Source::Object(o) if o.is(flag::HFM));
    let (length, is_changed) = (plan.length, plan.needs_pipeline());
    let facts = delivery::Facts { status, is_head, announced, length, is_uncacheable, is_changed };
    change_length(req, facts.length_field());
    send(req, &source, plan, facts.sends_body()).await;
    finish(req, &source)
}

fn change_length(req: &mut Req, field: LengthField) {
    if field == LengthField::Keep {
        return;
    }
    let mut headers = req.resp_headers();
    headers.unset(h::CONTENT_LENGTH);
    if let LengthField::Set(length) = field {
        headers.add(h::CONTENT_LENGTH, text::digits(length, &mut [0; text::MAX]));
    }
}

fn stored_length(source: &Source, announced: Option<u64>) -> Option<u64> {
    match source {
        Source::Bytes(bytes) => Some(bytes.len() as u64),
        Source::Object(o) => {
            delivery::stored_length(o.state() == BodyState::Complete, o.body_len(), announced)
        }
    }
}

/// Returns the names of the filters: `resp.filters` if VCL has set it, else those that the response needs.
fn filter_list(req: &mut Req, source: &Source) -> Cow<'static, [u8]> {
    let list = match req.task.ws().get_opt(req.response.filters) {
        Some(chosen) => Cow::Owned(chosen.to_vec()),
        None => Cow::Borrowed(req.default_filters(source).as_bytes()),
    };
    req.task.log_mut().put(Tag::Filters, &list);
    list
}

impl Req {
    /// Returns the names of the filters that the response needs.
    pub fn default_filters(&self, source: &Source) -> &'static str {
        let (params, ws) = (self.task.params(), self.task.ws());
        let object = source.object();
        filters::to_client(Delivered {
            has_includes: object
                .is_some_and(|o| self.response.can_esi && crate::object_attributes::esi_program(o).is_some()),
            needs_gunzip: object.is_some_and(|o| {
                params.http_gzip_support
                    && o.is(flag::GZIPED)
                    && !conditional::accepts_gzip(&self.request.http, ws)
            }),
            has_range: params.http_range_support
                && self.response.http.status() == 200
                && self.request.http.has(ws, h::RANGE),
        })
    }
}

/// Plans the response, and changes its head to match. Returns `None`, with the reason in the log, if a filter is
/// unknown.
fn plan(req: &mut Req, filters: &[u8], source: &Source, stored: Option<u64>) -> Option<Plan> {
    if filters.is_empty() {
        return Some(Plan { length: stored, ..Plan::default() });
    }
    let facts = Facts::of(source, stored);
    match Plan::new(filters, facts, |before| partial::choose(req, source, before)) {
        Ok(plan) => {
            partial::apply(req, &plan);
            Some(plan)
        }
        Err(rest) => {
            req.log_error(&crate::req_filters::unknown(rest));
            None
        }
    }
}

async fn send(req: &mut Req, source: &Source, plan: Plan, send_body: bool) {
    if req.inclusion.into.is_some() {
        return Box::pin(send_included(req, source, plan, send_body)).await;
    }
    respond::send(req, source, plan, send_body).await;
}

/// Sends the response into the response that includes it.
async fn send_included(req: &mut Req, source: &Source, mut plan: Plan, send_body: bool) {
    let Some(mut include) = req.inclusion.into.take() else { return };
    plan.filter_range();
    let object = source.object();
    let included = Included {
        has_onerror: req.task.params().feature.has(FeatureBits::ESI_INCLUDE_ONERROR),
        status: req.response.http.status(),
        has_body: send_body && !source.is_empty(),
    };
    let ws = req.task.ws_mut();
    let inclusion = inclusion::inclusion(included, || {
        !ws.overflowed() && workspace_costs::charge(ws, workspace_costs::INCLUDE)
    });
    if inclusion == Inclusion::Overflow {
        req.log_error("Failure to push ESI processors");
        req.client.close = Some(SessClose::Overload);
    }
    if matches!(inclusion, Inclusion::Fail | Inclusion::Overflow) {
        include.fail();
    } else if inclusion == Inclusion::Body {
        let is_encoded = req.response.http.value_is(req.task.ws(), h::CONTENT_ENCODING, b"gzip");
        let gzipped = is_encoded && object.is_some_and(|o| o.is(flag::GZIPED));
        if include.prepare(object, gzipped, plan.esi).await {
            let pipeline =
                BodyPipeline::new(plan.filters, req.task.params().gzip_buffer, BodySink::Include(include));
            let (pipeline, sent) = run_pipeline(req, source, plan.esi, plan.parts.as_deref(), pipeline).await;
            let BodySink::Include(back) = pipeline.into_sink() else { return };
            include = back;
            if let Err(failed) = sent {
                req.client.close = req.client.close.or(Some(SessClose::RemClose));
                include.stop(failed);
            }
        }
    }
    include.close();
    req.client.account.resp_body += include.take_count();
    req.inclusion.into = Some(include);
}

fn finish(req: &mut Req, source: &Source) -> Step {
    req.task.stamp("Resp");
    if let Source::Object(object) = source {
        let has_failed = object.state() == BodyState::Failed;
        if has_failed && !object.has_one_reader() && !object.is(flag::FAILED) {
            // The device could not read this body, so remove the object from the cache. If its fetch has failed, the
            // fetch decides about it.
            req.task.services().cache().fail(object);
        }
        req.client.close = persistence::after_response(req.client.close, has_failed);
        object.let_go();
    }
    close_after_bad_body(req);
    req.response.filters = Text::NONE;
    req.found.object = None;
    Step::Done
}
