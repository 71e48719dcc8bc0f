//! Tests of the HTTP/1 codec, especially with malformed messages.

use super::*;
use crate::body_status::BodyStatus;
use crate::header_table::*;
use crate::message::Message;
use crate::session_close_table::SessClose;
use crate::workspace::{Text, Workspace};

const HDR_LEN: usize = 8192;

struct Parsed {
    ws: Workspace,
    msg: Message,
}

fn receive(bytes: &[u8]) -> (Workspace, Text) {
    let mut ws = Workspace::new(65536);
    ws.reserve(bytes.len()).unwrap().copy_from_slice(bytes);
    let rx = ws.commit(bytes.len());
    (ws, rx)
}

fn request(bytes: &[u8]) -> (Parsed, Result<RequestHead, BadHead>) {
    let (mut ws, rx) = receive(bytes);
    let mut msg = Message::new(64);
    let result = parse_request(&mut ws, rx, &mut msg, HDR_LEN);
    (Parsed { ws, msg }, result)
}

fn response(bytes: &[u8]) -> (Parsed, Result<ResponseHead, BadHead>) {
    let (mut ws, rx) = receive(bytes);
    let mut msg = Message::new(64);
    let result = parse_response(&mut ws, rx, &mut msg, HDR_LEN, 11);
    (Parsed { ws, msg }, result)
}

fn bogo(bytes: &[u8]) -> String {
    let (parsed, result) = request(bytes);
    let bad = result.expect_err("the head is malformed");
    assert_eq!(bad.status, 400);
    let mut text = Vec::new();
    if let Some(bogo) = bad.bogo {
        bogo.write(&parsed.ws, "http_req_hdr_len", &mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn heads_are_found_in_any_split() {
    for head in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\r\n\r\nGET / HTTP/1.1\nA: b\n\n", b"X\n\r\nrest"]
    {
        let end = head.len() - if head.ends_with(b"rest") { 4 } else { 0 };
        let mut scanned = 0;
        for n in 1..=head.len() {
            match head_complete(&head[..n], scanned) {
                HeadScan::Complete => assert!(n >= end),
                HeadScan::More { scanned: s } => {
                    assert!(n < end);
                    scanned = s;
                }
                HeadScan::Empty => assert!(head[..n].iter().all(|b| b"\r\n".contains(b))),
                HeadScan::H2Preface => panic!("no preface here"),
            }
        }
        assert_eq!(head_complete(head, 0), HeadScan::Complete);
    }
    assert_eq!(head_complete(H2_PREFACE, 0), HeadScan::H2Preface);
    assert!(matches!(head_complete(&H2_PREFACE[..20], 0), HeadScan::More { .. }));
}

#[test]
fn a_request_is_parsed() {
    let bytes = b"\r\nGET  /x?y  HTTP/1.1\r\nHost: a\r\nFoo:\t b \t\r\nEmpty:\r\n\r\nnext";
    let (p, head) = request(bytes);
    let head = head.unwrap();
    assert_eq!(&bytes[head.len..], b"next");
    assert_eq!((p.msg.method(&p.ws), p.msg.url(&p.ws), p.msg.version()), (&b"GET"[..], &b"/x?y"[..], 11));
    assert_eq!(p.msg.lines(&p.ws).collect::<Vec<_>>(), [&b"Host: a"[..], b"Foo:\t b", b"Empty:"]);
    assert_eq!(p.msg.get(&p.ws, HeaderName::new(b"foo")), Some(&b"b"[..]));
    assert_eq!(p.msg.get(&p.ws, HeaderName::new(b"empty")), Some(&b""[..]));
    assert_eq!(head.framing, Framing::NONE);
    assert_eq!(head.rehosted, None);
}

#[test]
fn folded_lines_become_one() {
    let (p, head) = request(b"GET / HTTP/1.1\r\nFoo: a\r\n\t b\n c\r\nHost: h\r\n\r\n");
    head.unwrap();
    assert_eq!(p.msg.get(&p.ws, HeaderName::new(b"Foo")), Some(&b"a    b  c"[..]));
    assert_eq!(p.msg.get(&p.ws, HOST), Some(&b"h"[..]));
}

#[test]
fn malformed_headers_are_described() {
    let with = |line: &[u8]| bogo(&[b"GET / HTTP/1.1\r\nHost: h\r\n", line, b"\r\n\r\n"].concat());
    assert_eq!(with(b"Foo: a\rb"), "Header has ctrl char 0x0d");
    assert_eq!(with(b"Foo: a\0b"), "Header has ctrl char 0x00");
    assert_eq!(with(b"Foo: a\x7fb"), "Header has ctrl char 0x7f");
    assert_eq!(with(b"Foo : a"), "Illegal char 0x20 in header name");
    assert_eq!(with(b"F(o: a"), "Illegal char 0x28 in header name");
    assert_eq!(with(b": a"), "Missing header name: : a");
    assert_eq!(with(b"Foo"), "Header without ':' Foo");
    assert_eq!(bogo(b"GET / HTTP/1.1\r\n Foo: a\r\n\r\n"), "1st header has white space:  Foo: a");
    let long = [b"X: ".as_slice(), &[b'y'; HDR_LEN]].concat();
    assert_eq!(with(&long), "Header too long: X: yyyyyyyyyyyyyyyyy (http_req_hdr_len)");
    let many = b"A: b\r\n".repeat(70);
    assert_eq!(
        bogo(&[b"GET / HTTP/1.1\r\n", &many[..], b"\r\n"].concat()),
        "Too many headers: A: b (http_max_hdr)"
    );
}

#[test]
fn malformed_start_lines_are_refused() {
    for line in [
        "GET /",
        "GET",
        "GET  HTTP/1.1",
        "GET / HTTP/0.9",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.1 x",
        "GET / FTP/1.1",
        "GET /\t HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / \tHTTP/1.1",
        "GET /a\x01b HTTP/1.1",
        "G\x01T / HTTP/1.1",
        "GET / HTTP/1.1\rX",
        "GET\x7f / HTTP/1.1",
        "GET / HTTP/1.1\0",
        "G(T / HTTP/1.1",
        "G/T / HTTP/1.1",
        "G:T / HTTP/1.1",
        ": / HTTP/1.1",
        "\"GET\" / HTTP/1.1",
        "G\u{c9}T / HTTP/1.1",
    ] {
        let (_, head) = request(format!("{line}\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(head, Err(BadHead { status: 400, bogo: None }), "{line:?}");
    }
}

#[test]
fn garbage_is_logged_up_to_the_first_field() {
    for (head, shown) in [
        ("GET / HTTP/1.1\r\nA: \x01\r\n\r\n", "GET"),
        ("\r\n GET\t/", "\r\n GET"),
        ("GARBAGE\r\n\r\n", "GARBAGE\r\n\r\n"),
        ("GAR\x01BAGE /\r\n\r\n", "GAR\x01BAGE /\r\n\r\n"),
        ("GAR\0BAGE /\r\n\r\n", "GAR"),
        ("", ""),
    ] {
        assert_eq!(garbage(head.as_bytes()), shown.as_bytes());
    }
}

#[test]
fn absolute_targets_set_the_host() {
    let (p, head) = request(b"GET HTTP://b:80/x HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n");
    assert!(head.unwrap().rehosted.is_some_and(|old| p.ws.get(old) == b"Host: a"));
    assert_eq!(p.msg.url(&p.ws), b"/x");
    assert_eq!(p.msg.lines(&p.ws).collect::<Vec<_>>(), [&b"X: y"[..], b"Host: b:80"]);
    let (mut p, head) = request(b"GET https://b/x HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = head.unwrap();
    assert_eq!((head.rehosted, head.is_https), (None, true));
    assert_eq!(rehost_https(&mut p.ws, &mut p.msg, head, false).unwrap_err().status, 400);
    let head = rehost_https(&mut p.ws, &mut p.msg, head, true).unwrap();
    assert!(head.rehosted.is_some_and(|old| p.ws.get(old) == b"Host: a"));
    assert_eq!((p.msg.url(&p.ws), p.msg.get(&p.ws, HOST)), (&b"/x"[..], Some(&b"b"[..])));
}

#[test]
fn absolute_targets_may_have_no_path() {
    for (line, url) in [
        ("GET http://b", "/"),
        ("GET http://b?", "/?"),
        ("GET http://b?/foo", "/?/foo"),
        ("OPTIONS http://b", "*"),
        ("OPTIONS http://b/", "/"),
        ("OPTIONS http://b?q", "/?q"),
    ] {
        let (p, head) = request(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let target = head.unwrap().target;
        assert_eq!(p.ws.get(target), line.split_once(' ').unwrap().1.as_bytes());
        assert_eq!((p.msg.url(&p.ws), p.msg.get(&p.ws, HOST)), (url.as_bytes(), Some(&b"b"[..])), "{line}");
    }
}

#[test]
fn request_bodies_have_one_meaning_or_none() {
    let frame = |method: &str, version: &str, headers: &str| {
        let text = format!("{method} / HTTP/{version}\r\nHost: h\r\n{headers}\r\n");
        request(text.as_bytes()).1.ok().map(|h| h.framing)
    };
    let ok: &[(&str, &str, &str, Framing)] = &[
        ("GET", "1.1", "", Framing::NONE),
        ("POST", "1.1", "", Framing::NONE),
        ("POST", "1.1", "Content-Length: 0\r\n", Framing::NONE),
        ("POST", "1.1", "Content-Length: 5 \r\n", Framing::length(5)),
        ("GET", "1.0", "Content-Length: 5\r\n", Framing::length(5)),
        ("POST", "1.1", "Transfer-Encoding: CHUNKED\r\n", Framing::CHUNKED),
        ("GET", "1.0", "", Framing::NONE),
        ("POST", "1.0", "Connection: keep-alive\r\n", Framing::NONE),
    ];
    for (method, version, headers, framing) in ok {
        assert_eq!(frame(method, version, headers), Some(*framing), "{method} {version} {headers}");
    }
    for headers in [
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5a\r\n",
        "Content-Length:\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding\r\n : chunked\r\n",
    ] {
        assert_eq!(frame("POST", "1.1", headers), None, "{headers:?}");
    }
    assert_eq!(frame("POST", "1.0", "Transfer-Encoding: chunked\r\n"), None);
    assert_eq!(frame("POST", "1.0", ""), None);
    assert_eq!(frame("HEAD", "1.1", "Content-Length: 1\r\n"), None);
    assert_eq!(frame("HEAD", "1.1", "Transfer-Encoding: chunked\r\n"), None);
}

#[test]
fn repeated_or_invalid_single_headers_are_found() {
    let dup = |headers: &str| {
        let (p, head) = request(format!("POST / HTTP/1.1\r\n{headers}\r\n").as_bytes());
        head.unwrap();
        request_fault(&p.msg, &p.ws)
    };
    assert_eq!(dup("Host: a\r\nhost: a\r\n"), Some("Multiple Host: headers"));
    assert_eq!(dup("Content-Length: 1\r\ncontent-length: 1\r\n"), Some("Multiple Content-Length: headers"));
    assert_eq!(dup("Host: a\r\n"), None);
    assert_eq!(dup("Host:\r\n"), None);
    assert_eq!(dup("Host: a/b\r\n"), Some("Illegal Host: header"));
    assert_eq!(dup("Host: u@a\r\n"), Some("Illegal Host: header"));
}

#[test]
fn responses_are_parsed() {
    let (p, head) = response(b"HTTP/1.1 200 Fine  by me\r\nContent-Length: 3\r\n\r\nabc");
    let head = head.unwrap();
    assert_eq!((p.msg.status(), p.msg.reason(&p.ws)), (200, &b"Fine  by me"[..]));
    assert_eq!((head.framing, head.reason_added), (Framing::length(3), false));
    for line in ["HTTP/1.0 200 ", "HTTP/1.0 200"] {
        let (p, head) = response(format!("{line}\r\n\r\n").as_bytes());
        assert!(head.unwrap().reason_added);
        assert_eq!(p.msg.reason(&p.ws), b"OK");
        assert_eq!(head.unwrap().framing, Framing::EOF);
    }
    let (p, head) = response(b"HTTP/1.3 404 x\r\n\r\n");
    assert!(head.unwrap().proto_lowered);
    assert_eq!(p.msg.proto(&p.ws), b"HTTP/1.1");
    for line in [
        "HTTP/1.1",
        "HTTP/1.1 20",
        "HTTP/1.1 2000 x",
        "HTTP/1.1 0200",
        "HTTP/1.1 099 x",
        "ICY 200 OK",
        "HTTP/1.1 200 \tOK",
        "HTTP/1.1 2x0 y",
    ] {
        assert_eq!(
            response(format!("{line}\r\n\r\n").as_bytes()).1.map_err(|b| b.status),
            Err(503),
            "{line}"
        );
    }
}

#[test]
fn response_bodies_depend_on_headers_status_and_method() {
    let frame = |status: u16, headers: &str, method: &[u8]| {
        let (p, head) = response(format!("HTTP/1.1 {status} x\r\n{headers}\r\n").as_bytes());
        response_body(&p.msg, &p.ws, head.unwrap().framing, method).status
    };
    assert_eq!(frame(200, "", b"GET"), BodyStatus::Eof);
    assert_eq!(frame(200, "Connection: keep-alive\r\n", b"GET"), BodyStatus::None);
    assert_eq!(frame(200, "Transfer-Encoding: chunked\r\n", b"GET"), BodyStatus::Chunked);
    assert_eq!(frame(200, "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", b"GET"), BodyStatus::Error);
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: ";
    assert_eq!(frame(200, &format!("{twice}Chunked\r\n"), b"GET"), BodyStatus::Chunked);
    assert_eq!(frame(200, &format!("{twice}identity\r\n"), b"GET"), BodyStatus::Error);
    assert_eq!(frame(200, "Content-Length: 1\r\nContent-Length: 2\r\n", b"GET"), BodyStatus::Error);
    assert_eq!(frame(200, "Content-Length: 1\r\nContent-Length: 1\r\n", b"GET"), BodyStatus::Length);
    assert_eq!(frame(200, "Content-Length: 1\r\n", b"HEAD"), BodyStatus::None);
    assert_eq!(frame(204, "", b"GET"), BodyStatus::None);
    assert_eq!(frame(204, "Content-Length: 0\r\n", b"GET"), BodyStatus::None);
    assert_eq!(frame(204, "Content-Length: 1\r\n", b"GET"), BodyStatus::Error);
    assert_eq!(frame(204, "Transfer-Encoding: chunked\r\n", b"GET"), BodyStatus::Error);
    assert_eq!(frame(304, "Content-Length: 10\r\n", b"GET"), BodyStatus::None);
    assert_eq!(frame(100, "", b"GET"), BodyStatus::Error);
}

fn decode(mut decoder: ChunkedDecoder, input: &[u8], step: usize) -> Result<(Vec<u8>, usize), String> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < input.len() && !decoder.is_done() {
        let window = &input[at..input.len().min(at + step)];
        let piece = decoder.decode(window).map_err(|e| e.to_string())?;
        out.extend_from_slice(piece.data(window));
        assert!(piece.consumed > 0);
        at += piece.consumed;
    }
    if decoder.is_done() { Ok((out, at)) } else { Err(decoder.eof_text().into()) }
}

#[test]
fn chunks_decode_in_any_split() {
    let input = b"5\r\nhello\r\n0000000000006  \r\n world\r\n1\r\n!\r\n000\r\n\r\nGET";
    for step in (1..input.len()).step_by(if cfg!(miri) { 10 } else { 1 }) {
        let (body, used) = decode(ChunkedDecoder::new(), input, step).unwrap();
        assert_eq!((&body[..], &input[used..]), (&b"hello world!"[..], &b"GET"[..]));
    }
}

/// Decodes in runs, as for bodies: the pieces of each window are moved together.
fn decode_runs(mut decoder: ChunkedDecoder, input: &[u8], step: usize) -> Result<(Vec<u8>, usize), String> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < input.len() && !decoder.is_done() {
        let mut window = input[at..input.len().min(at + step)].to_vec();
        let run = decoder.decode_run(&mut window).map_err(|e| e.to_string())?;
        assert!(run.consumed > 0 && run.end <= run.consumed);
        out.extend_from_slice(&window[run.start..run.end]);
        assert_eq!(window[run.consumed..], input[at + run.consumed..input.len().min(at + step)]);
        at += run.consumed;
    }
    if decoder.is_done() { Ok((out, at)) } else { Err(decoder.eof_text().into()) }
}

#[test]
fn runs_of_chunks_decode_like_single_chunks() {
    let tiny = b"1\r\nx\r\n".repeat(if cfg!(miri) { 5 } else { 50 });
    for input in [
        b"5\r\nhello\r\n6\r\n world\r\n1\r\n!\r\n0\r\n\r\nGET".to_vec(),
        [&tiny, &b"0\r\n\r\nrest"[..]].concat(),
        [&tiny, &b"z\r\n"[..]].concat(),
        [&tiny, &b"5\r\nhe"[..]].concat(),
        [&tiny, &b"0\r\nGET / HTTP/1.1\r\n\r\n"[..]].concat(),
        [&tiny, &b"0\r\nContent-Length: 5\r\n\r\n"[..]].concat(),
        [&tiny, &b"5 x\r\nhello\r\n0\r\n\r\n"[..]].concat(),
        b"3\r\nabcdef\r\n0\r\n\r\n".to_vec(),
        b"z".to_vec(),
        b"10000000000000005\r\n".to_vec(),
    ] {
        for step in (1..=input.len()).step_by(if cfg!(miri) { 40 } else { 1 }) {
            let expected = decode(ChunkedDecoder::new(), &input, step);
            assert_eq!(decode_runs(ChunkedDecoder::new(), &input, step), expected, "step {step}");
        }
    }
}

#[test]
fn lengths_are_forwarded_in_canonical_form() {
    for (head, expected) in [
        ("Content-Length: 005", "Content-Length: 5"),
        ("content-length: 00", "Content-Length: 0"),
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 0", "Content-Length: 0"),
    ] {
        let (p, parsed) = request(format!("POST / HTTP/1.1\r\n{head}\r\n\r\n").as_bytes());
        parsed.unwrap();
        assert_eq!(p.msg.lines(&p.ws).collect::<Vec<_>>(), [expected.as_bytes()]);
    }
    let (p, parsed) = response(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\nContent-Length: 05\r\n\r\n");
    assert_eq!(parsed.unwrap().framing, Framing::length(5));
    assert_eq!(p.msg.lines(&p.ws).collect::<Vec<_>>(), [&b"A: b"[..], b"Content-Length: 5"]);
    let (_, parsed) = response(b"HTTP/1.1 200 OK\r\nContent-Length: 05\r\nContent-Length: 6\r\n\r\n");
    assert_eq!(parsed.unwrap().framing, Framing::ERROR);
}

#[test]
fn bad_chunks_are_refused() {
    let table = [
        ("x\r\n", "chunked header non-hex"),
        ("\r\n5\r\nhello", "chunked header non-hex"),
        ("-5\r\nhello", "chunked header non-hex"),
        ("5;ext=1\r\nhello", "chunked header no NL"),
        ("5\rX\nhello", "chunked header no NL"),
        ("5 5\r\nhello", "chunked header no NL"),
        ("0x5\r\nhello", "chunked header no NL"),
        ("FFFFFFFFFFFFFFED\r\n", "bogusly large chunk size"),
        ("10000000000000005\r\n", "bogusly large chunk size"),
        ("12345678901234567890\r\n", "chunked header too long"),
        ("5\r\nhello0\r\n\r\n", "chunked tail no NL"),
        ("5\r\nhello\r0\r\n\r\n", "chunked tail no NL"),
        ("5\nhello\r\n0\r\n\r\n", "chunked header no NL"),
        ("5\r\nhello\n0\r\n\r\n", "chunked tail no NL"),
        ("0\n\r\n", "chunked header no NL"),
        ("0\r\n\n", "chunked tail no NL"),
        ("0\r\nTrailer: x\r\n\r\n", "chunked tail no NL"),
        ("0\r\n\rX", "chunked tail no NL"),
        ("5\r\nhel", "chunked insufficient bytes"),
        ("5\r\nhello\r\n", "chunked read err"),
        ("0\r\n", "chunked read err"),
    ];
    for (input, error) in table {
        for step in [1, 3, 100] {
            assert_eq!(
                decode(ChunkedDecoder::new(), input.as_bytes(), step),
                Err(error.to_string()),
                "{input:?}"
            );
        }
    }
    let zeros = "0".repeat(300) + "5\r\nhello";
    assert_eq!(decode(ChunkedDecoder::new(), zeros.as_bytes(), 400), Err("chunked header too long".into()));
    let blanks = "5".to_string() + &" ".repeat(300) + "\r\nhello";
    assert_eq!(decode(ChunkedDecoder::new(), blanks.as_bytes(), 400), Err("chunked header too long".into()));
    let of_origin = |input: &[u8]| decode(ChunkedDecoder::lenient(), input, 100).map(|(data, _)| data);
    assert_eq!(of_origin(b" \t5 \r\nhello\r\n\t0\r\n\r\n").unwrap(), b"hello");
    assert_eq!(of_origin(b"5\nhello\n0\n\n").unwrap(), b"hello");
    // The content of a chunk and the start of the next one must not depend on the reader.
    assert_eq!(of_origin(b"5\r\nhello0\r\n\r\n"), Err("chunked tail no NL".into()));
    assert_eq!(of_origin(b"\r\n5\r\nhello\r\n0\r\n\r\n"), Err("chunked header non-hex".into()));
}

#[test]
fn chunk_headers_are_written_in_hex() {
    assert_eq!(ChunkHeader::new(1).as_bytes(), b"1\r\n");
    assert_eq!(ChunkHeader::new(0x1f40).as_bytes(), b"1f40\r\n");
    assert_eq!(ChunkHeader::new(usize::MAX).as_bytes(), b"ffffffffffffffff\r\n");
}

#[test]
fn heads_are_written_unchanged() {
    let (mut p, head) = request(b"GET /x HTTP/1.1\r\nHost: a\r\nB: c\r\nD: e \r\nF: g\r\n\r\n");
    head.unwrap();
    p.msg.append(&mut p.ws, VIA, b"me").unwrap();
    p.msg.append_line(&mut p.ws, crate::fixed::CONNECTION_CLOSE).unwrap();
    let mut out = b">".to_vec();
    let n = write_request_head(&p.msg, &p.ws, &mut out);
    let expected =
        "GET /x HTTP/1.1\r\nHost: a\r\nB: c\r\nD: e\r\nF: g\r\nVia: me\r\nConnection: close\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out[1..]), expected);
    assert_eq!(n, expected.len());
    p.msg.clear();
    p.msg.set_response(&mut p.ws, 200).unwrap();
    out.clear();
    write_response_head(&p.msg, &p.ws, &mut out);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\n\r\n");
    out.clear();
    minimal_response(100, &mut out);
    assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");
}

#[test]
fn the_connection_header_decides_about_persistence() {
    let decide = |version: &str, headers: &str| {
        let (mut p, head) = request(format!("GET / HTTP/{version}\r\n{headers}Foo: 1\r\n\r\n").as_bytes());
        head.unwrap();
        let decision = decide_connection(&mut p.msg, &mut p.ws, SessClose::ReqClose).unwrap();
        (decision, p.msg.fields().iter().filter(|f| f.dropped).count())
    };
    assert_eq!(decide("1.1", ""), (None, 0));
    assert_eq!(decide("1.0", ""), (Some(SessClose::ReqHttp10), 0));
    assert_eq!(decide("1.0", "Connection: Keep-Alive\r\n"), (None, 0));
    assert_eq!(decide("1.1", "Connection: x, Close\r\n"), (Some(SessClose::ReqClose), 0));
    assert_eq!(decide("1.1", "Connection: foo\r\nConnection: close\r\n"), (Some(SessClose::ReqClose), 1));
    assert_eq!(decide("1.1", "Connection: Host\r\n"), (Some(SessClose::RxBad), 0));
    assert_eq!(decide("1.1", "Connection: TE, foo\r\nTE: trailers\r\n"), (None, 2));
}

#[test]
fn interim_heads_are_distinguished_from_final_ones() {
    let cases: [(&str, Option<(u16, usize)>); 11] = [
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Some((100, 25))),
        ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", Some((103, 40))),
        ("\r\nHTTP/1.1 102\r\n\r\n", Some((102, 18))),
        ("HTTP/1.0 199 x\n\nrest", Some((199, 16))),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", None),
        ("HTTP/1.1 200 OK\r\n\r\n", None),
        ("HTTP/1.1 1000 OK\r\n\r\n", None),
        ("HTTP/1.1 10 OK\r\n\r\n", None),
        ("HTTP/1.1 100 Continue\r\nA: b\r\n", None),
        ("HTTP/2.0 100 Continue\r\n\r\n", None),
        ("garbage\r\n\r\n", None),
    ];
    for (head, wanted) in cases {
        assert_eq!(interim_head(head.as_bytes()), wanted, "{head:?}");
    }
}
