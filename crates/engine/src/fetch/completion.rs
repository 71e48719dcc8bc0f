//! Completes a part of an earlier response: asks the origin for the rest of the body, and stores both as one object.
//! `lacquer_flow::rfc9111::parts` decides which bodies are kept as parts, and whether a response is the rest.

use std::sync::Arc;

use lacquer_cache::{BodyState, Object, flag};
use lacquer_flow::rfc9111::parts::{self, Answer, Cut, OF_PART, Whole};
use lacquer_http::h1::Framing;
use lacquer_http::{Field, SessClose, Slot, Text, header_table as h, pack, vary};
use lacquer_shm::Tag;

use super::connection::OriginConnection;
use super::draft::Draft;
use super::object::Stored;
use super::parts::{Proof, Step, Target};
use super::{Fetch, confirmed, gone};

/// Adds the header fields that ask for the rest of a part, if the cache has one for the request that is not older than
/// the stale object. Returns whether it does.
pub fn ask(f: &mut Fetch) -> bool {
    if !f.follows_rfc9111() || f.request.body.is_some() || f.request.cached_body.is_some() {
        return false;
    }
    let Target::Cache(busy) = &f.product.target else { return false };
    let (http, ws, gzip) = (&f.request.http, f.task.ws(), f.task.params().http_gzip_support);
    if http.has(ws, h::RANGE) || http.has(ws, h::IF_RANGE) {
        return false;
    }
    let Some(part) = longest(busy.parts(&|spec| vary::matches(spec, http, ws, gzip))) else { return false };
    let is_preferred = |stale: &Arc<Object>| {
        stale.state() == BodyState::Failed || stale.is(flag::IMSCAND) && stale.t_origin() > part.t_origin()
    };
    if f.product.stale.as_ref().is_some_and(is_preferred) {
        return false;
    }
    let Some(whole) = Whole::decode(part.extra()) else { return false };
    let range = whole.range(beginning(&part));
    let mut headers = f.bereq_headers();
    headers.add(h::RANGE, range.as_bytes());
    headers.add(h::IF_RANGE, whole.tag);
    f.completion.part = Some(part);
    true
}

/// Returns the part with the longest beginning of the body, if it is long enough.
fn longest(parts: Vec<Arc<Object>>) -> Option<Arc<Object>> {
    parts.into_iter().filter(|part| beginning(part) >= parts::LEAST).max_by_key(|part| beginning(part))
}

/// Returns the number of bytes of a part to which the rest is added.
fn beginning(part: &Object) -> u64 {
    Whole::decode(part.extra()).map_or(0, |whole| whole.beginning(part.body_len()))
}

/// Drops the part before VCL sees the request, if it was purged or banned.
pub async fn recheck(f: &mut Fetch) {
    f.completion.is_asked = false;
    f.completion.is_rest = false;
    let Some(part) = f.completion.part.clone() else { return };
    if gone::is_gone(f, &part).await {
        forget(f);
    }
}

/// Checks after VCL whether the request still asks for the rest of the part. If not, it is sent without the header
/// fields that [`ask`] has added.
pub fn settle(f: &mut Fetch) {
    f.completion.proof = None;
    let Some(part) = f.completion.part.clone() else { return };
    let is_asked = Whole::decode(part.extra())
        .is_some_and(|whole| parts::is_asked(&whole, beginning(&part), &f.request.http, f.task.ws()));
    f.completion.is_asked = is_asked;
    if !is_asked {
        forget(f);
    }
}

/// Drops the reference to the part, and removes the header fields that ask for its rest. A `Range` of VCL stays.
fn forget(f: &mut Fetch) {
    let Some(part) = f.completion.part.take() else { return };
    f.completion.is_asked = false;
    f.completion.is_rest = false;
    let Some(whole) = Whole::decode(part.extra()) else { return };
    let range = whole.range(beginning(&part));
    let is_ours = f.request.http.value_is(f.task.ws(), h::RANGE, range.as_bytes());
    if f.request.http.value_is(f.task.ws(), h::IF_RANGE, whole.tag) {
        f.bereq_headers().unset(h::IF_RANGE);
    }
    if is_ours {
        f.bereq_headers().unset(h::RANGE);
    }
    for name in [h::RANGE, h::IF_RANGE] {
        f.request.original.unset(f.task.ws(), name, |_| ());
    }
}

/// Drops the part, and removes it from the cache.
fn discard(f: &mut Fetch) {
    if let Some(part) = f.completion.part.clone() {
        forget(f);
        f.task.services().cache().fail(&part);
    }
}

/// Interprets the response to a request for the rest of a part, before its lifetime is derived and VCL sees it. The
/// rest becomes a whole response. Returns the next step instead of the connection if the request is repeated.
pub async fn interpret(f: &mut Fetch, connection: OriginConnection) -> Result<OriginConnection, Step> {
    let Some(part) = f.completion.part.clone().filter(|_| f.completion.is_asked) else {
        return Ok(connection);
    };
    let answer = Whole::decode(part.extra()).map_or(Answer::Repeat, |whole| {
        let stored_vary = pack::packed_header(part.head(), h::VARY);
        let response = (&f.response.http, f.task.ws());
        parts::answer(&whole, beginning(&part), stored_vary, response, connection.reply().framing())
    });
    match answer {
        Answer::Rest => {
            if gone::is_gone(f, &part).await {
                return Err(repeat(f, connection, gone::PART_GONE));
            }
            if !complete_head(f, &part) {
                return Err(repeat(f, connection, "There is no room for the head of the stored part"));
            }
            f.completion.is_rest = true;
            Ok(connection)
        }
        Answer::Repeat => Err(repeat(f, connection, "The response is not the rest of the stored part")),
        Answer::Replaces => {
            discard(f);
            Ok(connection)
        }
        // If VCL retries, the next request asks again.
        Answer::Failed => Ok(connection),
    }
}

/// Repeats the request for the whole response, because the part cannot be completed. `why` is logged.
pub fn repeat(f: &mut Fetch, connection: impl Into<Option<OriginConnection>>, why: &str) -> Step {
    f.task.log_mut().put(Tag::Error, why.as_bytes());
    f.close_origin(connection, Some(SessClose::RxBody));
    discard(f);
    f.retries.count += 1;
    Step::Retry
}

/// Makes the head of the whole response from that of the rest, and the stored fields that it does not have (RFC 9111
/// section 3.4). Returns false if that is not possible.
fn complete_head(f: &mut Fetch, part: &Object) -> bool {
    let facts = Whole::decode(part.extra()).zip(pack::PackedHead::new(part.head()));
    let Some((Whole { length, .. }, head)) = facts else { return false };
    if !f.response.http.has(f.task.ws(), h::DATE) {
        // The stored date is older than the response.
        let date = f.task.services().http_date(f.response.entered);
        f.beresp_headers().add(h::DATE, &date);
    }
    let mut headers = f.beresp_headers();
    for name in OF_PART {
        headers.unset(name);
    }
    let own = f.response.http.fields().len();
    if head.merge_into(f.task.ws_mut(), &mut f.response.http).is_err() {
        return false;
    }
    // A part that VCL has requested has another status.
    if f.response.http.status() != 200 && f.response.http.set_status(f.task.ws_mut(), 200).is_err() {
        return false;
    }
    confirmed::log_from(f, own);
    let mut headers = f.beresp_headers();
    for name in [h::CONTENT_RANGE, h::CONTENT_LENGTH] {
        headers.unset(name);
    }
    if head.status() != 200 {
        // The stored fields may describe that range alone.
        for name in OF_PART {
            headers.unset(name);
        }
    }
    headers.add(h::CONTENT_LENGTH, length.to_string().as_bytes())
}

/// Remembers by which marks other parts of the response could be recognized, and the target of the request. Called
/// before VCL sees the response, because it may change both messages.
pub fn mark(f: &mut Fetch, framing: Framing) {
    let (http, ws) = (&f.request.http, f.task.ws());
    let is_simple = http.method(ws) == b"GET" && http.count(ws, h::HOST) == 1;
    let host = http.find(ws, h::HOST).map_or(Text::NONE, Field::value_text);
    let takes_range = is_simple && f.completion.is_range_wanted && f.task.params().http_range_support;
    let sent = if takes_range { parts::sent(http, &f.response.http, ws, framing) } else { None };
    let marks = sent.map(|sent| sent.marks).or_else(|| parts::marks(&f.response.http, ws));
    let url = http.text(Slot::Url);
    f.completion.proof = marks.filter(|_| is_simple).map(|marks| Box::new(Proof { sent, marks, host, url }));
}

impl Fetch {
    /// Returns the framing of the whole body, if the response is the rest of a part, or its own.
    pub(super) fn framing_of_whole(&self, framing: Framing) -> Framing {
        let before = self.continued_bytes();
        Framing { content_length: framing.content_length.saturating_add(before), ..framing }
    }

    /// Removes the part from the cache, because the object that is being completed contains it.
    pub(super) fn drop_completed_part(&mut self) {
        if let Some(part) = self.completion.continued() {
            self.completion.part = None;
            self.task.services().cache().supersede(&part);
        }
    }

    /// Keeps the received part of a body that was cut short, if a later fetch could complete it. Otherwise dropping
    /// `stored` fails it. `length` is that of the whole body.
    pub(super) fn keep_part(&mut self, stored: Stored, cut: CutShort<'_>) {
        let Stored::Begun(Draft { object, writer, is_published: true, .. }) = stored else { return };
        let is_kept_whole = !object.stored().is_on_device();
        if !self.follows_rfc9111() || object.is(flag::CANCEL) || !object.extra().is_empty() || !is_kept_whole
        {
            return;
        }
        let Some(&Proof { marks, host, url, .. }) = self.completion.proof.as_deref() else { return };
        let connection = cut.connection;
        let facts = Cut {
            request: &self.request.http,
            response: &self.response.http,
            ws: self.task.ws(),
            marks: Some(marks),
            storing: self.storing(),
            framing: connection.reply().framing().status,
            is_filtered: cut.is_filtered,
            is_own: connection.is_own(),
            length: cut.length,
            received: writer.len(),
        };
        let Some(whole) = parts::kept(&facts) else { return };
        let [host, url] = [host, url].map(|text| self.task.ws().get(text));
        let Some(record) = (Whole { host, url, ..whole }).encode() else { return };
        let text = format!("vsl: Received {} of {} bytes, kept as a part", writer.len(), cut.length);
        self.task.log_mut().put(Tag::Notice, text.as_bytes());
        object.set_extra(&record);
        self.product.target = Target::Delivered;
        self.task.services().cache().keep_part(&object, writer);
        self.drop_completed_part();
        self.tidy(&object);
    }

    /// Returns the number of bytes of the stored part that the body begins with.
    pub(super) fn continued_bytes(&self) -> u64 {
        self.completion.continued().map_or(0, |part| beginning(&part))
    }

    /// Removes the new object if the part that it continues was purged or banned before the object was published: the
    /// purge or ban did not find the object. The requests that have it began before.
    pub(super) async fn recheck_continued(&mut self, draft: &Draft) {
        if let Some(part) = self.completion.continued()
            && gone::is_gone(self, &part).await
        {
            self.task.services().cache().kill(&draft.object);
        }
    }

    /// Removes the part that could not be stored together with the rest of the body, so that the next fetch begins with
    /// the memory that it occupies.
    pub(super) fn discard_continued(&mut self) {
        if let Some(part) = self.completion.continued() {
            self.task.services().cache().fail(&part);
        }
    }
}

/// A body that its origin has cut short.
#[derive(Clone, Copy)]
pub struct CutShort<'c> {
    pub connection: &'c OriginConnection,
    /// The length of the whole body.
    pub length: u64,
    pub is_filtered: bool,
}
