//! The literals that a text must contain to match an expression. They select the few patterns of a set that are worth
//! a match of their own. Letters are in lower case, because the search for them ignores case.

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

/// Alternatives: a matching text contains at least one of them.
pub(super) type Alternatives = Vec<Vec<u8>>;

/// Limits on the alternatives of an expression, and on the members of a class that count as alternatives.
const MOST_ALTERNATIVES: usize = 64;
const MOST_MEMBERS: u32 = 8;
const LONGEST: usize = 64;

/// The properties of all texts that match an expression.
struct Known {
    /// All texts, if they are few.
    exact: Option<Alternatives>,
    /// Each of these is required.
    required: Vec<Alternatives>,
}

impl Known {
    fn exactly(exact: Alternatives) -> Known {
        Known { exact: Some(exact), required: Vec::new() }
    }

    fn nothing() -> Known {
        Known { exact: None, required: Vec::new() }
    }

    /// Returns all requirements.
    fn requirements(self) -> Vec<Alternatives> {
        let mut all = self.required;
        all.extend(self.exact);
        all.retain(|alternatives| shortest(alternatives) > 0);
        all
    }
}

/// Returns the length of the shortest alternative.
pub(super) fn shortest(alternatives: &Alternatives) -> usize {
    alternatives.iter().map(Vec::len).min().unwrap_or_default()
}

/// Returns sets of alternatives; a matching text contains an alternative of each.
pub(super) fn required(hir: &Hir) -> Vec<Alternatives> {
    let mut all = known(hir).requirements();
    for alternatives in &mut all {
        alternatives.sort_unstable();
        alternatives.dedup();
    }
    all
}

fn known(hir: &Hir) -> Known {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Known::exactly(vec![Vec::new()]),
        HirKind::Literal(literal) => {
            // A part of a long literal is as selective.
            let bytes = &literal.0[..literal.0.len().min(LONGEST)];
            let text = vec![bytes.to_ascii_lowercase()];
            if bytes.len() == literal.0.len() {
                Known::exactly(text)
            } else {
                Known { exact: None, required: vec![text] }
            }
        }
        HirKind::Class(class) => members(class).map_or_else(Known::nothing, Known::exactly),
        HirKind::Capture(capture) => known(&capture.sub),
        HirKind::Repetition(repetition) => repeated(repetition),
        HirKind::Concat(parts) => concatenated(parts),
        HirKind::Alternation(branches) => alternated(branches),
    }
}

/// Returns the members of a small class.
fn members(class: &Class) -> Option<Alternatives> {
    let mut found: Alternatives = match class {
        Class::Bytes(bytes) => {
            let count: u32 = bytes.iter().map(|r| u32::from(r.end()) - u32::from(r.start()) + 1).sum();
            let members = bytes.iter().flat_map(|r| r.start()..=r.end());
            (count <= MOST_MEMBERS).then(|| members.map(|b| vec![b.to_ascii_lowercase()]).collect())?
        }
        Class::Unicode(chars) => {
            let count: u32 = chars.iter().map(|r| u32::from(r.end()) - u32::from(r.start()) + 1).sum();
            let members = chars.iter().flat_map(|r| r.start()..=r.end());
            let encoded = |c: char| c.to_ascii_lowercase().to_string().into_bytes();
            (count <= MOST_MEMBERS).then(|| members.map(encoded).collect())?
        }
    };
    found.sort_unstable();
    found.dedup();
    Some(found)
}

fn repeated(repetition: &Repetition) -> Known {
    let sub = || known(&repetition.sub);
    match (repetition.min, repetition.max) {
        (1, Some(1)) => sub(),
        (0, Some(1)) => match sub().exact {
            Some(mut exact) if exact.len() < MOST_ALTERNATIVES => {
                exact.push(Vec::new());
                Known::exactly(exact)
            }
            _ => Known::nothing(),
        },
        (0, _) => Known::nothing(),
        _ => Known { exact: None, required: sub().requirements() },
    }
}

/// Returns every text of `first` followed by every text of `second`, if they are few and short.
fn product(first: &Alternatives, second: &Alternatives) -> Option<Alternatives> {
    let few = first.len() * second.len() <= MOST_ALTERNATIVES;
    let longest = |all: &Alternatives| all.iter().map(Vec::len).max().unwrap_or_default();
    if !few || longest(first) + longest(second) > LONGEST {
        return None;
    }
    let both = first.iter().flat_map(|a| second.iter().map(move |b| [a.as_slice(), b].concat()));
    Some(both.collect())
}

fn concatenated(parts: &[Hir]) -> Known {
    let mut whole = true;
    let mut required = Vec::new();
    let mut run: Alternatives = vec![Vec::new()];
    for part in parts {
        let part = known(part);
        required.extend(part.required);
        let joined = part.exact.as_ref().and_then(|exact| product(&run, exact));
        if let Some(joined) = joined {
            run = joined;
        } else {
            whole = false;
            required.push(std::mem::replace(&mut run, part.exact.unwrap_or_else(|| vec![Vec::new()])));
        }
    }
    if whole {
        return Known { exact: Some(run), required };
    }
    required.push(run);
    required.retain(|alternatives| shortest(alternatives) > 0);
    Known { exact: None, required }
}

fn alternated(branches: &[Hir]) -> Known {
    let known: Vec<Known> = branches.iter().map(known).collect();
    let few = |all: &Alternatives| all.len() <= MOST_ALTERNATIVES;
    let exact: Option<Vec<&Alternatives>> = known.iter().map(|branch| branch.exact.as_ref()).collect();
    if let Some(exact) = exact.map(|exact| exact.into_iter().flatten().cloned().collect()).filter(few) {
        return Known::exactly(exact);
    }
    let best = |branch: Known| branch.requirements().into_iter().max_by_key(shortest);
    let best: Option<Vec<Alternatives>> = known.into_iter().map(best).collect();
    let all = best.map(|best| best.concat()).filter(few);
    Known { exact: None, required: all.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::super::options::{Flag, Options};
    use super::super::pattern::parse;
    use super::*;

    fn shown(pattern: &str, options: Options) -> Vec<String> {
        let hir = parse(pattern.as_bytes(), options).expect(pattern);
        let text = |all: &Alternatives| {
            all.iter().map(|b| String::from_utf8_lossy(b).into_owned()).collect::<Vec<_>>().join("|")
        };
        required(&hir).iter().map(text).collect()
    }

    #[test]
    fn required_literals_are_found() {
        for (pattern, expected) in [
            ("^/product/12/$", vec!["/product/12/"]),
            ("/a/[0-9]+/Item", vec!["/a/", "/item"]),
            ("(foo|bar)baz", vec!["barbaz|foobaz"]),
            ("x(foo.*|bar)y", vec!["bar|foo", "x", "y"]),
            ("a?b", vec!["ab|b"]),
            ("(ab)+", vec!["ab"]),
            ("(ab)*c*", vec![]),
            (".*", vec![]),
            ("[ab]c", vec!["ac|bc"]),
            ("a|", vec![]),
            ("a.*|.*", vec![]),
        ] {
            let mut found = shown(pattern, Options::default());
            found.retain(|text| !text.is_empty());
            assert_eq!(found, expected, "{pattern}");
        }
        assert_eq!(shown("Foo", Options::default().with(Flag::CaseSensitive, false)), ["foo"]);
    }
}
