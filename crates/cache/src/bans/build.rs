//! Builds a ban from words. The error texts are Varnish's.

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
    words: Vec<String>,
}

impl BanSpec {
    /// Parses the arguments of the CLI command `ban`.
    pub fn from_cli(args: &[&str]) -> Result<Self, String> {
        if args.len() % 4 != 3 {
            return Err("Wrong number of arguments".into());
        }
        if let Some(word) = args.iter().skip(3).step_by(4).find(|w| **w != "&&") {
            return Err(format!("Found \"{word}\" expected &&"));
        }
        let mut spec = Self::default();
        for test in args.chunks(4) {
            spec.add(test[0], test[1], test[2])?;
        }
        Ok(spec)
    }

    /// Parses the words of the argument of `std.ban()`.
    pub fn from_words(words: &[&str]) -> Result<Self, String> {
        let mut spec = Self::default();
        let mut words = words.iter();
        loop {
            let field = words.next().ok_or("No ban conditions found.")?;
            let oper = words.next().ok_or("Expected comparison operator.")?;
            let operand = words.next().ok_or("Expected second operand.")?;
            spec.add(field, oper, operand)?;
            match words.next() {
                None => return Ok(spec),
                Some(&"&&") => {}
                Some(word) => {
                    return Err(format!("Expected && between conditions, found \"{word}\""));
                }
            }
        }
    }

    /// Returns the words from which [`Self::from_words`] builds equal conditions.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Adds a condition.
    pub fn add(&mut self, field: &str, oper: &str, operand: &str) -> Result<(), String> {
        let words = [field, oper, operand];
        let what = Field::parse(field).ok_or_else(|| format!("Unknown or unsupported field \"{field}\""))?;
        if what.header() == Some("") {
            return Err(format!("Missing header name: \"{}\"", what.name()));
        }
        let allowed = what.operators();
        let oper = *allowed
            .iter()
            .find(|o| o.name() == oper)
            .ok_or_else(|| format!("expected conditional ({}) got \"{oper}\"", either(allowed)))?;
        let operand = if what.is_duration() {
            Operand::Seconds(
                parse_duration_with_unit(operand)
                    .ok_or_else(|| format!("expected duration <n.nn>[ms|s|m|h|d|w|y] got \"{operand}\""))?,
            )
        } else if matches!(oper, Oper::Match | Oper::NoMatch) {
            let regex = Regex::new(&format!("{LIMIT}{operand}"))
                .map_err(|e| format!("Regex compile error: {}", regex_reason(&e.to_string())))?;
            Operand::Regex(operand.to_owned(), regex)
        } else {
            Operand::Text(operand.to_owned())
        };
        self.tests.push(Test { field: what, oper, operand });
        let and = (!self.words.is_empty()).then_some("&&");
        self.words.extend(and.into_iter().chain(words).map(str::to_owned));
        Ok(())
    }
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
            assert_eq!(spec.words(), words);
            let again: Vec<&str> = spec.words().iter().map(String::as_str).collect();
            assert_eq!(BanSpec::from_words(&again), Ok(spec));
        }
    }
}
