//! Builds the client's response from the stored object, and runs `vcl_deliver`.

use lacquer_cache::{BodyState, ObjRef, flag};
use lacquer_deliver::Source;
use lacquer_flow::delivery;
use lacquer_flow::persistence::{self, Announcement};
use lacquer_http::message::FIRST_HEADER;
use lacquer_http::{BodyStatus, Slot, conditional, fixed, header_table as h, pack};
use lacquer_shm::vsl::text;
use lacquer_sources::clock;
use lacquer_vcl::types::{Action, Method};

use super::admit::admit;
use super::{Req, Step, rfc9111};

/// Fills in the response from the object. Returns false if the workspace is too small.
pub(super) fn set_up(req: &mut Req, object: &ObjRef) -> bool {
    req.response.http.clear();
    if pack::unpack(object.head(), req.task.ws_mut(), &mut req.response.http).is_err() {
        log_too_many_headers(req, object);
        return false;
    }
    req.response.http.put(req.task.ws(), Slot::Proto, fixed::HTTP_11);
    req.resp_headers().log_all();
    let fetched_by = req.found.is_hit.then(|| object.vxid());
    // The conversion rounds down, and makes a negative age zero.
    let age = (req.task.last_event() - object.t_origin()) as u64;
    let via = req.task.services().via();
    let own = req.task.vxid().number();
    let mut headers = req.resp_headers();
    headers.add(crate::logged::names::X_VARNISH, numbers(own, fetched_by, &mut [0; TWO_NUMBERS]));
    headers.add(h::AGE, text::digits(age, &mut [0; text::MAX]));
    req.resp_headers().append_value(h::VIA, via.as_bytes());
    if req.follows_rfc9111() {
        rfc9111::report(req, object);
    }
    if req.task.params().http_gzip_support
        && object.is(flag::GZIPED)
        && !conditional::accepts_gzip(&req.request.http, req.task.ws())
    {
        req.resp_headers().weaken_etag();
    }
    true
}

#[cold]
fn log_too_many_headers(req: &mut Req, object: &ObjRef) {
    if let Some(head) = pack::PackedHead::new(object.head()).filter(|_| !req.task.ws().overflowed()) {
        let (count, most) = (head.count() + FIRST_HEADER, req.task.params().http_max_hdr);
        req.log_error(&format!("Too many headers to Decode object ({count} vs. {most})"));
    }
}

const TWO_NUMBERS: usize = 2 * text::MAX + 1;

/// Formats one number, or two separated by a space.
fn numbers(first: u64, second: Option<u64>, out: &mut [u8; TWO_NUMBERS]) -> &[u8] {
    let mut end = text::decimal_at(first, 0, out);
    if let Some(second) = second
        && let Some(blank) = out.get_mut(end)
    {
        *blank = b' ';
        end = text::decimal_at(second, end + 1, out);
    }
    &out[..end]
}

pub async fn deliver(req: &mut Req, object: ObjRef) -> Step {
    if !set_up(req, &object) {
        object.let_go();
        req.response.status = 500;
        return Step::Synth;
    }
    let has_ranges = req.task.params().http_range_support;
    if delivery::offers_ranges(has_ranges, req.response.http.status(), object.is(flag::PRIVATE)) {
        req.resp_headers().force(h::ACCEPT_RANGES, fixed::ACCEPT_RANGES_BYTES);
    }
    req.response.entered = clock::real();
    req.response.is_streaming = object.state() == BodyState::Fetching;
    if req.response.is_streaming
        && req.found.is_hit
        && let Err(step) = Box::pin(admit(req)).await
    {
        req.response.http.clear();
        return step;
    }
    req.found.object = Some(object.clone());
    let handling = req.vcl(Method::Deliver).await;
    if handling != Action::Deliver {
        req.found.object = None;
        object.let_go();
        req.response.http.clear();
        return match handling {
            Action::Restart => Step::Restart,
            Action::Synth => Step::Synth,
            _ => Step::VclFail,
        };
    }
    req.task.stamp("Process");
    if req.inclusion.level == 0 && not_modified(req, &object) {
        req.resp_headers().respond(304, None);
    }
    Step::Transmit(Source::Object(object))
}

/// Returns whether the client's conditions allow a 304 response. The response to a request that may have changed something
/// is delivered as it is (RFC 9110 section 13.2.2).
fn not_modified(req: &Req, object: &ObjRef) -> bool {
    let ws = req.task.ws();
    let (request, response) = (&req.request.http, &req.response.http);
    conditional::not_modified(request, ws, response, ws, req.request.received, || object.last_modified())
        && matches!(req.request.original.method(ws), b"GET" | b"HEAD")
}

/// Closes the connection after this response if the request body was malformed or incomplete.
pub fn close_after_bad_body(req: &mut Req) {
    req.client.close =
        persistence::after_body(req.client.close, req.request.body.status() == BodyStatus::Error);
}

/// Decides whether the connection stays open after the response, and sets the `Connection` header accordingly.
pub fn settle_connection(req: &mut Req) {
    close_after_bad_body(req);
    let is_draining = req.task.services().is_draining();
    req.client.close = persistence::before_response(req.client.close, req.client.tx.carrier(), is_draining);
    let ws = req.task.ws();
    let has_close = req.response.http.value_is(ws, h::CONNECTION, b"close");
    let (close, announcement) =
        persistence::announce(req.client.close, has_close, || req.response.http.has(ws, h::CONNECTION));
    req.client.close = close;
    match announcement {
        Announcement::Unchanged => {}
        Announcement::Close => {
            let mut headers = req.resp_headers();
            headers.unset(h::CONNECTION);
            headers.add_line(h::CONNECTION, fixed::CONNECTION_CLOSE);
        }
        Announcement::KeepAlive => {
            req.resp_headers().add_line(h::CONNECTION, fixed::CONNECTION_KEEP_ALIVE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_separated_by_a_space() {
        let shown = |a, b| String::from_utf8_lossy(numbers(a, b, &mut [0; TWO_NUMBERS])).into_owned();
        assert_eq!(shown(32770, None), "32770");
        assert_eq!(shown(32770, Some(3)), "32770 3");
        assert_eq!(shown(u64::MAX, Some(u64::MAX)), format!("{0} {0}", u64::MAX));
    }
}
