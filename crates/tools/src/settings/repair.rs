//! Finds all statements of a text that are not TOML. A parser alone stops at the first one, or misunderstands what follows.

use toml::de::{DeTable, Error};

/// Maximum number of malformed statements that are looked for.
const MAX_MALFORMED: usize = 20;

/// A text whose malformed statements are replaced by blanks, so that all others keep their places.
pub struct Repaired {
    pub text: String,
    /// The place and the message of the error of each malformed statement.
    pub errors: Vec<((usize, usize), String)>,
}

/// Repairs a text.
pub fn repair(text: &str) -> Repaired {
    let mut repaired = Repaired { text: text.to_owned(), errors: Vec::new() };
    for _ in 0..MAX_MALFORMED {
        let errors = DeTable::parse_recoverable(&repaired.text).1;
        let place = |error: &Error| error.span().map_or((text.len(), text.len()), |at| (at.start, at.end));
        let Some(first) = errors.iter().min_by_key(|error| place(error)) else { return repaired };
        let at = place(first);
        let is_known = repaired.errors.last().is_some_and(|(last, _)| *last == at);
        if !is_known {
            repaired.errors.push((at, first.message().to_owned()));
        }
        if !repaired.blank(at.0, is_known) {
            break;
        }
    }
    // The parser would misread the rest.
    repaired.text.clear();
    repaired
}

impl Repaired {
    /// Replaces the statement with the error at a place by blanks. An error at the beginning of a statement is one of the
    /// statement before it, which has no end, unless that was replaced. Returns whether anything was replaced.
    fn blank(&mut self, at: usize, is_own: bool) -> bool {
        let starts: Vec<usize> = statements(&self.text).collect();
        let next = starts.partition_point(|start| *start <= at);
        let Some(mut index) = next.checked_sub(1) else { return false };
        let begin = |index: usize| {
            let line = &self.text[starts[index]..];
            starts[index] + line.len() - line.trim_start_matches([' ', '\t']).len()
        };
        if !is_own && begin(index) == at && index > 0 {
            index -= 1;
        }
        let end = starts.get(index + 1).copied().unwrap_or(self.text.len());
        let is_blank = self.text[starts[index]..end].trim().is_empty();
        let blank = |c: char| if c == '\n' { "\n".to_owned() } else { " ".repeat(c.len_utf8()) };
        let blanks: String = self.text[starts[index]..end].chars().map(blank).collect();
        self.text.replace_range(starts[index]..end, &blanks);
        !is_blank
    }
}

/// Returns the beginnings of the lines that begin with a key or a table.
fn statements(text: &str) -> impl Iterator<Item = usize> + '_ {
    let mut at = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let start = at;
        at += line.len();
        let word = line.trim_start_matches([' ', '\t']);
        // A number is an element of a list.
        let is_statement =
            word.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '[')) || start == 0;
        is_statement.then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_malformed_statement_is_found() {
        for (text, places, rest) in [
            ("a = 1\n", &[][..], "a = 1\n"),
            ("a true\nb = 1\nc\n[d]\ne = 2\n", &[2, 14], "b = 1\n[d]\ne = 2\n"),
            ("a = [ 1\nb = 2\nc = 3\n", &[8], "b = 2\nc = 3\n"),
            ("a = [\n 1 2,\n 3]\nb = 2\n", &[7], "b = 2\n"),
            ("a = \"x\nb = 2\n", &[6], "b = 2\n"),
            ("a = 1\na = 2\n", &[6], "a = 2\n"),
            ("[a]\nb = 1\n[a]\nc = 2\n", &[11], "[a]\nb = 1\nc = 2\n"),
        ] {
            let Repaired { text: repaired, errors } = repair(text);
            let found: Vec<usize> = errors.iter().map(|(at, _)| at.0).collect();
            assert_eq!(repaired.len(), text.len());
            let lines: String = repaired
                .lines()
                .filter(|line| !line.trim().is_empty())
                .map(|l| l.to_owned() + "\n")
                .collect();
            assert_eq!((found.as_slice(), lines.as_str()), (places, rest), "{text}: {errors:?}");
        }
        assert_eq!(repair(&"a\n".repeat(50)).errors.len(), MAX_MALFORMED);
    }
}
