//! Whether a pattern is one: asked of the library that will run it.

/// Compiles a pattern and forgets it. The error is the library's own text.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    let built = pcre2::bytes::RegexBuilder::new().build(pattern);
    built.map(|_| ()).map_err(|error| {
        let text = error.to_string();
        // The crate puts its own words and the offset before the library's text.
        let text = text.split_once("at offset ").map_or(text.as_str(), |(_, rest)| rest);
        text.split_once(": ").map_or(text, |(_, message)| message).to_owned()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_are_the_librarys_own() {
        assert_eq!(super::check("^/a(b|c)"), Ok(()));
        assert_eq!(super::check("(a").unwrap_err(), "missing closing parenthesis");
    }
}
