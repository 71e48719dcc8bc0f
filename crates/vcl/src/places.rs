//! Finds the statement of a VCL that decided something, by the trace point that ran last before it.

use crate::program::Source;

/// Number of lines behind a trace point in which its statement is searched.
const BLOCK: usize = 80;

/// A statement of a VCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Counted from 1.
    pub line: usize,
    /// The whole line without blanks and its last semicolon.
    pub text: String,
    /// The subroutine that contains it.
    pub sub: String,
}

/// Finds the first statement that `is_it` accepts behind a trace point on the line `point` (counted from 1), in the same
/// subroutine.
pub fn statement<T: AsRef<str>>(
    lines: &[T],
    point: usize,
    is_it: &dyn Fn(&str) -> bool,
) -> Option<Statement> {
    let first = point.checked_sub(1)?;
    let behind = lines.iter().map(AsRef::as_ref).enumerate().skip(first).take(BLOCK);
    let mut in_sub = behind.take_while(|(at, text)| *at == first || !text.trim_start().starts_with("sub "));
    let (at, text) = in_sub.find(|(_, text)| is_it(text))?;
    Some(Statement {
        line: at + 1,
        text: text.trim().trim_end_matches(';').to_owned(),
        sub: sub_of(lines.get(..=at)?),
    })
}

/// Returns whether a line contains `return (action`.
pub fn returns(line: &str, action: &str) -> bool {
    let packed: String =
        line.split('#').next().unwrap_or_default().chars().filter(|c| !c.is_whitespace()).collect();
    packed.match_indices("return(").any(|(at, found)| {
        let rest = &packed[at + found.len()..];
        rest.strip_prefix(action).is_some_and(|rest| rest.starts_with(['(', ')']))
    })
}

/// Parses a trace point: VCL, number, and source, line and column. Returns source and line.
pub fn trace_point(text: &str) -> Option<(usize, usize)> {
    let place = text.rsplit(' ').next()?;
    let mut numbers = place.split('.').map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Returns whether a source with this name contains the built-in VCL.
pub fn is_builtin(name: &str) -> bool {
    name == "<builtin>" || name == "Builtin"
}

/// Returns the lines of a source. Bytes that are not UTF-8 are replaced.
pub fn lines(source: &Source) -> Vec<String> {
    String::from_utf8_lossy(&source.text.0).lines().map(str::to_owned).collect()
}

fn sub_of<T: AsRef<str>>(lines: &[T]) -> String {
    let name = lines.iter().rev().find_map(|line| {
        let rest = line.as_ref().trim_start().strip_prefix("sub ")?;
        Some(rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>())
    });
    name.unwrap_or_else(|| "the VCL".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_behind_trace_points() {
        for (line, action, is_it) in [
            ("    return (pass);", "pass", true),
            ("if (a) { return(synth(403, \"x\")); }", "synth", true),
            ("return (passive);", "pass", false),
            ("# return (pass);", "pass", false),
        ] {
            assert_eq!(returns(line, action), is_it, "{line}");
        }
        assert_eq!(trace_point("boot 12 1.75.9"), Some((1, 75)));
        assert_eq!(trace_point("boot"), None);
        let text =
            ["sub vcl_recv {", "  if (a) {", "    return (pass);", "  }", "}", "sub b {", "return (hash);"];
        let found = |point, action| statement(&text, point, &|line| returns(line, action));
        let pass = Statement { line: 3, text: "return (pass)".into(), sub: "vcl_recv".into() };
        assert_eq!(found(2, "pass"), Some(pass));
        assert_eq!(found(1, "hash"), None, "it is in another subroutine");
        assert_eq!((found(0, "pass"), found(99, "pass")), (None, None));
    }
}
