//! Unidirectional streams and the control stream: each rule of RFC 9114 section 6.2 and 7.2, with the error of its
//! violation.

use super::*;
use crate::frame::write_header;
use lacquer_testing::{Random, rounds};

const NOW: f64 = 1000.0;

fn connection() -> Connection {
    Connection::new(Settings::of_server(49152))
}

fn frame(number: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, number, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

/// Returns the bytes of a control stream with SETTINGS and these frames.
fn control(frames: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = b"\x00\x04\x00".to_vec();
    for (number, payload) in frames {
        out.extend(frame(*number, payload));
    }
    out
}

fn receive(bytes: &[u8]) -> Result<Effects, Fault> {
    connection().receive(&mut UniStream::default(), bytes, NOW)
}

fn error(bytes: &[u8]) -> (Reason, String) {
    let fault = receive(bytes).unwrap_err();
    let text = fault.note.map(|note| note.text.into_owned()).unwrap_or_default();
    assert!(fault.error.is_connection());
    (fault.error.reason(), text)
}

#[test]
fn a_control_stream_is_accepted() {
    let mut c = connection();
    let mut stream = UniStream::default();
    let mut bytes = b"\x00".to_vec();
    bytes.extend(frame(4, b"\x06\x44\x00\x01\x10\x07\x05"));
    let effects = c.receive(&mut stream, &bytes, NOW).unwrap();
    assert_eq!(effects, Effects { has_settings: true, ..Effects::default() });
    let expected = Settings {
        max_table_capacity: 16,
        max_field_section_size: Some(1024),
        blocked_streams: 5,
        connect_protocol: false,
    };
    assert_eq!(c.peer(), Some(&expected));
    for (number, payload) in [(0x21, &b"grease"[..]), (0xd, b"\x08"), (0xd, b"\x08"), (0xf0700, b"")] {
        let effects = c.receive(&mut stream, &frame(number, payload), NOW).unwrap();
        assert_eq!(effects, Effects::default());
    }
    for id in [&b"\x40\x09"[..], b"\x09", b"\x00"] {
        let effects = c.receive(&mut stream, &frame(7, id), NOW).unwrap();
        assert!(effects.goes_away);
    }
}

#[test]
fn frames_on_the_control_stream_that_are_errors() {
    use Reason::{ExcessiveLoad, FrameError, FrameUnexpected, IdError, MissingSettings, SettingsError};
    let long = vec![0x21; 1025];
    for (bytes, reason, text) in [
        // Section 6.2.1: SETTINGS are the first frame, even before reserved ones.
        (b"\x00\x07\x01\x00".to_vec(), MissingSettings, "H3: rx GOAWAY before settings"),
        (b"\x00\x21\x00".to_vec(), MissingSettings, "H3: rx unknown before settings"),
        (b"\x00\x00\x01x".to_vec(), MissingSettings, "H3: rx DATA before settings"),
        // Sections 7.2.1 to 7.2.5.
        (control(&[(0, b"x")]), FrameUnexpected, "H3: unexpected DATA frame on the control stream"),
        (control(&[(1, b"")]), FrameUnexpected, "H3: unexpected HEADERS frame on the control stream"),
        (control(&[(4, b"")]), FrameUnexpected, "H3: unexpected SETTINGS frame on the control stream"),
        (control(&[(5, b"\0")]), FrameUnexpected, "H3: unexpected PUSH_PROMISE frame on the control stream"),
        (control(&[(3, b"\x00")]), IdError, "H3: rx cancel push without a push"),
        (control(&[(3, b"")]), FrameError, "H3: rx CANCEL_PUSH with a wrong length"),
        (control(&[(3, b"\0\0")]), FrameError, "H3: rx CANCEL_PUSH with a wrong length"),
        (
            b"\x00".iter().copied().chain(frame(4, b"\x03\x01")).collect(),
            SettingsError,
            "H3: setting 0x3 of HTTP/2",
        ),
        (
            b"\x00".iter().copied().chain(frame(4, b"\x06")).collect(),
            FrameError,
            "H3: rx settings ends within an entry",
        ),
        (
            b"\x00".iter().copied().chain(frame(4, &long)).collect(),
            ExcessiveLoad,
            "H3: Too many entries in a SETTINGS frame",
        ),
        // A length is refused before the payload arrives.
        (b"\x00\x04\x80\x10\x00\x00".to_vec(), ExcessiveLoad, "H3: Too many entries in a SETTINGS frame"),
        // Section 7.2.6 and 5.2.
        (control(&[(7, b"")]), FrameError, "H3: rx GOAWAY with a wrong length"),
        (control(&[(7, b"\x40")]), FrameError, "H3: rx GOAWAY with a wrong length"),
        (control(&[(7, b"\x00\x00")]), FrameError, "H3: rx GOAWAY with a wrong length"),
        (control(&[(7, &[0; 9])]), FrameError, "H3: rx GOAWAY with a wrong length"),
        (control(&[(7, b"\x04"), (7, b"\x05")]), IdError, "H3: rx goaway with a higher id"),
        // Section 7.2.7.
        (control(&[(0xd, b"\x04"), (0xd, b"\x03")]), IdError, "H3: rx max push id with a lower id"),
        (control(&[(0xd, b"")]), FrameError, "H3: rx MAX_PUSH_ID with a wrong length"),
        (control(&[(0xd, b"\x04\x04")]), FrameError, "H3: rx MAX_PUSH_ID with a wrong length"),
        // Section 7.2.8: types of HTTP/2.
        (
            control(&[(2, b"")]),
            FrameUnexpected,
            "H3: unexpected PRIORITY (HTTP/2) frame on the control stream",
        ),
        (control(&[(6, b"")]), FrameUnexpected, "H3: unexpected PING (HTTP/2) frame on the control stream"),
        (
            control(&[(8, b"")]),
            FrameUnexpected,
            "H3: unexpected WINDOW_UPDATE (HTTP/2) frame on the control stream",
        ),
        (
            control(&[(9, b"")]),
            FrameUnexpected,
            "H3: unexpected CONTINUATION (HTTP/2) frame on the control stream",
        ),
    ] {
        assert_eq!(error(&bytes), (reason, text.to_owned()), "{bytes:x?}");
        // The error is the same if each byte arrives alone.
        let (mut c, mut stream) = (connection(), UniStream::default());
        let fault = bytes.chunks(1).find_map(|byte| c.receive(&mut stream, byte, NOW).err());
        assert_eq!(fault.map(|fault| fault.error.reason()), Some(reason));
    }
}

#[test]
fn each_required_stream_exists_once() {
    use Reason::StreamCreationError;
    assert_eq!(error(b"\x01"), (StreamCreationError, "H3: client opened a push stream".to_owned()));
    assert_eq!(error(b"\x40\x01\x00").0, StreamCreationError);
    for (number, name) in [(0, "control"), (2, "QPACK encoder"), (3, "QPACK decoder")] {
        let mut c = connection();
        c.receive(&mut UniStream::default(), &[number], NOW).unwrap();
        let fault = c.receive(&mut UniStream::default(), &[0x40, number], NOW).unwrap_err();
        assert_eq!(fault.error, Error::Connection(StreamCreationError));
        assert_eq!(fault.note.unwrap().text, format!("H3: client opened a second {name} stream"));
    }
}

#[test]
fn unknown_streams_are_ignored() {
    let mut c = connection();
    for bytes in [&b"\x21anything"[..], b"\x04\x04\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"] {
        let mut stream = UniStream::default();
        for byte in &bytes[..bytes.len() - 1] {
            c.receive(&mut stream, &[*byte], NOW).unwrap();
        }
        assert!(c.receive(&mut stream, &bytes[bytes.len() - 1..], NOW).unwrap().ignores_stream);
        c.end(&stream, NOW).unwrap();
    }
}

#[test]
fn the_end_of_a_required_stream_ends_the_connection() {
    for (number, text) in [
        (0, "H3: client closed its control stream"),
        (2, "H3: client closed its QPACK encoder stream"),
        (3, "H3: client closed its QPACK decoder stream"),
    ] {
        let (mut c, mut stream) = (connection(), UniStream::default());
        c.receive(&mut stream, &[number], NOW).unwrap();
        let fault = c.end(&stream, NOW).unwrap_err();
        assert_eq!(fault.error, Error::Connection(Reason::ClosedCriticalStream));
        assert_eq!(fault.note.unwrap().text, text);
    }
    // The type had not arrived.
    connection().end(&UniStream::default(), NOW).unwrap();
    let (mut c, mut stream) = (connection(), UniStream::default());
    c.receive(&mut stream, b"\x40", NOW).unwrap();
    c.end(&stream, NOW).unwrap();
    assert_eq!(c.stopped().error, Error::Connection(Reason::ClosedCriticalStream));
}

#[test]
fn qpack_streams_reach_the_tables() {
    let mut c = connection();
    let mut encoder = UniStream::default();
    let effects = c.receive(&mut encoder, b"\x02\x3f\xe1\x1f\x41", NOW).unwrap();
    assert_eq!(effects, Effects::default());
    let effects = c.receive(&mut encoder, b"a\x01b", NOW).unwrap();
    assert!(effects.has_inserted);
    assert_eq!(c.qpack.output().unwrap(), b"\x01");
    assert_eq!(error(b"\x02\xff\x24\x00").0, Reason::EncoderStreamError);
    assert_eq!(error(b"\x03\x80").0, Reason::DecoderStreamError);
    assert!(receive(b"\x03\x44").is_ok());
}

#[test]
fn floods_without_use_end_the_connection() {
    let mut c = connection();
    let mut stream = UniStream::default();
    c.receive(&mut stream, b"\x00\x04\x00", NOW).unwrap();
    let grease = frame(0x21, b"");
    let fault = (0..=10_000).find_map(|_| c.receive(&mut stream, &grease, NOW).err()).unwrap();
    assert_eq!(fault.error, Error::Connection(Reason::ExcessiveLoad));

    let mut c = connection();
    let mut streams = (0..=10_000).map(|i| {
        let mut stream = UniStream::default();
        c.receive(&mut stream, if i % 2 == 0 { b"\x21" } else { b"" }, NOW)?;
        c.end(&stream, NOW)
    });
    let fault = streams.find_map(Result::err).unwrap();
    assert_eq!(fault.error, Error::Connection(Reason::ExcessiveLoad));
}

#[test]
fn requests_after_a_goaway_are_refused() {
    let mut c = connection();
    let mut out = Vec::new();
    c.open_request(0).unwrap();
    c.open_request(8).unwrap();
    c.announce_end(&mut out);
    c.announce_end(&mut out);
    assert_eq!(out, b"\x07\x08\xff\xff\xff\xff\xff\xff\xff\xfc");
    out.clear();
    c.open_request(16).unwrap();
    c.go_away(&mut out);
    c.go_away(&mut out);
    assert_eq!(out, b"\x07\x01\x14");
    // A stream below the id may arrive late.
    c.open_request(12).unwrap();
    assert_eq!(c.open_request(20), Err(Error::Stream(Reason::RequestRejected)));
    out.clear();
    c.announce_end(&mut out);
    c.go_away(&mut out);
    assert_eq!(out, b"");
    assert!(c.is_ending());
}

#[test]
fn control_streams_do_not_depend_on_pieces() {
    let mut random = Random(3);
    for _ in 0..rounds(3000) {
        let mut bytes = b"\x00".to_vec();
        bytes.extend(frame(4, b"\x06\x44\x00\x40\x21\x05"));
        for _ in 0..random.below(4) {
            let id = [random.one(&[0, 1, 9, 63, 64])];
            bytes.extend(frame(random.one(&[7, 0xd, 0x21, 0x40]), &id));
        }
        for _ in 0..random.below(3) {
            let at = random.index(bytes.len());
            bytes[at] = random.one(&[0, 1, 4, 7, 0x0d, 0x40, 0xc0, 0xff]);
        }
        let outcome = |pieces: &[&[u8]]| {
            let (mut c, mut stream) = (connection(), UniStream::default());
            let received = pieces.iter().try_for_each(|piece| c.receive(&mut stream, piece, NOW).map(drop));
            (received, c.peer().copied())
        };
        let cut = random.index(bytes.len());
        assert_eq!(outcome(&[&bytes]), outcome(&[&bytes[..cut], &bytes[cut..]]), "{bytes:x?}");
    }
}
