//! Bodies that go through filters on their way to the client, or include others.

use lacquer_deliver::{Below, Outlet, SendError, Sink, Source, send_parts, send_stored};
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
    let outlet = Outlet::new(plan.filters, req.task.params.gzip_buffer, Below::Client(exit));
    let (outlet, sent) = Box::pin(pour(req, source, plan.esi, plan.parts.as_deref(), outlet)).await;
    match outlet.into_below() {
        Below::Client(exit) => (Some(exit), sent),
        Below::Include(_) | Below::Lent => (None, sent),
    }
}

/// A body through filters; what it includes comes with it.
pub async fn pour(
    req: &mut Req,
    source: &Source,
    esi: bool,
    parts: Option<&Multipart>,
    mut outlet: Outlet<Exit>,
) -> (Outlet<Exit>, Result<(), SendError>) {
    let poured = match source {
        _ if let Some(parts) = parts => send_parts(source, parts, &mut outlet).await,
        Source::Object(object) if esi => {
            let poured;
            (outlet, poured) = esi::play(req, object, outlet).await;
            poured
        }
        Source::Object(object) => send_stored(&mut outlet, object, 0, u64::MAX).await,
        Source::Bytes(bytes) => outlet.write(bytes).await,
    };
    let sent = outlet.finish(poured).await;
    req.task.log_filtered_out(&outlet.report());
    (outlet, sent)
}
