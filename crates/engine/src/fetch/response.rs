//! Runs `vcl_backend_response` (or `vcl_backend_refresh`), and carries out its decision.

use std::sync::Arc;

use lacquer_cache::Object;
use lacquer_http::{SessClose, header_table as h};
use lacquer_vcl::types::{Action, Method};

use super::connection::OriginConnection;
use super::parts::Step;
use super::{Fetch, completion, confirmed, gone, retry, stale};

/// Lends the connection of a response to VCL.
pub fn lend(f: &mut Fetch, mut connection: OriginConnection) {
    if f.request.http.has_token(f.task.ws(), h::CONNECTION, b"close") {
        connection.close_unless_closing(SessClose::ReqClose);
    }
    f.exchange.lent = Some(connection);
}

/// Handles a response whose connection was lent to VCL. `confirmed` is the stale object that a 304 confirms, and
/// whether a tag of the origin is too strong for it.
pub async fn respond(f: &mut Fetch, confirmed: Option<(Arc<Object>, bool)>) -> Step {
    let mut handling = Action::Deliver;
    let confirmed = match confirmed {
        Some((stale, weaken_etag)) => {
            handling = confirm(f, &stale, weaken_etag).await;
            Some(stale)
        }
        None => None,
    };
    if handling == Action::Deliver {
        handling = f.vcl(Method::BackendResponse).await;
    }
    // After a rollback, the connection is gone.
    let response_closes = f.response.http.has_token(f.task.ws(), h::CONNECTION, b"close");
    if let Some(connection) = f.exchange.lent.as_mut().filter(|_| response_closes) {
        connection.close_unless_closing(SessClose::RespClose);
    }

    if !f.check_range(f.exchange.lent.is_some()) {
        if let Some(connection) = &mut f.exchange.lent {
            connection.skip_buffered_body(f.task.ws());
        }
        f.close_lent(None);
        return Step::Error;
    }
    let is_error = handling == Action::Deliver && confirmed.is_none() && stale::is_error(f);
    if is_error || !matches!(handling, Action::Deliver | Action::Pass) {
        // Boxed: few responses end here, and the future is large.
        if let Some(step) = Box::pin(conclude(f, handling)).await {
            return step;
        }
    }
    // VCL may have waited, and the object that the 304 confirms may have been removed meanwhile.
    if let Some(stale) = &confirmed
        && gone::is_gone(f, stale).await
    {
        let connection = f.exchange.lent.take();
        return gone::ask_again(f, connection, gone::GONE);
    }
    if let Some(part) = f.completion.continued()
        && gone::is_gone(f, &part).await
    {
        let connection = f.exchange.lent.take();
        return completion::repeat(f, connection, gone::PART_GONE);
    }
    f.task.stamp("Process");
    f.release_request();
    if f.attempt.do_esi {
        f.attempt.do_stream = false;
    }
    if handling == Action::Pass {
        f.response.is_hit_for_pass = true;
        f.response.is_uncacheable = true;
    }
    match confirmed {
        Some(stale) => Step::Refresh(stale),
        None => Step::Body,
    }
}

/// Ends the use of a response that is not stored: VCL has decided so, or a stale object may replace the error that it is.
/// Returns the next step then.
async fn conclude(f: &mut Fetch, handling: Action) -> Option<Step> {
    match handling {
        Action::Deliver => {
            let stale = stale::usable(f).await?;
            let ended = stale::deliver_stale(f, stale);
            f.skip_body().await;
            Some(ended)
        }
        Action::Error => {
            f.attempt.error_action = true;
            f.skip_body().await;
            Some(Step::Error)
        }
        Action::Retry => {
            f.skip_body().await;
            Some(retry::after_vcl(f, false))
        }
        Action::Abandon => {
            let ended = stale::abandoned(f).await;
            f.skip_body().await;
            Some(ended)
        }
        _ => {
            f.skip_body().await;
            Some(Step::Fail)
        }
    }
}

/// Runs `vcl_backend_refresh` for a 304, and makes the head that VCL has chosen the response's. Returns `Deliver`, or
/// the decision of VCL that ends the attempt.
async fn confirm(f: &mut Fetch, stale: &Object, weaken_etag: bool) -> Action {
    let handling = f.vcl(Method::BackendRefresh).await;
    match handling {
        Action::Merge => confirmed::merge(f, stale, weaken_etag),
        Action::Beresp => confirmed::keep_new(f, stale),
        Action::ObjStale => confirmed::keep_stored(f, stale),
        _ => return handling,
    }
    Action::Deliver
}
