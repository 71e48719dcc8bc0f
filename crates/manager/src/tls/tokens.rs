//! The tokens of the file of `-A`. They are those of Varnish 9: characters without a meaning are ignored.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// `{`, `}` or `=`.
    Sign(u8),
    /// A word, such as a keyword or a value.
    Word(&'a str),
    /// A text in quotes, without them. It ends at the first quote, as in Varnish.
    Text(&'a str),
}

/// A token and the number of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    pub token: Token<'a>,
    pub line: usize,
}

fn is_word(c: char) -> bool {
    // The dot is part of `TLSv1.2` and of names of ciphers and hosts.
    c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_'
}

/// Returns the tokens of a file.
pub fn tokens(text: &str) -> Vec<Located<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '#' => (None, rest.find('\n').unwrap_or(rest.len())),
            '{' | '}' | '=' => (Some(Token::Sign(first as u8)), 1),
            '"' => match rest[1..].find('"') {
                Some(end) => (Some(Token::Text(&rest[1..=end])), end + 2),
                None => (None, 1),
            },
            _ if is_word(first) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (Some(Token::Word(&rest[..end])), end)
            }
            _ => (None, first.len_utf8()),
        };
        found.extend(token.map(|token| Located { token, line }));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::Token::{Sign, Text, Word};
    use super::*;

    #[test]
    fn tokens_and_lines() {
        let text = "a = {\n  tls-protos = TLSv1.2, TLSv1.3 # note = \"x\n} pem-file=\"/a b\" \"\"";
        let found: Vec<(Token<'_>, usize)> = tokens(text).iter().map(|at| (at.token, at.line)).collect();
        let expected = [
            (Word("a"), 1),
            (Sign(b'='), 1),
            (Sign(b'{'), 1),
            (Word("tls-protos"), 2),
            (Sign(b'='), 2),
            (Word("TLSv1.2"), 2),
            (Word("TLSv1.3"), 2),
            (Sign(b'}'), 3),
            (Word("pem-file"), 3),
            (Sign(b'='), 3),
            (Text("/a b"), 3),
            (Text(""), 3),
        ];
        assert_eq!(found, expected);
        assert_eq!(tokens("\"never closed").len(), 2);
    }
}
