//! Decisions about sending a response: its body, how its length and its end are indicated (RFC 9110 sections 6.4.1
//! and 8.6, RFC 9112 section 6), and the ranges that it offers.

use lacquer_http::range::Several;

use crate::persistence::Carrier;

/// The facts that determine the body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub status: u16,
    /// The client's request was a HEAD.
    pub is_head: bool,
    /// The response's `Content-Length`.
    pub announced: Option<u64>,
    /// The length of the body as it will be sent, if that is known.
    pub length: Option<u64>,
    /// The response is not cached: it came from the origin for this request only.
    pub is_uncacheable: bool,
    /// Filters or includes change the body.
    pub is_changed: bool,
}

/// The treatment of `Content-Length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthField {
    /// The value is correct, or cannot be verified here.
    Keep,
    Remove,
    Set(u64),
}

/// Returns whether a response with this status never has a body. VCL may use statuses above 999, of which the client
/// receives the last three digits.
#[inline]
fn is_bodyless(status: u16) -> bool {
    let received = if status > 999 { status % 1000 } else { status };
    matches!(received, ..200 | 204 | 304)
}

/// Returns whether a body, even an empty one, may follow the head of a response with this status. `is_head` is whether
/// the request was a HEAD.
#[inline]
pub fn allows_body(is_head: bool, status: u16) -> bool {
    !is_head && !is_bodyless(status)
}

impl Facts {
    /// Decides whether the body is sent.
    #[inline]
    pub fn sends_body(self) -> bool {
        allows_body(self.is_head, self.status) && self.length != Some(0)
    }

    /// Returns whether the response is stored without the body that its head describes.
    fn is_stored_head(self) -> bool {
        self.announced.is_some() && self.length == Some(0) && self.status != 416
    }

    /// Decides about `Content-Length`. A response of the origin to HEAD keeps its value, because the length of the body
    /// is not known here, unless the body would be changed by filters. If it is stored, it has an empty body.
    #[inline]
    pub fn length_field(self) -> LengthField {
        if is_bodyless(self.status) {
            LengthField::Remove
        } else if self.announced.is_some() && self.announced == self.length
            || self.is_head && !self.is_changed && (self.is_uncacheable || self.is_stored_head())
        {
            LengthField::Keep
        } else {
            self.length.map_or(LengthField::Remove, LengthField::Set)
        }
    }
}

/// Returns the length of a body in storage. While it is being fetched, that is the length that the origin announced.
#[inline]
pub fn stored_length(is_complete: bool, stored: u64, announced: Option<u64>) -> Option<u64> {
    if is_complete { Some(stored) } else { announced }
}

/// Returns the length of a body after decompression. `unpacked` was recorded when the body was stored. The length of
/// a body with includes is unknown, because they are inserted before decompression.
#[inline]
pub fn unpacked_length(has_includes: bool, unpacked: Option<u64>) -> Option<u64> {
    unpacked.filter(|_| !has_includes)
}

/// Returns the length of a body with includes, which is known only if the body is empty.
#[inline]
pub fn including_length(length: Option<u64>) -> Option<u64> {
    length.filter(|&length| length == 0)
}

/// How a range of a body is extracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The length of the range, if the length of the body is known.
    pub length: Option<u64>,
    /// A filter extracts the range, because the stored bytes differ from those that are sent.
    pub is_filtered: bool,
}

/// Decides how the bytes `low..=high` of a body are extracted.
pub fn take_range(length: Option<u64>, (low, high): (u64, u64), has_filters: bool) -> Range {
    Range { length: length.map(|_| high - low + 1), is_filtered: has_filters }
}

/// How the end of a body is indicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There is no body.
    Head,
    /// By its length.
    Length,
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    Close,
    /// By the end of the stream.
    Stream,
}

/// Decides how the end of a body is indicated. `version` is that of the request: clients before HTTP/1.1 do not
/// support chunks (RFC 9112 section 6.1).
#[inline]
pub fn end(carrier: Carrier, sends_body: bool, length: Option<u64>, version: u8) -> End {
    match (carrier, length) {
        _ if !sends_body => End::Head,
        (Carrier::Stream, _) => End::Stream,
        (Carrier::Connection, Some(_)) => End::Length,
        (Carrier::Connection, None) if version >= 11 => End::Chunked,
        (Carrier::Connection, None) => End::Close,
    }
}

/// Returns whether a response offers ranges to the client (RFC 9110 section 14.3). A passed response keeps the field
/// of its origin.
#[inline]
pub fn offers_ranges(is_supported: bool, status: u16, is_passed: bool) -> bool {
    is_supported && status == 200 && !is_passed
}

/// The facts that determine the treatment of several ranges in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeveralFacts {
    /// Parameter `http_max_ranges`.
    pub most: u32,
    /// The whole body is stored and stays available.
    pub is_complete: bool,
    /// The body is sent as it is stored.
    pub is_unfiltered: bool,
    /// The response is included in another.
    pub is_included: bool,
}

/// Decides about requests for several ranges. They are served only from a complete body that is sent as it is stored,
/// because only there is random access free.
pub fn several_ranges(f: SeveralFacts) -> Several {
    match f.most {
        0 => Several::Refuse,
        most if f.is_complete && f.is_unfiltered && !f.is_included => Several::UpTo(most as usize),
        _ => Several::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LengthField::{Keep, Remove, Set};

    const GET: bool = false;
    const HEAD: bool = true;

    #[test]
    fn the_body_and_content_length_of_a_response_agree() {
        let table = [
            // status, method, Content-Length, length: whether a body is sent, treatment of Content-Length
            ((200, GET, Some(9), Some(9)), true, Keep),
            ((200, GET, Some(9), Some(5)), true, Set(5)),
            ((200, GET, None, Some(5)), true, Set(5)),
            ((200, GET, Some(9), None), true, Remove),
            ((200, GET, None, None), true, Remove),
            ((200, GET, None, Some(0)), false, Set(0)),
            ((200, HEAD, Some(9), Some(9)), false, Keep),
            ((200, HEAD, None, Some(9)), false, Set(9)),
            ((206, GET, Some(9), Some(4)), true, Set(4)),
            ((416, GET, Some(9), Some(0)), false, Set(0)),
            ((100, GET, Some(9), Some(9)), false, Remove),
            ((204, GET, Some(9), Some(9)), false, Remove),
            ((204, HEAD, Some(9), Some(9)), false, Remove),
            ((304, GET, Some(9), Some(9)), false, Remove),
            ((404, GET, None, Some(9)), true, Set(9)),
            ((1200, GET, Some(9), Some(9)), true, Keep),
            ((1204, GET, Some(9), Some(9)), false, Remove),
            ((2304, GET, None, Some(9)), false, Remove),
            ((65103, GET, None, None), false, Remove),
        ];
        for ((status, is_head, announced, length), sends_body, field) in table {
            let facts =
                Facts { status, is_head, announced, length, is_uncacheable: false, is_changed: false };
            assert_eq!((facts.sends_body(), facts.length_field()), (sends_body, field), "{facts:?}");
        }
        let passed = Facts {
            status: 200,
            is_head: true,
            announced: Some(9),
            length: Some(0),
            is_uncacheable: true,
            is_changed: false,
        };
        assert_eq!(passed.length_field(), Keep, "the origin's response to HEAD");
        assert_eq!(Facts { announced: None, ..passed }.length_field(), Keep);
        assert_eq!(Facts { is_head: false, ..passed }.length_field(), Set(0));
        let stored = Facts { is_uncacheable: false, ..passed };
        assert_eq!(stored.length_field(), Keep, "a stored response to HEAD");
        assert_eq!(Facts { is_head: false, ..stored }.length_field(), Set(0), "it has no body for GET");
        assert_eq!(Facts { announced: None, ..stored }.length_field(), Set(0));
        assert_eq!(Facts { status: 416, ..stored }.length_field(), Set(0), "no range of the body");
        assert_eq!(Facts { length: Some(4), ..stored }.length_field(), Set(4), "a range of the body");
        let unpacked = Facts { length: None, is_changed: true, ..passed };
        assert_eq!(unpacked.length_field(), Remove, "no body has this length");
        assert_eq!(stored_length(true, 7, Some(9)), Some(7));
        assert_eq!(stored_length(false, 7, Some(9)), Some(9), "still being fetched");
    }

    #[test]
    fn filters_change_lengths() {
        assert_eq!(unpacked_length(false, Some(9)), Some(9));
        assert_eq!(unpacked_length(false, None), None);
        assert_eq!(unpacked_length(true, Some(9)), None);
        assert_eq!([None, Some(0), Some(9)].map(including_length), [None, Some(0), None]);
        let table = [
            (Some(100), (0, 9), false, Range { length: Some(10), is_filtered: false }),
            (Some(100), (99, 99), true, Range { length: Some(1), is_filtered: true }),
            // Still being fetched: it may end before the range does.
            (None, (5, 6), false, Range { length: None, is_filtered: false }),
        ];
        for (length, ends, has_filters, expected) in table {
            assert_eq!(take_range(length, ends, has_filters), expected, "{length:?} {ends:?}");
        }
    }

    #[test]
    fn ends_of_bodies() {
        use Carrier::{Connection, Stream};
        let table = [
            ((Connection, true, Some(9), 11), End::Length),
            ((Connection, true, Some(9), 10), End::Length),
            ((Connection, true, None, 11), End::Chunked),
            ((Connection, true, None, 10), End::Close),
            ((Connection, false, None, 10), End::Head),
            ((Connection, false, Some(9), 11), End::Head),
            ((Stream, true, Some(9), 20), End::Stream),
            ((Stream, true, None, 20), End::Stream),
            ((Stream, false, None, 20), End::Head),
        ];
        for ((carrier, sends_body, length, version), expected) in table {
            let decided = end(carrier, sends_body, length, version);
            assert_eq!(decided, expected, "{carrier:?} {sends_body} {length:?} {version}");
        }
    }

    #[test]
    fn ranges_are_offered_and_limited() {
        for ((is_supported, status, is_passed), expected) in [
            ((true, 200, false), true),
            ((true, 200, true), false),
            ((true, 404, false), false),
            ((false, 200, false), false),
        ] {
            assert_eq!(offers_ranges(is_supported, status, is_passed), expected);
        }
        let sound = SeveralFacts { most: 4, is_complete: true, is_unfiltered: true, is_included: false };
        for (facts, expected) in [
            (sound, Several::UpTo(4)),
            (SeveralFacts { most: 0, ..sound }, Several::Refuse),
            (SeveralFacts { is_complete: false, ..sound }, Several::Ignore),
            (SeveralFacts { is_unfiltered: false, ..sound }, Several::Ignore),
            (SeveralFacts { is_included: true, ..sound }, Several::Ignore),
        ] {
            assert_eq!(several_ranges(facts), expected, "{facts:?}");
        }
    }
}
