//! The check of patterns, by the library that will run them.

use std::borrow::Cow;

fn escaped(byte: u8) -> String {
    if byte.is_ascii() { char::from(byte).to_string() } else { format!("\\x{byte:02x}") }
}

/// Compiles a pattern and drops it. The error is the library's own text.
///
/// The crate takes a `str`. A byte that is not UTF-8 becomes its escape, which means the same.
pub(crate) fn check(pattern: &[u8]) -> Result<(), String> {
    let pattern = match std::str::from_utf8(pattern) {
        Ok(pattern) => Cow::Borrowed(pattern),
        Err(_) => Cow::Owned(pattern.iter().map(|b| escaped(*b)).collect()),
    };
    let built = pcre2::bytes::RegexBuilder::new().build(&pattern);
    built.map(|_| ()).map_err(|error| {
        let text = error.to_string();
        // The crate writes its own words and the offset before the library's text.
        let text = text.split_once("at offset ").map_or(text.as_str(), |(_, rest)| rest);
        text.split_once(": ").map_or(text, |(_, message)| message).to_owned()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_are_the_librarys_own() {
        assert_eq!(super::check(b"^/a(b|c)"), Ok(()));
        assert_eq!(super::check(b"(a").unwrap_err(), "missing closing parenthesis");
    }
}
