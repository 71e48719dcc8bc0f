//! Arguments of the form `[name=]first[,more...]`, which `-a` and `-s` share, and the syntax of names.

use lacquer_cli::tokenize::{Rules, split};

use crate::fault::{Fault, Outcome};

/// A parsed argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedArgument {
    /// The name, if there is one.
    pub name: Option<String>,
    /// The text after the name, split at commas; at least one element.
    pub fields: Vec<String>,
}

/// Returns the first character that is not allowed in a name, or NUL for an empty name.
pub fn invalid_in_name(name: &str) -> Option<char> {
    if name.is_empty() {
        return Some('\0');
    }
    let fits = |at: usize, c: char| {
        c.is_ascii_alphabetic() || (at > 0 && (c.is_ascii_digit() || c == '_' || c == '-'))
    };
    name.char_indices().find(|(at, c)| !fits(*at, *c)).map(|(_, c)| c)
}

/// Parses an argument of `option`.
pub fn parse(argument: &str, option: &str) -> Outcome<NamedArgument> {
    let first = argument.split(',').next().unwrap_or_default();
    let (name, rest) = match first.split_once('=') {
        None => (None, argument),
        Some((name, _)) => {
            if invalid_in_name(name).is_some() {
                return Err(Fault::usage(format!("invalid {option} name \"{name}\"=[...]")));
            }
            let rest = &argument[name.len() + 1..];
            if rest.is_empty() {
                return Err(Fault::usage(format!("Empty named {option} argument \"{argument}\"")));
            }
            (Some(name.to_owned()), rest)
        }
    };
    let mut fields = split(rest, Rules::LIST).map_err(Fault::usage)?;
    if fields.is_empty() {
        fields.push(String::new());
    }
    Ok(NamedArgument { name, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_name() {
        let parsed = parse("main=malloc,1G", "-s").unwrap();
        assert_eq!(
            (parsed.name.as_deref(), parsed.fields),
            (Some("main"), vec!["malloc".into(), "1G".into()])
        );
        let parsed = parse("/x.sock,mode=666", "-a").unwrap();
        assert_eq!((parsed.name, parsed.fields), (None, vec!["/x.sock".into(), "mode=666".into()]));
        let text = |argument| parse(argument, "-s").unwrap_err().to_string();
        assert!(text("///=default").starts_with("Error: invalid -s name \"///\"=[...]\n"));
        assert!(text("foo=").starts_with("Error: Empty named -s argument \"foo=\"\n"));
    }

    #[test]
    fn names() {
        assert_eq!(invalid_in_name("a-b_1"), None);
        assert_eq!(invalid_in_name("0000"), Some('0'));
        assert_eq!(invalid_in_name("a00/"), Some('/'));
        assert_eq!(invalid_in_name(""), Some('\0'));
    }
}
