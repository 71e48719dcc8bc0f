//! Request streams: the order of frames, valid requests, and each malformed one with its error and record.

use super::*;
use crate::error_table::{Error, Reason};
use crate::fault::Fault;
use crate::frame::write_header;
use crate::qpack::{Decoder, begin, field, literal};
use lacquer_h2::hpack::integer;
use lacquer_h2::{Note, Tag};
use lacquer_http::{Message, Slot, Workspace, fixed};
use lacquer_testing::{Random, rounds};
use std::borrow::Cow;

const LIMITS: Limits =
    Limits { req_size: 4096, hdr_len: 200, list_size: 6000, extended_connect: false, ordered: false };
const MALFORMED: Error = Error::Stream(Reason::MessageError);
const LOADED: Error = Error::Stream(Reason::ExcessiveLoad);

const MINIMUM: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":authority", "example.com"), (":path", "/a?b")];

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out);
    for (name, value) in fields {
        if name.bytes().any(|b| b.is_ascii_uppercase()) {
            // The encoder writes names in lower case.
            out.push(0x20 | name.len() as u8);
            out.extend_from_slice(name.as_bytes());
            out.push(value.len() as u8);
            out.extend_from_slice(value.as_bytes());
        } else {
            literal(&mut out, name.as_bytes(), value.as_bytes());
        }
    }
    out
}

struct Outcome {
    result: Result<Decoded<RequestHead>, Error>,
    notes: Vec<Note>,
    ws: Workspace,
    msg: Message,
}

impl Outcome {
    fn lines(&self) -> Vec<String> {
        self.msg.lines(&self.ws).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }
}

fn decode_with(decoder: &mut Decoder, limits: &Limits, section: &[u8], end_stream: bool) -> Outcome {
    let (mut ws, mut msg, mut notes) = (Workspace::new(16384), Message::new(16), Vec::new());
    let parts = (&mut ws, &mut msg);
    let result = decode(decoder, 4, section, parts, limits, end_stream, &mut |note| notes.push(note));
    Outcome { result, notes, ws, msg }
}

fn request(fields: &[(&str, &str)], end_stream: bool) -> Outcome {
    decode_with(&mut Decoder::new(4096, 16), &LIMITS, &section(fields), end_stream)
}

fn with(fields: &[(&'static str, &'static str)], end_stream: bool) -> Outcome {
    request(&[MINIMUM, fields].concat(), end_stream)
}

fn done(body: Body) -> Result<Decoded<RequestHead>, Error> {
    Ok(Decoded::Done(RequestHead { body, is_extended: false }))
}

#[test]
fn a_request_is_decoded() {
    let fields = [("cookie", "a=b"), ("accept", "*/*"), ("cookie", "c=d"), ("empty", ""), ("te", "trailers")];
    let outcome = with(&fields, true);
    assert_eq!((outcome.result, &outcome.notes[..]), (done(Body::None), &[][..]));
    assert_eq!(outcome.msg.text(Slot::Proto), fixed::HTTP_30);
    assert_eq!(outcome.msg.proto(&outcome.ws), b"HTTP/3.0");
    assert_eq!(outcome.msg.method(&outcome.ws), b"GET");
    assert_eq!(outcome.msg.url(&outcome.ws), b"/a?b");
    let lines =
        ["scheme: https", "host: example.com", "cookie: a=b; c=d", "accept: */*", "empty: ", "te: trailers"];
    assert_eq!(outcome.lines(), lines);
}

#[test]
fn extended_connect_becomes_a_request_to_upgrade() {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "example.com"),
        (":path", "/chat"),
    ];
    let limits = LIMITS.with_extended_connect(true);
    let outcome = decode_with(&mut Decoder::new(4096, 16), &limits, &section(&fields), false);
    assert_eq!(
        outcome.result,
        Ok(Decoded::Done(RequestHead { body: Body::Tunnel, is_extended: true })),
        "{:?}",
        outcome.notes
    );
    assert_eq!(outcome.msg.method(&outcome.ws), b"GET");
    let lines = ["scheme: https", "host: example.com", "Connection: Upgrade", "Upgrade: websocket"];
    assert_eq!(outcome.lines(), lines);
    assert_eq!(request(&fields, false).result, Err(MALFORMED));
    let without_host = [&fields[..3], &fields[4..]].concat();
    let outcome = decode_with(&mut Decoder::new(4096, 16), &limits, &section(&without_host), false);
    assert_eq!(outcome.result, Err(MALFORMED));
}

#[test]
fn fields_of_the_dynamic_table_are_decoded() {
    let mut decoder = Decoder::new(4096, 16);
    let mut bytes = section(MINIMUM);
    bytes[0] = 2;
    bytes.push(0x80);
    let blocked = decode_with(&mut decoder, &LIMITS, &bytes, true);
    assert_eq!((blocked.result, blocked.notes), (Ok(Decoded::Blocked), vec![]));
    assert_eq!(blocked.ws.used(), 0);
    decoder.receive(b"\x3f\xe1\x1f\x43x-y\x011").unwrap();
    assert_eq!(decoder.unblocked().collect::<Vec<_>>(), [4]);
    let outcome = decode_with(&mut decoder, &LIMITS, &bytes, true);
    assert_eq!(outcome.result, done(Body::None));
    assert_eq!(outcome.lines(), ["scheme: https", "host: example.com", "x-y: 1"]);
    assert_eq!(decoder.output().unwrap(), b"\x84");
}

#[test]
fn malformed_requests_are_rejected() {
    let cases: &[(&[(&str, &str)], Tag, &str)] = &[
        // Section 4.2: names and values.
        (&[("", "x")], Tag::BogoHeader, "Empty name"),
        (&[("snaFu", "x")], Tag::BogoHeader, "Illegal field header name (upper-case): snaFu: x"),
        (&[("a b", "x")], Tag::BogoHeader, "Illegal field header name (non-token): a b: x"),
        (&[("a", " x")], Tag::BogoHeader, "Illegal field value 0x20 start a:  x"),
        (&[("a", "x ")], Tag::BogoHeader, "Illegal field value 0x20 (end) at a: x "),
        (&[("a", "x\ry")], Tag::BogoHeader, "Illegal field value 0x0d a: x\ry"),
        (&[("a", "x\ny")], Tag::BogoHeader, "Illegal field value 0x0a a: x\ny"),
        (&[("a", "x\0y")], Tag::BogoHeader, "Illegal field value 0x00 a: x"),
        // Connection-specific fields.
        (&[("connection", "close")], Tag::BogoHeader, "Illegal connection-specific field: connection"),
        (&[("keep-alive", "5")], Tag::BogoHeader, "Illegal connection-specific field: keep-alive"),
        (&[("upgrade", "x")], Tag::BogoHeader, "Illegal connection-specific field: upgrade"),
        (
            &[("transfer-encoding", "chunked")],
            Tag::BogoHeader,
            "Illegal connection-specific field: transfer-encoding",
        ),
        (&[("te", "gzip")], Tag::BogoHeader, "Illegal connection-specific field: te"),
        // Section 4.3: pseudo-headers.
        (&[(":path", "/")], Tag::BogoHeader, "Duplicate pseudo-header :path"),
        (&[(":method", "PUT")], Tag::BogoHeader, "Duplicate pseudo-header :method"),
        (&[(":scheme", "http")], Tag::BogoHeader, "Duplicate pseudo-header :scheme"),
        (&[(":authority", "a")], Tag::BogoHeader, "Duplicate pseudo-header :authority"),
        (&[(":status", "200")], Tag::BogoHeader, "Unknown pseudo-header: :status: 200"),
        (&[(":protocol", "websocket")], Tag::BogoHeader, "Unknown pseudo-header: :protocol: websocket"),
        (&[("a", "b"), (":path", "/")], Tag::BogoHeader, "Pseudo-header after other fields: :path"),
        (&[("a", "b"), (":authority", "h")], Tag::BogoHeader, "Pseudo-header after other fields: :authority"),
        (&[("content-length", "1x")], Tag::Debug, "Non-parseable Content-Length"),
        (&[("content-length", "-1")], Tag::Debug, "Non-parseable Content-Length"),
        (
            &[("content-length", "1")],
            Tag::Debug,
            "H3: rx headers at the end of the stream and content-length > 0",
        ),
    ];
    for (fields, tag, text) in cases {
        let outcome = with(fields, true);
        assert_eq!(outcome.result, Err(MALFORMED), "{fields:?}");
        assert_eq!(outcome.notes, [Note::new(*tag, *text)], "{fields:?}");
    }
}

#[test]
fn incomplete_requests_are_rejected() {
    let without = |name: &str| {
        let fields: Vec<_> = MINIMUM.iter().copied().filter(|field| field.0 != name).collect();
        request(&fields, true)
    };
    for (name, text) in [
        (":method", "Missing :method"),
        (":scheme", "Missing :scheme"),
        (":path", "Missing :path"),
        (":authority", "Missing :authority"),
    ] {
        let outcome = without(name);
        assert_eq!(outcome.result, Err(MALFORMED));
        assert_eq!(outcome.notes, [Note::new(Tag::Debug, text)]);
    }
    assert_eq!(request(&[], true).result, Err(MALFORMED));
    // A host suffices, if it is not empty. It may equal the authority.
    let host = |value| {
        let fields = [(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", value)];
        request(&fields, true)
    };
    assert_eq!(host("h").result, done(Body::None));
    assert_eq!(host("").result, Err(MALFORMED));
    assert_eq!(with(&[("host", "EXAMPLE.com")], true).lines(), ["scheme: https", "host: example.com"]);
    for (method, path, is_valid) in [("OPTIONS", "*", true), ("GET", "*", false), ("GET", "", false)] {
        let fields = [(":method", method), (":scheme", "https"), (":path", path), (":authority", "a")];
        assert_eq!(request(&fields, true).result.is_ok(), is_valid, "{method} {path}");
    }
    let connect = [(":method", "CONNECT"), (":authority", "a:443"), (":scheme", "https"), (":path", "/")];
    let outcome = request(&connect[..2], false);
    assert_eq!((outcome.result, outcome.msg.url(&outcome.ws)), (done(Body::Tunnel), &b"a:443"[..]));
    for wrong in [&connect[..1], &connect[..3], &connect] {
        assert_eq!(request(wrong, false).result, Err(MALFORMED), "{wrong:?}");
    }
}

#[test]
fn the_end_of_a_body_is_decided() {
    let body = |fields, end_stream| with(fields, end_stream).result;
    assert_eq!(body(&[], false), done(Body::UntilEnd));
    assert_eq!(body(&[("content-length", "7")], false), done(Body::Length(7)));
    assert_eq!(body(&[("content-length", "0")], true), done(Body::None));
}

#[test]
fn limits_reset_the_stream_and_then_end_the_connection() {
    let long = "x".repeat(250);
    let mut fields = MINIMUM.to_vec();
    fields.push(("limit", &long));
    let outcome = request(&fields, true);
    assert_eq!(outcome.result, Err(LOADED));
    let text = format!("Header too large: limit: {} (http_req_hdr_len)", &long[..13]);
    assert_eq!(outcome.notes, [Note::new(Tag::BogoHeader, text)]);

    let outcome = with(&[("a", "b"); 16], true);
    assert_eq!(outcome.result, Err(LOADED));
    assert_eq!(outcome.notes, [Note::new(Tag::LostHeader, "Too many headers: a: b (http_max_hdr)")]);

    let short = "x".repeat(150);
    let many = [MINIMUM, &[("a", &*short); 9]].concat();
    let small = Limits { req_size: 1000, ..LIMITS };
    let outcome = decode_with(&mut Decoder::new(0, 0), &small, &section(&many), true);
    assert_eq!(outcome.result, Err(LOADED));
    assert_eq!(outcome.notes, [Note::new(Tag::LostHeader, "Header list too large (http_req_size)")]);
}

#[test]
fn a_bomb_is_not_unpacked() {
    // A field of 4 kB in the table, and a section of 20 kB that repeats it 20,000 times: 80 MB.
    let mut decoder = Decoder::new(4096, 16);
    let mut insert = b"\x3f\xe1\x1f\x41a".to_vec();
    integer::write(&mut insert, 7, 0, 4063);
    insert.extend([b'x'; 4063]);
    decoder.receive(&insert).unwrap();
    let mut bytes = section(MINIMUM);
    bytes[0] = 2;
    bytes.extend(vec![0x80; 20_000]);
    let limits = Limits { hdr_len: 8192, ..LIMITS };
    let outcome = decode_with(&mut decoder, &limits, &bytes, true);
    assert_eq!(outcome.result, Err(LOADED));
    assert_eq!(outcome.notes, [Note::new(Tag::LostHeader, "Header list too large (http_req_size)")]);
    // The fields of trailers have a limit, too.
    let mut trailers = b"\x02\x00".to_vec();
    trailers.extend(vec![0x80; 20_000]);
    let mut notes = Vec::new();
    let result = decode_trailers(&mut decoder, 4, &trailers, &limits, &mut |note| notes.push(note));
    assert_eq!(result, Err(LOADED));
    assert_eq!(notes[0].text, "Header list too large (h2_max_header_list_size)");
}

#[test]
fn damaged_sections_end_the_connection() {
    let mut bytes = section(MINIMUM);
    bytes.pop();
    let outcome = decode_with(&mut Decoder::new(4096, 16), &LIMITS, &bytes, true);
    assert_eq!(outcome.result, Err(Error::Connection(Reason::DecompressionFailed)));
    let text = "QPACK compression error (Ends within a field)";
    assert_eq!(outcome.notes, [Note::new(Tag::SessBogoHeader, text)]);
}

#[test]
fn trailers_are_checked() {
    let check = |fields| {
        let mut notes = Vec::new();
        let bytes = section(fields);
        let decoder = &mut Decoder::new(4096, 16);
        let result = decode_trailers(decoder, 4, &bytes, &LIMITS, &mut |note| notes.push(note.text));
        let lines = result.map(|decoded| match decoded {
            Decoded::Done(trailers) => trailers.lines().to_vec(),
            Decoded::Blocked => Vec::new(),
        });
        (lines, notes)
    };
    let found = check(&[("x-checksum", "7f"), ("content-length", "9"), ("x-b", "")]);
    assert_eq!(found, (Ok(b"x-checksum: 7f\r\nx-b: \r\n".to_vec()), vec![]));
    assert_eq!(check(&[("connection", "close")]).0, Err(MALFORMED));
    assert_eq!(check(&[("Upper", "7f")]).0, Err(MALFORMED));
    let pseudo = check(&[("x-a", "b"), (":method", "GET")]);
    assert_eq!(pseudo, (Err(MALFORMED), vec![Cow::from("Pseudo-header in trailers: :method: GET")]));
}

/// Returns the bytes of frames with these types and payloads.
fn frames(parts: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, payload) in parts {
        write_header(&mut out, *number, payload.len() as u64);
        out.extend_from_slice(payload);
    }
    out
}

/// Reads a stream of these pieces. Returns a summary of the events, with adjacent pieces of the body joined, and the
/// result of the stream's end.
fn run(pieces: &[&[u8]], body: Body) -> Result<Vec<String>, Fault> {
    let (mut stream, mut events) = (RequestStream::new(100), Vec::<String>::new());
    for piece in pieces {
        let mut input = *piece;
        while let Some(event) = stream.next(&mut input)? {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match event {
                Event::Headers(section) => {
                    assert!(!stream.is_opening());
                    stream.expect(body);
                    events.push(format!("headers {}", text(&section)));
                }
                Event::Trailers(section) => events.push(format!("trailers {}", text(&section))),
                Event::Data(bytes) => match events.last_mut().filter(|event| event.starts_with("data")) {
                    Some(event) => event.push_str(&text(bytes)),
                    None => events.push(format!("data {}", text(bytes))),
                },
            }
        }
        assert_eq!(input, b"");
    }
    stream.end()?;
    Ok(events)
}

#[test]
fn a_stream_carries_headers_a_body_and_trailers() {
    let grease: (u64, &[u8]) = (0x21, b"grease");
    for (parts, expected) in [
        (&[(1, &b"h"[..])][..], &["headers h"][..]),
        (&[(1, b"")], &["headers "]),
        (&[(1, b"h"), (0, b"ab"), (0, b""), (0, b"c")], &["headers h", "data abc"]),
        (&[(1, b"h"), (1, b"t")], &["headers h", "trailers t"]),
        (
            &[grease, (1, b"h"), grease, (0, b"a"), grease, (1, b"t"), grease],
            &["headers h", "data a", "trailers t"],
        ),
        (&[(1, b"h"), (0xf0700, b""), (1, b"")], &["headers h", "trailers "]),
    ] {
        let bytes = frames(parts);
        let whole = run(&[&bytes], Body::UntilEnd).unwrap();
        assert_eq!(whole, expected);
        for cut in 0..bytes.len() {
            assert_eq!(run(&[&bytes[..cut], &bytes[cut..]], Body::UntilEnd).unwrap(), expected);
        }
        let bytewise: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(run(&bytewise, Body::UntilEnd).unwrap(), expected);
    }
}

#[test]
fn frames_out_of_order_end_the_connection() {
    let (h, t): ((u64, &[u8]), (u64, &[u8])) = ((1, b"h"), (1, b"t"));
    for (parts, text) in [
        (&[(0, &b"a"[..])][..], "H3: unexpected DATA frame before headers"),
        (&[(0, b"")], "H3: unexpected DATA frame before headers"),
        (&[h, t, (0, b"a")], "H3: unexpected DATA frame after trailers"),
        (&[h, t, (1, b"u")], "H3: unexpected HEADERS frame after trailers"),
        (&[(4, b"")], "H3: unexpected SETTINGS frame before headers"),
        (&[h, (4, b"")], "H3: unexpected SETTINGS frame on a request stream"),
        (&[h, (3, b"\0")], "H3: unexpected CANCEL_PUSH frame on a request stream"),
        (&[h, (5, b"\0")], "H3: unexpected PUSH_PROMISE frame on a request stream"),
        (&[h, (7, b"\0")], "H3: unexpected GOAWAY frame on a request stream"),
        (&[h, (0xd, b"\0")], "H3: unexpected MAX_PUSH_ID frame on a request stream"),
        (&[(2, b"")], "H3: unexpected PRIORITY (HTTP/2) frame before headers"),
        (&[h, (6, b"12345678")], "H3: unexpected PING (HTTP/2) frame on a request stream"),
        (&[h, (8, b"1234")], "H3: unexpected WINDOW_UPDATE (HTTP/2) frame on a request stream"),
        (&[h, (9, b"")], "H3: unexpected CONTINUATION (HTTP/2) frame on a request stream"),
    ] {
        let bytes = frames(parts);
        for step in [1, bytes.len()] {
            let pieces: Vec<_> = bytes.chunks(step).collect();
            let fault = run(&pieces, Body::UntilEnd).unwrap_err();
            assert_eq!(fault.error, Error::Connection(Reason::FrameUnexpected), "{text}");
            assert_eq!(fault.note.unwrap().text, text);
        }
    }
}

#[test]
fn a_tunnel_carries_bytes_only() {
    let (h, grease): ((u64, &[u8]), (u64, &[u8])) = ((1, b"h"), (0x21, b"grease"));
    let bytes = frames(&[h, (0, b"ab"), grease, (0, b"c")]);
    assert_eq!(run(&[&bytes], Body::Tunnel).unwrap(), ["headers h", "data abc"]);
    for (number, name) in [(1, "HEADERS"), (4, "SETTINGS"), (5, "PUSH_PROMISE"), (7, "GOAWAY")] {
        let fault = run(&[&frames(&[h, (0, b"a"), (number, b"t")])], Body::Tunnel).unwrap_err();
        assert_eq!(fault.error, Error::Connection(Reason::FrameUnexpected));
        assert_eq!(fault.note.unwrap().text, format!("H3: unexpected {name} frame in a tunnel"));
    }
}

#[test]
fn incomplete_streams_are_errors() {
    let bytes = frames(&[(1, b"head"), (0, b"body"), (1, b"tail")]);
    for cut in 0..=bytes.len() {
        let is_boundary = [6, 12, 18].contains(&cut);
        let expected = match cut {
            0 => Err(Error::Stream(Reason::RequestIncomplete)),
            _ if is_boundary => Ok(()),
            _ => Err(Error::Connection(Reason::FrameError)),
        };
        let result = run(&[&bytes[..cut]], Body::UntilEnd);
        assert_eq!(result.map(drop).map_err(|fault| fault.error), expected, "{cut}");
    }
    let grease = run(&[&frames(&[(0x21, b"x")])], Body::None).unwrap_err();
    assert_eq!(grease.error, Error::Stream(Reason::RequestIncomplete));
}

#[test]
fn a_body_must_match_its_content_length() {
    let outcome = |parts: &[(u64, &[u8])], body| run(&[&frames(parts)], body).map_err(|fault| fault.error);
    let h: (u64, &[u8]) = (1, b"h");
    assert!(outcome(&[h, (0, b"abc")], Body::Length(3)).is_ok());
    assert!(outcome(&[h, (0, b"ab"), (0, b"c"), (1, b"t")], Body::Length(3)).is_ok());
    assert!(outcome(&[h], Body::None).is_ok());
    assert!(outcome(&[h], Body::Length(0)).is_ok());
    for (parts, body) in [
        (&[h, (0, &b"abcd"[..])][..], Body::Length(3)),
        (&[h, (0, b"abc"), (0, b"d")], Body::Length(3)),
        (&[h, (0, b"ab")], Body::Length(3)),
        (&[h, (0, b"ab"), (1, b"t")], Body::Length(3)),
        (&[h], Body::Length(3)),
        (&[h, (0, b"a")], Body::None),
    ] {
        assert_eq!(outcome(parts, body), Err(MALFORMED));
    }
}

#[test]
fn large_sections_and_floods_are_refused() {
    let outcome = |bytes: &[u8]| run(&[bytes], Body::UntilEnd).map_err(|fault| fault.error);
    assert!(outcome(&frames(&[(1, &[0; 100])])).is_ok());
    // The stream is reset before the section arrives.
    assert_eq!(outcome(b"\x01\x40\x65"), Err(LOADED));
    assert_eq!(outcome(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff"), Err(LOADED));
    assert_eq!(outcome(b"\x01\x01h\x01\x40\x65"), Err(LOADED));
    let flood = |frame: &[u8], count: usize| {
        let mut bytes = frames(&[(1, b"h")]);
        bytes.extend(frame.repeat(count));
        outcome(&bytes).map(drop)
    };
    for frame in [&b"\x00\x00"[..], b"\x21\x00", b"\x21\x03abc"] {
        assert_eq!(flood(frame, 1000), Ok(()));
        assert_eq!(flood(frame, 1001), Err(Error::Connection(Reason::ExcessiveLoad)));
    }
    assert_eq!(flood(b"\x00\x01x\x00\x00", 20_000), Ok(()));
}

#[test]
fn damaged_streams_do_not_depend_on_pieces() {
    let mut random = Random(17);
    let seed = frames(&[(0x21, b"g"), (1, b"headers"), (0, b"some body"), (0, b""), (0, b"more"), (1, b"t")]);
    for _ in 0..rounds(30_000) {
        let mut bytes = seed.clone();
        for _ in 0..random.below(3) {
            let at = random.index(bytes.len());
            let any = random.number() as u8;
            bytes[at] = random.one(&[any, 0, 1, 4, 0x40, 0x80, 0xc0]);
        }
        let (a, b) = (random.index(bytes.len()), random.index(bytes.len()));
        let (a, b) = (a.min(b), a.max(b));
        let body = random.one(&[Body::UntilEnd, Body::Length(13), Body::None]);
        let whole = run(&[&bytes], body);
        assert_eq!(whole, run(&[&bytes[..a], &bytes[a..b], &bytes[b..]], body), "{bytes:x?}");
    }
}

#[test]
fn damaged_requests_become_valid_requests_or_errors() {
    let mut random = Random(19);
    let mut seed = section(MINIMUM);
    field(&mut seed, b"content-length", b"5");
    literal(&mut seed, b"cookie", b"a=b");
    for _ in 0..rounds(30_000) {
        let mut bytes = seed.clone();
        for _ in 0..=random.below(3) {
            let at = random.index(bytes.len());
            let any = random.number() as u8;
            bytes[at] = random.one(&[any, b' ', b':', 0x22, 0, 0x7f]);
        }
        let outcome = decode_with(&mut Decoder::new(4096, 16), &LIMITS, &bytes, false);
        if let Ok(Decoded::Done(_)) = outcome.result {
            assert!(!outcome.msg.url(&outcome.ws).is_empty() && !outcome.msg.method(&outcome.ws).is_empty());
            let is_clean = |line: &String| !line.starts_with(':') && !line.contains(['\r', '\n', '\0']);
            assert!(outcome.lines().iter().all(is_clean));
        }
    }
}
