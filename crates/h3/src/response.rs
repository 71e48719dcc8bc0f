//! Writes the HEADERS frames of responses.

use crate::frame;
use crate::qpack;
use lacquer_http::{Filter, Message, Workspace, trailers};

/// The frame of the response that is sent if the workspace is too small: 500, without a body.
pub const OUT_OF_WORKSPACE: &[u8] = b"\x01\x0f\0\0\xff\x08\xc4\x5f\x4d\x07Varnish";

/// Appends a frame that contains only the status, which is taken modulo 1000.
pub fn write_status(out: &mut Vec<u8>, status: u16) {
    frame::write_section(out, |out| {
        qpack::begin(out);
        qpack::status(out, status);
    });
}

/// Appends the frame of a response, without connection-specific headers (RFC 9114 section 4.2).
pub fn write(out: &mut Vec<u8>, msg: &Message, ws: &Workspace) {
    frame::write_section(out, |out| {
        qpack::begin(out);
        qpack::status(out, msg.status());
        for field in msg.fields().iter().filter(|field| !field.is_filtered(Filter::HTTP2)) {
            qpack::field(out, field.name(ws), field.value(ws));
        }
    });
}

/// Appends the frame of trailers, whose lines end with CR LF.
pub fn write_trailers(out: &mut Vec<u8>, lines: &[u8]) {
    frame::write_section(out, |out| {
        qpack::begin(out);
        for (name, value) in trailers::fields(lines) {
            qpack::field(out, name, value);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, Piece, Reader};
    use crate::qpack::{Begun, Decoder, Step};
    use lacquer_http::SessClose;
    use lacquer_http::h1::decide_connection;

    /// Returns the lines of the only frame.
    fn lines(bytes: &[u8]) -> Vec<String> {
        let (mut reader, mut input) = (Reader::default(), bytes);
        let Some(Piece::Begin(header)) = reader.next(&mut input) else { panic!("no frame") };
        assert_eq!((header.kind(), header.len), (Kind::Headers, input.len() as u64));
        let mut decoder = Decoder::new(0, 0);
        let Ok(Begun::Section(mut section)) = decoder.begin(0, input) else { panic!("no section") };
        let (mut lines, mut out) = (Vec::new(), vec![0; 100_000]);
        loop {
            match decoder.next(&mut section, &mut out).unwrap() {
                Step::Field(line) => lines.push(String::from_utf8(out[..line.len].to_vec()).unwrap()),
                Step::End => return lines,
                Step::Full => panic!("the buffer is large"),
            }
        }
    }

    #[test]
    fn connection_specific_headers_are_omitted() {
        let (mut ws, mut msg) = (Workspace::new(4096), Message::new(64));
        msg.set_response(&mut ws, 404).unwrap();
        for line in ["Server: x", "Connection: other", "Other: foo", "Keep-Alive: timeout=5", "X-Y: zzzzzz"] {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        decide_connection(&mut msg, &mut ws, SessClose::RespClose).unwrap();
        let mut out = Vec::new();
        write(&mut out, &msg, &ws);
        assert_eq!(lines(&out), [":status: 404", "server: x", "x-y: zzzzzz"]);
    }

    #[test]
    fn heads_of_any_length_are_framed() {
        for len in [0, 1, 40, 60, 70, 16_000, 16_350, 16_400, 40_000] {
            let (mut ws, mut msg) = (Workspace::new(100_000), Message::new(64));
            msg.set_response(&mut ws, 200).unwrap();
            let value = "\u{7f}".repeat(len);
            msg.append_line_copy(&mut ws, format!("x: {value}").as_bytes()).unwrap();
            let mut out = Vec::new();
            write(&mut out, &msg, &ws);
            assert_eq!(lines(&out), [":status: 200".to_owned(), format!("x: {value}")]);
        }
    }

    #[test]
    fn constant_responses_are_valid() {
        assert_eq!(lines(OUT_OF_WORKSPACE), [":status: 500", "content-length: 0", "server: Varnish"]);
        let mut out = Vec::new();
        write_status(&mut out, 100);
        assert_eq!(lines(&out), [":status: 100"]);
    }

    #[test]
    fn trailers_are_a_section_of_fields() {
        let mut out = Vec::new();
        write_trailers(&mut out, b"grpc-status: 0\r\ngrpc-message: a: b\r\nempty: \r\n");
        assert_eq!(lines(&out), ["grpc-status: 0", "grpc-message: a: b", "empty: "]);
    }
}
