//! Parts of responses, and their completion (RFC 9111 sections 3.3 and 3.4).
//!
//! A part is the beginning of a body that was cut short, or a range that VCL has requested. It is kept only with the
//! facts that prove that further bytes belong to it: the strong entity tag and the length that the origin stated, and the
//! target of the request. A request for the whole asks for the rest. Unless everything in the response agrees with the
//! part, the part is dropped and the whole is requested. Thus every doubt costs one more exchange, and none can lead to
//! wrong bytes.

use std::ops::Range;

use lacquer_http::h1::Framing;
use lacquer_http::header_table::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, RANGE, VARY,
};
use lacquer_http::{BodyStatus, Field, HeaderName, Message, Text, Workspace};

use crate::storing::Storing;

/// The least number of bytes of a part. To fetch fewer bytes again takes hardly longer than to ask for the rest.
pub const LEAST: u64 = 16 * 1024;
/// The fields that describe only the part of the body that a response has.
pub const OF_PART: [HeaderName<'static>; 4] =
    [CONTENT_RANGE, CONTENT_LENGTH, HeaderName::new(b"Content-Digest"), HeaderName::new(b"Content-MD5")];
/// The longest entity tag that is stored.
const TAG_MOST: usize = 256;

/// The place of a part, and the facts about the whole response to which it belongs, as its origin stated them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<'a> {
    /// The position of the first byte of the part.
    pub first: u64,
    /// The part cannot belong to an earlier request of its connection.
    pub is_own: bool,
    /// The length of its body.
    pub length: u64,
    /// Its strong entity tag.
    pub tag: &'a [u8],
    /// Its `Content-Encoding`; empty if it has none.
    pub coding: &'a [u8],
    /// The `Host` of the request to the origin.
    pub host: &'a [u8],
    /// The URL of the request to the origin.
    pub url: &'a [u8],
}

impl<'a> Whole<'a> {
    /// Returns the form in which the facts are stored: the numbers, then each text after its length. Returns `None` if a
    /// text is too long.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![self.is_own.into()];
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        for text in [self.tag, self.coding, self.host, self.url] {
            bytes.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
            bytes.extend_from_slice(text);
        }
        Some(bytes)
    }

    /// Reads what [`encode`](Self::encode) has written. Returns `None` if anything is missing or left over.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&is_own, rest) = bytes.split_first()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (length, mut rest) = rest.split_first_chunk::<8>()?;
        let mut text = || {
            let (len, tail) = rest.split_first_chunk::<2>()?;
            let (text, tail) = tail.split_at_checked(u16::from_le_bytes(*len).into())?;
            rest = tail;
            Some(text)
        };
        let (tag, coding, host, url) = (text()?, text()?, text()?, text()?);
        let [first, length] = [first, length].map(|bytes| u64::from_le_bytes(*bytes));
        let whole = Self { first, is_own: is_own == 1, length, tag, coding, host, url };
        (rest.is_empty() && is_strong(tag) && is_own <= 1 && first < length).then_some(whole)
    }

    /// Returns the number of bytes of a part of `held` bytes to which the rest can be added; 0 if that is not possible.
    /// If the part has all bytes, the last one is requested, so that the origin confirms the others.
    pub fn beginning(&self, held: u64) -> u64 {
        if self.first == 0 && self.is_own { held.min(self.length - 1) } else { 0 }
    }

    /// Returns the position within a part of `held` bytes at which the bytes `low..=high` of the body are.
    pub fn place(&self, held: u64, (low, high): (u64, u64)) -> Option<u64> {
        let bytes = self.bytes(held);
        (bytes.contains(&low) && bytes.contains(&high) && low <= high).then(|| low - self.first)
    }

    /// Returns the bytes of the body that a part of `held` bytes has.
    fn bytes(&self, held: u64) -> Range<u64> {
        self.first..self.first.saturating_add(held)
    }

    /// Returns whether two parts belong to the same response.
    fn is_same(&self, other: &Whole<'_>) -> bool {
        Whole { first: 0, is_own: true, ..*self } == Whole { first: 0, is_own: true, ..*other }
    }

    /// Returns whether another part is of no use beside this one: it belongs to another response, or this one contains
    /// it. Both have the same key and variant, and this one is newer.
    pub fn replaces(&self, held: u64, (other, others): (&Whole<'_>, u64)) -> bool {
        let (own, its) = (self.bytes(held), other.bytes(others));
        let contains = own.start <= its.start && its.end <= own.end;
        !self.is_same(other) || contains && (self.is_own || !other.is_own)
    }

    /// Returns the value of `Range` that asks for the rest after `received` bytes.
    pub fn range(&self, received: u64) -> String {
        format!("bytes={received}-")
    }

    /// Returns the only value of `Content-Range` that the rest may have. It is compared as text, so no number of an
    /// origin is computed with.
    fn content_range(&self, received: u64) -> String {
        format!("bytes {received}-{}/{}", self.length.saturating_sub(1), self.length)
    }
}

/// Returns whether an entity tag is valid, strong and not empty (RFC 9110 section 8.8.3).
fn is_strong(tag: &[u8]) -> bool {
    let inner = tag.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    tag.len() <= TAG_MOST
        && inner.is_some_and(|inner| {
            !inner.is_empty() && inner.iter().all(|&b| b == 0x21 || b >= 0x23 && b != 0x7f)
        })
}

/// Returns the value of a field that occurs once.
fn single<'w>(msg: &Message, ws: &'w Workspace, name: HeaderName<'_>) -> Option<&'w [u8]> {
    if msg.count(ws, name) == 1 { msg.get(ws, name) } else { None }
}

/// The texts of a response by which a later one can be recognized as its rest.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    pub tag: Text,
    /// `Text::NONE` without a coding.
    pub coding: Text,
}

/// Returns the marks of a whole response, as its origin sent it, if the rest of its body could be requested later.
pub fn marks(response: &Message, ws: &Workspace) -> Option<Marks> {
    let is_whole = response.status() == 200
        && single(response, ws, ETAG).is_some_and(is_strong)
        && response.count(ws, CONTENT_ENCODING) <= 1
        && !is_multipart(response, ws);
    is_whole.then(|| texts(response, ws))
}

fn texts(response: &Message, ws: &Workspace) -> Marks {
    let text = |name| response.find(ws, name).map_or(Text::NONE, Field::value_text);
    Marks { tag: text(ETAG), coding: text(CONTENT_ENCODING) }
}

fn is_multipart(response: &Message, ws: &Workspace) -> bool {
    const MULTIPART: &[u8] = b"multipart/byteranges";
    response
        .get_all(ws, CONTENT_TYPE)
        .any(|value| value.get(..MULTIPART.len()).is_some_and(|start| start.eq_ignore_ascii_case(MULTIPART)))
}

/// The facts about a body that was cut short, which determine whether the received part is kept. `marks` are those of
/// the response before VCL has seen it.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'m> {
    pub request: &'m Message,
    pub response: &'m Message,
    pub ws: &'m Workspace,
    pub marks: Option<Marks>,
    pub storing: Storing,
    pub framing: BodyStatus,
    /// The stored bytes differ from those of the origin, or a filter checks them.
    pub is_filtered: bool,
    /// The response cannot belong to an earlier request of its connection.
    pub is_own: bool,
    /// The number of bytes that the body must have.
    pub length: u64,
    pub received: u64,
}

/// Returns the facts to store with a part, or `None` if it is not kept.
pub fn kept<'m>(cut: &Cut<'m>) -> Option<Whole<'m>> {
    let Marks { tag, coding } = cut.marks?;
    let is_kept = cut.storing == Storing::Cached
        && cut.framing == BodyStatus::Length
        && cut.request.method(cut.ws) == b"GET"
        && cut.response.status() == 200
        && !cut.is_filtered
        && cut.is_own
        && (LEAST..cut.length).contains(&cut.received);
    if !is_kept {
        return None;
    }
    Some(Whole {
        first: 0,
        is_own: cut.is_own,
        length: cut.length,
        tag: cut.ws.get(tag),
        coding: if coding.is_none() { b"" } else { cut.ws.get(coding) },
        host: single(cut.request, cut.ws, HOST)?,
        url: cut.request.url(cut.ws),
    })
}

/// A range of a body that VCL has requested.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub marks: Marks,
    /// The position of its first byte.
    pub first: u64,
    /// The length of the whole body.
    pub length: u64,
}

/// Returns the range that a 206 contains, as its origin sent it, if it can be stored as a part. Whether the origin sent
/// the requested range is checked elsewhere.
pub fn sent(request: &Message, response: &Message, ws: &Workspace, framing: Framing) -> Option<Sent> {
    let is_simple = response.status() == 206
        && single(request, ws, RANGE).is_some_and(|range| !range.contains(&b','))
        && single(response, ws, ETAG).is_some_and(is_strong)
        && response.count(ws, CONTENT_ENCODING) <= 1
        && !is_multipart(response, ws)
        && framing.status == BodyStatus::Length;
    let (first, last, length) =
        single(response, ws, CONTENT_RANGE).filter(|_| is_simple).and_then(range_of)?;
    (last - first + 1 == framing.content_length).then(|| Sent { marks: texts(response, ws), first, length })
}

/// Reads a `Content-Range` with all numbers: the first and the last byte, and the length of the body.
fn range_of(value: &[u8]) -> Option<(u64, u64, u64)> {
    let (unit, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let (range, length) = rest.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| {
        let is_plain = (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_plain { text.parse::<u64>().ok() } else { None }
    };
    let (first, last, length) = (number(first)?, number(last)?, number(length)?);
    (unit.eq_ignore_ascii_case("bytes") && first <= last && last < length).then_some((first, last, length))
}

/// Returns whether the request asks for the rest of the part, after VCL has changed it.
pub fn is_asked(whole: &Whole<'_>, received: u64, request: &Message, ws: &Workspace) -> bool {
    let is = |name, value: &[u8]| single(request, ws, name) == Some(value);
    request.method(ws) == b"GET"
        && request.url(ws) == whole.url
        && is(HOST, whole.host)
        && is(RANGE, whole.range(received).as_bytes())
        && is(IF_RANGE, whole.tag)
        && ![IF_NONE_MATCH, IF_MODIFIED_SINCE].iter().any(|&name| request.has(ws, name))
}

/// The meaning of the response to a request for the rest of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is the rest.
    Rest,
    /// It replaces the part.
    Replaces,
    /// The origin has failed. The part stays for the next request.
    Failed,
    /// It cannot be used: the part is dropped, and the whole response is requested.
    Repeat,
}

/// Decides about the response to a request for the rest of a part of `received` bytes. `vary` is the stored `Vary`.
pub fn answer(
    whole: &Whole<'_>,
    received: u64,
    vary: Option<&[u8]>,
    (response, ws): (&Message, &Workspace),
    framing: Framing,
) -> Answer {
    match response.status() {
        206 if is_rest(whole, received, vary, (response, ws), framing) => Answer::Rest,
        // 412 and 416 have no other cause than the condition and the range.
        206 | 304 | 412 | 416 => Answer::Repeat,
        500..=599 => Answer::Failed,
        _ => Answer::Replaces,
    }
}

fn is_rest(
    whole: &Whole<'_>,
    received: u64,
    vary: Option<&[u8]>,
    (response, ws): (&Message, &Workspace),
    framing: Framing,
) -> bool {
    let agrees = |name, stored: Option<&[u8]>| {
        let count = response.count(ws, name);
        count == 0 || count == 1 && response.get(ws, name) == stored
    };
    let coding = Some(whole.coding).filter(|coding| !coding.is_empty());
    let range = whole.content_range(received);
    single(response, ws, ETAG) == Some(whole.tag)
        && is_strong(whole.tag)
        && single(response, ws, CONTENT_RANGE).is_some_and(|got| got.eq_ignore_ascii_case(range.as_bytes()))
        && framing.status == BodyStatus::Length
        && whole.length.checked_sub(received) == Some(framing.content_length)
        && (1..whole.length).contains(&received)
        && agrees(CONTENT_ENCODING, coding)
        && agrees(VARY, vary)
        && !is_multipart(response, ws)
}

#[cfg(test)]
mod tests;
