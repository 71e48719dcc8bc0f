//! Shell patterns with the rules of POSIX fnmatch(3).

#[derive(Clone, Copy, Default)]
pub struct Flags {
    /// Slashes match only slashes in the pattern.
    pub pathname: bool,
    /// A backslash is an ordinary character.
    pub noescape: bool,
    /// A period at the start (with `pathname` also after a slash) matches only a period in the pattern.
    pub period: bool,
}

pub fn matches(pattern: &[u8], text: &[u8], flags: Flags) -> bool {
    at(pattern, text, 0, flags)
}

/// Returns whether `text` from `i` on matches.
fn at(mut pattern: &[u8], text: &[u8], mut i: usize, flags: Flags) -> bool {
    loop {
        let Some((&p, rest)) = pattern.split_first() else { return i == text.len() };
        match p {
            b'*' => return star(rest, text, i, flags),
            b'?' => {
                if !is_wild(text, i, flags) {
                    return false;
                }
                pattern = rest;
            }
            b'[' => match bracket(rest, text.get(i).copied(), flags) {
                Some((matched, rest)) => {
                    if !matched || !is_wild(text, i, flags) {
                        return false;
                    }
                    pattern = rest;
                }
                None => {
                    if text.get(i) != Some(&b'[') {
                        return false;
                    }
                    pattern = rest;
                }
            },
            b'\\' if !flags.noescape => {
                let Some((escaped, rest)) = rest.split_first() else { return false };
                if text.get(i) != Some(escaped) {
                    return false;
                }
                pattern = rest;
            }
            literal => {
                if text.get(i) != Some(&literal) {
                    return false;
                }
                pattern = rest;
            }
        }
        i += 1;
    }
}

fn star(rest: &[u8], text: &[u8], from: usize, flags: Flags) -> bool {
    let stars = rest.iter().take_while(|b| **b == b'*').count();
    let rest = &rest[stars..];
    if is_leading_period(text, from, flags) {
        return false;
    }
    for i in from..=text.len() {
        if at(rest, text, i, flags) {
            return true;
        }
        if flags.pathname && text.get(i) == Some(&b'/') {
            return false;
        }
    }
    false
}

fn is_leading_period(text: &[u8], i: usize, flags: Flags) -> bool {
    let leads = i == 0 || (flags.pathname && text.get(i - 1) == Some(&b'/'));
    flags.period && leads && text.get(i) == Some(&b'.')
}

/// Returns whether a wildcard may match the character at `i`.
fn is_wild(text: &[u8], i: usize, flags: Flags) -> bool {
    let Some(&c) = text.get(i) else { return false };
    !(flags.pathname && c == b'/' || is_leading_period(text, i, flags))
}

/// Returns whether the bracket expression after its `[` contains the character, and the pattern after the expression.
/// Returns `None` if it has no end, so that the `[` is literal.
fn bracket(pattern: &[u8], c: Option<u8>, flags: Flags) -> Option<(bool, &[u8])> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let mut rest = if negated { &pattern[1..] } else { pattern };
    let mut found = false;
    let mut is_first = true;
    loop {
        if rest.first()? == &b']' && !is_first {
            return Some((c.is_some() && found != negated, &rest[1..]));
        }
        is_first = false;
        if let Some(class) = rest.strip_prefix(b"[:") {
            let end = class.windows(2).position(|w| w == b":]")?;
            found |= c.is_some_and(|c| is_in_class(&class[..end], c));
            rest = &class[end + 2..];
            continue;
        }
        let (low, after) = member(rest, flags)?;
        let (high, after) = match after {
            [b'-', end, ..] if *end != b']' => member(&after[1..], flags)?,
            _ => (low, after),
        };
        found |= c.is_some_and(|c| (low..=high).contains(&c));
        rest = after;
    }
}

fn member(pattern: &[u8], flags: Flags) -> Option<(u8, &[u8])> {
    match pattern {
        [b'\\', escaped, rest @ ..] if !flags.noescape => Some((*escaped, rest)),
        [b'/', ..] if flags.pathname => None,
        [plain, rest @ ..] => Some((*plain, rest)),
        [] => None,
    }
}

fn is_in_class(class: &[u8], c: u8) -> bool {
    match class {
        b"alnum" => c.is_ascii_alphanumeric(),
        b"alpha" => c.is_ascii_alphabetic(),
        b"blank" => c == b' ' || c == b'\t',
        b"cntrl" => c.is_ascii_control(),
        b"digit" => c.is_ascii_digit(),
        b"graph" => c.is_ascii_graphic(),
        b"lower" => c.is_ascii_lowercase(),
        b"print" => c.is_ascii_graphic() || c == b' ',
        b"punct" => c.is_ascii_punctuation(),
        b"space" => c.is_ascii_whitespace() || c == 0x0b,
        b"upper" => c.is_ascii_uppercase(),
        b"xdigit" => c.is_ascii_hexdigit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matches with the default flags of std.fnmatch, then without `pathname`, with `noescape`, with `period`.
    fn all(pattern: &str, text: &str) -> [bool; 4] {
        let flags = Flags { pathname: true, ..Flags::default() };
        [
            flags,
            Flags { pathname: false, ..flags },
            Flags { noescape: true, ..flags },
            Flags { period: true, ..flags },
        ]
        .map(|flags| matches(pattern.as_bytes(), text.as_bytes(), flags))
    }

    #[test]
    fn flags_change_the_matches() {
        for (pattern, text, expected) in [
            ("/foo/*", "/foo/bar", [true; 4]),
            ("/foo/*", "/foo/bar/baz", [false, true, false, false]),
            ("/foo/bar/*", "/foo/bar", [false; 4]),
            ("/foo/?", "/foo/b", [true; 4]),
            ("/foo/?", "/foo/bar", [false; 4]),
            ("/foo/[a-z]", "/foo/b", [true; 4]),
            ("/foo/[!a-z]", "/foo/b", [false; 4]),
            ("/foo/[!a-z]", "/foo/B", [true; 4]),
            ("/foo/*/quux", "/foo/bar/baz/quux", [false, true, false, false]),
            ("/foo/?/bar", "/foo///bar", [false, true, false, false]),
            ("/foo/[a/b]/bar", "/foo///bar", [false, true, false, false]),
            ("\\\\foo", "\\foo", [true, true, false, true]),
            ("*foo", ".foo", [true, true, true, false]),
            ("/*foo", "/.foo", [true, true, true, false]),
            ("[[:digit:]x-z]*", "5a", [true; 4]),
            ("[]a]", "]", [true; 4]),
            ("[a", "[a", [true; 4]),
            ("**a*", "bab", [true; 4]),
        ] {
            assert_eq!(all(pattern, text), expected, "{pattern} {text}");
        }
    }
}
