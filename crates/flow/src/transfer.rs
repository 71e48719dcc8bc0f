//! Decisions about the transfer of a response from the origin: its kind, and the pace at which its body is received.

use lacquer_http::BodyStatus;

/// The kinds of responses that the counters `fetch_*` distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Head,
    Interim,
    NoContent,
    NotModified,
    Chunked,
    Length,
    Eof,
    /// Its framing is invalid.
    Bad,
    /// It has no body, although it may have one.
    Empty,
}

impl Kind {
    /// Returns the kind of a response. A response that cannot have a body is counted by the reason for that
    /// (RFC 9112 section 6.3).
    #[inline]
    pub fn of(is_head: bool, status: u16, framing: BodyStatus) -> Kind {
        match status {
            _ if is_head => Kind::Head,
            0..=199 => Kind::Interim,
            204 => Kind::NoContent,
            304 => Kind::NotModified,
            _ => match framing {
                BodyStatus::Chunked => Kind::Chunked,
                BodyStatus::Length => Kind::Length,
                BodyStatus::Eof => Kind::Eof,
                BodyStatus::Error => Kind::Bad,
                _ => Kind::Empty,
            },
        }
    }
}

/// Returns whether a request with this method usually has a body. Without one, it then has the length 0, because some
/// origins refuse it otherwise (RFC 9110 section 8.6).
#[inline]
pub fn usually_has_body(method: &[u8]) -> bool {
    !matches!(method, b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" | b"TRACE")
}

/// The action of a fetch before it receives more of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Continue,
    /// Wait until the reader is at most this number of bytes behind.
    Wait(u64),
    /// Stop, because nobody will read the body. Only the mark of the object is kept.
    Cancel,
}

/// Decides how a fetch continues with `received` bytes of a body. `limit` is the number of bytes by which it may be
/// ahead of the only reader, if there is a limit. A background fetch has no reader that it could wait for.
#[inline]
pub fn pace(limit: Option<u64>, is_background: bool, received: impl FnOnce() -> u64) -> Pace {
    match limit {
        Some(limit) if !is_background => Pace::Wait(limit),
        Some(limit) if received() >= limit => Pace::Cancel,
        _ => Pace::Continue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_usually_have_a_body() {
        for method in ["POST", "PUT", "PATCH", "PROPFIND", "get"] {
            assert!(usually_has_body(method.as_bytes()), "{method}");
        }
        for method in ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"] {
            assert!(!usually_has_body(method.as_bytes()), "{method}");
        }
    }

    #[test]
    fn responses_are_counted_by_status_before_framing() {
        let table = [
            ((true, 200, BodyStatus::Length), Kind::Head),
            ((true, 304, BodyStatus::None), Kind::Head),
            ((false, 101, BodyStatus::None), Kind::Interim),
            ((false, 204, BodyStatus::None), Kind::NoContent),
            ((false, 304, BodyStatus::None), Kind::NotModified),
            ((false, 200, BodyStatus::Chunked), Kind::Chunked),
            ((false, 404, BodyStatus::Length), Kind::Length),
            ((false, 200, BodyStatus::Eof), Kind::Eof),
            ((false, 200, BodyStatus::Error), Kind::Bad),
            ((false, 200, BodyStatus::None), Kind::Empty),
        ];
        for ((is_head, status, framing), expected) in table {
            assert_eq!(Kind::of(is_head, status, framing), expected, "{is_head} {status} {framing:?}");
        }
    }

    #[test]
    fn only_a_fetch_with_one_reader_waits_for_it() {
        let table = [
            // limit, background, bytes received
            ((None, false, 5000), Pace::Continue),
            ((None, true, 5000), Pace::Continue),
            ((Some(1000), false, 0), Pace::Wait(1000)),
            ((Some(1000), false, 5000), Pace::Wait(1000)),
            ((Some(1000), true, 999), Pace::Continue),
            ((Some(1000), true, 1000), Pace::Cancel),
        ];
        for ((limit, is_background, received), expected) in table {
            assert_eq!(
                pace(limit, is_background, || received),
                expected,
                "{limit:?} {is_background} {received}"
            );
        }
    }
}
