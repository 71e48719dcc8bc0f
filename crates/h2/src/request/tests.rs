//! Valid requests, and each error with its record.

use super::{Body, Limits, RequestDecoder, RequestHead};
use crate::error_table::{Error, Reason};
use crate::fault::{Note, Tag};
use crate::hpack::{Decoder, encode};
use lacquer_http::{Message, Slot, Workspace};
use lacquer_testing::{Random, rounds};

const LIMITS: Limits =
    Limits { req_size: 4096, hdr_len: 200, list_size: 6000, extended_connect: false, ordered: false };
const STREAM: Error = Error::Stream(Reason::ProtocolError);
const CALM: Error = Error::Stream(Reason::EnhanceYourCalm);

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        literal(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

/// Appends a literal field, without the use of tables.
fn literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    for text in [name, value] {
        assert!(text.len() < 127);
        out.push(text.len() as u8);
        out.extend_from_slice(text);
    }
}

type Fields = &'static [(&'static str, &'static str)];

struct Outcome {
    result: Result<RequestHead, Error>,
    notes: Vec<Note>,
    ws: Workspace,
    msg: Message,
}

impl Outcome {
    fn lines(&self) -> Vec<String> {
        self.msg.lines(&self.ws).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }
}

fn decode_with(decoder: &mut Decoder, limits: &Limits, pieces: &[&[u8]], end_stream: bool) -> Outcome {
    let (mut ws, mut msg, mut notes) = (Workspace::new(16384), Message::new(16), Vec::new());
    let mut log = |note| notes.push(note);
    let mut request = RequestDecoder::begin(decoder, &mut ws, &mut msg, limits);
    let fed = pieces.iter().try_for_each(|piece| request.feed(decoder, piece, &mut ws, &mut msg, &mut log));
    let result = match fed {
        Ok(()) => request.finish(&mut ws, &mut msg, end_stream, &mut log),
        Err(error) => Err(error),
    };
    Outcome { result, notes, ws, msg }
}

fn decode(pieces: &[&[u8]], end_stream: bool) -> Outcome {
    decode_with(&mut Decoder::new(4096), &LIMITS, pieces, end_stream)
}

const MINIMUM: &[(&str, &str)] = &[(":path", "/a?b"), (":method", "GET"), (":scheme", "http")];

fn with(fields: &[(&str, &str)]) -> Vec<u8> {
    block(&[MINIMUM, fields].concat())
}

#[test]
fn a_request_is_decoded_from_any_fragments() {
    let bytes = with(&[
        (":authority", "www.example.com"),
        ("cookie", "a=b"),
        ("accept", "*/*"),
        ("cookie", "c=d"),
        ("empty", ""),
        ("te", "trailers"),
    ]);
    for cut in (0..bytes.len()).step_by(if cfg!(miri) { 7 } else { 1 }) {
        let (head, tail) = bytes.split_at(cut);
        let outcome = decode(&[head, tail], true);
        assert_eq!(outcome.result, Ok(RequestHead { body: Body::None, is_extended: false }));
        assert_eq!(outcome.notes, []);
        assert_eq!(outcome.msg.text(Slot::Proto), lacquer_http::fixed::HTTP_20);
        assert_eq!(outcome.msg.method(&outcome.ws), b"GET");
        assert_eq!(outcome.msg.url(&outcome.ws), b"/a?b");
        let lines = [
            "scheme: http",
            "host: www.example.com",
            "cookie: a=b; c=d",
            "accept: */*",
            "empty: ",
            "te: trailers",
        ];
        assert_eq!(outcome.lines(), lines);
    }
    let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&bytewise, true).lines().len(), 6);
}

#[test]
fn extended_connect_becomes_a_request_to_upgrade() {
    const CONNECT: &[(&str, &str)] = &[(":method", "CONNECT"), (":scheme", "https"), (":path", "/chat")];
    let limits = LIMITS.with_extended_connect(true);
    let ask = |limits: &Limits, fields: &[&[(&str, &str)]], end_stream| {
        decode_with(&mut Decoder::new(4096), limits, &[&block(&fields.concat())], end_stream)
    };
    for (end_stream, body) in [(false, Body::Tunnel), (true, Body::None)] {
        let fields = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
        let outcome = ask(&limits, &[CONNECT, &fields], end_stream);
        assert_eq!(outcome.result, Ok(RequestHead { body, is_extended: true }));
        assert_eq!((&outcome.notes[..], outcome.msg.method(&outcome.ws)), (&[][..], &b"GET"[..]));
        let lines =
            ["scheme: https", "sec-websocket-version: 13", "Connection: Upgrade", "Upgrade: websocket"];
        assert_eq!(outcome.lines(), lines);
    }
    let refused: &[(Limits, Fields, Fields, &str)] = &[
        (LIMITS, CONNECT, &[(":protocol", "websocket")], "Unknown pseudo-header: :protocol: websocket"),
        (limits, MINIMUM, &[(":protocol", "websocket")], "Pseudo-header :protocol without CONNECT"),
        (limits, CONNECT, &[(":protocol", "")], "Empty pseudo-header :protocol"),
        (limits, CONNECT, &[(":protocol", "a"), (":protocol", "a")], "Duplicate pseudo-header :protocol"),
        (limits, CONNECT, &[(":protocol", "a"), ("content-length", "0")], "Content-Length in an extended"),
        (
            limits,
            CONNECT,
            &[(":protocol", "a"), ("upgrade", "b")],
            "Illegal connection-specific field: upgrade",
        ),
        (limits, &CONNECT[..2], &[(":protocol", "websocket")], "Missing :path"),
    ];
    for (limits, start, fields, text) in refused {
        let outcome = ask(limits, &[start, fields], false);
        assert_eq!(outcome.result, Err(STREAM), "{fields:?}");
        assert!(
            outcome.notes.iter().any(|note| note.text.starts_with(text)),
            "{fields:?} {:?}",
            outcome.notes
        );
    }
    // Values that are no tokens cannot add fields to the request.
    for value in ["web socket", "a,b", "a\r\nb: c", "a:b"] {
        let outcome = ask(&limits, &[CONNECT, &[(":protocol", value)]], false);
        assert_eq!(outcome.result, Err(STREAM), "{value:?}");
    }
    assert_eq!(
        ask(&limits, &[&CONNECT[..1], &CONNECT[2..], &[(":protocol", "a")]], false).result,
        Err(Error::Stream(Reason::MissingScheme))
    );
}

#[test]
fn connect_has_an_authority_as_its_only_target() {
    const CONNECT: &[(&str, &str)] = &[(":method", "CONNECT"), (":authority", "a.example:443")];
    let decode = |fields: &[&[(&str, &str)]], end_stream| decode(&[&block(&fields.concat())], end_stream);
    for (end_stream, body) in [(false, Body::Tunnel), (true, Body::None)] {
        let outcome = decode(&[CONNECT, &[("accept", "*/*")]], end_stream);
        assert_eq!(outcome.result, Ok(RequestHead { body, is_extended: false }), "{:?}", outcome.notes);
        assert_eq!(outcome.msg.method(&outcome.ws), b"CONNECT");
        assert_eq!(outcome.msg.url(&outcome.ws), b"a.example:443");
        assert_eq!(outcome.lines(), ["host: a.example:443", "accept: */*"]);
    }
    let (method, host) = (&CONNECT[..1], "CONNECT without host and port in :authority");
    let refused: &[(&[&[(&str, &str)]], &str)] = &[
        (&[CONNECT, &[(":scheme", "https")]], "CONNECT with :scheme or :path"),
        (&[CONNECT, &[(":path", "/")]], "CONNECT with :scheme or :path"),
        (&[CONNECT, &[(":scheme", "https"), (":path", "/")]], "CONNECT with :scheme or :path"),
        (&[method], host),
        (&[method, &[("host", "a.example:443")]], host),
        (&[method, &[(":authority", "a.example")]], host),
        (&[method, &[(":authority", "")]], host),
        (&[method, &[(":authority", ":443")]], host),
        (&[method, &[(":authority", "a.example:443/")]], host),
        (&[method, &[(":authority", "u@a.example:443")]], host),
        (&[method, &[(":authority", "a.example:99999")]], host),
    ];
    for (fields, text) in refused {
        let outcome = decode(fields, false);
        assert_eq!(
            (outcome.result, &outcome.notes[..]),
            (Err(STREAM), &[Note::new(Tag::BogoHeader, *text)][..])
        );
    }
    // Only this method may leave the scheme out.
    let other = decode(&[&[(":method", "GET"), (":authority", "a.example:443")]], false);
    assert_eq!(other.result, Err(Error::Stream(Reason::MissingScheme)));
}

#[test]
fn pseudo_headers_come_first_if_that_is_required() {
    let fields = [&MINIMUM[..2], &[("accept", "*/*")], &MINIMUM[2..]].concat();
    for (required, expected) in
        [(false, Ok(RequestHead { body: Body::None, is_extended: false })), (true, Err(STREAM))]
    {
        let limits = LIMITS.with_order(required);
        let outcome = decode_with(&mut Decoder::new(4096), &limits, &[&block(&fields)], true);
        assert_eq!(outcome.result, expected);
        assert!(outcome.notes.iter().all(|note| note.text == "Pseudo-header after other fields: :scheme"));
    }
}

#[test]
fn unused_workspace_is_returned() {
    let bytes = with(&[("a", "b")]);
    let outcome = decode(&[&bytes], true);
    assert_eq!(outcome.ws.used(), (":path: /a?b :method: GET :scheme: http a: b ".len() + 7) & !7);
}

#[test]
fn equal_authority_and_host_are_merged() {
    let hosts = |fields| {
        let outcome = decode(&[&with(fields)], true);
        assert_eq!(outcome.result, Ok(RequestHead { body: Body::None, is_extended: false }));
        outcome.lines().into_iter().filter(|line| line.starts_with("host")).collect::<Vec<_>>()
    };
    assert_eq!(hosts(&[(":authority", "a"), ("host", "a")]), ["host: a"]);
    assert_eq!(hosts(&[("host", "A"), (":authority", "a")]), ["host: A"]);
    // The request is refused later, when it is logged.
    assert_eq!(hosts(&[(":authority", "a"), ("host", "b")]), ["host: a", "host: b"]);
    assert_eq!(hosts(&[("host", "a"), ("host", "a")]), ["host: a", "host: a"]);
}

#[test]
fn lengths_become_canonical() {
    let outcome = decode(&[&with(&[("content-length", "007")])], false);
    assert_eq!(outcome.result, Ok(RequestHead { body: Body::Length(7), is_extended: false }));
    assert_eq!(outcome.lines(), ["scheme: http", "Content-Length: 7"]);
}

#[test]
fn the_end_of_a_body_depends_on_its_length() {
    let body = |fields, end_stream| decode(&[&with(fields)], end_stream).result.map(|head| head.body);
    assert_eq!(body(&[], false), Ok(Body::UntilEnd));
    assert_eq!(body(&[("content-length", "7")], false), Ok(Body::Length(7)));
    assert_eq!(body(&[("content-length", "0")], false), Ok(Body::Length(0)));
    assert_eq!(body(&[("content-length", "0")], true), Ok(Body::None));
    assert_eq!(body(&[("content-length", "1")], true), Err(Error::Connection(Reason::ProtocolError)));
    assert_eq!(body(&[("content-length", "1x")], false), Err(STREAM));
}

fn fault(fields: &[(&str, &str)], error: Error, tag: Tag, text: &str) {
    let outcome = decode(&[&block(fields)], true);
    assert_eq!(outcome.result, Err(error), "{fields:?}");
    assert_eq!(outcome.notes, [Note::new(tag, text.to_owned())]);
}

#[test]
fn malformed_fields_are_rejected() {
    for (field, text) in [
        (("", "x"), "Empty name"),
        (("snaFu", "foo.bar"), "Illegal field header name (upper-case): snaFu: foo.bar"),
        (("sna[]fu", "foo.bar"), "Illegal field header name (non-token): sna[]fu: foo.bar"),
        (("f: o", "bar"), "Illegal field header name (non-token): f: o: bar"),
        (("::", "bar"), "Illegal field header name (non-token): ::: bar"),
        (("foo", " bar"), "Illegal field value 0x20 start foo:  bar"),
        (("foo", "\tbar"), "Illegal field value 0x09 start foo: \tbar"),
        (("foo", "b\x0car"), "Illegal field value 0x0c foo: b\x0car"),
        (("foo", "b\0ar"), "Illegal field value 0x00 foo: b"),
        (("foo", "bar "), "Illegal field value 0x20 (end) at foo: bar "),
        ((":foo", "bar"), "Unknown pseudo-header: :foo: bar"),
        ((":status", "200"), "Unknown pseudo-header: :status: 200"),
        ((":path", "x"), "Illegal :path pseudo-header x"),
        ((":path", ""), "Empty pseudo-header :path"),
        ((":method", ""), "Empty pseudo-header :method"),
        ((":scheme", ""), "Empty pseudo-header :scheme"),
        (("connection", "close"), "Illegal connection-specific field: connection"),
        (("transfer-encoding", "chunked"), "Illegal connection-specific field: transfer-encoding"),
        (("proxy-connection", "close"), "Illegal connection-specific field: proxy-connection"),
        (("te", "gzip"), "Illegal connection-specific field: te"),
    ] {
        fault(&[field], STREAM, Tag::BogoHeader, text);
        fault(&[&[field], MINIMUM].concat(), STREAM, Tag::BogoHeader, text);
    }
    for silent in [(":method", "G T"), (":scheme", "ht/p"), (":path", "/a b")] {
        let outcome = decode(&[&block(&[silent])], true);
        assert_eq!((outcome.result, outcome.notes), (Err(STREAM), vec![]));
    }
}

#[test]
fn duplicate_and_missing_pseudo_headers_are_rejected() {
    for field in [(":path", "/"), (":method", "PUT"), (":scheme", "https")] {
        let text = format!("Duplicate pseudo-header {}", field.0);
        fault(&[MINIMUM, &[field]].concat(), STREAM, Tag::BogoHeader, &text);
    }
    let twice = [(":authority", "a"), (":authority", "a")];
    fault(&[MINIMUM, &twice].concat(), STREAM, Tag::BogoHeader, "Duplicate pseudo-header :authority");
    fault(&MINIMUM[..2], Error::Stream(Reason::MissingScheme), Tag::Debug, "Missing :scheme");
    fault(&MINIMUM[1..], STREAM, Tag::Debug, "Missing :path");
    fault(&[MINIMUM[0], MINIMUM[2]], STREAM, Tag::Debug, "Missing :method");
    let star = [(":path", "*"), (":method", "GET"), (":scheme", "http")];
    fault(&star, STREAM, Tag::BogoHeader, "Illegal :path pseudo-header");
    let options = block(&[(":path", "*"), (":method", "OPTIONS"), (":scheme", "http")]);
    assert!(decode(&[&options], true).result.is_ok());
}

#[test]
fn limits_refuse_the_stream_and_then_end_the_connection() {
    let long = "x".repeat(120);
    let limits = Limits { hdr_len: 40, ..LIMITS };
    let outcome = decode_with(&mut Decoder::new(4096), &limits, &[&with(&[("limit", &long)])], true);
    assert_eq!(outcome.result, Err(CALM));
    assert_eq!(
        outcome.notes,
        [Note::new(Tag::BogoHeader, format!("Header too large: limit: {} (http_req_hdr_len)", &long[..13]))]
    );

    let outcome = decode(&[&with(&[("a", "b"); 12])], true);
    assert_eq!(outcome.result, Err(CALM));
    assert_eq!(outcome.notes, [Note::new(Tag::LostHeader, "Too many headers: a: b (http_max_hdr)")]);

    let many = vec![("a", &*long); 8];
    let small =
        Limits { req_size: 512, hdr_len: 200, list_size: 2000, extended_connect: false, ordered: false };
    let outcome = decode_with(&mut Decoder::new(4096), &small, &[&with(&many)], true);
    assert_eq!(outcome.result, Err(Error::Stream(Reason::ReqSize)));
    assert_eq!(outcome.notes, [Note::new(Tag::LostHeader, "Header list too large (http_req_size)")]);

    let small = Limits { list_size: 900, ..small };
    let outcome = decode_with(&mut Decoder::new(4096), &small, &[&with(&many)], true);
    assert_eq!(outcome.result, Err(Error::Connection(Reason::EnhanceYourCalm)));
    assert_eq!(outcome.notes, [Note::new(Tag::SessError, "Header list too large (h2_max_header_list_size)")]);

    assert_eq!(Limits::new(32768, 8192, 0).list_size, 49152);
    assert_eq!(Limits::new(32768, 8192, 1000).list_size, 49152);
    assert_eq!(Limits::new(32768, 8192, 100_000).list_size, 100_000);
}

#[test]
fn a_refused_stream_updates_the_tables() {
    let mut decoder = Decoder::new(4096);
    let mut remembered = Vec::new();
    encode::remembered(&mut remembered, b"x-later", b"needed");
    let error = Error::Stream(Reason::RefusedStream);
    let mut refused = RequestDecoder::refused(&mut decoder, error, &LIMITS);
    let (mut ws, mut msg) = (Workspace::new(0), Message::new(0));
    let (head, tail) = remembered.split_at(3);
    refused.feed(&mut decoder, head, &mut ws, &mut msg, &mut |_| ()).unwrap();
    refused.feed(&mut decoder, tail, &mut ws, &mut msg, &mut |_| ()).unwrap();
    assert_eq!(refused.finish(&mut ws, &mut msg, true, &mut |_| ()), Err(error));

    let mut bytes = with(&[("BAD", "")]);
    encode::remembered(&mut bytes, b"x-last", b"too");
    assert_eq!(decode_with(&mut decoder, &LIMITS, &[&bytes], true).result, Err(STREAM));

    let mut bytes = with(&[]);
    encode::indexed(&mut bytes, 63);
    encode::indexed(&mut bytes, 62);
    let outcome = decode_with(&mut decoder, &LIMITS, &[&bytes], true);
    assert_eq!(outcome.lines(), ["scheme: http", "x-later: needed", "x-last: too"]);
}

#[test]
fn trailers_are_checked() {
    let trailers = |decoder: &mut Decoder, fields: &[u8]| {
        let mut notes = Vec::new();
        let mut block = RequestDecoder::trailers(decoder, &LIMITS);
        let (mut ws, mut msg) = (Workspace::new(0), Message::new(0));
        let (head, tail) = fields.split_at(fields.len() / 2);
        for piece in [head, tail] {
            block.feed(decoder, piece, &mut ws, &mut msg, &mut |n| notes.push(n)).unwrap();
        }
        let result = block.finish_trailers(&mut |n| notes.push(n)).map(|found| found.lines().to_vec());
        (result, notes.into_iter().map(|n| n.text.into_owned()).collect::<Vec<_>>())
    };
    let mut decoder = Decoder::new(4096);
    let mut fields = block(&[("x-checksum", "7f")]);
    encode::remembered(&mut fields, b"x-later", b"needed");
    assert_eq!(
        trailers(&mut decoder, &fields),
        (Ok(b"x-checksum: 7f\r\nx-later: needed\r\n".to_vec()), vec![])
    );
    let forbidden = trailers(&mut decoder, &block(&[("host", "b"), ("x-a", "b")]));
    assert_eq!(forbidden, (Ok(b"x-a: b\r\n".to_vec()), vec![]));
    let specific = trailers(&mut decoder, &block(&[("transfer-encoding", "chunked")]));
    assert_eq!(specific.0, Err(STREAM));
    let pseudo = trailers(&mut decoder, &block(&[("x-a", "b"), (":method", "GET")]));
    assert_eq!(pseudo, (Err(STREAM), vec!["Pseudo-header in trailers: :method: GET".to_owned()]));
    let upper = trailers(&mut decoder, &block(&[("X-A", "b")]));
    assert_eq!(upper.0, Err(STREAM));
    let cut = trailers(&mut decoder, b"\x41\x0fwww");
    assert_eq!(cut.0, Err(Error::Connection(Reason::CompressionError)));

    let mut request = with(&[]);
    encode::indexed(&mut request, 62);
    let outcome = decode_with(&mut decoder, &LIMITS, &[&request], true);
    assert_eq!(outcome.lines(), ["scheme: http", "x-later: needed"]);
}

#[test]
fn damaged_blocks_end_the_connection() {
    const DAMAGED: Error = Error::Connection(Reason::CompressionError);
    let cut = b"\x82\x86\x84\x41\x0fwww.example.c";
    let outcome = decode(&[cut], true);
    assert_eq!(outcome.result, Err(DAMAGED));
    assert_eq!(outcome.notes, [Note::new(Tag::BogoHeader, "HPACK compression error/fini (Feed me)")]);
    let outcome = decode(&[&cut[..3], &[0xff; 12]], true);
    assert_eq!(outcome.result, Err(DAMAGED));
    assert_eq!(outcome.notes, [Note::new(Tag::SessBogoHeader, "HPACK compression error (Integer overflow)")]);
}

#[test]
fn damaged_requests_do_not_depend_on_fragments() {
    let mut random = Random(11);
    let seed = with(&[("cookie", "a=b"), ("content-length", "5"), ("cookie", "c"), (":authority", "h")]);
    for _ in 0..rounds(30_000) {
        let mut bytes = seed.clone();
        for _ in 0..=random.below(3) {
            let at = random.index(bytes.len());
            let any = random.number() as u8;
            bytes[at] = random.one(&[any, b' ', b':', 0x82, 0, 0x7f]);
        }
        let cut = random.index(bytes.len());
        let whole = decode(&[&bytes], false);
        let pieces = decode(&[&bytes[..cut], &bytes[cut..]], false);
        assert_eq!(whole.result, pieces.result);
        assert_eq!(whole.notes, pieces.notes);
        if whole.result.is_ok() {
            assert_eq!(whole.lines(), pieces.lines());
            assert!(!whole.msg.url(&whole.ws).is_empty() && !whole.msg.method(&whole.ws).is_empty());
            assert!(
                whole.lines().iter().all(|line| !line.starts_with(':') && !line.contains(['\r', '\n', '\0']))
            );
        }
    }
}
