//! Formats frames as in Varnish's `Debug` records.

use super::FrameHeader;
use std::fmt::Write;

impl FrameHeader {
    /// Returns a text like `HEADERS[3] 0x05 0x00000001 0x828684`.
    pub fn describe(&self, payload: &[u8]) -> String {
        let mut text = String::with_capacity(40 + 2 * payload.len());
        match self.kind() {
            Some(kind) => text.push_str(kind.name()),
            None => push_hex(&mut text, &[self.number]),
        }
        let _ = write!(text, "[{}] ", self.len);
        push_hex(&mut text, &[self.flags]);
        text.push(' ');
        push_hex(&mut text, &self.stream.to_be_bytes());
        if !payload.is_empty() {
            text.push(' ');
            push_hex(&mut text, payload);
        }
        text
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    text.push_str("0x");
    if bytes.len() > 4 && bytes.iter().all(|&b| b == 0) {
        text.push_str("0...0");
        return;
    }
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Kind;

    #[test]
    fn frames_are_described_as_in_varnish() {
        let headers = FrameHeader::new(Kind::Headers, 5, 1, 3);
        assert_eq!(headers.describe(b"\x82\x86\x84"), "HEADERS[3] 0x05 0x00000001 0x828684");
        let unknown = FrameHeader { len: 5, number: 0x80, flags: 0, stream: 2 };
        assert_eq!(unknown.describe(&[0; 5]), "0x80[5] 0x00 0x00000002 0x0...0");
        assert_eq!(FrameHeader::new(Kind::Settings, 1, 0, 0).describe(b""), "SETTINGS[0] 0x01 0x00000000");
    }
}
