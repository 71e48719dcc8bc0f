//! Each frame type: valid frames, malformed frames with their errors, and written frames.

use super::*;
use crate::error_table::{Error, Reason};
use crate::fault::{Fault, Note, Tag};
use crate::settings::Settings;
use lacquer_testing::{Random, rounds};

fn read(kind: Kind, flags: u8, payload: &[u8]) -> Result<Frame<'_>, Fault> {
    parse(&FrameHeader::new(kind, flags, 1, payload.len()), payload)
}

#[test]
fn frame_headers_are_read_and_written() {
    let bytes = [0, 1, 2, 8, 3, 0x80, 0, 0, 5, 99];
    let header = FrameHeader::read(&bytes).unwrap();
    assert_eq!(header, FrameHeader { len: 258, number: 8, flags: 3, stream: 5 });
    assert_eq!(header.kind(), Some(Kind::WindowUpdate));
    assert_eq!(header.total_len(), 267);
    assert_eq!(FrameHeader::read(&bytes[..8]), None);
    assert_eq!(FrameHeader::read(&header.bytes()), Some(header));
    for number in 0..=u8::MAX {
        assert_eq!(Kind::of(number).map(|kind| kind as u8), (number < 10).then_some(number));
    }
}

#[test]
fn valid_frames_are_parsed() {
    let data = |data, end_stream| Ok(Frame::Data { data, end_stream });
    assert_eq!(read(Kind::Data, 0, b"abc"), data(b"abc", false));
    assert_eq!(read(Kind::Data, flag::PADDED | flag::END_STREAM, b"\x02abc\0\0"), data(b"abc", true));
    assert_eq!(read(Kind::Data, flag::PADDED, b"\x02\0\0"), data(b"", false));
    let fragment = b"abc";
    assert_eq!(
        read(Kind::Headers, flag::PADDED | flag::PRIORITY | flag::END_HEADERS, b"\x01\0\0\0\x03\x10abc\0"),
        Ok(Frame::Headers { fragment, end_headers: true, end_stream: false })
    );
    assert_eq!(
        read(Kind::Continuation, 4, fragment),
        Ok(Frame::Continuation { fragment, end_headers: true })
    );
    assert_eq!(read(Kind::Priority, 0, b"\0\0\0\0\x10"), Ok(Frame::Priority));
    for wrong in [&b"\0\0\0\0"[..], b"\0\0\0\0\x10\0"] {
        let fault = read(Kind::Priority, 0, wrong).unwrap_err();
        assert_eq!(fault.error, Error::Connection(Reason::FrameSizeError));
    }
    assert_eq!(read(Kind::RstStream, 0, b"\0\0\0\x08"), Ok(Frame::RstStream { code: 8 }));
    assert_eq!(read(Kind::Settings, 0, b"123456"), Ok(Frame::Settings { entries: b"123456" }));
    assert_eq!(read(Kind::Settings, flag::ACK, b""), Ok(Frame::SettingsAck));
    assert_eq!(read(Kind::Ping, 0, b"FOOBAR42"), Ok(Frame::Ping { opaque: *b"FOOBAR42" }));
    let goaway = Frame::GoAway { last_stream: 7, code: 2 };
    assert_eq!(read(Kind::GoAway, 0, b"\x80\0\0\x07\0\0\0\x02why"), Ok(goaway));
    assert_eq!(read(Kind::WindowUpdate, 0, b"\x80\0\0\x01"), Ok(Frame::WindowUpdate { increment: 1 }));
    assert_eq!(parse(&FrameHeader { len: 1, number: 10, flags: 0, stream: 0 }, b"x"), Ok(Frame::Unknown));
}

#[test]
fn malformed_frames_are_rejected() {
    use Reason::{FrameSizeError, ProtocolError};
    for (kind, flags, payload, reason, text) in [
        (Kind::Data, 8, &b""[..], ProtocolError, "H2: stream 1: Padding larger than frame length"),
        (Kind::Data, 8, b"\x03ab", ProtocolError, "H2: stream 1: Padding larger than frame length"),
        (Kind::Headers, 8, b"", ProtocolError, "H2: rx headers with pad length > frame len"),
        (Kind::Headers, 8, b"\x01", ProtocolError, "H2: rx headers with pad length > frame len"),
        (Kind::Headers, 0x20, b"\0\0\0\0", ProtocolError, "H2: rx headers with incorrect priority data"),
        (Kind::RstStream, 0, b"\0\0\0\x08\0", FrameSizeError, "H2: rx rst with (len != 4)"),
        (Kind::Settings, 1, b"\xaa", FrameSizeError, "H2: rx settings ack with (len > 0)"),
        (Kind::Settings, 0, b"\xaa", ProtocolError, "H2: rx settings with ((len % 6) != 0)"),
        (Kind::PushPromise, 0, b"12345678", ProtocolError, "H2: rx push promise"),
        (Kind::Ping, 0, b"1234567", FrameSizeError, "H2: rx ping with (len != 8)"),
        (Kind::Ping, 1, b"123456789", FrameSizeError, "H2: rx ping with (len != 8)"),
        (Kind::GoAway, 0, b"1234567", FrameSizeError, "H2: rx goaway with (len < 8)"),
        (Kind::WindowUpdate, 0, b"123", FrameSizeError, "H2: rx winup with (len != 4)"),
    ] {
        let fault = Error::Connection(reason).noted(Tag::SessError, text);
        assert_eq!(read(kind, flags, payload), Err(fault), "{kind:?}");
    }
    let stream_fault = Error::Stream(ProtocolError);
    assert_eq!(read(Kind::WindowUpdate, 0, b"\x80\0\0\0"), Err(stream_fault.into()));
    let note = Some(Note::new(Tag::SessError, "H2: rx ping ack"));
    assert_eq!(read(Kind::Ping, 1, b"12345678"), Err(Fault { error: stream_fault, note }));
}

#[test]
fn frames_are_written() {
    let mut out = Vec::new();
    write_settings(&mut out, &Settings { max_concurrent_streams: 100, ..Settings::DEFAULT });
    settings_ack(&mut out);
    ping_ack(&mut out, *b"FOOBAR42");
    rst_stream(&mut out, 3, 8);
    goaway(&mut out, 5, 1);
    window_update(&mut out, 7, 65535);
    let frames: Vec<String> = split(&out).map(|(header, payload)| header.describe(payload)).collect();
    assert_eq!(
        frames,
        [
            "SETTINGS[6] 0x00 0x00000000 0x000300000064",
            "SETTINGS[0] 0x01 0x00000000",
            "PING[8] 0x01 0x00000000 0x464f4f4241523432",
            "RST_STREAM[4] 0x00 0x00000003 0x00000008",
            "GOAWAY[8] 0x00 0x00000000 0x0000000500000001",
            "WINDOW_UPDATE[4] 0x00 0x00000007 0x0000ffff",
        ]
    );
}

#[test]
fn long_header_blocks_are_split() {
    let block: Vec<u8> = (0..200).collect();
    for len in [0, 1, 63, 64, 65, 127, 128, 129, 200] {
        for end_stream in [false, true] {
            let mut out = b"before".to_vec();
            let written = write_headers(&mut out, 9, end_stream, 64, |out| out.extend(&block[..len]));
            assert_eq!(written, len);
            let frames: Vec<(FrameHeader, &[u8])> = split(&out[6..]).collect();
            assert_eq!(frames.iter().map(|(header, _)| header.total_len()).sum::<usize>(), out.len() - 6);
            let mut joined = Vec::new();
            for (i, (header, payload)) in frames.iter().enumerate() {
                let (first, last) = (i == 0, i + 1 == frames.len());
                assert_eq!(header.kind(), Some(if first { Kind::Headers } else { Kind::Continuation }));
                assert_eq!(header.has(flag::END_STREAM), first && end_stream);
                assert_eq!(header.has(flag::END_HEADERS), last);
                assert!(payload.len() == 64 || last && (first || !payload.is_empty()));
                assert_eq!(header.stream, 9);
                joined.extend_from_slice(payload);
            }
            assert_eq!(joined, block[..len]);
        }
    }
}

#[test]
fn random_frames_never_panic() {
    let mut random = Random(3);
    for _ in 0..rounds(100_000) {
        let payload: Vec<u8> = (0..random.below(20)).map(|_| random.number() as u8).collect();
        let header = FrameHeader {
            len: payload.len() as u32,
            number: random.below(11) as u8,
            flags: random.number() as u8,
            stream: random.below(4) as u32,
        };
        if let Ok(Frame::Data { data: part, .. } | Frame::Headers { fragment: part, .. }) =
            parse(&header, &payload)
        {
            assert!(part.len() <= payload.len());
        }
    }
}
