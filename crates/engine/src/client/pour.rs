//! Sends bodies that go through filters or include other responses.

use lacquer_deliver::{Behind, BodyPipeline, BodySink, SendError, Sink, Source, send_parts, send_stored};
use lacquer_http::multipart::Multipart;

use super::plan::Plan;
use super::{Req, esi};
use crate::exit::Exit;

/// Sends a body through filters by this exit. Returns the exit, which is kept unless the request failed in an include.
pub async fn pour_out(
    req: &mut Req,
    source: &Source,
    plan: Plan,
    exit: Exit,
) -> (Option<Exit>, Result<(), SendError>) {
    let pipeline = BodyPipeline::new(plan.filters, req.task.params.gzip_buffer, BodySink::Client(exit));
    let (pipeline, sent) = Box::pin(pour(req, source, plan.esi, plan.parts.as_deref(), pipeline)).await;
    match pipeline.into_sink() {
        BodySink::Client(exit) => (Some(exit), sent),
        BodySink::Include(_) | BodySink::Lent => (None, sent),
    }
}

/// Sends a body through filters, with the responses that it includes.
pub async fn pour(
    req: &mut Req,
    source: &Source,
    esi: bool,
    parts: Option<&Multipart>,
    mut pipeline: BodyPipeline<Exit>,
) -> (BodyPipeline<Exit>, Result<(), SendError>) {
    let poured = match source {
        _ if let Some(parts) = parts => send_parts(source, parts, &mut pipeline).await,
        Source::Object(object) if esi => {
            let poured;
            (pipeline, poured) = esi::play(req, object, pipeline).await;
            poured
        }
        Source::Object(object) => send_stored(&mut pipeline, object, 0, u64::MAX, Behind::More).await,
        Source::Bytes(bytes) => pipeline.write(bytes).await,
    };
    let sent = pipeline.finish(poured).await;
    req.task.log_filtered_out(&pipeline.report());
    (pipeline, sent)
}
