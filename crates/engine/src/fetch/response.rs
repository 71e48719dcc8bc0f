//! Runs `vcl_backend_response` (or `vcl_backend_refresh`), and carries out its decision.

use std::sync::Arc;

use lacquer_cache::Object;
use lacquer_http::{BodyStatus, SessClose, header_table as h};
use lacquer_vcl::types::{Action, Method};

use super::connection::OriginConnection;
use super::parts::Step;
use super::{Fetch, gone, retry};

/// Lends the connection of a response to VCL.
pub fn lend(f: &mut Fetch, mut connection: OriginConnection) {
    if f.request.http.has_token(f.task.ws(), h::CONNECTION, b"close") {
        connection.close_unless_closing(SessClose::ReqClose);
    }
    f.exchange.lent = Some(connection);
}

/// Handles a response whose connection was lent to VCL. `confirmed` is the stale object that a 304 confirms.
pub async fn respond(f: &mut Fetch, confirmed: Option<Arc<Object>>) -> Step {
    let handling = f.vcl(Method::BackendResponse).await;
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
    match handling {
        Action::Deliver | Action::Pass => {}
        Action::Error => {
            f.attempt.error_action = true;
            f.close_lent(Some(SessClose::RespClose));
            return Step::Error;
        }
        Action::Retry => {
            let has_body = f.lent_framing() != BodyStatus::None;
            f.close_lent(has_body.then_some(SessClose::RespClose));
            return retry::after_vcl(f, false);
        }
        _ => {
            f.close_lent(Some(SessClose::RespClose));
            return Step::Fail;
        }
    }
    // VCL may have waited, and the object that the 304 confirms may have been removed meanwhile.
    if let Some(stale) = &confirmed
        && gone::is_gone(f, stale).await
    {
        let connection = f.exchange.lent.take();
        return gone::ask_again(f, connection, gone::GONE);
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
