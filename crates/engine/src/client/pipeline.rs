//! Sends bodies through a pipeline of filters, ESI includes and multipart ranges.

use lacquer_deliver::{Behind, BodyPipeline, BodySink, SendError, Sink, Source, send_parts, send_stored};
use lacquer_http::multipart::Multipart;

use super::plan::Plan;
use super::{Req, esi};
use crate::client_sink::ClientSink;

/// Sends a body through its pipeline to the client. Also returns the sink; it is `None` if the pipeline was lost when
/// an included request failed.
pub async fn send_through_pipeline(
    req: &mut Req,
    source: &Source,
    plan: Plan,
    exit: ClientSink,
) -> (Option<ClientSink>, Result<(), SendError>) {
    let pipeline = BodyPipeline::new(plan.filters, req.task.params().gzip_buffer, BodySink::Client(exit));
    let (pipeline, sent) =
        Box::pin(run_pipeline(req, source, plan.esi, plan.parts.as_deref(), pipeline)).await;
    match pipeline.into_sink() {
        BodySink::Client(exit) => (Some(exit), sent),
        BodySink::Include(_) | BodySink::Lent => (None, sent),
    }
}

/// Sends a body through `pipeline`, with the responses that it includes.
pub async fn run_pipeline(
    req: &mut Req,
    source: &Source,
    esi: bool,
    parts: Option<&Multipart>,
    mut pipeline: BodyPipeline<ClientSink>,
) -> (BodyPipeline<ClientSink>, Result<(), SendError>) {
    let sent = match source {
        _ if let Some(parts) = parts => send_parts(source, parts, &mut pipeline).await,
        Source::Object(object) if esi => {
            let sent;
            (pipeline, sent) = esi::deliver(req, object, pipeline).await;
            sent
        }
        Source::Object(object) => send_stored(&mut pipeline, object, 0, u64::MAX, Behind::More).await,
        Source::Bytes(bytes) => pipeline.write(bytes).await,
    };
    let sent = pipeline.finish(sent).await;
    req.task.log_filtered_out(&pipeline.report());
    (pipeline, sent)
}
