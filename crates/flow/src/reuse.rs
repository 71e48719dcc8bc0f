//! Decisions about keeping a connection to an origin for the next request, and about trusting the responses on it.
//! Delivering the response of another request is the worst fault of a cache, so any doubt closes the connection.

use lacquer_http::SessClose;

/// The reason to close a connection that began with a PROXY header, in Varnish's words. Such a connection belongs to
/// one client.
const PROXY_HEADER_REASON: &str = "null";

/// The facts about a connection whose use has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The reason for closing it so far: by its own headers, or by the fetch.
    pub close: Option<SessClose>,
    /// It began with a PROXY header.
    pub has_proxy_header: bool,
    /// The response was read to its end.
    pub is_at_end: bool,
    /// It had carried other requests.
    pub is_reused: bool,
    /// The limit that it has reached; see [`Lifespan::limit`].
    pub limit: Option<&'static str>,
}

/// The limits on the use of a connection. 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifespan {
    /// The number of requests.
    pub requests: u32,
    /// The seconds since it was opened.
    pub age: f64,
}

impl Lifespan {
    /// Returns the limit that a connection has reached with this number of requests, if any, as a reason for the log.
    #[inline]
    pub fn limit(self, requests: u32, age: impl FnOnce() -> f64) -> Option<&'static str> {
        if self.requests != 0 && requests >= self.requests {
            Some("MAX_REQUESTS")
        } else if self.age > 0.0 && age() >= self.age {
            Some("MAX_AGE")
        } else {
            None
        }
    }
}

/// The decision about a connection whose use has ended. The texts are reasons for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Kept,
    /// It carries no further request, but it is watched: bytes that arrive show whether its responses were in order.
    Watched(&'static str),
    Closed(&'static str),
}

impl End {
    /// Returns the reason why it is not kept.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            End::Kept => None,
            End::Watched(reason) | End::Closed(reason) => Some(reason),
        }
    }
}

/// Decides about a connection whose use has ended. `is_distrusted` returns whether its origin has sent bytes that
/// belong to no request.
#[inline]
pub fn end(used: Used, is_distrusted: impl FnOnce() -> bool) -> End {
    let Used { close, has_proxy_header, is_at_end, is_reused, limit } = used;
    match close {
        // If the responses are shifted by one, the origin closes the connection before it has read the last request.
        Some(SessClose::RespClose) if is_at_end && is_reused => End::Watched(SessClose::RespClose.name()),
        Some(reason) => End::Closed(reason.name()),
        None if has_proxy_header => End::Closed(PROXY_HEADER_REASON),
        None if !is_at_end => End::Closed(SessClose::RespClose.name()),
        None if is_distrusted() => End::Watched(SessClose::RxJunk.name()),
        None => limit.map_or(End::Kept, End::Watched),
    }
}

/// Returns whether a response may belong to another request: it arrived on a connection that had served other
/// requests, and bytes follow it, or the origin was found to send such bytes in the meantime.
#[inline]
pub fn is_in_doubt(
    is_reused: bool,
    has_surplus: impl FnOnce() -> bool,
    has_fault: impl FnOnce() -> bool,
) -> bool {
    is_reused && (has_surplus() || has_fault())
}

/// Returns whether a response in doubt is discarded. It is accepted if the request cannot be repeated, unless bytes on
/// this or another connection indicate that it belongs to another request.
#[inline]
pub fn is_discarded(
    is_in_doubt: bool,
    is_repeatable: impl FnOnce() -> bool,
    may_be_foreign: impl FnOnce() -> bool,
) -> bool {
    is_in_doubt && (is_repeatable() || may_be_foreign())
}

/// The facts about bytes that arrived in place of a response and cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// The connection had carried other requests.
    pub is_reused: bool,
    /// The bytes begin like the head of a response.
    pub begins_a_head: bool,
    /// The protocol allowed no body for the previous response, so the bytes may be a forbidden body.
    pub follows_bodyless: bool,
}

/// The treatment of bytes that cannot be parsed as a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They are a malformed response.
    Response,
    /// They may belong to another request, so they count as surplus bytes. This request fails.
    Surplus,
    /// They count as surplus bytes, and the request is repeated on a new connection.
    Repeat,
}

/// Decides about bytes that cannot be parsed as a response.
pub fn malformed(garbage: Garbage, is_repeatable: impl FnOnce() -> bool) -> Malformed {
    if !garbage.is_reused || garbage.begins_a_head {
        Malformed::Response
    } else if garbage.follows_bodyless && is_repeatable() {
        Malformed::Repeat
    } else {
        Malformed::Surplus
    }
}

/// The doubt about the responses of a connection whose use ends without surplus bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    None,
    /// All of them may belong to other requests, the last one included.
    Foreign,
    /// The rest of the last response is not read, so whether the earlier ones were in order stays unknown.
    Unconfirmed,
}

/// Decides which responses of a connection are in doubt at the end of its use. `has_fault` returns whether the origin
/// was found to be faulty meanwhile. `is_read` means that the last response was read to its end, or ends with the
/// connection.
#[inline]
pub fn doubt(is_reused: bool, has_fault: impl FnOnce() -> bool, is_read: bool) -> Doubt {
    if is_reused && has_fault() {
        Doubt::Foreign
    } else if is_reused && !is_read {
        Doubt::Unconfirmed
    } else {
        Doubt::None
    }
}

/// The consequences of bytes after the end of a response, for that response and for the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// The response may belong to another request, so lookups must not find it.
    pub is_foreign: bool,
    /// The origin may have sent a response before the first request of this connection. In that case all later
    /// responses are shifted.
    pub may_be_unsolicited: bool,
}

/// Classifies bytes after the end of a response. `is_bodyless` means that the protocol allows no body for the
/// response, so the bytes may be a forbidden body. `may_be_response` means that the bytes look like the head of a
/// response.
pub fn judge_surplus(is_reused: bool, is_bodyless: bool, may_be_response: bool) -> Surplus {
    Surplus { is_foreign: is_reused || may_be_response, may_be_unsolicited: !is_bodyless }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_kept_without_a_reason_to_close() {
        let sound =
            Used { close: None, has_proxy_header: false, is_at_end: true, is_reused: false, limit: None };
        let closing = Used { close: Some(SessClose::RespClose), ..sound };
        let table = [
            (sound, false, End::Kept),
            (Used { is_reused: true, ..sound }, false, End::Kept),
            (Used { limit: Some("MAX_AGE"), ..sound }, false, End::Watched("MAX_AGE")),
            (Used { limit: Some("MAX_AGE"), ..closing }, false, End::Closed("RESP_CLOSE")),
            (Used { limit: Some("MAX_AGE"), is_at_end: false, ..sound }, false, End::Closed("RESP_CLOSE")),
            (sound, true, End::Watched("RX_JUNK")),
            (Used { is_at_end: false, ..sound }, false, End::Closed("RESP_CLOSE")),
            (Used { has_proxy_header: true, ..sound }, false, End::Closed("null")),
            (closing, false, End::Closed("RESP_CLOSE")),
            (Used { is_reused: true, ..closing }, false, End::Watched("RESP_CLOSE")),
            (Used { is_reused: true, is_at_end: false, ..closing }, false, End::Closed("RESP_CLOSE")),
            (
                Used { close: Some(SessClose::ReqClose), is_at_end: false, ..sound },
                true,
                End::Closed("REQ_CLOSE"),
            ),
        ];
        for (used, is_distrusted, expected) in table {
            assert_eq!(end(used, || is_distrusted), expected, "{used:?} {is_distrusted}");
        }
    }

    #[test]
    fn connections_reach_limits_of_requests_and_age() {
        let lifespan = |requests, age| Lifespan { requests, age };
        let table = [
            (lifespan(0, 0.0), u32::MAX, 1e9, None),
            (lifespan(3, 0.0), 2, 1e9, None),
            (lifespan(3, 0.0), 3, 0.0, Some("MAX_REQUESTS")),
            (lifespan(0, 5.0), u32::MAX, 4.9, None),
            (lifespan(0, 5.0), 1, 5.0, Some("MAX_AGE")),
            (lifespan(3, 5.0), 3, 5.0, Some("MAX_REQUESTS")),
            (lifespan(3, f64::INFINITY), 2, 1e9, None),
        ];
        for (lifespan, requests, age, expected) in table {
            assert_eq!(lifespan.limit(requests, || age), expected, "{lifespan:?} {requests} {age}");
        }
    }

    #[test]
    fn reused_connections_with_faults_cause_doubt() {
        let table = [
            // reused, bytes follow, origin at fault
            ((false, true, true), false),
            ((true, false, false), false),
            ((true, true, false), true),
            ((true, false, true), true),
        ];
        for ((is_reused, has_surplus, has_fault), expected) in table {
            assert_eq!(is_in_doubt(is_reused, || has_surplus, || has_fault), expected);
        }
    }

    #[test]
    fn responses_in_doubt_are_discarded_if_another_one_can_be_had() {
        let table = [
            // in doubt, repeatable, may be foreign
            ((false, true, true), false),
            ((true, true, false), true),
            ((true, false, false), false),
            ((true, false, true), true),
        ];
        for ((is_in_doubt, is_repeatable, may_be_foreign), expected) in table {
            let found = is_discarded(is_in_doubt, || is_repeatable, || may_be_foreign);
            assert_eq!(found, expected, "{is_in_doubt} {is_repeatable} {may_be_foreign}");
        }
    }

    #[test]
    fn garbage_on_a_reused_connection_is_surplus() {
        let table = [
            // reused, begins a head, follows a bodyless response, repeatable
            ((false, false, true, true), Malformed::Response),
            ((true, true, true, true), Malformed::Response),
            ((true, false, false, true), Malformed::Surplus),
            ((true, false, true, false), Malformed::Surplus),
            ((true, false, true, true), Malformed::Repeat),
        ];
        for ((is_reused, begins_a_head, follows_bodyless, is_repeatable), expected) in table {
            let garbage = Garbage { is_reused, begins_a_head, follows_bodyless };
            assert_eq!(malformed(garbage, || is_repeatable), expected, "{garbage:?} {is_repeatable}");
        }
    }

    #[test]
    fn faults_and_unread_responses_leave_doubt() {
        let table = [
            // reused, origin at fault, read
            ((false, true, false), Doubt::None),
            ((true, false, true), Doubt::None),
            ((true, false, false), Doubt::Unconfirmed),
            ((true, true, true), Doubt::Foreign),
            ((true, true, false), Doubt::Foreign),
        ];
        for ((is_reused, has_fault, is_read), expected) in table {
            assert_eq!(
                doubt(is_reused, || has_fault, is_read),
                expected,
                "{is_reused} {has_fault} {is_read}"
            );
        }
    }

    #[test]
    fn bytes_after_a_response_are_classified() {
        let table = [
            // reused, bodyless, looks like a response: is foreign, may be unsolicited
            ((false, false, false), (false, true)),
            ((false, false, true), (true, true)),
            ((false, true, false), (false, false)),
            ((false, true, true), (true, false)),
            ((true, false, false), (true, true)),
            ((true, true, true), (true, false)),
        ];
        for ((is_reused, is_bodyless, may_be_response), (is_foreign, may_be_unsolicited)) in table {
            let expected = Surplus { is_foreign, may_be_unsolicited };
            assert_eq!(judge_surplus(is_reused, is_bodyless, may_be_response), expected);
        }
    }
}
