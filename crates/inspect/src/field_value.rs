//! The values of an access log's fields, and their escapes.

use std::fmt::Write as _;

use crate::page::{add_plain_char, plain};

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// The request has none.
    None,
    /// Bytes that others may have sent.
    Bytes(&'a [u8]),
    /// A text that needs no escapes.
    Own(String),
    Number(u64),
    Float(f64),
    /// A duration, which texts show with six decimals.
    Seconds(f64),
}

impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(bytes: Option<&'a [u8]>) -> Value<'a> {
        bytes.map_or(Value::None, Value::Bytes)
    }
}

impl From<Option<u64>> for Value<'_> {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Value::None, Value::Number)
    }
}

impl Value<'_> {
    /// Appends the value as JSON.
    pub fn add_json(&self, line: &mut String) {
        let _ = match self {
            Value::Bytes(bytes) => match printable(bytes).filter(|text| !text.contains(['"', '\\'])) {
                Some(text) => write!(line, "\"{text}\""),
                None => write!(line, "{}", serde_json::Value::from(plain(bytes))),
            },
            Value::Own(text) => write!(line, "\"{text}\""),
            Value::Number(number) => write!(line, "{number}"),
            Value::Float(number) | Value::Seconds(number) if number.is_finite() => write!(line, "{number:?}"),
            Value::None | Value::Float(_) | Value::Seconds(_) => write!(line, "null"),
        };
    }

    /// Appends the value for a text, in which it may be in quotes. An absent or empty one is `-`.
    pub fn add_text(&self, line: &mut String) {
        let _ = match self {
            Value::None | Value::Bytes([]) => write!(line, "-"),
            Value::Bytes(bytes) => return add_escaped(line, bytes),
            Value::Own(text) => write!(line, "{text}"),
            Value::Number(number) => write!(line, "{number}"),
            Value::Float(number) => write!(line, "{number}"),
            Value::Seconds(number) => write!(line, "{number:.6}"),
        };
    }
}

/// Appends bytes so that they end no quoted text, and so that different bytes remain different: a quote and a backslash get a
/// backslash, and other bytes are escaped as by [`plain`].
pub fn add_escaped(text: &mut String, bytes: &[u8]) {
    if let Some(printable) = printable(bytes).filter(|text| !text.contains(['"', '\\'])) {
        return text.push_str(printable);
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if matches!(c, '"' | '\\') {
                text.push('\\');
            }
            add_plain_char(text, c);
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// Returns bytes as text if all of them are printable ASCII.
fn printable(bytes: &[u8]) -> Option<&str> {
    let is_printable = bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    std::str::from_utf8(bytes).ok().filter(|_| is_printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_form_for_json_and_one_for_text() {
        for (value, json, text) in [
            (Value::None, "null", "-"),
            (Value::Bytes(b""), "\"\"", "-"),
            (Value::Bytes(b"a b"), "\"a b\"", "a b"),
            (Value::Bytes(b"a\"b"), r#""a\"b""#, r#"a\"b"#),
            (Value::Bytes(b"ends\\"), r#""ends\\""#, r"ends\\"),
            (
                Value::Bytes(b"\\x41\x01\n\xff\xc3\xa9"),
                r#""\\x41\\x01\\x0a\\xffé""#,
                "\\\\x41\\x01\\x0a\\xff\u{e9}",
            ),
            (Value::Bytes("\u{202e}".as_bytes()), r#""\\u{202e}""#, "\\u{202e}"),
            (Value::Own("a".to_owned()), "\"a\"", "a"),
            (Value::Number(7), "7", "7"),
            (Value::Seconds(0.5), "0.5", "0.500000"),
            (Value::Float(f64::NAN), "null", "NaN"),
        ] {
            let (mut as_json, mut as_text) = (String::new(), String::new());
            value.add_json(&mut as_json);
            value.add_text(&mut as_text);
            assert_eq!((as_json.as_str(), as_text.as_str()), (json, text), "{value:?}");
        }
    }
}
