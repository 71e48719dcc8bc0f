//! Builds a ban from words. The error texts are Varnish's.

use std::borrow::Cow;
use std::fmt::Write as _;

use lacquer_params::number::parse_duration_with_unit;
use pcre2::bytes::Regex;

use crate::bans::test::{Field, Oper, Operand, Test};

/// Limits the steps of one match to about a millisecond, so that no expression blocks a reactor. PCRE2 reads this
/// prefix of a pattern.
const LIMIT: &str = "(*LIMIT_MATCH=20000)";

/// The conditions of a new ban. The ban hits an object for which all of them hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BanSpec {
    pub(crate) tests: Vec<Test>,
    /// The words of the conditions, with `&&` between conditions.
    words: Vec<Vec<u8>>,
}

impl BanSpec {
    /// Parses the arguments of the CLI command `ban`, which need not be UTF-8.
    pub fn from_cli(args: &[impl AsRef<[u8]>]) -> Result<Self, String> {
        if args.len() % 4 != 3 {
            return Err("Wrong number of arguments".into());
        }
        if let Some(word) = args.iter().map(AsRef::as_ref).skip(3).step_by(4).find(|w| *w != b"&&") {
            return Err(format!("Found \"{}\" expected &&", shown(word)));
        }
        let mut spec = Self::default();
        for test in args.chunks(4) {
            spec.add(test[0].as_ref(), test[1].as_ref(), test[2].as_ref())?;
        }
        Ok(spec)
    }

    /// Parses the words of the argument of `std.ban()`, which need not be UTF-8.
    pub fn from_words(words: &[impl AsRef<[u8]>]) -> Result<Self, String> {
        let mut spec = Self::default();
        let mut words = words.iter().map(AsRef::as_ref);
        loop {
            let field = words.next().ok_or("No ban conditions found.")?;
            let oper = words.next().ok_or("Expected comparison operator.")?;
            let operand = words.next().ok_or("Expected second operand.")?;
            spec.add(field, oper, operand)?;
            match words.next() {
                None => return Ok(spec),
                Some(b"&&") => {}
                Some(word) => {
                    return Err(format!("Expected && between conditions, found \"{}\"", shown(word)));
                }
            }
        }
    }

    /// Returns the words from which [`Self::from_words`] builds equal conditions.
    pub fn words(&self) -> &[Vec<u8>] {
        &self.words
    }

    /// Adds a condition.
    fn add(&mut self, field: &[u8], oper: &[u8], operand: &[u8]) -> Result<(), String> {
        let words = [field, oper, operand];
        let what = std::str::from_utf8(field).ok().and_then(Field::parse);
        let what = what.ok_or_else(|| format!("Unknown or unsupported field \"{}\"", shown(field)))?;
        if what.header() == Some("") {
            return Err(format!("Missing header name: \"{}\"", what.name()));
        }
        let allowed = what.operators();
        let oper = *allowed
            .iter()
            .find(|o| o.name().as_bytes() == oper)
            .ok_or_else(|| format!("expected conditional ({}) got \"{}\"", either(allowed), shown(oper)))?;
        let operand = if what.is_duration() {
            Operand::Seconds(parse_duration_with_unit(&shown(operand)).ok_or_else(|| {
                format!("expected duration <n.nn>[ms|s|m|h|d|w|y] got \"{}\"", shown(operand))
            })?)
        } else if matches!(oper, Oper::Match | Oper::NoMatch) {
            let regex = Regex::new(&format!("{LIMIT}{}", pattern(operand)))
                .map_err(|e| format!("Regex compile error: {}", regex_reason(&e.to_string())))?;
            Operand::Regex(operand.to_owned(), regex)
        } else {
            Operand::Text(operand.to_owned())
        };
        self.tests.push(Test { field: what, oper, operand });
        let and = (!self.words.is_empty()).then_some("&&");
        self.words.extend(and.into_iter().map(str::as_bytes).chain(words).map(<[u8]>::to_vec));
        Ok(())
    }
}

/// Returns a word for a message.
fn shown(word: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(word)
}

/// Returns a pattern as text, which the library requires: if it is not UTF-8, with an escape for each byte that is not
/// ASCII. The escape matches the same byte.
fn pattern(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::new();
    let (mut is_quoted, mut follows_backslash) = (false, false);
    for &byte in bytes {
        if byte.is_ascii() {
            text.push(char::from(byte));
        } else {
            if follows_backslash && !is_quoted {
                // The backslash stands for nothing: the byte is an ordinary character.
                text.pop();
            }
            let (end, begin) = if is_quoted { ("\\E", "\\Q") } else { ("", "") };
            let _ = write!(text, "{end}\\x{byte:02x}{begin}");
        }
        if is_quoted {
            is_quoted = !(follows_backslash && byte == b'E');
        } else if follows_backslash && byte == b'Q' {
            is_quoted = true;
        }
        follows_backslash = byte == b'\\' && (is_quoted || !follows_backslash);
    }
    Cow::Owned(text)
}

/// Lists operators in the form "==, !=, ~ or !~".
fn either(operators: &[Oper]) -> String {
    let names: Vec<_> = operators.iter().map(|o| o.name()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Extracts PCRE2's own message from the error text of the crate.
fn regex_reason(text: &str) -> &str {
    let rest = text.strip_prefix("PCRE2: error compiling pattern").unwrap_or(text);
    rest.split_once(": ").map_or(rest, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(words: &[&str]) -> String {
        BanSpec::from_cli(words).expect_err("the ban is invalid")
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn errors_are_those_of_varnish() {
        assert_eq!(error(&[]), "Wrong number of arguments");
        assert_eq!(error(&["a", "b"]), "Wrong number of arguments");
        assert_eq!(error(&["req.url", "~", "a", "or", "req.url", "~", "b"]), "Found \"or\" expected &&");
        assert_eq!(error(&["req.foo", "~", "a"]), "Unknown or unsupported field \"req.foo\"");
        assert_eq!(error(&["req.http.", "~", "a"]), "Missing header name: \"req.http.\"");
        assert_eq!(error(&["req.url", "<", "a"]), "expected conditional (==, !=, ~ or !~) got \"<\"");
        assert_eq!(error(&["obj.ttl", "~", "1s"]), "expected conditional (==, !=, >, >=, < or <=) got \"~\"");
        assert_eq!(error(&["obj.age", ">", "1x"]), "expected duration <n.nn>[ms|s|m|h|d|w|y] got \"1x\"");
        assert_eq!(error(&["req.url", "~", "(a"]), "Regex compile error: missing closing parenthesis");
        assert_eq!(
            BanSpec::from_words(&["req.url", "~", "a", "&&"]).expect_err("the ban is invalid"),
            "No ban conditions found."
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn words_can_be_parsed_into_equal_conditions() {
        let cases: [&[&str]; 3] = [
            &["req.url", "~", "^/a b\"$"],
            &["obj.ttl", ">=", "0.5 ms", "&&", "obj.http.X", "==", ""],
            &["obj.status", "!=", "&&", "&&", "obj.keep", "<", "1.5d", "&&", "req.http.a", "!~", "(?i)\\n"],
        ];
        for words in cases {
            let spec = BanSpec::from_cli(words).expect("the ban is valid");
            assert_eq!(spec.words(), words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
            assert_eq!(BanSpec::from_words(spec.words()), Ok(spec));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn bytes_that_are_not_utf8_are_conditions() {
        let words = [&b"obj.http.X"[..], b"==", b"\xe9", b"&&", b"req.url", b"~", b"\xff$"];
        let spec = BanSpec::from_cli(&words).expect("the ban is valid");
        assert_eq!(spec.words(), words);
        assert_eq!(BanSpec::from_words(spec.words()), Ok(spec));
        let fault =
            BanSpec::from_cli(&[&b"obj.http.\xe9"[..], b"==", b"x"]).expect_err("no header has this name");
        assert_eq!(fault, "Unknown or unsupported field \"obj.http.\u{fffd}\"");
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn patterns_that_are_not_utf8_match_their_bytes() {
        for (bytes, text, subject) in [
            (&b"^\xe9+$"[..], "^\\xe9+$", &b"\xe9\xe9"[..]),
            (b"^[\xe0-\xef]$", "^[\\xe0-\\xef]$", b"\xe9"),
            (b"^\\\xe9$", "^\\xe9$", b"\xe9"),
            (b"^\\\\\xe9$", "^\\\\\\xe9$", b"\\\xe9"),
            (b"^\\Q.\xe9.\\E.$", "^\\Q.\\E\\xe9\\Q.\\E.$", b".\xe9.x"),
            (b"^\\Qa\\\xe9\\E$", "^\\Qa\\\\E\\xe9\\Q\\E$", b"a\\\xe9"),
            ("^é$".as_bytes(), "^é$", "é".as_bytes()),
        ] {
            assert_eq!(pattern(bytes), text);
            let regex = Regex::new(&pattern(bytes)).expect("the pattern is valid");
            assert!(regex.is_match(subject).expect("within the limit"), "{text}");
        }
    }
}
