//! The known word that is most similar to a wrong one.

/// Maximum number of letters that may differ.
const MAX_DISTANCE: usize = 2;

/// Returns the most similar known word, or `None` if none is similar.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, nearest) = known.into_iter().map(|known| (distance(word, known), known)).min()?;
    (distance <= MAX_DISTANCE).then_some(nearest)
}

/// Returns the Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_found() {
        assert_eq!(nearest("bakend", ["listen", "backend"]), Some("backend"));
        assert_eq!(nearest("x", ["listen"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
