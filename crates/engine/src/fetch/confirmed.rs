//! The head of an object that a 304 confirms: made from the stored head and that of the 304, as `vcl_backend_refresh`
//! decides.

use lacquer_cache::Object;
use lacquer_flow::validation;
use lacquer_http::{HeaderName, Text, header_table as h, pack};
use lacquer_shm::Tag;

use super::Fetch;

/// The fields that a head must take from the stored one, because they describe the stored body.
const STORED_FIELDS: [HeaderName<'static>; 4] =
    [h::CONTENT_LENGTH, h::CONTENT_ENCODING, h::LAST_MODIFIED, h::ETAG];

/// Carries out `return (merge)`: completes the head of the 304 with the stored fields that it does not have. If
/// `weaken_etag` is set, the tag of the 304 identifies another coding of the body.
pub fn merge(f: &mut Fetch, stale: &Object, weaken_etag: bool) {
    if weaken_etag {
        f.beresp_headers().weaken_etag();
    }
    for name in validation::FIELDS_OF_BODY {
        f.beresp_headers().unset(name);
    }
    let Some(head) = pack::PackedHead::new(stale.head()) else { return };
    let own = f.response.http.fields().len();
    if head.merge_into(f.task.ws_mut(), &mut f.response.http).is_err() {
        f.task.ws_mut().set_overflowed();
    }
    log_from(f, own);
    if f.follows_rfc9111() {
        // The stored head may contain the directives.
        let now = f.response.entered;
        let fresh = f.set_lifetimes(now);
        f.log_lifetimes(now, &fresh);
    }
}

/// Carries out `return (beresp)`: keeps the head of the 304, and takes only the fields of the body from the stored one.
pub fn keep_new(f: &mut Fetch, stale: &Object) {
    let mut headers = f.beresp_headers();
    headers.respond_with(200, Text::NONE);
    for name in validation::FIELDS_OF_BODY {
        headers.unset(name);
    }
    for name in STORED_FIELDS {
        if let Some(value) = pack::packed_header(stale.head(), name) {
            headers.unset(name);
            headers.add(name, value);
        }
    }
}

/// Carries out `return (obj_stale)`: replaces the head of the 304 with the stored one.
pub fn keep_stored(f: &mut Fetch, stale: &Object) {
    if pack::unpack(stale.head(), f.task.ws_mut(), &mut f.response.http).is_err() {
        f.task.ws_mut().set_overflowed();
    }
    log_from(f, 0);
}

/// Logs the first line of the response, and its fields from the one with this number.
pub fn log_from(f: &mut Fetch, first: usize) {
    f.beresp_headers().log_first_line();
    for field in f.response.http.fields().get(first..).unwrap_or_default() {
        f.task.put_from(Tag::BerespHeader, |ws| field.line(ws));
    }
}
