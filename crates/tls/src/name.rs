//! Distinguished names as text (RFC 4514).

use std::fmt::Write as _;

use crate::algorithms::dotted;
use crate::der::{Element, tag};
use crate::leaf::text;

/// The attributes that have a short name, by the contents of their object identifiers.
const SHORT: [(&[u8], &str); 13] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 42], "GN"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// Returns a distinguished name as text: the last part first, as in `CN=alice,O=Example`. It contains no control
/// characters.
pub fn format(name: Element<'_>) -> String {
    let (mut parts, mut sets) = (Vec::new(), name.inside());
    while let Some(set) = sets.expect(tag::SET) {
        let (mut part, mut attributes) = (Vec::new(), set.inside());
        while let Some(attribute) = attributes.expect(tag::SEQUENCE) {
            let mut fields = attribute.inside();
            let (Some(kind), Some(value)) = (fields.expect(tag::OID), fields.next()) else { break };
            part.push(format_attribute(kind.content, value));
        }
        parts.push(part.join("+"));
    }
    parts.reverse();
    parts.join(",")
}

fn format_attribute(kind: &[u8], value: Element<'_>) -> String {
    let known = SHORT.iter().find(|(object, _)| *object == kind);
    match (known, text(value)) {
        (Some((_, short)), Some(value)) => format!("{short}={}", escape(&value)),
        (None, Some(value)) => format!("{}={}", dotted(kind), escape(&value)),
        (_, None) => {
            let mut digits =
                format!("{}=#", known.map_or_else(|| dotted(kind), |(_, short)| (*short).to_owned()));
            for byte in value.whole {
                let _ = write!(digits, "{byte:02x}");
            }
            digits
        }
    }
}

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let last = value.char_indices().next_back().map_or(0, |(at, _)| at);
    for (at, c) in value.char_indices() {
        let is_special = matches!(c, '"' | '+' | ',' | ';' | '<' | '>' | '\\')
            || (at == 0 && matches!(c, ' ' | '#'))
            || (at == last && c == ' ');
        if is_special {
            escaped.push('\\');
        }
        if c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(escaped, "\\{byte:02X}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        for (value, escaped) in [
            ("alice", "alice"),
            ("", ""),
            (" a ", "\\ a\\ "),
            (" ", "\\ "),
            ("#1,2+3", "\\#1\\,2\\+3"),
            ("a#b", "a#b"),
            ("x\r\nSet-Cookie: y\0", "x\\0D\\0ASet-Cookie: y\\00"),
            ("J\u{f6}rg\u{85}", "J\u{f6}rg\\C2\\85"),
        ] {
            assert_eq!(escape(value), escaped);
        }
    }

    #[test]
    fn attributes_with_and_without_short_names() {
        let value = Element { tag: tag::UTF8_STRING, content: b"x", whole: b"\x0c\x01x" };
        assert_eq!(format_attribute(&[0x55, 4, 10], value), "O=x");
        assert_eq!(format_attribute(&[0x2a, 3, 4], value), "1.2.3.4=x");
        let other = Element { tag: tag::OCTET_STRING, content: b"x", whole: b"\x04\x01x" };
        assert_eq!(format_attribute(&[0x55, 4, 10], other), "O=#040178");
    }
}
