//! ESI delivery: sends the parts of a stored body and, between them, the responses to included requests. Included
//! requests run through the same steps as the client's request.

use std::rc::Rc;

use lacquer_cache::{ObjRef, Object};
use lacquer_deliver::{Behind, BodyPipeline, EsiInclude, SendError, Sink, send_stored};
use lacquer_filters::esi::{Step, Steps};
use lacquer_filters::splice::{self, Checksum};
use lacquer_flow::inclusion;
use lacquer_http::{Filter, Slot, fixed, header_table as h};
use lacquer_params::bits::FeatureBits;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock;

use super::top::Top;
use super::{Req, Start, handshake};
use crate::client_sink::ClientSink;
use crate::logged::{Logged, REQ};
use crate::notes::Observation;
use crate::task::TaskContext;
use crate::transaction_buffers::TransactionBuffers;
use crate::transaction_slot::TransactionSlot;

/// The number of includes after which other tasks of the reactor run. A hit takes about 10 µs.
const INCLUDES_AT_ONCE: u32 = 16;

/// Delivers a stored body as directed by its ESI program.
pub async fn deliver(
    req: &mut Req,
    object: &ObjRef,
    pipeline: BodyPipeline<ClientSink>,
) -> (BodyPipeline<ClientSink>, Result<(), SendError>) {
    let Some(program) = crate::object_attributes::esi_program(object) else {
        return (pipeline, Err(SendError::Source));
    };
    let steps = Steps::new(program);
    let gzip = steps.is_gzip();
    let mut delivery = EsiDelivery { object, pipeline, gzip, sum: Checksum::default(), at: 0 };
    let result = delivery.all(req, steps).await;
    (delivery.pipeline, result)
}

struct EsiDelivery<'o> {
    object: &'o Object,
    pipeline: BodyPipeline<ClientSink>,
    gzip: bool,
    /// The checksum of the uncompressed bytes sent so far.
    sum: Checksum,
    /// The position up to which the stored body was delivered.
    at: u64,
}

impl EsiDelivery<'_> {
    async fn all(&mut self, req: &mut Req, steps: Steps<'_>) -> Result<(), SendError> {
        let own_stream = self.gzip && self.pipeline.enclosing_gzip().is_none();
        if own_stream {
            self.pipeline.write(&splice::HEADER).await?;
        }
        for step in steps {
            match step {
                Step::Send { length, origin, crc } => {
                    let to = self.at + length;
                    send_stored(&mut self.pipeline, self.object, self.at, to, Behind::More).await?;
                    self.sum.append(Checksum { crc, length: origin });
                    self.at = to;
                }
                Step::Skip { length } => self.at += length,
                Step::Include { base, url, host, or_fail } => {
                    self.include(req, [base, url], host, or_fail).await?;
                    self.yield_if_due(req).await?;
                }
            }
        }
        if own_stream {
            self.pipeline.write(&splice::trailer(self.sum)).await?;
        } else if let Some(include) = self.pipeline.enclosing_gzip().filter(|_| self.gzip) {
            include.append(self.sum);
        }
        Ok(())
    }

    /// Yields to other tasks once every [`INCLUDES_AT_ONCE`] includes, because all includes may be hits that never wait
    /// for the client. Fails if the client is gone or its send timeout has expired.
    async fn yield_if_due(&mut self, req: &Req) -> Result<(), SendError> {
        let Some(top) = &req.inclusion.top else { return Ok(()) };
        if !top.count_include().is_multiple_of(INCLUDES_AT_ONCE) {
            return Ok(());
        }
        tokio::task::yield_now().await;
        self.pipeline.check()
    }

    async fn include(
        &mut self,
        req: &mut Req,
        url: [&[u8]; 2],
        host: &[u8],
        or_fail: bool,
    ) -> Result<(), SendError> {
        let or_fail = or_fail && req.task.params().feature.has(FeatureBits::ESI_INCLUDE_ONERROR);
        let limit = req.task.params().max_esi_depth;
        if !inclusion::may_include(req.inclusion.level, limit) {
            let text = format_args!("ESI depth limit reached (param max_esi_depth = {limit})");
            req.task.log_mut().put_fmt(Tag::VCL_Error, text);
            return if or_fail { Err(SendError::Include) } else { Ok(()) };
        }
        if req.client.is_early && !Box::pin(handshake::leave_early_data(req)).await {
            return Err(SendError::disconnected());
        }
        let pipeline = std::mem::replace(&mut self.pipeline, BodyPipeline::lent());
        let include = Box::new(EsiInclude::new(pipeline, self.gzip, self.sum, or_fail));
        let include = run(req, url, host, include).await.ok_or(SendError::Source)?;
        let sent;
        (self.pipeline, self.sum, sent) = include.into_parts();
        sent
    }
}

fn top_of(req: &Req) -> Top {
    Top::new(&req.request.http, req.task.ws(), req.task.params().http_max_hdr as usize)
}

/// Runs an included request. Its response is written into `include`.
async fn run(
    req: &mut Req,
    url: [&[u8]; 2],
    host: &[u8],
    include: Box<EsiInclude<ClientSink>>,
) -> Option<Box<EsiInclude<ClientSink>>> {
    let services = req.task.services().clone();
    services.counters().esi_req.add(1);
    let level = req.inclusion.level + 1;
    let vxid = Vxid::client(services.vxid());
    let params = services.params();
    let mut slot = TransactionSlot::take(&services);
    let memory = slot.prepare(services.log(), &params);
    let why = format!("esi {level}");
    memory.log.begin(vxid);
    memory.log.put_relation(Tag::Begin, "req", req.task.vxid(), &why);
    req.task.link("req", vxid, &why);
    let now = clock::real();
    memory.log.put_timestamp("Start", now, now, now);
    make_request(memory, req, url, host, include.is_gzip());

    let top = req.inclusion.top.clone().unwrap_or_else(|| Rc::new(top_of(req)));
    req.inclusion.top = Some(top.clone());
    let start = Start {
        context: TaskContext {
            services: services.clone(),
            params,
            sess: req.task.sess().clone(),
            vcl: req.programs.first.as_ref().unwrap_or(req.task.vcl()).clone(),
        },
        tx: req.client.tx.clone(),
        t_first: now,
        t_req: req.request.received,
    };
    let child = slot.occupy(|memory| Req::new(start, memory))?;
    child.inclusion.level = level;
    child.inclusion.top = Some(top);
    child.programs.first.clone_from(&req.programs.first);
    child.inclusion.top_privates = std::mem::take(&mut req.inclusion.top_privates);
    child.inclusion.into = Some(include);
    if req.task.observation().has(Observation::SPANS) {
        *child.task.span() = *req.task.span();
    }
    Box::pin(child.run()).await;

    child.end();
    req.inclusion.top_privates = std::mem::take(&mut child.inclusion.top_privates);
    let mut include = child.inclusion.into.take();
    if child.client.is_reset
        && let Some(include) = &mut include
    {
        include.stop(SendError::disconnected());
    }
    slot.recycle(&services);
    include
}

/// Builds an included request: a copy of the including request as it was received, with another URL and without the
/// headers that do not apply to an include (conditions, ranges, body framing).
fn make_request(memory: &mut TransactionBuffers, req: &Req, url: [&[u8]; 2], host: &[u8], gzip: bool) {
    let TransactionBuffers { ws, log, request: http, .. } = memory;
    if http.copy_from(ws, &req.request.original, req.task.ws(), Filter::NOTHING).is_err() {
        ws.set_overflowed();
    }
    let mut headers = Logged { message: http, ws, log, tags: REQ };
    match url {
        [b"", url] => headers.put(Slot::Url, url),
        parts => headers.put(Slot::Url, &parts.concat()),
    };
    if !host.is_empty() {
        headers.unset(h::HOST);
        match headers.message.append_line_copy(headers.ws, host) {
            Ok(_) => headers.log.put(Tag::ReqHeader, host),
            Err(_) => headers.ws.set_overflowed(),
        }
    }
    if headers.message.method(headers.ws) != b"GET" {
        headers.put(Slot::Method, b"GET");
    }
    headers.message.put(headers.ws, Slot::Method, fixed::GET);
    headers.message.put(headers.ws, Slot::Proto, fixed::HTTP_11);
    for name in [h::IF_MODIFIED_SINCE, h::IF_NONE_MATCH, h::RANGE] {
        headers.unset(name);
    }
    if gzip {
        headers.force(h::ACCEPT_ENCODING, fixed::ACCEPT_ENCODING_GZIP);
    } else {
        headers.unset(h::ACCEPT_ENCODING);
    }
    headers.unset(h::CONTENT_LENGTH);
    headers.unset(h::TRANSFER_ENCODING);
}

impl Req {
    /// Sends the bytes that precede an include, so that the client receives them while the include is being fetched.
    pub async fn flush_enclosing(&mut self) {
        if let Some(include) = &mut self.inclusion.into {
            // If the client is gone, the next write fails.
            let _ = Box::pin(include.flush()).await;
        }
    }
}
