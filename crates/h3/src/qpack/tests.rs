//! The examples of RFC 9204, each error of sections and instructions, and damaged bytes.

use super::*;
use crate::error_table::{Error, Reason};
use lacquer_h2::hpack::integer;
use lacquer_testing::{Random, rounds};

/// Returns the lines of a section, or `None` if it is blocked.
fn decode(decoder: &mut Decoder, stream: u64, bytes: &[u8]) -> Result<Option<Vec<String>>, QpackError> {
    let Begun::Section(mut section) = decoder.begin(stream, bytes)? else { return Ok(None) };
    let (mut lines, mut out) = (Vec::new(), vec![0; decoder.field_size_bound(&section)]);
    loop {
        match decoder.next(&mut section, &mut out)? {
            Step::Field(line) => lines.push(String::from_utf8_lossy(&out[..line.len]).into_owned()),
            Step::Full => panic!("there is room for the largest field"),
            Step::End => break,
        }
    }
    decoder.finish(stream, &section);
    Ok(Some(lines))
}

fn lines(decoder: &mut Decoder, stream: u64, bytes: &[u8]) -> Vec<String> {
    decode(decoder, stream, bytes).expect("the section is valid").expect("the section is not blocked")
}

fn output(decoder: &mut Decoder) -> Vec<u8> {
    std::mem::take(decoder.output().expect("the output is short"))
}

/// Returns a decoder whose table contains the fields a: 1, b: 2 and so on, up to the number of fields.
fn filled(fields: u8) -> Decoder {
    let mut decoder = Decoder::new(4096, 16);
    decoder.receive(b"\x3f\xe1\x1f").unwrap();
    for i in 0..fields {
        decoder.receive(&[0x41, b'a' + i, 1, b'1' + i]).unwrap();
    }
    decoder
}

#[test]
fn the_examples_of_the_rfc_are_decoded() {
    let mut decoder = Decoder::new(4096, 16);
    // Appendix B.1.
    let literal = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(lines(&mut decoder, 0, literal), [":path: /index.html"]);
    assert_eq!(output(&mut decoder), b"");
    // B.2: the section arrives before the instructions.
    let section = b"\x03\x81\x10\x11";
    assert_eq!(decode(&mut decoder, 4, section), Ok(None));
    assert_eq!(decoder.unblocked().count(), 0);
    assert_eq!(decoder.receive(b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/pa"), Ok(true));
    assert_eq!(decode(&mut decoder, 4, section), Ok(None));
    assert_eq!(decoder.receive(b"th"), Ok(true));
    assert_eq!(decoder.unblocked().collect::<Vec<_>>(), [4]);
    assert_eq!(lines(&mut decoder, 4, section), [":authority: www.example.com", ":path: /sample/path"]);
    assert_eq!(output(&mut decoder), b"\x84");
    // B.3.
    assert_eq!(decoder.receive(b"\x4acustom-key\x0ccustom-value"), Ok(true));
    assert_eq!(output(&mut decoder), b"\x01");
    // B.4.
    let section = b"\x05\x00\x80\xc1\x81";
    assert_eq!(decode(&mut decoder, 8, section), Ok(None));
    decoder.cancel(8);
    assert_eq!(output(&mut decoder), b"\x48");
    assert_eq!(decoder.receive(b"\x02"), Ok(true));
    let expected = [":authority: www.example.com", ":path: /", "custom-key: custom-value"];
    assert_eq!(lines(&mut decoder, 12, section), expected);
    assert_eq!(output(&mut decoder), b"\x8c");
    // B.5: the oldest field is evicted.
    assert_eq!(decoder.receive(b"\x81\x0dcustom-value2"), Ok(true));
    assert_eq!(lines(&mut decoder, 16, b"\x06\x00\x80"), ["custom-key: custom-value2"]);
    assert_eq!(decode(&mut decoder, 20, b"\x06\x00\x84"), Err(QpackError::Index));
}

#[test]
fn all_kinds_of_field_lines_are_decoded() {
    let mut decoder = filled(3);
    for (section, expected) in [
        // Indexed: static, relative, and after the base.
        (&b"\x00\x00\xd9"[..], ":status: 200"),
        (b"\x00\x00\xff\x23", "x-frame-options: sameorigin"),
        (b"\x04\x00\x80", "c: 3"),
        (b"\x04\x00\x82", "a: 1"),
        (b"\x04\x80\x81", "a: 1"),
        (b"\x04\x80\x10", "c: 3"),
        (b"\x04\x82\x12", "c: 3"),
        // Literal values with names from the tables, with and without the bit N.
        (b"\x00\x00\x54\x02xy", "content-length: xy"),
        (b"\x00\x00\x74\x02xy", "content-length: xy"),
        (b"\x04\x00\x41\x02xy", "b: xy"),
        (b"\x04\x00\x61\x02xy", "b: xy"),
        (b"\x04\x82\x02\x02xy", "c: xy"),
        (b"\x04\x82\x0a\x02xy", "c: xy"),
        // Literal names, in plain and in Huffman code.
        (b"\x00\x00\x21n\x01v", "n: v"),
        (b"\x00\x00\x31n\x00", "n: "),
        (b"\x00\x00\x29\x1f\x81\x1f", "a: a"),
        (b"\x00\x00\x20\x01v", ": v"),
    ] {
        assert_eq!(lines(&mut decoder, 0, section), [expected], "{section:x?}");
        // Each section is truncated everywhere after its prefix.
        for cut in (2..section.len()).filter(|&cut| cut > 2) {
            let cut = decode(&mut decoder, 0, &section[..cut]);
            assert_eq!(cut, Err(QpackError::Truncated), "{section:x?}");
        }
    }
    assert_eq!(lines(&mut decoder, 0, b"\x00\x00"), [""; 0]);
}

#[test]
fn malformed_sections_are_rejected() {
    use QpackError::{Huffman, Index, InsertCount, Integer, Truncated};
    for (section, error) in [
        (&b""[..], Truncated),
        (b"\x00", Truncated),
        (b"\xff", Truncated),
        (b"\x00\xff", Truncated),
        (b"\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", Integer),
        (b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff", Integer),
        // The count exceeds twice the maximum number of entries, or wraps to 0.
        (b"\xff\x02\x00", InsertCount),
        (b"\xff\xff\xff\xff\xff\x0f\x00", InsertCount),
        (b"\x01\x00", InsertCount),
        // The base is negative.
        (b"\x00\x80", InsertCount),
        (b"\x04\x83", InsertCount),
        // Numbers beyond the tables.
        (b"\x00\x00\xff\x24", Index),
        (b"\x00\x00\x5f\x54\x00", Index),
        (b"\x00\x00\x80", Index),
        (b"\x00\x00\x10", Index),
        (b"\x00\x00\x40\x00", Index),
        (b"\x00\x00\x00\x00", Index),
        (b"\x04\x00\x83", Index),
        (b"\x04\x00\x10", Index),
        (b"\x04\x80\x11", Index),
        // Fields that were inserted, but that the prefix does not require.
        (b"\x02\x01\x80", Index),
        (b"\x02\x00\x10", Index),
        (b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Integer),
        // A code that is too long, padding of eight bits, padding of zeros.
        (b"\x00\x00\x54\x84\xff\xff\xff\xff", Huffman),
        (b"\x00\x00\x54\x82\x1f\xff", Huffman),
        (b"\x00\x00\x54\x81\x18", Huffman),
        (b"\x00\x00\x54\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Integer),
        (b"\x00\x00\x54\x7f\xff\xff\xff\xff\xff\xff\xff\x3f", Truncated),
    ] {
        assert_eq!(decode(&mut filled(3), 0, section), Err(error), "{section:x?}");
    }
    // Without a dynamic table, nothing can be required.
    assert_eq!(decode(&mut Decoder::new(0, 0), 0, b"\x02\x00\x80"), Err(InsertCount));
}

#[test]
fn malformed_instructions_are_rejected() {
    for (bytes, text) in [
        // The capacity exceeds the announced one.
        (&b"\x3f\xe2\x1f"[..], "Table capacity exceeds the announced maximum"),
        (b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\xff", "Integer overflow"),
        // References beyond the tables.
        (b"\xff\x24\x00", "Invalid table index"),
        (b"\x83\x00", "Invalid table index"),
        (b"\x03", "Invalid table index"),
        // A field that the table cannot hold: by its length, and when it is decoded.
        (b"\x3f\x09\x45abcde\x04abcd", "Field is larger than the table"),
        (b"\x3f\x09\x41a\x0aabcdefghij", "Field is larger than the table"),
        (b"\x3f\x09\x41a\x7f\xff\x7f", "Field is larger than the table"),
        (b"\x20\x41a\x00", "Field is larger than the table"),
        (b"\x20\xc4\x00", "Field is larger than the table"),
        (b"\x41a\x7f\xff\xff\xff\xff\xff\xff\x01", "Field is larger than the table"),
        (b"\x61\x18\x00", "Invalid huffman code"),
        (b"\x41a\x84\xff\xff\xff\xff", "Invalid huffman code"),
    ] {
        let text = format!("QPACK encoder stream error ({text})");
        let fault = filled(3).receive(bytes).unwrap_err();
        assert_eq!(fault.error, Error::Connection(Reason::EncoderStreamError), "{bytes:x?}");
        assert_eq!(fault.note.unwrap().text, text);
        let mut bytewise = filled(3);
        let fault = bytes.chunks(1).find_map(|byte| bytewise.receive(byte).err());
        assert_eq!(fault.unwrap().note.unwrap().text, text);
    }
    // The table has no capacity before the client sets one.
    assert!(Decoder::new(4096, 16).receive(b"\x41a\x011").is_err());
}

#[test]
fn the_capacity_limits_the_table() {
    let mut decoder = filled(20);
    // Three fields of 34 bytes fit.
    decoder.receive(b"\x3f\x4e").unwrap();
    assert_eq!(decoder.table().count(), 3);
    let newest = b"\x15\x00\x80";
    assert_eq!(lines(&mut decoder, 0, newest), ["t: D"]);
    assert_eq!(decode(&mut decoder, 0, b"\x15\x00\x83"), Err(QpackError::Index));
    decoder.receive(b"\x02\x02").unwrap();
    assert_eq!(decoder.table().count(), 3);
    assert_eq!(lines(&mut decoder, 0, b"\x17\x00\x80\x81\x82"), ["s: C", "r: B", "t: D"]);
    // A field whose name is in the entry that it evicts.
    decoder.receive(b"\x3f\x03\x80\x00").unwrap();
    assert_eq!(lines(&mut decoder, 0, b"\x18\x00\x80"), ["s: "]);
    assert_eq!(decoder.table().count(), 1);
    decoder.receive(b"\x20").unwrap();
    assert_eq!(decoder.table().count(), 0);
}

#[test]
fn the_required_count_wraps() {
    // At most 4 entries, so that counts are encoded modulo 8.
    let mut decoder = Decoder::new(128, 16);
    decoder.receive(b"\x3f\x61").unwrap();
    for inserted in 1..=100_u64 {
        let value = b'a' + (inserted % 26) as u8;
        decoder.receive(&[0x41, b'n', 1, value]).unwrap();
        let section = [(inserted % 8 + 1) as u8, 0, 0x80];
        let expected = format!("n: {}", value as char);
        assert_eq!(lines(&mut decoder, 0, &section), [expected]);
        let oldest = [(inserted.saturating_sub(3).max(1) % 8 + 1) as u8, 0, 0x80];
        let result = decode(&mut decoder, 0, &oldest);
        assert!(result.is_ok_and(|lines| lines.is_some()) || inserted > 3);
    }
}

#[test]
fn a_blocked_section_needs_the_count_of_its_arrival() {
    // At most 4 entries. More insertions than the count can tell apart arrive at once, and remove the field.
    let mut decoder = Decoder::new(128, 16);
    decoder.receive(b"\x3f\x61").unwrap();
    let section = b"\x02\x00\x80";
    assert_eq!(decode(&mut decoder, 0, section), Ok(None));
    decoder.receive(&b"\x41n\x01v".repeat(9)).unwrap();
    assert_eq!(decoder.unblocked().collect::<Vec<_>>(), [0]);
    assert!(decode(&mut decoder, 0, section).is_err(), "it would be blocked for ever");
}

#[test]
fn blocked_streams_are_limited() {
    let mut decoder = Decoder::new(4096, 2);
    let section = b"\x02\x00\x80";
    assert_eq!(decode(&mut decoder, 0, section), Ok(None));
    assert_eq!(decode(&mut decoder, 4, section), Ok(None));
    assert_eq!(decode(&mut decoder, 4, section), Ok(None));
    assert_eq!(decode(&mut decoder, 8, section), Err(QpackError::Blocked));
    decoder.cancel(0);
    assert_eq!(decode(&mut decoder, 8, section), Ok(None));
    decoder.receive(b"\x3f\xe1\x1f\x41a\x011").unwrap();
    assert_eq!(decoder.unblocked().collect::<Vec<_>>(), [4, 8]);
    assert_eq!(lines(&mut decoder, 8, section), ["a: 1"]);
    assert_eq!(lines(&mut decoder, 4, section), ["a: 1"]);
    assert_eq!(decoder.unblocked().count(), 0);
    assert_eq!(output(&mut decoder), b"\x40\x88\x84");
    // Another section of a stream may need more insertions.
    assert_eq!(decode(&mut decoder, 4, b"\x03\x00\x80"), Ok(None));
    decoder.cancel(4);
    assert_eq!(decode(&mut decoder, 4, b"\x04\x00\x80"), Ok(None));
    decoder.receive(b"\x41b\x012").unwrap();
    assert_eq!(decoder.unblocked().count(), 0);
    decoder.receive(b"\x41c\x013").unwrap();
    assert_eq!(decoder.unblocked().collect::<Vec<_>>(), [4]);
    assert_eq!(decode(&mut Decoder::new(4096, 0), 0, section), Err(QpackError::Blocked));
}

#[test]
fn instructions_for_the_client_are_few_and_bounded() {
    let mut decoder = filled(3);
    decoder.cancel(400);
    assert_eq!(output(&mut decoder), b"\x7f\xd1\x02\x03");
    assert_eq!(output(&mut decoder), b"");
    // A section without references is not acknowledged.
    lines(&mut decoder, 0, b"\x00\x00\xd9");
    assert_eq!(output(&mut decoder), b"");
    // Without insertions there is nothing to cancel.
    let mut empty = Decoder::new(4096, 16);
    empty.cancel(4);
    assert_eq!(output(&mut empty), b"");
    // The client does not permit the output to be sent.
    for stream in 0..=64 * 1024 {
        decoder.cancel(stream * 4);
    }
    assert_eq!(decoder.output().unwrap_err().error, Error::Connection(Reason::ExcessiveLoad));
}

#[test]
fn acknowledgments_without_references_are_rejected() {
    for bytes in [&b"\x80"[..], b"\x84", b"\xff\x00", b"\x00", b"\x01", b"\x3f\x00", b"\x44\x01"] {
        let mut feedback = Feedback::default();
        let fault = bytes.chunks(1).find_map(|byte| feedback.receive(byte).err()).unwrap();
        assert_eq!(fault.error, Error::Connection(Reason::DecoderStreamError));
        assert!(Feedback::default().receive(bytes).is_err());
    }
    let mut cancellations = Vec::new();
    for stream in [0, 62, 63, 64, 1 << 20, 1 << 40] {
        integer::write(&mut cancellations, 6, 0x40, stream);
    }
    for step in 1..cancellations.len() {
        let mut feedback = Feedback::default();
        cancellations.chunks(step).try_for_each(|piece| feedback.receive(piece)).unwrap();
    }
    assert!(Feedback::default().receive(&[0x7f; 16]).is_ok());
    let overflow = b"\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    assert!(Feedback::default().receive(overflow).is_err());
    let mut feedback = Feedback::default();
    assert!(overflow.chunks(1).any(|byte| feedback.receive(byte).is_err()));
}

#[test]
fn instructions_do_not_depend_on_pieces() {
    let mut random = Random(5);
    for _ in 0..rounds(3000) {
        let mut bytes = b"\x3f\xa9\x01".to_vec();
        for i in 0..random.below(12) {
            match random.below(5) {
                0 => bytes.push(random.below(3) as u8),
                1 => bytes.extend_from_slice(&[0x80 | random.below(3) as u8, 2, b'x', b'0' + i as u8]),
                2 => bytes.extend_from_slice(b"\xd1\x82\x1f\xc7"),
                3 => bytes.extend_from_slice(b"\x63\x1f\xc6\x3f\x03abc"),
                _ => bytes.extend_from_slice(b"\x44name\x05value"),
            }
        }
        for _ in 0..random.below(3) {
            let at = random.index(bytes.len());
            bytes[at] = random.number() as u8;
        }
        let outcome = |pieces: &[&[u8]]| {
            let mut decoder = Decoder::new(512, 16);
            let received = pieces.iter().try_for_each(|piece| decoder.receive(piece).map(drop));
            let fields: Vec<_> =
                (0..).map_while(|i| decoder.table().get(i)).map(|(b, _)| b.to_vec()).collect();
            assert!(decoder.table().size() <= 512);
            (received, fields)
        };
        let cut = random.index(bytes.len());
        let whole = outcome(&[&bytes]);
        assert_eq!(whole, outcome(&[&bytes[..cut], &bytes[cut..]]), "{bytes:x?}");
        assert_eq!(whole, outcome(&bytes.chunks(1).collect::<Vec<_>>()), "{bytes:x?}");
    }
}

#[test]
fn encoded_fields_are_decoded() {
    let mut random = Random(9);
    for _ in 0..rounds(3000) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        begin(&mut bytes);
        for _ in 0..random.below(6) {
            let name = random.one(&["Server", "x-y", "Age", "vary", ":status", "content-type", "abc"]);
            let len = random.index(200);
            let any: String = (0..len).map(|_| (32 + random.below(95) as u8) as char).collect();
            let value = random.one(&["0", "200", "accept-encoding", "text/css", "", &any]);
            field(&mut bytes, name.as_bytes(), value.as_bytes());
            expected.push(format!("{}: {value}", name.to_lowercase()));
        }
        assert_eq!(lines(&mut Decoder::new(0, 0), 0, &bytes), expected);
    }
}

#[test]
fn damaged_sections_do_not_panic() {
    let mut random = Random(13);
    let seeds: [&[u8]; 4] = [
        b"\x04\x00\x80\xd9\x54\x02xy\x41\x81\x1f\x21n\x01v",
        b"\x04\x82\x10\x02\x02xy\x0a\x00\x12",
        b"\x00\x00\xff\x23\x5f\x20\x03abc\x29\x1f\x81\x1f",
        b"\x03\x80\x10\x80",
    ];
    for _ in 0..rounds(30_000) {
        let mut bytes = random.one(&seeds).to_vec();
        for _ in 0..=random.below(3) {
            let at = random.index(bytes.len());
            let any = random.number() as u8;
            bytes[at] = random.one(&[any, 0, 0x7f, 0x80, 0xff]);
        }
        let _ = decode(&mut filled(3), 0, &bytes);
    }
}
