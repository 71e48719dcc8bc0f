//! Connections to servers that keep the rules, and to those that break them.

use super::{Connection, Failure, Limits, Received, Request};
use crate::frame::{self, FrameHeader, HEADER_LEN, Kind, flag};
use crate::hpack::{Decoder, Step, encode};
use lacquer_http::{Message, Slot, Workspace};

const LIMITS: Limits = Limits { list: 1000 };
const END: u8 = flag::END_STREAM;
const WHOLE: u8 = flag::END_HEADERS;

/// A connection, and what its server would read.
struct Pair {
    connection: Connection,
    server: Decoder,
}

fn raw(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = FrameHeader::new(kind, flags, stream, payload.len()).bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

fn block(status: u16, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::status(&mut out, status);
    for (name, value) in fields {
        encode::field(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

fn trailers(fields: &[(&str, &str)]) -> Vec<u8> {
    block(200, fields)[1..].to_vec()
}

fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (number, value) in entries {
        payload.extend_from_slice(&number.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    raw(Kind::Settings, 0, 0, &payload)
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair::silent();
        pair.receive(&settings(&[]));
        pair.sent();
        pair
    }

    /// The server has not sent anything.
    fn silent() -> Pair {
        let mut connection = Connection::new(LIMITS);
        assert!(connection.output().starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        connection.sent(24);
        Pair { connection, server: Decoder::new(4096) }
    }

    /// Removes and returns the frames that were sent.
    fn sent(&mut self) -> Vec<(FrameHeader, Vec<u8>)> {
        let out = self.connection.output().to_vec();
        self.connection.sent(out.len());
        frame::split(&out).map(|(header, payload)| (header, payload.to_vec())).collect()
    }

    /// Returns the kinds and streams of the frames that were sent.
    fn kinds(&mut self) -> Vec<(Kind, u32)> {
        self.sent().iter().map(|(header, _)| (header.kind().unwrap(), header.stream)).collect()
    }

    fn request(&mut self, method: &str, ends: bool) -> u32 {
        let (mut ws, mut message) = (Workspace::new(4096), Message::new(64));
        for (slot, text) in [(Slot::Method, method), (Slot::Url, "/x?y")] {
            let text = ws.copy(text.as_bytes()).unwrap();
            message.put(&ws, slot, text);
        }
        for line in ["Host: example.org", "Connection: close", "TE: gzip", "X-Y: z", "Upgrade: x"] {
            message.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        self.connection
            .open(Request { message: &message, ws: &ws, is_secure: true, ends, wants_trailers: false })
            .unwrap()
    }

    fn receive(&mut self, bytes: &[u8]) {
        assert_eq!(self.connection.receive(bytes), bytes.len());
    }

    fn respond(&mut self, id: u32, status: u16, fields: &[(&str, &str)], flags: u8) {
        self.receive(&raw(Kind::Headers, WHOLE | flags, id, &block(status, fields)));
    }

    fn data(&mut self, id: u32, data: &[u8], flags: u8) {
        self.receive(&raw(Kind::Data, flags, id, data));
    }

    /// Reads all that has arrived, and how it ends.
    fn read(&mut self, id: u32) -> (String, Received) {
        let (mut all, mut piece) = (Vec::new(), [0; 100]);
        loop {
            match self.connection.read(id, &mut piece) {
                Received::Bytes(n) => all.extend_from_slice(&piece[..n]),
                end => return (String::from_utf8_lossy(&all).into_owned(), end),
            }
        }
    }

    fn fails_with(&mut self, id: u32) -> Failure {
        match self.read(id) {
            (_, Received::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn requests_become_frames_without_connection_specific_fields() {
    let mut pair = Pair::new();
    let id = pair.request("GET", true);
    let sent = pair.sent();
    assert_eq!((id, sent.len()), (1, 1));
    assert_eq!(sent[0].0.flags, WHOLE | END);
    let (mut input, mut out, mut fields) = (&sent[0].1[..], [0; 200], Vec::new());
    while let Step::Field(line) = pair.server.next(&mut input, &mut out).unwrap() {
        fields.push(String::from_utf8_lossy(&out[..line.len]).into_owned());
    }
    let expected = [":method: GET", ":scheme: https", ":authority: example.org", ":path: /x?y", "x-y: z"];
    assert_eq!(fields, expected);
}

#[test]
fn responses_become_text_and_bodies() {
    let mut pair = Pair::new();
    let (one, two) = (pair.request("GET", true), pair.request("HEAD", true));
    pair.respond(one, 103, &[("link", "x")], 0);
    pair.respond(two, 200, &[("content-length", "7")], END);
    pair.respond(one, 200, &[("a", "b")], 0);
    pair.data(one, b"body", 0);
    pair.receive(&raw(Kind::Data, flag::PADDED | END, one, b"\x02!\0\0"));
    let text = "HTTP/1.1 103\r\nlink: x\r\n\r\nHTTP/1.1 200\r\na: b\r\n\r\nbody!";
    assert_eq!(pair.read(one), (text.replace("103", "103 ").replace("200", "200 "), Received::End));
    let text = "HTTP/1.1 200 \r\ncontent-length: 7\r\n\r\n";
    assert_eq!(pair.read(two), (text.to_owned(), Received::End));
    pair.connection.release(one);
    pair.connection.release(two);
    assert_eq!(pair.connection.streams(), 0);
    assert!(!pair.kinds().iter().any(|(kind, _)| *kind == Kind::RstStream));
}

#[test]
fn trailers_are_kept_apart() {
    let mut pair = Pair::new();
    let id = pair.request("POST", true);
    pair.respond(id, 200, &[], 0);
    pair.data(id, b"x", 0);
    let fields = [("grpc-status", "0"), ("content-length", "9"), ("grpc-message", "ok")];
    pair.receive(&raw(Kind::Headers, WHOLE | END, id, &trailers(&fields)));
    assert_eq!(pair.read(id).1, Received::End);
    assert_eq!(pair.connection.take_trailers(id), b"grpc-status: 0\r\ngrpc-message: ok\r\n");
}

#[test]
fn bodies_are_sent_within_the_windows() {
    let mut pair = Pair::new();
    pair.receive(&settings(&[(4, 10)]));
    let id = pair.request("POST", false);
    assert_eq!(pair.connection.send_body(id, &[b'x'; 100]), Ok(10));
    assert_eq!(pair.connection.send_body(id, &[b'x'; 90]), Ok(0));
    pair.connection.take_changed();
    pair.receive(&raw(Kind::WindowUpdate, 0, id, &70_000u32.to_be_bytes()));
    assert_eq!(pair.connection.take_changed(), [id]);
    // The window of the connection, and the output that waits, are limits too.
    let mut sent = 10;
    loop {
        match pair.connection.send_body(id, &[b'x'; 5000]) {
            Ok(0) => break,
            n => sent += n.unwrap(),
        }
        pair.sent();
    }
    assert_eq!(sent, 65_535);
    // A smaller window may be negative for a while.
    pair.receive(&settings(&[(4, 0)]));
    pair.receive(&raw(Kind::WindowUpdate, 0, 0, &100_000u32.to_be_bytes()));
    pair.receive(&raw(Kind::WindowUpdate, 0, id, &10u32.to_be_bytes()));
    assert_eq!(pair.connection.send_body(id, b"x"), Ok(1));
    assert_eq!(pair.connection.end_body(id, &[]), Ok(true));
    let last = pair.sent().pop().unwrap().0;
    assert_eq!((last.kind(), last.flags, last.len), (Some(Kind::Data), END, 0));
}

#[test]
fn trailers_end_a_body() {
    let lines = b"x-sum: 7\r\nempty: \r\n";
    let mut pair = Pair::new();
    let ids = [(); 3].map(|()| pair.request("POST", false));
    // A table that the server makes smaller is announced with the next block, which may be that of trailers.
    pair.receive(&settings(&[(1, 0)]));
    pair.sent();
    assert_eq!(pair.connection.send_body(ids[0], b"x"), Ok(1));
    for id in &ids[..2] {
        assert_eq!(pair.connection.end_body(*id, lines), Ok(true));
    }
    let sent = pair.sent();
    let kinds: Vec<_> = sent.iter().map(|(header, _)| (header.kind().unwrap(), header.flags)).collect();
    assert_eq!(kinds, [(Kind::Data, 0), (Kind::Headers, WHOLE | END), (Kind::Headers, WHOLE | END)]);
    assert_eq!((sent[1].1[0], sent[2].1[0]), (0x20, 0x10));
    let (mut input, mut out, mut fields) = (&sent[1].1[..], [0; 200], Vec::new());
    while let Step::Field(line) = pair.server.next(&mut input, &mut out).unwrap() {
        fields.push(String::from_utf8_lossy(&out[..line.len]).into_owned());
    }
    assert_eq!(fields, ["x-sum: 7", "empty: "]);
    // They end the body once, and a server that accepts no fields gets none.
    assert_eq!(pair.connection.end_body(ids[1], lines), Ok(true));
    pair.receive(&settings(&[(6, 1)]));
    pair.sent();
    assert_eq!(pair.connection.end_body(ids[2], lines), Ok(false));
    assert_eq!(pair.kinds(), [(Kind::Data, ids[2])]);
}

#[test]
fn waiting_output_is_bounded() {
    let mut pair = Pair::new();
    pair.receive(&settings(&[(4, 0x7fff_ffff)]));
    pair.receive(&raw(Kind::WindowUpdate, 0, 0, &0x7f00_0000u32.to_be_bytes()));
    let id = pair.request("POST", false);
    let mut sent = 0;
    while let Ok(n @ 1..) = pair.connection.send_body(id, &vec![0; 1 << 16]) {
        sent += n;
    }
    assert!(sent <= 1 << 16 && pair.connection.output().len() < 70_000);
    assert!(pair.connection.has_room_for(0), "other requests follow the upload");
    pair.connection.take_changed();
    pair.sent();
    assert_eq!(pair.connection.take_changed(), [id], "there is room again");
}

#[test]
fn read_bytes_are_credited_and_unread_ones_bounded() {
    let mut pair = Pair::new();
    let id = pair.request("GET", true);
    pair.respond(id, 200, &[], 0);
    for _ in 0..16 {
        pair.data(id, &[b'x'; 16_384], 0);
    }
    assert_eq!(pair.kinds().iter().filter(|(_, stream)| *stream == id).count(), 1, "the request alone");
    pair.data(id, b"y", 0);
    assert!(matches!(pair.connection.failure(id), Some(Failure::Malformed(why)) if why.contains("window")));
    assert_eq!(pair.kinds(), [(Kind::RstStream, id)]);

    let id = pair.request("GET", true);
    pair.respond(id, 200, &[], 0);
    let (mut got, mut piece) = (0, vec![0; 20_000]);
    for _ in 0..200 {
        pair.data(id, &[b'x'; 16_384], 0);
        while let Received::Bytes(n) = pair.connection.read(id, &mut piece) {
            got += n;
        }
    }
    assert!(got > 3_200_000 && pair.connection.end().is_none());
    let kinds = pair.kinds();
    assert!(kinds.contains(&(Kind::WindowUpdate, id)) && kinds.contains(&(Kind::WindowUpdate, 0)));
}

#[test]
fn malformed_responses_end_their_streams_only() {
    let long = "x".repeat(1000);
    let heads: [(&[u8], &str); 12] = [
        (&block(200, &[("A B", "c")]), "forbidden characters"),
        (&block(200, &[("a", "b\r\nc: d")]), "forbidden characters"),
        (&block(200, &[("a", " b")]), "forbidden characters"),
        (&block(200, &[("connection", "close")]), "connection-specific"),
        (&block(200, &[("transfer-encoding", "chunked")]), "connection-specific"),
        (&block(200, &[("content-length", "1x")]), "not a number"),
        (&block(200, &[("content-length", "1"), ("content-length", "2")]), "two values"),
        (&block(200, &[("a", "b"), (":status", "200")]), "follows other fields"),
        (&[0x88, 0x88], "two statuses"),
        (&block(101, &[]), "101"),
        (&trailers(&[("a", "b")]), "no status"),
        (&block(200, &[("a", &long)]), "http_resp_size"),
    ];
    let mut pair = Pair::new();
    for (head, why) in heads {
        let id = pair.request("GET", true);
        pair.receive(&raw(Kind::Headers, WHOLE, id, head));
        assert!(matches!(pair.fails_with(id), Failure::Malformed(found) if found.contains(why)), "{why}");
        assert!(pair.kinds().contains(&(Kind::RstStream, id)), "{why}");
        // Frames that were on their way have no effect.
        pair.data(id, b"x", END);
        pair.connection.release(id);
    }
    assert_eq!((pair.connection.streams(), pair.connection.end()), (0, None));
}

#[test]
fn bodies_must_match_their_length() {
    let mut pair = Pair::new();
    let cases: [(&str, &[u8], u8, &str); 4] = [
        ("GET", b"four", 0, "longer"),
        ("GET", b"12", END, "shorter"),
        ("HEAD", b"123", END, "longer"),
        ("GET", b"", END, "shorter"),
    ];
    for (method, body, flags, why) in cases {
        let id = pair.request(method, true);
        pair.respond(id, 200, &[("content-length", "3")], 0);
        pair.data(id, body, flags);
        assert!(matches!(pair.fails_with(id), Failure::Malformed(found) if found.contains(why)), "{why}");
    }
    let id = pair.request("GET", true);
    pair.data(id, b"x", 0);
    assert!(matches!(pair.fails_with(id), Failure::Malformed(found) if found.contains("before the head")));
    let id = pair.request("GET", true);
    (0..17).for_each(|_| pair.respond(id, 103, &[], 0));
    assert!(matches!(pair.fails_with(id), Failure::Malformed(found) if found.contains("interim")));
    let id = pair.request("GET", true);
    pair.respond(id, 200, &[], 0);
    pair.receive(&raw(Kind::Headers, WHOLE, id, &trailers(&[("a", "b")])));
    assert!(matches!(pair.fails_with(id), Failure::Malformed(found) if found.contains("trailers")));
    assert_eq!(pair.connection.end(), None);
}

#[test]
fn faults_of_the_server_end_the_connection() {
    let head = block(200, &[]);
    let many = settings(&[(0x99, 1); 65]);
    let empty: Vec<u8> = raw(Kind::Headers, 0, 1, &[])
        .into_iter()
        .chain((0..20).flat_map(|_| raw(Kind::Continuation, 0, 1, &[])))
        .collect();
    let long: Vec<u8> = raw(Kind::Headers, 0, 1, &[0; 100])
        .into_iter()
        .chain((0..5).flat_map(|_| raw(Kind::Continuation, 0, 1, &[0; 16_384])))
        .collect();
    // Each byte is a field of a kilobyte.
    let mut bomb = head.clone();
    encode::remembered(&mut bomb, b"x", &[b'a'; 1000]);
    bomb.extend_from_slice(&[0xbe; 10_000]);
    let cases: [(Vec<u8>, &str); 20] = [
        (raw(Kind::PushPromise, WHOLE, 1, &[0, 0, 0, 2]), "PUSH_PROMISE"),
        (raw(Kind::Headers, WHOLE, 3, &head), "not opened"),
        (raw(Kind::Headers, WHOLE, 2, &head), "not opened"),
        (raw(Kind::Data, 0, 0, b"x"), "wrong stream"),
        (raw(Kind::Settings, 0, 1, &[]), "wrong stream"),
        (raw(Kind::Ping, 0, 1, &[0; 8]), "wrong stream"),
        (raw(Kind::Continuation, WHOLE, 1, &head), "without a header block"),
        ([raw(Kind::Headers, 0, 1, &head), raw(Kind::Ping, 0, 0, &[0; 8])].concat(), "within a header block"),
        (raw(Kind::Headers, WHOLE, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]), "HPACK"),
        (raw(Kind::Headers, WHOLE, 1, &[0x88, 0x40]), "HPACK"),
        (raw(Kind::Ping, 0, 0, &[0; 7]), "len != 8"),
        (settings(&[(2, 1)]), "ENABLE_PUSH"),
        (settings(&[(4, 0x8000_0000)]), "out of range"),
        (settings(&[(5, 1)]), "out of range"),
        (many, "too many settings"),
        (raw(Kind::WindowUpdate, 0, 0, &0x7fff_ffffu32.to_be_bytes()), "overflows"),
        (raw(Kind::WindowUpdate, 0, 0, &[0; 4]), "by 0"),
        (empty, "empty CONTINUATION"),
        (long, "too long"),
        (raw(Kind::Headers, WHOLE, 1, &bomb), "list is too long"),
    ];
    for (bytes, why) in cases {
        let mut pair = Pair::new();
        let id = pair.request("GET", true);
        pair.sent();
        pair.connection.receive(&bytes);
        let Some(Failure::Connection(text)) = pair.connection.end().cloned() else { panic!("{why}") };
        assert!(text.contains(why), "{text:?} instead of {why:?}");
        assert!(matches!(pair.fails_with(id), Failure::Connection(_)), "{why}");
        assert!(pair.kinds().contains(&(Kind::GoAway, 0)), "{why}");
        assert!(!pair.connection.has_room_for(0));
    }
    // A frame that is too long is not awaited.
    let mut pair = Pair::new();
    pair.connection.receive(&[0x00, 0x40, 0x01, 0, 0, 0, 0, 0, 1]);
    assert!(matches!(pair.connection.end(), Some(Failure::Connection(text)) if text.contains("too long")));
    let mut pair = Pair::silent();
    pair.connection.receive(&raw(Kind::Ping, 0, 0, &[0; 8]));
    assert!(matches!(pair.connection.end(), Some(Failure::Connection(text)) if text.contains("SETTINGS")));
    let mut pair = Pair::silent();
    pair.connection.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(pair.connection.end().is_some());
}

#[test]
fn floods_of_frames_without_use_end_the_connection() {
    let reset = raw(Kind::RstStream, 0, 1, &[0, 0, 0, 8]);
    for flood in [
        raw(Kind::Ping, 0, 0, &[0; 8]),
        settings(&[]),
        raw(Kind::Data, 0, 1, b""),
        raw(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 1]),
        raw(Kind::Priority, 0, 7, &[0; 5]),
        FrameHeader { len: 0, number: 99, flags: 0, stream: 1 }.bytes().to_vec(),
        reset,
    ] {
        let mut pair = Pair::new();
        let id = pair.request("GET", true);
        pair.respond(id, 200, &[], 0);
        let fault = (0..3000).find(|_| {
            pair.connection.receive(&flood);
            pair.connection.end().is_some()
        });
        assert!(fault.is_some_and(|n| n > 500), "{flood:?}");
        assert!(pair.connection.output().len() < 100_000);
    }
}

#[test]
fn streams_beyond_a_goaway_may_be_repeated() {
    let mut pair = Pair::new();
    let (one, two) = (pair.request("GET", true), pair.request("POST", false));
    pair.receive(&raw(Kind::GoAway, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
    assert!(pair.fails_with(two).is_unprocessed() && !pair.connection.is_open());
    pair.respond(one, 200, &[], END);
    assert_eq!(pair.read(one).1, Received::End);
    assert!(pair.connection.send_body(two, b"x").unwrap_err().is_unprocessed());
}

#[test]
fn resets_have_their_reasons() {
    let mut pair = Pair::new();
    let ids = [(); 4].map(|()| pair.request("POST", false));
    pair.sent();
    pair.receive(&raw(Kind::RstStream, 0, ids[0], &[0, 0, 0, 7]));
    pair.receive(&raw(Kind::RstStream, 0, ids[1], &[0, 0, 0, 2]));
    assert!(pair.fails_with(ids[0]).is_unprocessed());
    assert_eq!(pair.fails_with(ids[1]), Failure::Reset(2));
    // A complete response stays complete when the server refuses the rest of the request.
    pair.respond(ids[2], 413, &[], END);
    pair.receive(&raw(Kind::RstStream, 0, ids[2], &[0, 0, 0, 0]));
    assert_eq!(pair.read(ids[2]).1, Received::End);
    assert!(pair.connection.send_body(ids[2], b"x").is_err());
    pair.connection.closed();
    assert_eq!(pair.fails_with(ids[3]), Failure::Closed);
}

#[test]
fn a_request_that_was_not_sent_before_the_server_closed_is_unprocessed() {
    let mut pair = Pair::new();
    let sent = pair.request("POST", true);
    pair.sent();
    let waiting = pair.request("POST", true);
    pair.connection.closed();
    assert!(pair.connection.output().is_empty());
    assert_eq!(pair.fails_with(sent), Failure::Closed);
    assert!(pair.fails_with(waiting).is_unprocessed());
}

#[test]
fn released_streams_are_reset_unless_they_only_lack_their_end() {
    let mut pair = Pair::new();
    let ids = [(); 3].map(|()| pair.request("GET", true));
    pair.respond(ids[0], 200, &[("content-length", "1")], 0);
    pair.data(ids[0], b"x", 0);
    pair.respond(ids[1], 200, &[("content-length", "1")], 0);
    pair.sent();
    for id in ids {
        pair.connection.release(id);
    }
    assert_eq!(pair.kinds(), [(Kind::RstStream, ids[1]), (Kind::RstStream, ids[2])]);
    assert_eq!(pair.connection.streams(), 1);
    pair.data(ids[0], b"", END);
    assert_eq!(pair.connection.streams(), 0);
}

#[test]
fn streams_that_never_end_make_room_for_others() {
    let mut pair = Pair::new();
    pair.receive(&settings(&[(3, 2)]));
    let ids = [(); 2].map(|()| pair.request("HEAD", true));
    for id in ids {
        pair.respond(id, 200, &[], 0);
        assert!(pair.connection.is_in_use());
        pair.connection.release(id);
    }
    assert!(!pair.connection.is_in_use() && pair.connection.has_room_for(1));
    assert!(!pair.connection.has_room_for(2));
    pair.sent();
    let three = pair.request("GET", true);
    assert_eq!(pair.kinds(), [(Kind::RstStream, ids[0]), (Kind::Headers, three)]);
    assert_eq!(pair.connection.streams(), 2);
    let four = pair.request("GET", true);
    assert_eq!(pair.kinds(), [(Kind::RstStream, ids[1]), (Kind::Headers, four)]);
    assert!(pair.connection.is_in_use() && !pair.connection.has_room_for(0));
    // Their ends may have been on their way.
    for id in ids {
        pair.data(id, b"", END);
    }
    assert_eq!((pair.connection.streams(), pair.connection.end()), (2, None));
}

/// A server that reads nothing gets no requests once some output waits, although each of them is given up.
#[test]
fn requests_to_a_server_that_does_not_read_are_bounded() {
    let mut pair = Pair::new();
    let opened = (0..100_000).take_while(|_| {
        let has_room = pair.connection.has_room_for(0);
        if has_room {
            let id = pair.request("GET", true);
            pair.connection.release(id);
        }
        has_room
    });
    let opened = opened.count();
    assert!((500..100_000).contains(&opened), "{opened}");
    assert!(pair.connection.output().len() < 140_000);
    pair.sent();
    assert!(pair.connection.has_room_for(0), "it reads again");
}

#[test]
fn the_server_limits_the_number_of_streams() {
    let mut pair = Pair::new();
    pair.receive(&settings(&[(3, 2)]));
    pair.request("GET", true);
    assert!(pair.connection.has_room_for(0));
    let two = pair.request("GET", true);
    assert!(!pair.connection.has_room_for(0) && pair.connection.is_open());
    pair.connection.release(two);
    assert!(pair.connection.has_room_for(0));
    // After a smaller table was announced, the next block begins with the change.
    pair.receive(&settings(&[(1, 0)]));
    pair.sent();
    pair.request("GET", true);
    pair.connection.receive(&settings(&[(3, 9)]));
    pair.request("GET", true);
    let blocks: Vec<u8> = pair
        .sent()
        .iter()
        .filter(|(header, _)| header.kind() == Some(Kind::Headers))
        .map(|(_, block)| block[0])
        .collect();
    assert_eq!(blocks, [0x20, 0x82]);
}

/// Whatever arrives, in whatever pieces, the connection does not panic and its memory stays bounded.
#[test]
fn garbage_is_survived() {
    let mut seed = 0x1234_5678_9abc_def0_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..300 {
        let mut pair = Pair::new();
        let id = pair.request("POST", random() % 2 == 0);
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let payload: Vec<u8> = (0..random() % 40).map(|_| (random() % 256) as u8).collect();
            let header = FrameHeader {
                len: payload.len() as u32,
                number: (random() % 11) as u8,
                flags: (random() % 256) as u8,
                stream: (random() % 3) as u32,
            };
            bytes.extend_from_slice(&header.bytes());
            bytes.extend_from_slice(&payload);
        }
        let mut rest = Vec::new();
        for piece in bytes.chunks(1 + (random() % 30) as usize) {
            rest.extend_from_slice(piece);
            let used = pair.connection.receive(&rest);
            rest.drain(..used);
        }
        assert!(rest.len() < HEADER_LEN + 40);
        pair.read(id);
        let _ = pair.connection.send_body(id, b"x");
        pair.connection.release(id);
        assert!(pair.connection.output().len() < 10_000);
    }
}
