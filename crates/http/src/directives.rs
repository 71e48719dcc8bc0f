//! The directives of `Cache-Control` (RFC 9111 section 5.2) and of targeted fields (RFC 9213), read as their grammars
//! define them. Commas and names inside of quoted strings are part of the argument.

use std::borrow::Cow;

use crate::ascii::{is_ows, is_tchar, trim_ows};

/// The greatest number of seconds. Greater numbers count as this one (RFC 9111 section 1.2.2).
pub const FOREVER: u32 = i32::MAX as u32;

/// One directive of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive<'a> {
    /// The name, as the sender wrote it.
    pub name: &'a [u8],
    /// The argument, without the quotes.
    pub argument: Option<Cow<'a, [u8]>>,
    /// The argument was a quoted string.
    pub is_quoted: bool,
}

impl Directive<'_> {
    /// Returns whether the directive has this name. Names are compared without case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Returns the argument as a number of seconds; `None` if it is not a number.
    pub fn seconds(&self) -> Option<u32> {
        self.argument.as_deref().and_then(delta_seconds)
    }
}

/// Parses delta-seconds: digits and nothing else. A number that is too large becomes [`FOREVER`].
pub fn delta_seconds(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = text.iter().fold(0u32, |n, b| n.saturating_mul(10).saturating_add(u32::from(b - b'0')));
    Some(value.min(FOREVER))
}

/// Returns the age that an `Age` field states: its first member, or `None` if that is not a number (RFC 9111 section
/// 5.1).
pub fn age(value: &[u8]) -> Option<u32> {
    delta_seconds(trim_ows(value.split(|&b| b == b',').next()?))
}

/// The directives of a list.
#[derive(Clone, Debug)]
pub struct Directives<'a>(&'a [u8]);

/// Returns the directives of a `Cache-Control` value. Elements without a name are skipped. Text after a directive is
/// ignored, so that a malformed element still restricts the use of the message.
pub fn directives(list: &[u8]) -> Directives<'_> {
    Directives(list)
}

impl<'a> Iterator for Directives<'a> {
    type Item = Directive<'a>;

    fn next(&mut self) -> Option<Directive<'a>> {
        while !self.0.is_empty() {
            let (element, rest) = split_element(self.0);
            self.0 = rest;
            let element = trim_ows(element);
            let length = element.iter().take_while(|&&b| is_tchar(b)).count();
            if length > 0 {
                let (name, after) = element.split_at(length);
                let (argument, is_quoted) = argument(trim_ows(after));
                return Some(Directive { name, argument, is_quoted });
            }
        }
        None
    }
}

/// Splits a list at its first comma outside of quoted strings. A string that is not closed extends to the end.
pub fn split_element(list: &[u8]) -> (&[u8], &[u8]) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, &byte) in list.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return (&list[..at], &list[at + 1..]),
            _ => {}
        }
    }
    (list, &[])
}

/// Parses "=argument". Also returns whether the argument is a quoted string.
fn argument(text: &[u8]) -> (Option<Cow<'_, [u8]>>, bool) {
    let Some(text) = text.strip_prefix(b"=").map(trim_ows) else { return (None, false) };
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let length = text.iter().take_while(|&&b| !is_ows(b)).count();
        return (Some(Cow::Borrowed(&text[..length])), false);
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => value.extend(bytes.next()),
            _ => value.push(byte),
        }
    }
    (Some(Cow::Owned(value)), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Vec<(String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        directives(list.as_bytes()).map(|d| (text(d.name), d.argument.map(|a| text(&a)))).collect()
    }

    #[test]
    fn lists_are_split_outside_of_quoted_strings() {
        let table: &[(&str, &[(&str, Option<&str>)])] = &[
            ("", &[]),
            (" , ,, ", &[]),
            ("no-store", &[("no-store", None)]),
            ("No-Store,max-age=5", &[("No-Store", None), ("max-age", Some("5"))]),
            ("max-age = 5", &[("max-age", Some("5"))]),
            ("max-age=\"5\"", &[("max-age", Some("5"))]),
            ("max-age='5'", &[("max-age", Some("'5'"))]),
            ("max-age=", &[("max-age", Some(""))]),
            ("a=\"max-age=9, no-store\", b", &[("a", Some("max-age=9, no-store")), ("b", None)]),
            (r#"a="x\"y,\\", b"#, &[("a", Some("x\"y,\\")), ("b", None)]),
            // A string without an end contains the rest.
            ("a=\"b, no-store", &[("a", Some("b, no-store"))]),
            (r#"a="b\"#, &[("a", Some("b"))]),
            // The text after a directive is ignored.
            ("no-store; x, no-cache y", &[("no-store", None), ("no-cache", None)]),
            ("=5, \"x\", (, b", &[("b", None)]),
            ("a=1=2", &[("a", Some("1=2"))]),
        ];
        for (list, expected) in table {
            let found = parsed(list);
            let found: Vec<_> = found.iter().map(|(n, a)| (n.as_str(), a.as_deref())).collect();
            assert_eq!(found, *expected, "{list:?}");
        }
    }

    #[test]
    fn bytes_outside_of_ascii_do_not_stop_the_parser() {
        let list = b"\xff\xfe, a=\"\xc3\xa9\", no-store\xe9, max-age=\xb2";
        let found: Vec<_> = directives(list).collect();
        assert_eq!(found.len(), 3);
        assert!(found[1].is("no-store"), "a prohibition with bytes behind it still holds");
        assert_eq!(found[2].seconds(), None);
    }

    #[test]
    fn long_lists_are_read_in_linear_time() {
        let times = if cfg!(miri) { 100 } else { 100_000 };
        let list = "a=\"".repeat(times) + &"x,".repeat(5 * times);
        assert!(directives(list.as_bytes()).count() <= 6 * times);
    }

    #[test]
    fn numbers_consist_of_digits() {
        let table: &[(&str, Option<u32>)] = &[
            ("0", Some(0)),
            ("003600", Some(3600)),
            ("2147483647", Some(FOREVER)),
            ("2147483648", Some(FOREVER)),
            ("99999999999999999999999999", Some(FOREVER)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1 2", None),
            ("a1", None),
            ("1a", None),
        ];
        for (text, expected) in table {
            assert_eq!(delta_seconds(text.as_bytes()), *expected, "{text:?}");
        }
        // RFC 9111 section 5.1: the first member counts, and an invalid one is ignored.
        for (text, expected) in [
            ("7", Some(7)),
            ("7200, 0", Some(7200)),
            (" 0 ,9", Some(0)),
            ("-1", None),
            ("7.0", None),
            ("x", None),
        ] {
            assert_eq!(age(text.as_bytes()), expected, "{text:?}");
        }
    }
}
