//! The known name that is most similar to a wrong one.

/// Returns the most similar name, if it is similar enough to be the intended one.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = match word.len() {
        0..=2 => return None,
        3..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    let word = word.to_ascii_lowercase();
    let is_near = |n: &&str| n.len().abs_diff(word.len()) <= limit && !n.eq_ignore_ascii_case(&word);
    let near = names.into_iter().filter(is_near);
    let rated = near.map(|n| (distance(word.as_bytes(), n.to_ascii_lowercase().as_bytes()), n));
    rated.filter(|(d, _)| *d <= limit).min_by_key(|(d, n)| (*d, *n)).map(|(_, n)| n)
}

/// Returns the number of edits between two words. A swap of adjacent characters is one edit.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let change = row[j] + usize::from(a[i] != b[j]);
            let mut best = change.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["req.url", "req.method", "resp.reason"];
        assert_eq!(nearest("req.ulr", names), Some("req.url"));
        assert_eq!(nearest("req.metod", names), Some("req.method"));
        assert_eq!(nearest("foo.bar", names), None);
        assert_eq!(nearest("bakend", ["listen", "backend"]), Some("backend"));
        assert_eq!(nearest("x", ["listen"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
