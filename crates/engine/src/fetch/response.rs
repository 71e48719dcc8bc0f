//! Runs `vcl_backend_response` (or `vcl_backend_refresh`), and carries out its decision.

use lacquer_flow::retry;
use lacquer_http::{BodyStatus, SessClose, header_table as h};
use lacquer_shm::Tag;
use lacquer_vcl::types::{Action, Method};

use super::parts::Step;
use super::{Fetch, gone};

pub async fn respond(f: &mut Fetch) -> Step {
    let request_closes = f.request.http.has_token(&f.task.ws, h::CONNECTION, b"close");
    f.mark_close(request_closes, SessClose::ReqClose);
    let handling = f.vcl(Method::BackendResponse).await;
    let response_closes = f.response.http.has_token(&f.task.ws, h::CONNECTION, b"close");
    f.mark_close(response_closes, SessClose::RespClose);

    if !f.check_range() {
        let reason = f.exchange.connection.as_ref().and_then(|o| o.close);
        f.skip_body_at_hand();
        f.close_origin(reason);
        return Step::Error;
    }
    match handling {
        Action::Deliver | Action::Pass => {}
        Action::Error => {
            f.attempt.error_action = true;
            f.close_origin(Some(SessClose::RespClose));
            return Step::Error;
        }
        Action::Retry => return retry(f),
        _ => {
            f.close_origin(Some(SessClose::RespClose));
            return Step::Fail;
        }
    }
    // VCL may have waited, and the object that the 304 confirms may have been removed meanwhile.
    if f.attempt.was_304 && gone::is_stale_gone(f).await {
        return gone::ask_again(f, gone::GONE);
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
    if f.attempt.was_304 { Step::Refresh } else { Step::Body }
}

fn retry(f: &mut Fetch) -> Step {
    let reason = (f.body_status() != BodyStatus::None).then_some(SessClose::RespClose);
    let reason = reason.or_else(|| f.exchange.connection.as_ref().and_then(|o| o.close));
    f.close_origin(reason);
    f.retries.count += 1;
    if retry::is_within(f.retries.count, f.task.params.max_retries) {
        return Step::Retry;
    }
    f.task.log.put(Tag::VCL_Error, b"Too many retries, delivering 503");
    Step::Error
}

impl Fetch {
    /// Skips a body that was received with its head and is not needed, so that the connection can be kept.
    fn skip_body_at_hand(&mut self) {
        if let Some(origin) = &mut self.exchange.connection
            && origin.body_at_hand().is_some()
        {
            origin.keep_surplus(&self.task.ws);
        }
    }

    fn mark_close(&mut self, when: bool, reason: SessClose) {
        if when
            && let Some(origin) = &mut self.exchange.connection
            && origin.close.is_none()
        {
            origin.close = Some(reason);
        }
    }
}
