//! Byte ranges: the part of an object that a client requests, and the check that a partial response of an origin
//! matches the request.

use crate::ascii::{Decimal, starts_with_nocase};
use crate::header_table::{CONTENT_RANGE, RANGE};
use crate::message::Message;
use crate::number::parse_uint;
use crate::workspace::{Overflow, Text, Workspace};

mod decide;
mod spec;

pub use decide::{Decision, Rules, Several, decide, needs_entity_tag};
pub use spec::RequestedRange;
pub(crate) use spec::parse_range;
use spec::{is_sound_list, only_blanks};

/// Returns whether the unit is bytes. As in Varnish, the unit of `Content-Range` may be abbreviated or even missing.
fn is_bytes(unit: &[u8]) -> bool {
    starts_with_nocase(b"bytes", unit)
}

/// Appends "Content-Range: bytes low-high/length".
pub fn append_content_range(
    resp: &mut Message,
    ws: &mut Workspace,
    low: u64,
    high: u64,
    length: Option<u64>,
) -> Result<Text, Overflow> {
    let (low, high) = (Decimal::new(low), Decimal::new(high));
    let length = length.map(Decimal::new);
    let length = length.as_ref().map_or(&b"*"[..], Decimal::as_bytes);
    let parts = [b"Content-Range: bytes ", low.as_bytes(), b"-", high.as_bytes(), b"/", length];
    let line = ws.copy_parts(&parts)?;
    resp.append_named_line(ws, CONTENT_RANGE, line)
}

/// Appends "Content-Range: bytes */length", which belongs to a 416.
pub fn append_unsatisfied_range(
    resp: &mut Message,
    ws: &mut Workspace,
    length: u64,
) -> Result<Text, Overflow> {
    let line = ws.copy_parts(&[b"Content-Range: bytes */", Decimal::new(length).as_bytes()])?;
    resp.append_named_line(ws, CONTENT_RANGE, line)
}

/// A parsed `Content-Range` of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// `None` for "*".
    pub range: Option<(u64, u64)>,
    /// `None` for "*".
    pub length: Option<u64>,
}

/// Parses the value of `Content-Range`. Returns `Ok(None)` for units other than bytes.
pub(crate) fn parse_content_range(value: &[u8]) -> Result<Option<ContentRange>, ()> {
    let space = value.iter().position(|&b| b == b' ').ok_or(())?;
    if !is_bytes(&value[..space]) {
        return Ok(None);
    }
    let rest = &value[space + 1..];
    let (range, rest) = match rest.strip_prefix(b"*") {
        Some(rest) => (None, rest),
        None => {
            let (low, rest) = parse_uint(rest).ok_or(())?;
            let (high, rest) = parse_uint(rest.strip_prefix(b"-").ok_or(())?).ok_or(())?;
            (Some((low, high)), rest)
        }
    };
    let rest = rest.strip_prefix(b"/").ok_or(())?;
    let (length, rest) = match rest.strip_prefix(b"*") {
        Some(rest) => (None, rest),
        None => {
            let (n, rest) = parse_uint(rest).ok_or(())?;
            (Some(n), rest)
        }
    };
    let fits = |n: u64| i64::try_from(n).is_ok();
    let sound = match (range, length) {
        (None, None) => false,
        (Some((low, high)), Some(length)) => low <= high && high < length && fits(length),
        (Some((low, high)), None) => low <= high && fits(high),
        (None, Some(length)) => length > 0 && fits(length),
    };
    if sound && only_blanks(rest) { Ok(Some(ContentRange { range, length })) } else { Err(()) }
}

/// The result of checking a partial response of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartialCheck {
    Fine,
    /// Acceptable, with a text for the `Debug` record.
    Odd(&'static str),
    /// Refused, with a text for the `Error` record.
    Refused(String),
}

/// Compares a response with the `Range` that was sent to the origin. Without a `Range`, the response must be
/// consistent in itself.
pub fn check_partial(
    bereq: &Message,
    bereq_ws: &Workspace,
    beresp: Option<&Message>,
    ws: &Workspace,
) -> PartialCheck {
    let refuse = |text: &str| PartialCheck::Refused(text.to_owned());
    let range = bereq.get(bereq_ws, RANGE);
    if range.is_some_and(is_sound_list) {
        // The origin may send any of several requested ranges, in one part or in many.
        return PartialCheck::Fine;
    }
    let requested = match range.map(parse_range).transpose() {
        Ok(requested) => requested,
        Err(text) => return PartialCheck::Refused(format!("Invalid range header ({text})")),
    };
    let Some(beresp) = beresp else { return PartialCheck::Fine };
    let got = match beresp.get(ws, CONTENT_RANGE).map(parse_content_range).transpose() {
        Ok(got) => got.flatten(),
        Err(()) => return refuse("Invalid content-range header"),
    };
    let Ok(length) = crate::h1::content_length(beresp, ws) else {
        return refuse("Invalid content-length header");
    };
    let Some(got) = got else {
        return PartialCheck::Odd("Missing content-range header or unknown range unit");
    };
    let Some(requested) = requested else { return refuse("Unexpected content-range header") };
    let (low, high) = match (got.range, got.length) {
        (Some(range), _) => range,
        (None, _) if beresp.status() % 1000 == 416 => return PartialCheck::Fine,
        (None, whole) => (0, whole.unwrap_or(1) - 1),
    };
    let expected = |what: &str, wanted: u64, found: u64| {
        PartialCheck::Refused(format!("Expected {what} {wanted}, got {found}"))
    };
    let part = high - low + 1;
    match (length, requested.low, requested.high) {
        (Some(n), ..) if n != part => expected("content length", part, n),
        (_, Some(l), _) if l != low => expected("low range", low, l),
        (_, Some(_), Some(h)) if h < high => expected("minimum high range", high, h),
        _ => PartialCheck::Fine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(status: u16, lines: &[&str]) -> (Message, Workspace) {
        let mut ws = Workspace::new(4096);
        let mut msg = Message::new(64);
        msg.set_response(&mut ws, status).unwrap();
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        (msg, ws)
    }

    const REFUSE: Rules = Rules { several: Several::Refuse, has_exact_dates: false };
    const IGNORE: Rules = Rules { several: Several::Ignore, has_exact_dates: false };

    #[test]
    fn ranges_are_resolved_against_a_known_length() {
        let table = [
            ("bytes=0-9", Ok((0, 9))),
            ("bytes=5-", Ok((5, 99))),
            ("BYTES=-10", Ok((90, 99))),
            ("bytes=-500", Ok((0, 99))),
            ("bytes=90-500 ", Ok((90, 99))),
            ("bytes=99-99", Ok((99, 99))),
            ("bytes=100-", Err("low range beyond object")),
            ("bytes", Err("Missing '='")),
            ("=1-2", Err("Not Bytes")),
            ("bytes =1-2", Err("Not Bytes")),
            ("bytes=1", Err("Missing hyphen")),
            ("bytes=-", Err("Neither high nor low")),
            ("bytes=-0", Err("No low, high is zero")),
            ("bytes=2-1", Err("high smaller than low")),
            ("bytes=1-2,4-5", Err("Trailing stuff")),
            ("bytes=1-2x", Err("Trailing stuff")),
            ("bytes= 1-2", Err("Missing hyphen")),
            ("bytes=99999999999999999999-", Err("Low number too big")),
            ("bytes=1-99999999999999999999", Err("High number too big")),
        ];
        for (value, expected) in table {
            let (req, req_ws) = message(200, &[&format!("Range: {value}")]);
            let (resp, resp_ws) = message(200, &[]);
            let expected = match expected {
                Ok((low, high)) => Decision::Part { low, high },
                Err(text) => Decision::Unsatisfiable(text),
            };
            assert_eq!(decide(&req, &req_ws, &resp, &resp_ws, Some(100), REFUSE), expected, "{value}");
        }
        for value in ["Byte=1-2", "bytess=1-2", "foo=1-2", "foo=x"] {
            let (req, ws) = message(200, &[&format!("Range: {value}")]);
            assert_eq!(decide(&req, &ws, &req, &ws, Some(100), REFUSE), Decision::Whole, "{value}");
        }
        let (req, ws) = message(200, &["Range: bytes=0-0"]);
        assert_eq!(decide(&req, &ws, &req, &ws, Some(0), REFUSE), Decision::Whole);
    }

    #[test]
    fn only_closed_ranges_are_served_without_a_length() {
        for (value, expected) in [
            ("bytes=1-2", Decision::Part { low: 1, high: 2 }),
            ("bytes=1-", Decision::Whole),
            ("bytes=-2", Decision::Whole),
            ("bytes=-0", Decision::Unsatisfiable("No low, high is zero")),
        ] {
            let (req, ws) = message(200, &[&format!("Range: {value}")]);
            assert_eq!(decide(&req, &ws, &req, &ws, None, IGNORE), expected, "{value}");
        }
    }

    #[test]
    fn if_range_needs_a_strong_validator() {
        let lm = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        let date = "Date: Sun, 06 Nov 1994 09:49:37 GMT";
        let table: &[(&str, &[&str], bool)] = &[
            ("\"a\"", &["ETag: \"a\""], true),
            ("\"a\"", &["ETag: W/\"a\""], false),
            ("W/\"a\"", &["ETag: W/\"a\""], false),
            ("\"b\"", &["ETag: \"a\""], false),
            ("\"a\"", &[], false),
            ("Sun, 06 Nov 1994 08:49:37 GMT", &[lm, date], true),
            ("Sun, 06 Nov 1994 08:49:38 GMT", &[lm, date], false),
            ("Sun, 06 Nov 1994 08:49:37 GMT", &[lm], false),
            ("nonsense", &[lm, date], false),
        ];
        for (value, resp, expected) in table {
            let (req, req_ws) = message(200, &["Range: bytes=0-1", &format!("If-Range: {value}")]);
            let (resp, resp_ws) = message(200, resp);
            let decision = decide(&req, &req_ws, &resp, &resp_ws, Some(10), IGNORE);
            assert_eq!(decision != Decision::Whole, *expected, "{value}");
        }
    }

    #[test]
    fn exact_dates_exclude_a_second_change() {
        let lm = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        let asked = ["Range: bytes=0-1", "If-Range: Sun, 06 Nov 1994 08:49:37 GMT"];
        // The seconds of Date, and whether the range is sent without and with exact dates.
        for (seconds, expected) in [(36, [true, false]), (37, [true, false]), (38, [true, true])] {
            let (req, req_ws) = message(200, &asked);
            let (resp, resp_ws) = message(200, &[lm, &format!("Date: Sun, 06 Nov 1994 08:49:{seconds} GMT")]);
            let sent = [false, true].map(|has_exact_dates| {
                let rules = Rules { has_exact_dates, ..IGNORE };
                decide(&req, &req_ws, &resp, &resp_ws, Some(10), rules) != Decision::Whole
            });
            assert_eq!(sent, expected, "{seconds}");
        }
    }

    #[test]
    fn content_ranges_are_parsed_and_written() {
        let parsed = |low, high, length| Ok(Some(ContentRange { range: Some((low, high)), length }));
        assert_eq!(parse_content_range(b"bytes 1-2/3"), parsed(1, 2, Some(3)));
        assert_eq!(parse_content_range(b"Bytes 1-2/*"), parsed(1, 2, None));
        assert_eq!(
            parse_content_range(b"bytes */3 "),
            Ok(Some(ContentRange { range: None, length: Some(3) }))
        );
        assert_eq!(parse_content_range(b"pages 1-2/3"), Ok(None));
        for value in [
            "bytes",
            "bytes 1-2",
            "bytes 1/2",
            "bytes 2-1/3",
            "bytes 1-3/3",
            "bytes */0",
            "bytes */*",
            "bytes 1-2/3x",
        ] {
            assert_eq!(parse_content_range(value.as_bytes()), Err(()), "{value}");
        }
        let (mut msg, mut ws) = message(206, &[]);
        append_content_range(&mut msg, &mut ws, 1, 2, Some(10)).unwrap();
        assert_eq!(msg.get(&ws, CONTENT_RANGE), Some(&b"bytes 1-2/10"[..]));
        let line = append_unsatisfied_range(&mut msg, &mut ws, 10).unwrap();
        assert_eq!(ws.get(line), b"Content-Range: bytes */10");
    }

    #[test]
    fn partial_responses_are_compared_with_the_request() {
        let check = |req: &[&str], status: u16, resp: &[&str]| {
            let ((req, req_ws), (resp, ws)) = (message(200, req), message(status, resp));
            check_partial(&req, &req_ws, Some(&resp), &ws)
        };
        let range = &["Range: bytes=1-5"][..];
        let refused = |text: &str| PartialCheck::Refused(text.into());
        assert_eq!(
            check(range, 206, &["Content-Range: bytes 1-5/9", "Content-Length: 5"]),
            PartialCheck::Fine
        );
        assert_eq!(check(range, 206, &["Content-Range: bytes 1-3/4"]), PartialCheck::Fine);
        assert_eq!(check(&["Range: bytes=-5"], 206, &["Content-Range: bytes 4-8/9"]), PartialCheck::Fine);
        assert_eq!(check(range, 416, &["Content-Range: bytes */9"]), PartialCheck::Fine);
        assert!(matches!(check(range, 206, &[]), PartialCheck::Odd(_)));
        assert_eq!(
            check(range, 206, &["Content-Range: bytes 1-5/9", "Content-Length: 6"]),
            refused("Expected content length 5, got 6")
        );
        assert_eq!(
            check(range, 206, &["Content-Range: bytes 2-5/9"]),
            refused("Expected low range 2, got 1")
        );
        assert_eq!(
            check(range, 206, &["Content-Range: bytes 1-6/9"]),
            refused("Expected minimum high range 6, got 5")
        );
        assert_eq!(
            check(&[], 206, &["Content-Range: bytes 1-6/9"]),
            refused("Unexpected content-range header")
        );
        assert_eq!(check(range, 206, &["Content-Range: bytes 1"]), refused("Invalid content-range header"));
        assert_eq!(check(range, 206, &["Content-Length: x"]), refused("Invalid content-length header"));
        assert_eq!(check(&["Range: x"], 206, &[]), refused("Invalid range header (Missing '=')"));
    }
}
