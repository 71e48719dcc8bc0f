//! Frames in any pieces, each known type, and written frames.

use super::*;
use crate::varint;
use lacquer_testing::{Random, rounds};

/// Reads frames from pieces that end at the given places. Returns types and payloads.
fn read(pieces: &[&[u8]]) -> (Vec<(u64, Vec<u8>)>, Reader) {
    let (mut reader, mut frames) = (Reader::default(), Vec::<(u64, Vec<u8>)>::new());
    for piece in pieces {
        let mut input = *piece;
        while let Some(piece) = reader.next(&mut input) {
            match piece {
                Piece::Begin(header) => frames.push((header.number, Vec::new())),
                Piece::Payload(bytes) => {
                    assert!(!bytes.is_empty());
                    frames.last_mut().expect("a frame has begun").1.extend_from_slice(bytes);
                }
            }
        }
        assert_eq!(input, b"");
    }
    (frames, reader)
}

#[test]
fn types_are_known_by_number() {
    for (number, kind) in [
        (0, Kind::Data),
        (1, Kind::Headers),
        (2, Kind::Http2(2)),
        (3, Kind::CancelPush),
        (4, Kind::Settings),
        (5, Kind::PushPromise),
        (6, Kind::Http2(6)),
        (7, Kind::GoAway),
        (8, Kind::Http2(8)),
        (9, Kind::Http2(9)),
        (0xa, Kind::Unknown),
        (0xd, Kind::MaxPushId),
        (0x21, Kind::Unknown),
        (0x100, Kind::Unknown),
        (0x1_0001, Kind::Unknown),
        (varint::MAX, Kind::Unknown),
    ] {
        assert_eq!(Kind::of(number), kind);
        assert!(!kind.name().is_empty());
    }
}

#[test]
fn frames_do_not_depend_on_pieces() {
    let mut random = Random(7);
    for _ in 0..rounds(2000) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..=random.below(5) {
            let number = random.one(&[0, 1, 4, 0x21, 0x1f * 1000 + 0x21, varint::MAX]);
            let len = random.one(&[0, 0, 1, 5, 63, 64, 300]);
            let payload = vec![random.number() as u8; len];
            write_header(&mut bytes, number, len as u64);
            bytes.extend_from_slice(&payload);
            expected.push((number, payload));
        }
        let whole = read(&[&bytes]);
        assert_eq!(whole.0, expected);
        assert!(whole.1.is_between_frames());
        let (a, b) = (random.index(bytes.len()), random.index(bytes.len()));
        let (a, b) = (a.min(b), a.max(b));
        assert_eq!(read(&[&bytes[..a], &bytes[a..b], &bytes[b..]]).0, expected);
        let bytewise: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(read(&bytewise).0, expected);
    }
}

#[test]
fn a_truncated_frame_is_noticed() {
    let mut bytes = Vec::new();
    write_header(&mut bytes, 0x40, 3);
    bytes.extend_from_slice(b"abc");
    for cut in 1..bytes.len() {
        assert!(!read(&[&bytes[..cut]]).1.is_between_frames());
    }
    assert!(read(&[&bytes]).1.is_between_frames());
    assert!(read(&[]).1.is_between_frames());
    // The largest length needs no memory.
    let mut endless = Vec::new();
    write_header(&mut endless, 0, varint::MAX);
    endless.extend_from_slice(b"abc");
    let (frames, reader) = read(&[&endless]);
    assert_eq!((frames[0].1.len(), reader.left()), (3, varint::MAX - 3));
}

#[test]
fn payloads_are_parts_of_the_input() {
    let input = b"\x00\x05ab";
    let (mut reader, mut left) = (Reader::default(), &input[..]);
    assert_eq!(reader.next(&mut left), Some(Piece::Begin(FrameHeader { number: 0, len: 5 })));
    let Some(Piece::Payload(payload)) = reader.next(&mut left) else { panic!("no payload") };
    assert_eq!(payload.as_ptr(), input[2..].as_ptr());
    assert_eq!(reader.next(&mut left), None);
    assert_eq!(reader.left(), 3);
}

#[test]
fn written_frames_are_read() {
    for len in [0, 63, 64, 16383, 16384, 1 << 30] {
        let header = data_header(len);
        let mut written = Vec::new();
        write_header(&mut written, 0, len);
        assert_eq!(header.as_slice(), written);
    }
    for len in [0, 1, 63, 64, 16383, 16384, 70_000] {
        let mut out = b"before".to_vec();
        write_section(&mut out, |out| out.resize(out.len() + len, 7));
        assert_eq!(read(&[&out[6..]]).0, [(1, vec![7; len])]);
        assert_eq!(out[..6], *b"before");
    }
    let mut out = Vec::new();
    goaway(&mut out, 0);
    goaway(&mut out, varint::MAX - 3);
    settings(&mut out, &crate::settings::Settings::of_server(49152));
    let largest = varint::encode(varint::MAX - 3).0.to_vec();
    let announced = b"\x01\x50\x00\x06\x80\x00\xc0\x00\x07\x10".to_vec();
    assert_eq!(read(&[&out]).0, [(7, vec![0]), (7, largest), (4, announced)]);
}
