//! Writes the header blocks of responses, for [`crate::frame::write_headers`].

use crate::hpack::encode;
use lacquer_http::{Filter, Message, Workspace, trailers};

/// The block of the response that is sent if the workspace is too small: 500, without a body.
pub const OUT_OF_WORKSPACE: &[u8] = b"\x8e\x1f\x0d\x010\x1f\x27\x07Varnish";

/// Writes a block that contains only the status, which is taken modulo 1000.
pub fn write_status(out: &mut Vec<u8>, status: u16) {
    encode::status(out, status);
}

/// Writes the block of a response, without connection-specific headers (RFC 9113 section 8.2.2). `debug` receives the
/// texts of Varnish's `Debug` records for the request.
pub fn write(out: &mut Vec<u8>, msg: &Message, ws: &Workspace, mut debug: Option<&mut dyn FnMut(String)>) {
    encode::status(out, msg.status());
    for field in msg.fields().iter().filter(|field| !field.is_filtered(Filter::HTTP2)) {
        let row = encode::field(out, field.name(ws), field.value(ws));
        if let (Some(debug), Some(row)) = (&mut debug, row) {
            let (name, value) = encode::static_row(row);
            let text = |bytes| String::from_utf8_lossy(bytes);
            debug(format!(
                "HP {{{row}, \"{}:\", \"{}\"}} <{}>",
                text(name),
                text(value),
                text(field.line(ws))
            ));
        }
    }
}

/// Writes the block of trailers from lines that end with CR LF.
pub fn write_trailers(out: &mut Vec<u8>, lines: &[u8]) {
    for (name, value) in trailers::fields(lines) {
        encode::field(out, name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, Step};
    use lacquer_http::SessClose;
    use lacquer_http::h1::decide_connection;

    #[test]
    fn connection_specific_headers_are_omitted() {
        let (mut ws, mut msg) = (Workspace::new(4096), Message::new(64));
        msg.set_response(&mut ws, 404).unwrap();
        for line in ["Server: x", "Connection: other", "Other: foo", "Keep-Alive: timeout=5", "X-Y: z"] {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        decide_connection(&mut msg, &mut ws, SessClose::RespClose).unwrap();
        let (mut out, mut records) = (Vec::new(), Vec::new());
        write(&mut out, &msg, &ws, Some(&mut |text| records.push(text)));
        assert_eq!(out, b"\x8d\x1f\x27\x01x\x10\x03x-y\x01z");
        assert_eq!(records, ["HP {54, \"server:\", \"\"} <Server: x>"]);
    }

    #[test]
    fn trailers_are_fields_without_a_status() {
        let mut out = Vec::new();
        write_trailers(&mut out, b"grpc-status: 0\r\ngrpc-message: a: b\r\nempty: \r\n");
        assert_eq!(out, b"\x10\x0bgrpc-status\x010\x10\x0cgrpc-message\x04a: b\x10\x05empty\0");
    }

    #[test]
    fn the_out_of_workspace_response_is_a_valid_block() {
        let (mut decoder, mut input, mut out) = (Decoder::new(0), OUT_OF_WORKSPACE, [0; 64]);
        for expected in [&b":status: 500"[..], b"content-length: 0", b"server: Varnish"] {
            let Ok(Step::Field(line)) = decoder.next(&mut input, &mut out) else { panic!() };
            assert_eq!(&out[..line.len], expected);
        }
        assert_eq!(decoder.next(&mut input, &mut out), Ok(Step::End));
    }
}
