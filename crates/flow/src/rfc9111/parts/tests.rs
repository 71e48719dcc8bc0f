//! The proofs that parts of responses need.

use super::*;
use lacquer_http::Slot;

const TAG: &str = "ETag: \"v1\"";
const LENGTH: u64 = 100_000;
const RECEIVED: u64 = 40_000;
const REST: u64 = LENGTH - RECEIVED;
const RIGHT: &str = "Content-Range: bytes 40000-99999/100000";

const WHOLE: Whole<'static> = Whole {
    first: 0,
    is_own: true,
    length: LENGTH,
    tag: b"\"v1\"",
    coding: b"",
    host: b"a.example",
    url: b"/big",
};

fn response(status: u16, lines: &[&str]) -> (Message, Workspace) {
    let (mut ws, mut msg) = (Workspace::new(8192), Message::new(64));
    msg.set_response(&mut ws, status).expect("there is room");
    for line in lines {
        msg.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
    }
    (msg, ws)
}

fn request(method: &str, url: &str, lines: &[&str], ws: &mut Workspace) -> Message {
    let mut msg = Message::new(64);
    msg.put_copy(ws, Slot::Method, method.as_bytes()).expect("there is room");
    msg.put_copy(ws, Slot::Url, url.as_bytes()).expect("there is room");
    for line in lines {
        msg.append_line_copy(ws, line.as_bytes()).expect("there is room");
    }
    msg
}

fn framing(status: BodyStatus, content_length: u64) -> Framing {
    Framing { status, content_length }
}

fn answered(whole: &Whole<'_>, status: u16, lines: &[&str], framing: Framing) -> Answer {
    let (msg, ws) = response(status, lines);
    answer(whole, RECEIVED, Some(b"Accept-Language"), (&msg, &ws), framing)
}

#[test]
fn only_the_rest_of_the_same_representation_continues_a_part() {
    let table: &[(&[&str], Answer)] = &[
        (&[TAG, RIGHT], Answer::Rest),
        (&[TAG, "content-range: Bytes 40000-99999/100000"], Answer::Rest),
        (&[TAG, RIGHT, "Vary: Accept-Language"], Answer::Rest),
        // The validator.
        (&[RIGHT], Answer::Repeat),
        (&["ETag: \"v2\"", RIGHT], Answer::Repeat),
        (&["ETag: W/\"v1\"", RIGHT], Answer::Repeat),
        (&["ETag: v1", RIGHT], Answer::Repeat),
        (&["ETag: \"v1", RIGHT], Answer::Repeat),
        (&["ETag: \"V1\"", RIGHT], Answer::Repeat),
        (&["ETag: \"v1\" ", TAG, RIGHT], Answer::Repeat),
        (&["ETag: \"v2\"", TAG, RIGHT], Answer::Repeat),
        (&["Last-Modified: Sun, 06 Nov 1994 08:49:00 GMT", RIGHT], Answer::Repeat),
        // The range.
        (&[TAG], Answer::Repeat),
        (&[TAG, RIGHT, RIGHT], Answer::Repeat),
        (&[TAG, RIGHT, "Content-Range: bytes 0-9/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 39999-99998/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40001-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 0-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 0-59999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-99998/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-100000/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 99999-40000/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-99999/100001"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-99999/99999"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-99999/*"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes */100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes */*"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes -60000/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes=40000-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: 40000-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: b 40000-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: items 40000-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-99999/100000, bytes 0-1/2"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-99999/100000x"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes +40000-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 0x9c40-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes  40000-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 18446744073709591616-99999/100000"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-18446744073709551615/18446744073709551616"], Answer::Repeat),
        (&[TAG, "Content-Range: bytes 40000-99999/340282366920938463463374607431768311456"], Answer::Repeat),
        (&[TAG, "Content-Range: \u{1}\u{7f}"], Answer::Repeat),
        (&[TAG, "Content-Range:"], Answer::Repeat),
        // Other contents.
        (&[TAG, RIGHT, "Content-Type: multipart/byteranges; boundary=x"], Answer::Repeat),
        (&[TAG, "Content-Type: Multipart/ByteRanges; boundary=x"], Answer::Repeat),
        (&[TAG, RIGHT, "Content-Encoding: gzip"], Answer::Repeat),
        (&[TAG, RIGHT, "Content-Encoding: "], Answer::Repeat),
        (&[TAG, RIGHT, "Vary: Accept-Encoding"], Answer::Repeat),
        (&[TAG, RIGHT, "Vary: *"], Answer::Repeat),
        (&[TAG, RIGHT, "Vary: Accept-Language", "Vary: Cookie"], Answer::Repeat),
    ];
    for (lines, expected) in table {
        assert_eq!(answered(&WHOLE, 206, lines, framing(BodyStatus::Length, REST)), *expected, "{lines:?}");
    }
}

#[test]
fn the_length_of_the_rest_must_be_stated() {
    let table = [
        (framing(BodyStatus::Length, REST), Answer::Rest),
        (framing(BodyStatus::Length, REST - 1), Answer::Repeat),
        (framing(BodyStatus::Length, REST + 1), Answer::Repeat),
        (framing(BodyStatus::Length, LENGTH), Answer::Repeat),
        (framing(BodyStatus::Length, 0), Answer::Repeat),
        (framing(BodyStatus::Length, u64::MAX), Answer::Repeat),
        (framing(BodyStatus::Chunked, 0), Answer::Repeat),
        (framing(BodyStatus::Chunked, REST), Answer::Repeat),
        (framing(BodyStatus::Eof, 0), Answer::Repeat),
        (framing(BodyStatus::None, 0), Answer::Repeat),
        (framing(BodyStatus::Error, REST), Answer::Repeat),
    ];
    for (framing, expected) in table {
        assert_eq!(answered(&WHOLE, 206, &[TAG, RIGHT], framing), expected, "{framing:?}");
    }
    // A record that contradicts the part.
    for length in [0, 1, RECEIVED - 1, RECEIVED, u64::MAX] {
        let whole = Whole { length, ..WHOLE };
        let lines = [TAG, &format!("Content-Range: bytes 40000-{}/{length}", length.saturating_sub(1))];
        for rest in [0, REST, length.wrapping_sub(RECEIVED)] {
            let found = answered(&whole, 206, &lines, framing(BodyStatus::Length, rest));
            let is_sound = length == u64::MAX && rest == u64::MAX - RECEIVED;
            assert_eq!(found == Answer::Rest, is_sound, "{length} {rest}");
        }
    }
}

#[test]
fn a_coding_may_be_repeated_but_not_changed() {
    let whole = Whole { coding: b"br", ..WHOLE };
    for (lines, expected) in [
        (&[TAG, RIGHT][..], Answer::Rest),
        (&[TAG, RIGHT, "Content-Encoding: br"], Answer::Rest),
        (&[TAG, RIGHT, "Content-Encoding: gzip"], Answer::Repeat),
        (&[TAG, RIGHT, "Content-Encoding: identity"], Answer::Repeat),
        (&[TAG, RIGHT, "Content-Encoding: br", "Content-Encoding: br"], Answer::Repeat),
    ] {
        assert_eq!(answered(&whole, 206, lines, framing(BodyStatus::Length, REST)), expected, "{lines:?}");
    }
}

#[test]
fn other_statuses_never_continue_a_part() {
    for status in 200..600 {
        let expected = match status {
            206 => Answer::Rest,
            304 | 412 | 416 => Answer::Repeat,
            500.. => Answer::Failed,
            _ => Answer::Replaces,
        };
        let found = answered(&WHOLE, status, &[TAG, RIGHT], framing(BodyStatus::Length, REST));
        assert_eq!(found, expected, "{status}");
    }
}

/// The status and lines of a response, the lines of its request, and the rest of the facts.
struct Change(u16, &'static [&'static str], &'static [&'static str], Cutting);

#[derive(Clone, Copy)]
struct Cutting {
    storing: Storing,
    framing: BodyStatus,
    is_filtered: bool,
    is_own: bool,
    length: u64,
    received: u64,
}

const CUT: Cutting = Cutting {
    storing: Storing::Cached,
    framing: BodyStatus::Length,
    is_filtered: false,
    is_own: true,
    length: LENGTH,
    received: RECEIVED,
};
const HOST_LINE: &[&str] = &["Host: a.example"];

#[test]
fn a_part_needs_proofs() {
    let table = [
        (true, Change(200, &[TAG], HOST_LINE, CUT)),
        (true, Change(200, &[TAG], HOST_LINE, Cutting { received: LEAST, ..CUT })),
        (true, Change(200, &[TAG], HOST_LINE, Cutting { received: LENGTH - 1, ..CUT })),
        (true, Change(200, &[TAG, "Content-Encoding: br"], HOST_LINE, CUT)),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { received: LEAST - 1, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { received: 0, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { received: LENGTH, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { received: LENGTH + 1, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { length: 0, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { storing: Storing::HitForMiss, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { storing: Storing::HitForPass, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { storing: Storing::Private, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { framing: BodyStatus::Chunked, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { framing: BodyStatus::Eof, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { is_filtered: true, ..CUT })),
        (false, Change(200, &[TAG], HOST_LINE, Cutting { is_own: false, ..CUT })),
        (false, Change(206, &[TAG], HOST_LINE, CUT)),
        (false, Change(203, &[TAG], HOST_LINE, CUT)),
        (false, Change(404, &[TAG], HOST_LINE, CUT)),
        (false, Change(200, &[], HOST_LINE, CUT)),
        (false, Change(200, &["ETag: W/\"v1\""], HOST_LINE, CUT)),
        (false, Change(200, &["ETag: \"\""], HOST_LINE, CUT)),
        (false, Change(200, &["ETag: \"a\"b\""], HOST_LINE, CUT)),
        (false, Change(200, &["ETag: \"a b\""], HOST_LINE, CUT)),
        (false, Change(200, &["ETag: \""], HOST_LINE, CUT)),
        (false, Change(200, &["ETag: v1"], HOST_LINE, CUT)),
        (false, Change(200, &[TAG, TAG], HOST_LINE, CUT)),
        (false, Change(200, &[TAG, "Content-Encoding: br", "Content-Encoding: gzip"], HOST_LINE, CUT)),
        (false, Change(200, &[TAG, "Content-Type: multipart/byteranges"], HOST_LINE, CUT)),
        (false, Change(200, &[TAG], &[], CUT)),
        (false, Change(200, &[TAG], &["Host: a.example", "Host: b.example"], CUT)),
    ];
    for (expected, Change(status, lines, asked, c)) in table {
        let (response, mut ws) = response(status, lines);
        let request = request("GET", "/big", asked, &mut ws);
        let Cutting { storing, framing, is_filtered, is_own, length, received } = c;
        let (request, response, ws, marks) = (&request, &response, &ws, marks(&response, &ws));
        let cut =
            Cut { request, response, ws, marks, storing, framing, is_filtered, is_own, length, received };
        let found = kept(&cut);
        assert_eq!(found.is_some(), expected, "{status} {lines:?} {asked:?} {received} of {length}");
        if let Some(found) = found {
            let stored = found.encode().expect("short texts");
            assert_eq!(Whole::decode(&stored), Some(found));
        }
    }
    let (response, mut ws) = response(200, &[TAG]);
    let post = request("POST", "/big", HOST_LINE, &mut ws);
    let (request, response, ws, marks) = (&post, &response, &ws, marks(&response, &ws));
    let Cutting { storing, framing, is_filtered, is_own, length, received } = CUT;
    let cut = Cut { request, response, ws, marks, storing, framing, is_filtered, is_own, length, received };
    assert_eq!(kept(&cut), None, "a response to POST");
    let get = Cut { marks: None, ..cut };
    assert_eq!(kept(&get), None, "VCL has made the marks");
}

#[test]
fn a_damaged_record_is_no_record() {
    let whole = Whole { coding: b"br", ..WHOLE };
    let good = whole.encode().expect("short texts");
    assert_eq!(Whole::decode(&good), Some(whole));
    for end in 0..good.len() {
        assert_eq!(Whole::decode(&good[..end]), None, "{end}");
    }
    assert_eq!(Whole::decode(&[&good[..], b"x"].concat()), None);
    let long = vec![b'x'; 70_000];
    assert_eq!(Whole { url: &long, ..WHOLE }.encode(), None);
    for tag in [&b""[..], b"W/\"v1\"", b"v1", &[b"\"".as_slice(), &long[..300], b"\""].concat()] {
        let stored = Whole { tag, ..WHOLE }.encode().expect("short texts");
        assert_eq!(Whole::decode(&stored), None, "{tag:?}");
    }
}

#[test]
fn vcl_may_change_the_request_for_the_rest() {
    const ASKED: [&str; 3] = ["Host: a.example", "Range: bytes=40000-", "If-Range: \"v1\""];
    let [host, range, condition] = ASKED;
    let table: &[(&str, &str, &[&str], bool)] = &[
        ("GET", "/big", &ASKED, true),
        ("POST", "/big", &ASKED, false),
        ("GET", "/other", &ASKED, false),
        ("GET", "/big", &["Host: b.example", range, condition], false),
        ("GET", "/big", &[host, host, range, condition], false),
        ("GET", "/big", &[range, condition], false),
        ("GET", "/big", &[host, condition], false),
        ("GET", "/big", &[host, range], false),
        ("GET", "/big", &[host, "Range: bytes=0-", condition], false),
        ("GET", "/big", &[host, "Range: bytes=40000-50000", condition], false),
        ("GET", "/big", &[host, range, range, condition], false),
        ("GET", "/big", &[host, range, "If-Range: \"v2\""], false),
        ("GET", "/big", &[host, range, condition, "If-None-Match: \"v0\""], false),
    ];
    for (method, url, lines, expected) in table {
        let mut ws = Workspace::new(4096);
        let msg = request(method, url, lines, &mut ws);
        assert_eq!(is_asked(&WHOLE, RECEIVED, &msg, &ws), *expected, "{method} {url} {lines:?}");
    }
}

#[test]
fn a_part_contains_ranges_and_replaces_others() {
    let middle = Whole { first: 100, ..WHOLE };
    for (range, expected) in [
        ((100, 100), Some(0)),
        ((110, 149), Some(10)),
        ((149, 149), Some(49)),
        ((99, 110), None),
        ((110, 150), None),
        ((0, 99_999), None),
        ((150, 160), None),
        ((120, 110), None),
        ((110, u64::MAX), None),
    ] {
        assert_eq!(middle.place(50, range), expected, "{range:?}");
    }
    assert_eq!([0, 50, LENGTH].map(|held| WHOLE.beginning(held)), [0, 50, LENGTH - 1]);
    assert_eq!(middle.beginning(50), 0);
    assert_eq!(Whole { is_own: false, ..WHOLE }.beginning(50), 0);
    // (the part, its bytes, another part, its bytes): replaces it
    let table = [
        (middle, 50, WHOLE, 100, false),
        (middle, 50, WHOLE, 120, false),
        (middle, 50, WHOLE, 99, false),
        (middle, 50, WHOLE, 150, false),
        (middle, 50, WHOLE, 500, false),
        (WHOLE, 100, middle, 50, false),
        (WHOLE, 150, middle, 50, true),
        (middle, 50, middle, 50, true),
        (middle, 50, Whole { tag: b"\"v2\"", ..WHOLE }, 100, true),
        (middle, 50, Whole { length: LENGTH + 1, ..WHOLE }, 100, true),
        (middle, 50, Whole { coding: b"gzip", ..WHOLE }, 100, true),
        (middle, 50, Whole { host: b"b.example", ..WHOLE }, 100, true),
        (middle, 50, Whole { url: b"/other", ..WHOLE }, 100, true),
        (middle, 50, Whole { is_own: false, ..WHOLE }, 100, false),
        (Whole { is_own: false, ..middle }, 50, WHOLE, 100, false),
        (Whole { is_own: false, ..middle }, 50, middle, 50, false),
        (middle, u64::MAX, WHOLE, 100, false),
    ];
    for (part, held, other, others, replaces) in table {
        assert_eq!(part.replaces(held, (&other, others)), replaces, "{part:?} {held} {other:?} {others}");
    }
}

#[test]
fn only_a_proven_range_is_stored() {
    const RANGE: &str = "Range: bytes=100-149";
    const SENT: &str = "Content-Range: bytes 100-149/100000";
    let length = framing(BodyStatus::Length, 50);
    let table: &[(&[&str], u16, &[&str], Framing, bool)] = &[
        (&[RANGE], 206, &[TAG, SENT], length, true),
        (&["Range: bytes=-99900"], 206, &[TAG, SENT], length, true),
        (&[], 206, &[TAG, SENT], length, false),
        (&[RANGE, RANGE], 206, &[TAG, SENT], length, false),
        (&["Range: bytes=100-149,200-209"], 206, &[TAG, SENT], length, false),
        (&[RANGE], 200, &[TAG, SENT], length, false),
        (&[RANGE], 416, &[TAG, SENT], length, false),
        (&[RANGE], 206, &[SENT], length, false),
        (&[RANGE], 206, &["ETag: W/\"v1\"", SENT], length, false),
        (&[RANGE], 206, &[TAG, TAG, SENT], length, false),
        (&[RANGE], 206, &[TAG], length, false),
        (&[RANGE], 206, &[TAG, SENT, SENT], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes 100-149/*"], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes */100000"], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes 100-149/149"], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes 149-100/100000"], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes 100-149/18446744073709551616"], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes +100-149/100000"], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: items 100-149/100000"], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes 100-149/100000 "], length, false),
        (&[RANGE], 206, &[TAG, "Content-Range: bytes 100-149/100000x"], length, false),
        (&[RANGE], 206, &[TAG, SENT], framing(BodyStatus::Length, 49), false),
        (&[RANGE], 206, &[TAG, SENT], framing(BodyStatus::Length, 51), false),
        (&[RANGE], 206, &[TAG, SENT], framing(BodyStatus::Chunked, 50), false),
        (&[RANGE], 206, &[TAG, SENT], framing(BodyStatus::Eof, 50), false),
        (&[RANGE], 206, &[TAG, SENT, "Content-Type: multipart/byteranges; boundary=x"], length, false),
        (&[RANGE], 206, &[TAG, SENT, "Content-Encoding: gzip", "Content-Encoding: gzip"], length, false),
        (&[RANGE], 206, &[TAG, SENT, "Content-Encoding: gzip"], length, true),
    ];
    for (asked, status, lines, framing, expected) in table {
        let (response, mut ws) = response(*status, lines);
        let request = request("GET", "/big", asked, &mut ws);
        let found = sent(&request, &response, &ws, *framing);
        assert_eq!(found.is_some(), *expected, "{asked:?} {status} {lines:?} {framing:?}");
        if let Some(found) = found {
            assert_eq!((found.first, found.length, ws.get(found.marks.tag)), (100, LENGTH, &b"\"v1\""[..]));
        }
    }
}
