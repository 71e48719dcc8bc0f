//! Shell patterns for the names of backends and VCLs: `*`, `?`, `[a-z]`, `[!a-z]`, and a backslash before a literal
//! character. The time is proportional to the length of the pattern times the length of the text, for any pattern.

/// Returns whether the whole text matches the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to continue when the current attempt fails: after the last star, one character later in the text.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if let Some(length) = one(&pattern[p..], text[t]) {
            p += length;
            t += 1;
        } else if let Some((after_star, from)) = retry {
            p = after_star;
            t = from + 1;
            retry = Some((after_star, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Returns whether a file's name in its folder matches the pattern. A name that begins with a dot matches only a pattern
/// that does.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    (!name.starts_with('.') || pattern.starts_with('.')) && matches(pattern, name)
}

/// Returns whether the path matches the pattern, folder by folder: no element of the pattern matches a slash.
pub fn matches_path(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if matches_name(pattern, name) => {}
            _ => return false,
        }
    }
}

/// Returns the length of the pattern's first element if that matches the character.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', literal, ..] => (*literal == c).then_some(2),
        ['[', inside @ ..] => match set_length(inside) {
            Some(length) => in_brackets(&inside[..length], c).then_some(length + 2),
            None => (c == '[').then_some(1),
        },
        [literal, ..] => (*literal == c).then_some(1),
        [] => None,
    }
}

/// Returns the length of the text between brackets. A `]` as the first character is part of it.
fn set_length(inside: &[char]) -> Option<usize> {
    let first = usize::from(matches!(inside.first(), Some('!' | '^')));
    let end = inside.get(first + 1..)?.iter().position(|c| *c == ']')?;
    Some(first + 1 + end)
}

fn in_brackets(inside: &[char], c: char) -> bool {
    let (negated, mut set) = match inside {
        ['!' | '^', set @ ..] => (true, set),
        set => (false, set),
    };
    let mut found = false;
    loop {
        match set {
            [low, '-', high, rest @ ..] => {
                found |= (*low..=*high).contains(&c);
                set = rest;
            }
            [one, rest @ ..] => {
                found |= *one == c;
                set = rest;
            }
            [] => return found != negated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match() {
        for (pattern, text, expected) in [
            ("vcl1.*", "vcl1.s1", true),
            ("*.foo", "vcl1.s1", false),
            ("a*c*e", "abcde", true),
            ("a*c", "abcb", false),
            ("s?", "s1", true),
            ("s?", "s", false),
            ("s[1-3]", "s2", true),
            ("s[!1-3]", "s2", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_little_time() {
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
        assert!(!matches(&format!("{}b", "a*".repeat(50)), &"a".repeat(10_000)));
    }
}
