//! Responses to the challenges of an ACME server, before VCL sees the request.

use lacquer_deliver::Source;
use lacquer_http::header_table as h;

use super::{Req, Step, synth};

/// Responds to a request for the page of a pending challenge. Returns `None` for all other requests.
#[cold]
pub fn respond(req: &mut Req) -> Option<Step> {
    let message = &req.request.original;
    let is_fetch = matches!(message.method(req.task.ws()), b"GET" | b"HEAD");
    if !is_fetch || req.inclusion.level > 0 || req.request.restarts > 0 || req.request.body.is_available() {
        return None;
    }
    let page = req.task.services().shared().challenges().find(message.url(req.task.ws()))?;
    req.task.services().counters().s_synth.add(1);
    req.response.status = 200;
    synth::set_up(req);
    let length = page.len().to_string();
    let mut headers = req.resp_headers();
    headers.add(h::CONTENT_TYPE, b"application/octet-stream");
    headers.add(h::CONTENT_LENGTH, length.as_bytes());
    Some(Step::Transmit(Source::Bytes(page)))
}
