//! Checks patterns with the library that will run them.

use std::borrow::Cow;

fn escaped(byte: u8) -> String {
    if byte.is_ascii() { char::from(byte).to_string() } else { format!("\\x{byte:02x}") }
}

/// Compiles a pattern and discards it. The error is the library's text.
///
/// The library requires a `str`, so a byte that is not UTF-8 is replaced by its escape, which is equivalent.
pub(crate) fn check(pattern: &[u8]) -> Result<(), String> {
    let pattern = match std::str::from_utf8(pattern) {
        Ok(pattern) => Cow::Borrowed(pattern),
        Err(_) => Cow::Owned(pattern.iter().map(|b| escaped(*b)).collect()),
    };
    let built = pcre2::bytes::RegexBuilder::new().build(&pattern);
    built.map(|_| ()).map_err(|error| {
        let text = error.to_string();
        // The crate prefixes the library's text with its own words and the offset.
        let text = text.split_once("at offset ").map_or(text.as_str(), |(_, rest)| rest);
        text.split_once(": ").map_or(text, |(_, message)| message).to_owned()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_are_those_of_the_library() {
        assert_eq!(super::check(b"^/a(b|c)"), Ok(()));
        assert_eq!(super::check(b"(a").unwrap_err(), "missing closing parenthesis");
    }
}
