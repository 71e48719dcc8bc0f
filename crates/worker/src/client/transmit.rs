//! Sends the response: head and body in as few writes as the kernel allows.

use std::borrow::Cow;
use std::io::ErrorKind;

use lacquer_cache::{BodyState, flag};
use lacquer_filters::{Filter, Gunzip};
use lacquer_flow::delivery::{self, End, LengthField};
use lacquer_flow::filters::{self, Delivered};
use lacquer_flow::inclusion::{self, Included, Inclusion};
use lacquer_flow::persistence::{self, Sent};
use lacquer_http::multipart::Multipart;
use lacquer_http::{SessClose, Text, conditional, h1, header_table as h};
use lacquer_params::bits::FeatureBits;
use lacquer_shm::Tag;
use lacquer_shm::vsl::text;

use super::deliver::{blame_body, settle_connection};
use super::outlet::{Below, Outlet};
use super::{Patience, Req, Source, Step, partial};
use crate::faults::apart;
use crate::sender::{BodyFrame, SendError, Sender, write_message};
use crate::wire::Wire;

/// Body bytes to send: none, all, or a part of the stored ones.
pub(super) struct Plan {
    /// Length of the body as sent, if known before.
    pub length: Option<u64>,
    /// What to take of the stored body when no filter changes it.
    pub from: u64,
    pub to: Option<u64>,
    pub filters: Vec<Box<dyn Filter>>,
    /// What the body includes is delivered with it.
    pub esi: bool,
    /// A range whose end was not reached is an error of its own.
    pub ranged: bool,
    /// Several ranges of the body, each in a part of its own.
    pub parts: Option<Box<Multipart>>,
}

impl Plan {
    /// The body goes through the pipeline, instead of from storage to the connection.
    pub(super) fn is_poured(&self) -> bool {
        self.esi || !self.filters.is_empty() || self.parts.is_some()
    }
}

pub async fn transmit(req: &mut Req, source: Source) -> Step {
    let announced = h1::content_length(&req.resp, &req.task.ws).ok().flatten();
    let status = req.resp.status();
    let is_head = req.http0.method(&req.task.ws) == b"HEAD";

    let stored = stored_length(&source, announced);
    let filters = filter_list(req, &source);
    let Some(plan) = plan(req, &filters, &source, stored) else {
        req.task.log.put(Tag::Error, b"Failure to push processors");
        req.close = Some(SessClose::Overload);
        return finish(req, &source);
    };
    let is_uncacheable = matches!(&source, Source::Object(o) if o.is(flag::HFM));
    let facts = delivery::Facts { status, is_head, announced, length: plan.length, is_uncacheable };
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

/// Returns the names of the filters: VCL's choice or what the response needs.
fn filter_list(req: &mut Req, source: &Source) -> Cow<'static, [u8]> {
    let list = match req.task.ws.get_opt(req.resp_filters) {
        Some(chosen) => Cow::Owned(chosen.to_vec()),
        None => Cow::Borrowed(req.default_filters(source).as_bytes()),
    };
    req.task.log.put(Tag::Filters, &list);
    list
}

impl Req {
    /// Returns the names of the filters that the response needs.
    pub fn default_filters(&self, source: &Source) -> &'static str {
        let (params, ws) = (&self.task.params, &self.task.ws);
        let object = match source {
            Source::Object(object) => Some(object),
            Source::Bytes(_) => None,
        };
        filters::to_client(Delivered {
            has_includes: object.is_some_and(|o| self.can_esi && crate::extra::esi_program(o).is_some()),
            needs_gunzip: object.is_some_and(|o| {
                params.http_gzip_support && o.is(flag::GZIPED) && !conditional::accepts_gzip(&self.http, ws)
            }),
            has_range: params.http_range_support && self.resp.status() == 200 && self.http.has(ws, h::RANGE),
        })
    }
}

fn plan(req: &mut Req, filters: &[u8], source: &Source, stored: Option<u64>) -> Option<Plan> {
    let mut plan = Plan {
        length: stored,
        from: 0,
        to: None,
        filters: Vec::new(),
        esi: false,
        ranged: false,
        parts: None,
    };
    for (name, rest) in lacquer_filters::names(filters) {
        match name {
            b"gunzip" => {
                req.task.reactor.counters.n_gunzip.add(1);
                req.resp_headers().unset(h::CONTENT_ENCODING);
                let unpacked = match source {
                    Source::Object(o) => crate::extra::unpacked_len(o),
                    Source::Bytes(_) => None,
                };
                plan.length = delivery::unpacked_length(plan.esi, unpacked);
                plan.filters.push(Box::new(Gunzip::for_delivery()));
            }
            b"range" => partial::set_range(req, source, &mut plan),
            b"esi" => {
                if matches!(source, Source::Object(o) if crate::extra::esi_program(o).is_some()) {
                    req.resp_headers().weaken_etag();
                    plan.esi = true;
                    plan.length = delivery::including_length(plan.length);
                }
            }
            _ => {
                req.log_error(&crate::req_filters::unknown(rest));
                return None;
            }
        }
    }
    Some(plan)
}

async fn send(req: &mut Req, source: &Source, plan: Plan, send_body: bool) {
    if req.seam.is_some() {
        return Box::pin(send_included(req, source, plan, send_body)).await;
    }
    let tx = match &req.tx {
        Wire::Socket(tx) => tx.clone(),
        Wire::Stream(stream) => {
            let stream = stream.clone();
            return apart(|| super::on_stream::send(req, stream, source, plan, send_body)).await;
        }
    };
    settle_connection(req);
    let frame = match delivery::end(send_body, plan.length, req.http.version()) {
        End::Length => BodyFrame::Plain,
        End::Chunked => {
            req.resp_headers().add(h::TRANSFER_ENCODING, b"chunked");
            BodyFrame::Chunked
        }
        End::Close => {
            req.close = Some(SessClose::TxEof);
            BodyFrame::Plain
        }
    };
    if req.task.ws.overflowed() {
        return Box::pin(internal_error(req, "workspace_client overflow")).await;
    }
    if let Some(which) = crate::vars::workspace::exhausted(&mut req.task) {
        return Box::pin(internal_error(req, &format!("{which} overflow"))).await;
    }
    req.out.clear();
    let head_len = h1::write_response_head(&req.resp, &req.task.ws, &mut req.out);
    req.account.resp_header += head_len as u64;
    let limits = crate::sender::Limits {
        total: req.task.sess.send_timeout.get(req.task.params.send_timeout),
        idle: req.task.sess.send_idle_limit(&req.task.params),
        patience: Patience::of(&req.task.params),
    };
    let head = std::mem::take(&mut req.out);
    let wanted = plan.length.filter(|_| plan.ranged);
    let mut sender = Sender::new(tx, head, frame, limits);
    let result = if !send_body {
        sender.finish_head().await
    } else if plan.is_poured() {
        let outlet = Outlet::new(plan.filters, req.task.params.gzip_buffer, Below::Client(sender));
        let (mut outlet, poured) = Box::pin(pour(req, source, plan.esi, plan.parts.as_deref(), outlet)).await;
        let settled = Box::pin(outlet.below.settle(poured)).await;
        let Below::Client(back) = outlet.below else { return };
        sender = back;
        settled
    } else {
        send_source(&mut sender, source, plan.from, plan.to).await
    };
    let sent = sender.body_bytes();
    if send_body {
        req.task.log_sent("V1B", sender.pieces(), sent);
    }
    req.account.resp_body += sent;
    if let Some(limit) = sender.limit_hit() {
        req.log_error(&format!("Hit {limit}"));
    }
    req.out = sender.into_head();
    let short = send_body && wanted.is_some_and(|n| sent < n);
    settle_failure(req, result, short, head_len);
}

fn settle_failure(req: &mut Req, result: Result<(), SendError>, short: bool, head_len: usize) {
    let sent = match result {
        Ok(()) | Err(SendError::Enough) => Sent::Whole,
        Err(SendError::Source) => Sent::SourceFailed,
        Err(SendError::Filter | SendError::Include) => Sent::PipelineFailed,
        Err(SendError::Io(e)) => {
            let why = e.raw_os_error().map_or_else(|| e.to_string(), crate::sys::error_text);
            let text = format_args!("Write error, retval = -1, len = {head_len}, errno = {why}");
            req.task.log.put_fmt(Tag::Debug, text);
            let gone = matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
            if gone { Sent::ClientGone } else { Sent::ConnectionFailed }
        }
    };
    if let Some(reason) = persistence::after_sending(sent, short) {
        req.fail_session(reason);
    }
}

/// A body as it is stored.
async fn send_source(
    sender: &mut Sender,
    source: &Source,
    from: u64,
    to: Option<u64>,
) -> Result<(), SendError> {
    match source {
        Source::Bytes(bytes) => {
            let to = to.unwrap_or(u64::MAX).min(bytes.len() as u64) as usize;
            sender.body(&bytes[(from as usize).min(to)..to]).await?;
        }
        Source::Object(object) => sender.object(object, from, to).await?,
    }
    sender.end().await
}

/// A body through filters; what it includes comes with it.
pub(super) async fn pour(
    req: &mut Req,
    source: &Source,
    esi: bool,
    parts: Option<&Multipart>,
    mut outlet: Outlet,
) -> (Outlet, Result<(), SendError>) {
    let poured = match source {
        _ if let Some(parts) = parts => partial::pour_parts(source, parts, &mut outlet).await,
        Source::Object(object) if esi => {
            let poured;
            (outlet, poured) = super::esi::play(req, object, outlet).await;
            poured
        }
        Source::Object(object) => outlet.stored(object, 0, u64::MAX).await,
        Source::Bytes(bytes) => outlet.write(bytes).await,
    };
    let poured = match poured {
        Ok(()) => outlet.end().await,
        failed => failed,
    };
    req.task.log_filtered_out(&outlet.report());
    (outlet, poured)
}

/// What Varnish keeps of an include's filter in the workspace; counted, so that a size chosen for it means the same.
const INCLUDE_COST: usize = 56;

/// The response goes into the one that includes it.
async fn send_included(req: &mut Req, source: &Source, plan: Plan, send_body: bool) {
    let Some(mut seam) = req.seam.take() else { return };
    let object = match source {
        Source::Object(object) => Some(&**object),
        Source::Bytes(_) => None,
    };
    let empty = match source {
        Source::Object(o) => o.state() == BodyState::Complete && o.body_len() == 0,
        Source::Bytes(bytes) => bytes.is_empty(),
    };
    let included = Included {
        has_onerror: req.task.params.feature.has(FeatureBits::ESI_INCLUDE_ONERROR),
        status: req.resp.status(),
        has_body: send_body && !empty,
    };
    let ws = &mut req.task.ws;
    let inclusion = inclusion::inclusion(included, || !ws.overflowed() && ws.alloc(INCLUDE_COST).is_ok());
    if inclusion == Inclusion::Overflow {
        req.log_error("Failure to push ESI processors");
        req.close = Some(SessClose::Overload);
    }
    if matches!(inclusion, Inclusion::Fail | Inclusion::Overflow) {
        seam.fail();
    } else if inclusion == Inclusion::Body {
        let says_gzip = req.resp.value_is(&req.task.ws, h::CONTENT_ENCODING, b"gzip");
        let gzipped = says_gzip && object.is_some_and(|o| o.is(flag::GZIPED));
        if seam.fit(object, gzipped, plan.esi).await {
            let outlet = Outlet::new(plan.filters, req.task.params.gzip_buffer, Below::Include(seam));
            let (outlet, poured) = pour(req, source, plan.esi, plan.parts.as_deref(), outlet).await;
            let Below::Include(back) = outlet.below else { return };
            seam = back;
            if let Err(failed) = poured {
                req.close = req.close.or(Some(SessClose::RemClose));
                seam.broken(failed);
            }
        }
    }
    seam.close();
    req.account.resp_body += seam.take_count();
    req.seam = Some(seam);
}

async fn internal_error(req: &mut Req, why: &str) {
    const TEXT: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nServer: Varnish\r\nConnection: close\r\n\r\n";
    let log = &mut req.task.log;
    log.put(Tag::Error, why.as_bytes());
    log.put(Tag::RespProtocol, b"HTTP/1.1");
    log.put(Tag::RespStatus, b"500");
    log.put(Tag::RespReason, b"Internal Server Error");
    req.task.reactor.counters.client_resp_500.add(1);
    if let Wire::Socket(tx) = &req.tx {
        let _ = write_message(tx, TEXT, req.task.sess.send_idle_limit(&req.task.params)).await;
    }
    req.close = Some(SessClose::TxEof);
}

impl Req {
    /// The connection cannot be used further, for this reason.
    pub fn fail_session(&mut self, reason: SessClose) {
        self.close = Some(reason);
    }
}

fn finish(req: &mut Req, source: &Source) -> Step {
    req.task.stamp("Resp");
    if let Source::Object(object) = source {
        req.close = persistence::after_response(req.close, object.state() == BodyState::Failed);
        crate::bodies::let_go(object);
    }
    blame_body(req);
    req.resp_filters = Text::NONE;
    req.object = None;
    Step::Done
}
