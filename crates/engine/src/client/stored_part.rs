//! Serves requests for a range from a part of a response, if the part contains the range and is fresh (RFC 9111 section
//! 3.3). VCL sees a hit, whose object is a 206 with the requested bytes.

use std::sync::Arc;

use lacquer_cache::{Busy, Lookup, Nuke, ObjRef, Object, PartCopy};
use lacquer_flow::rfc9111::parts::{OF_PART, Whole};
use lacquer_flow::rfc9111::status::Forward;
use lacquer_http::range::{self, Decision, Rules, Several};
use lacquer_http::{Filter, conditional, header_table as h, pack, vary};

use super::{Req, rfc9111};
use crate::ban_subjects::RequestSubject;
use crate::task::TaskParts;

/// The longest range that is served from a part, in bytes. It is copied. The request for a longer one completes the part.
const MOST: u64 = 64 << 10;

const EXACT: Rules = Rules { several: Several::Ignore, has_exact_dates: true };

/// Returns the object to deliver instead of a fetch, or what the lookup found.
pub async fn instead_of_fetch(req: &mut Req, found: Lookup) -> Result<ObjRef, Lookup> {
    let Lookup::Miss { busy, stale } = found else { return Err(found) };
    let is_new_wanted = req.request.rules.always_miss || req.found.is_hitmiss;
    let parts = if is_new_wanted { Vec::new() } else { parts(req, &busy) };
    if !parts.is_empty() {
        if is_for_range(req)
            && !is_conditional(req)
            && let Some(object) = Box::pin(find(req, &parts)).await
        {
            busy.release();
            return Ok(ObjRef::shared(object));
        }
        if stale.is_none() {
            req.found.forward = Forward::Partial;
        }
    }
    Err(Lookup::Miss { busy, stale })
}

fn is_for_range(req: &Req) -> bool {
    let (http, ws) = (&req.request.http, req.task.ws());
    req.task.params().http_range_support
        && req.inclusion.level == 0
        && http.method(ws) == b"GET"
        && http.count(ws, h::RANGE) == 1
}

/// Returns whether the response may be a 304, which is made only from a whole response.
fn is_conditional(req: &Req) -> bool {
    let (http, ws) = (&req.request.http, req.task.ws());
    http.has(ws, h::IF_NONE_MATCH) || http.has(ws, h::IF_MODIFIED_SINCE)
}

impl Req {
    /// Returns whether a range that VCL requests for this request can be stored as a part.
    #[inline]
    pub(super) fn takes_part(&self) -> bool {
        self.follows_rfc9111() && is_for_range(self)
    }
}

async fn find(req: &mut Req, parts: &[Arc<Object>]) -> Option<Arc<Object>> {
    let mark = req.task.ws().mark();
    let mut found = None;
    for part in parts {
        let place = place(req, part);
        if let Some(place) = place
            && !is_gone(req, part).await
        {
            found = copy(req, part, place);
            break;
        }
        req.response.http.clear();
        req.task.ws_mut().release(mark);
    }
    req.response.http.clear();
    req.task.ws_mut().release(mark);
    found
}

/// Returns the parts that the request may use as far as their Vary and lifetime are concerned.
fn parts(req: &Req, busy: &Busy) -> Vec<Arc<Object>> {
    let (http, ws, gzip) = (&req.request.http, req.task.ws(), req.task.params().http_gzip_support);
    let is_match = |spec: &[u8]| {
        req.request.rules.ignore_vary
            || vary::matches(spec, http, ws, gzip)
            || vary::matches_by_meaning(spec, http, ws, gzip)
    };
    let mut parts = busy.parts(&is_match);
    parts.retain(|part| is_readable(req, part) && rfc9111::is_fresh_enough(req, part));
    parts
}

/// Returns whether the client accepts the coding of a part. Unlike a whole body, a part cannot be unpacked.
fn is_readable(req: &Req, part: &Object) -> bool {
    let is_packed =
        Whole::decode(part.extra()).is_some_and(|whole| whole.coding.eq_ignore_ascii_case(b"gzip"));
    !is_packed || conditional::accepts_gzip(&req.request.http, req.task.ws())
}

/// The range of a body, and the place of its first byte in the part.
#[derive(Clone, Copy)]
struct Place {
    range: (u64, u64),
    from: u64,
}

/// Returns the place of the requested range in a part. Leaves the head of the part as the response.
fn place(req: &mut Req, part: &Object) -> Option<Place> {
    let whole = Whole::decode(part.extra())?;
    req.response.http.clear();
    pack::unpack(part.head(), req.task.ws_mut(), &mut req.response.http).ok()?;
    let (http, ws) = (&req.request.http, req.task.ws());
    let decided = range::decide(http, ws, &req.response.http, ws, Some(whole.length), EXACT);
    let Decision::Part { low, high } = decided else { return None };
    let from = whole.place(part.body_len(), (low, high)).filter(|_| high - low < MOST)?;
    Some(Place { range: (low, high), from })
}

/// Returns whether the part was purged or banned.
async fn is_gone(req: &Req, part: &Object) -> bool {
    let request = RequestSubject { http: &req.request.http, ws: req.task.ws() };
    request.finds_gone(req.task.services().cache(), part).await
}

/// Creates the 206 with a range of a part, whose head is the response. Returns `None` if there is no room.
fn copy(req: &mut Req, part: &Object, Place { range: (low, high), from }: Place) -> Option<Arc<Object>> {
    let services = req.task.services().clone();
    let transient = services.stevedores().get(services.stevedores().transient())?;
    let length = high - low + 1;
    let whole = Whole::decode(part.extra())?.length;
    let TaskParts { ws, .. } = req.task.parts();
    let http = &mut req.response.http;
    for name in OF_PART {
        http.unset(ws, name, |_| ());
    }
    http.set_status(ws, 206).ok()?;
    range::append_content_range(http, ws, low, high, Some(whole)).ok()?;
    http.append_line_copy(ws, format!("Content-Length: {length}").as_bytes()).ok()?;
    let mut head = req.task.take_output();
    pack::pack(&req.response.http, req.task.ws(), Filter::PASS_OBJECT, &mut head);
    let TaskParts { params, log, .. } = req.task.parts();
    let mut note = |text: &str| log.put(lacquer_shm::Tag::ExpKill, text.as_bytes());
    let mut nuke = Nuke::new(params.nuke_limit, &mut note);
    let wanted = PartCopy { part, from, length, head: &head };
    let copied = services.cache().copy_of_part(transient, wanted, &mut nuke);
    req.task.return_output(head);
    copied
}
