//! The values of an access log's fields, and their escapes.

use std::fmt::Write as _;

use lacquer_shm::vsl::text;

use crate::dates::Moment;
use crate::decimal::Decimal;
use crate::page::{add_plain_char, plain};

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// The request has none.
    None,
    /// Bytes that others may have sent.
    Bytes(&'a [u8]),
    /// A word that needs no escapes.
    Word(&'static str),
    /// A number in base 16, with this number of digits.
    Hex(u128, usize),
    Number(u64),
    Time(Moment),
    Decimal(Decimal<'a>),
    /// A duration, which texts show with six decimals.
    Seconds(Decimal<'a>),
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
        match self {
            Value::None => line.push_str("null"),
            Value::Bytes(bytes) => match unescaped(bytes) {
                Some(text) => add_quoted(line, |line| line.push_str(text)),
                None => {
                    let _ = write!(line, "{}", serde_json::Value::from(plain(bytes)));
                }
            },
            Value::Word(word) => add_quoted(line, |line| line.push_str(word)),
            Value::Hex(..) | Value::Time(_) => add_quoted(line, |line| self.add_text(line)),
            Value::Number(number) => add_number(line, *number),
            Value::Decimal(number) | Value::Seconds(number) => number.add_json(line),
        }
    }

    /// Appends the value for a text, in which it may be in quotes. An absent or empty one is `-`.
    pub fn add_text(&self, line: &mut String) {
        match self {
            Value::None | Value::Bytes([]) => line.push('-'),
            Value::Bytes(bytes) => add_escaped(line, bytes),
            Value::Word(word) => line.push_str(word),
            Value::Hex(number, digits) => {
                let _ = write!(line, "{number:0digits$x}");
            }
            Value::Number(number) => add_number(line, *number),
            Value::Time(moment) => moment.add_utc(line),
            Value::Decimal(number) => number.add_text(line),
            Value::Seconds(number) => number.add_six(line),
        }
    }
}

fn add_quoted(line: &mut String, add: impl FnOnce(&mut String)) {
    line.push('"');
    add(line);
    line.push('"');
}

/// Appends a number in base 10.
pub fn add_number(line: &mut String, number: u64) {
    let mut buffer = [0; text::MAX];
    line.push_str(std::str::from_utf8(text::digits(number, &mut buffer)).unwrap_or_default());
}

/// Appends bytes so that they end no quoted text, and so that different bytes remain different: a quote and a backslash get a
/// backslash, and other bytes are escaped as by [`plain`].
pub fn add_escaped(text: &mut String, bytes: &[u8]) {
    if let Some(unescaped) = unescaped(bytes) {
        return text.push_str(unescaped);
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

/// Returns bytes as text if all of them are printable ASCII and none of them is a quote or a backslash.
fn unescaped(bytes: &[u8]) -> Option<&str> {
    let is_unescaped = |byte: &u8| matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~');
    std::str::from_utf8(bytes).ok().filter(|_| bytes.iter().all(is_unescaped))
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
            (Value::Bytes(b"a\x7f"), r#""a\\x7f""#, r"a\x7f"),
            (Value::Word("a"), "\"a\"", "a"),
            (Value::Hex(0xab, 4), "\"00ab\"", "00ab"),
            (Value::Number(7), "7", "7"),
            (Value::Number(u64::MAX), "18446744073709551615", "18446744073709551615"),
            (Value::Time(Moment::new(7, 8)), "\"1970-01-01T00:00:07.008Z\"", "1970-01-01T00:00:07.008Z"),
            (Value::Seconds(Decimal::Other(0.5)), "0.5", "0.500000"),
            (Value::Decimal(Decimal::Other(f64::NAN)), "null", "NaN"),
        ] {
            let (mut as_json, mut as_text) = (String::new(), String::new());
            value.add_json(&mut as_json);
            value.add_text(&mut as_text);
            assert_eq!((as_json.as_str(), as_text.as_str()), (json, text), "{value:?}");
        }
    }
}
