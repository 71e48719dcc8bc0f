//! Parsers with mutated input: they do not panic, and the result for accepted input does not depend on how it is
//! split. The generator is seeded, so a failure can be reproduced.

use lacquer_testing::{Random, rounds};

use crate::h1::{self, ChunkedDecoder, HeadScan};
use crate::pack::PackedHead;
use crate::{BodyStatus, Filter, Message, Workspace, date, pack, proxy_protocol, range, vary};

/// Returns a copy in which a few bytes are replaced, inserted, removed or repeated.
fn mutate(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    const SPECIAL_BYTES: &[u8] = b"\r\n \t:;,=\0\x7f\xff-09afHT/\"";
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.index(bytes.len() + 1);
        let byte = SPECIAL_BYTES[random.index(SPECIAL_BYTES.len())];
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] = byte,
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => {
                let to = at + random.index(bytes.len() + 1 - at);
                let copy = bytes[at..to].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => bytes.insert(at, byte),
        }
    }
    bytes
}

const ROUNDS: usize = rounds(30_000);

const REQUESTS: &[&[u8]] = &[
    b"POST http://h/x?b&a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close, foo\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nFoo: a\r\n b\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nRange: bytes=1-2\r\nAccept-Encoding: gzip;q=0.5\r\n\r\n",
];

#[test]
fn mutated_requests_are_parsed_consistently() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut ws = Workspace::new(65536);
    let mut msg = Message::new(64);
    for round in 0..ROUNDS {
        let bytes = mutate(&mut random, REQUESTS[round % REQUESTS.len()]);
        ws.reset();
        ws.reserve(bytes.len()).unwrap().copy_from_slice(&bytes);
        let rx = ws.commit(bytes.len());
        if h1::head_complete(&bytes, 0) != HeadScan::Complete {
            continue;
        }
        match h1::parse_request(&mut ws, rx, &mut msg, 8192) {
            Ok(head) => {
                assert!(head.len <= bytes.len());
                assert_eq!(bytes[head.len - 1], b'\n');
                let coded = msg.has(&ws, crate::header_table::TRANSFER_ENCODING);
                assert_eq!(coded, head.framing.status == BodyStatus::Chunked, "{bytes:?}");
                let mut wire = Vec::new();
                h1::write_request_head(&msg, &ws, &mut wire);
                assert!(!wire.contains(&0));
                assert_eq!(wire.windows(4).position(|w| w == b"\r\n\r\n"), Some(wire.len() - 4));
                let _ = h1::decide_connection(&mut msg, &mut ws, crate::SessClose::ReqClose);
                let mut block = Vec::new();
                pack::pack(&msg, &ws, Filter::NOTHING, &mut block);
                assert!(PackedHead::new(&block).is_some());
            }
            Err(bad) => {
                if let Some(bogo) = bad.bogo {
                    bogo.write(&ws, "http_req_hdr_len", &mut Vec::new());
                }
            }
        }
    }
}

fn dechunk(input: &[u8], step: usize) -> Result<(Vec<u8>, usize), String> {
    let mut decoder = ChunkedDecoder::new();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < input.len() && !decoder.is_done() {
        let window = &input[at..input.len().min(at + step)];
        let piece = decoder.decode(window).map_err(|e| e.to_string())?;
        out.extend_from_slice(piece.data(window));
        at += piece.consumed;
    }
    if decoder.is_done() { Ok((out, at)) } else { Err(decoder.eof_text().to_owned()) }
}

#[test]
fn mutated_chunks_do_not_depend_on_the_split() {
    let mut random = Random(42);
    for _ in 0..ROUNDS {
        let bytes = mutate(&mut random, b"5\r\nhello\r\n00a  \r\n0123456789\r\n0\r\n\r\nGET /");
        let whole = dechunk(&bytes, bytes.len());
        assert_eq!(whole, dechunk(&bytes, 1));
        assert_eq!(whole, dechunk(&bytes, 1 + random.index(9)));
    }
}

#[test]
fn other_parsers_do_not_panic() {
    let mut random = Random(7);
    let mut proxy =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x1b\x01\x02\x03\x04\x05\x06\x07\x08\0\x50\0\x51".to_vec();
    proxy.extend_from_slice(b"\x02\0\x01h\x20\0\x08\0\0\0\0\0\x21\0\0");
    let mut packed = Vec::new();
    let mut ws = Workspace::new(4096);
    let mut msg = Message::new(20);
    msg.set_response(&mut ws, 299).unwrap();
    msg.append_line_copy(&mut ws, b"Vary: foo").unwrap();
    pack::pack(&msg, &ws, Filter::INSERT, &mut packed);
    for _ in 0..ROUNDS {
        for seed in [&b"Sun, 06 Nov 1994 08:49:37 GMT"[..], b"Sunday, 06-Nov-94 08:49:37 GMT"] {
            let _ = date::parse(&mutate(&mut random, seed));
        }
        let _ = range::parse_range(&mutate(&mut random, b"bytes=10-20"));
        let _ = range::parse_content_range(&mutate(&mut random, b"bytes 10-20/30"));
        vary::entries(&mutate(&mut random, b"\0\x01\x04foo:\0x\xff\xff\0")).for_each(drop);
        for seed in [&proxy[..], b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"] {
            let bytes = mutate(&mut random, seed);
            if proxy_protocol::scan(&bytes) == proxy_protocol::Scan::Complete {
                let _ = proxy_protocol::parse(&bytes);
            }
        }
        ws.reset();
        let _ = pack::unpack(&mutate(&mut random, &packed), &mut ws, &mut msg);
    }
}
