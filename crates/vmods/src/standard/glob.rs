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

/// The last star that was passed. Its text can grow until the rest of the pattern matches. Only the last one is kept:
/// a longer text for an earlier star gives no match that the last star cannot give too.
struct Star<'p> {
    /// The pattern after the star.
    rest: &'p [u8],
    /// The end of the star's text.
    end: usize,
}

/// Returns whether the pattern matches the whole text. The time grows at most with the product of their lengths.
pub fn matches(mut pattern: &[u8], text: &[u8], flags: Flags) -> bool {
    let mut at = 0;
    let mut star: Option<Star<'_>> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            if !is_leading_period(text, at, flags) {
                star = Some(Star { rest, end: at });
                pattern = rest;
                continue;
            }
        } else if pattern.is_empty() && at == text.len() {
            return true;
        } else if let Some(rest) = one(pattern, text, at, flags) {
            pattern = rest;
            at += 1;
            continue;
        }
        let Some(last) = &mut star else { return false };
        if last.end >= text.len() || flags.pathname && text[last.end] == b'/' {
            return false;
        }
        last.end += 1;
        (pattern, at) = (last.rest, last.end);
    }
}

/// Returns the pattern after its first element if that matches the character at `i`. The element is not a star.
fn one<'p>(pattern: &'p [u8], text: &[u8], i: usize, flags: Flags) -> Option<&'p [u8]> {
    let (&first, rest) = pattern.split_first()?;
    let (literal, rest) = match first {
        b'?' => return is_wild(text, i, flags).then_some(rest),
        b'[' => match bracket(rest, text.get(i).copied(), flags) {
            Some((matched, rest)) => return (matched && is_wild(text, i, flags)).then_some(rest),
            None => (b'[', rest),
        },
        b'\\' if !flags.noescape => {
            let (&escaped, rest) = rest.split_first()?;
            (escaped, rest)
        }
        literal => (literal, rest),
    };
    (text.get(i) == Some(&literal)).then_some(rest)
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

    /// Tries every text for every star.
    fn recursive(pattern: &[u8], text: &[u8], at: usize, flags: Flags) -> bool {
        match pattern {
            [] => at == text.len(),
            [b'*', rest @ ..] => {
                let crosses = |end: usize| flags.pathname && text[at..end].contains(&b'/');
                let mut ends = (at..=text.len()).take_while(|&end| !crosses(end));
                !is_leading_period(text, at, flags) && ends.any(|end| recursive(rest, text, end, flags))
            }
            _ => one(pattern, text, at, flags).is_some_and(|rest| recursive(rest, text, at + 1, flags)),
        }
    }

    #[test]
    fn the_last_star_alone_finds_all_matches() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut below = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
        let mut matched = 0;
        for _ in 0..200_000 {
            let (lengths, bits) = ([below(8), below(10)], below(4));
            let pattern: Vec<u8> = (0..lengths[0]).map(|_| b"a/.*?*"[below(6)]).collect();
            let text: Vec<u8> = (0..lengths[1]).map(|_| b"a/."[below(3)]).collect();
            let flags = Flags { pathname: bits & 1 != 0, period: bits & 2 != 0, noescape: false };
            let expected = recursive(&pattern, &text, 0, flags);
            matched += usize::from(expected);
            let shown = [&pattern, &text].map(|bytes| String::from_utf8_lossy(bytes));
            assert_eq!(matches(&pattern, &text, flags), expected, "{shown:?} {bits}");
        }
        assert!(matched > 1000, "{matched}");
    }

    #[test]
    fn many_stars_take_no_longer_than_one() {
        let text = vec![b'a'; 20_000];
        let measure = || {
            let begun = std::time::Instant::now();
            for pathname in [false, true] {
                assert!(!matches(b"*a*a*a*a*a*b", &text, Flags { pathname, ..Flags::default() }));
            }
            begun.elapsed()
        };
        // A busy machine may stall.
        assert!((0..5).any(|_| measure() < std::time::Duration::from_secs(1)));
    }
}
