//! Breaks texts into rows.

/// Breaks a text at its blanks into rows of at most `room` characters. A longer word has a row of its own.
pub fn rows(text: &str, room: usize) -> Vec<String> {
    let mut rows = Vec::new();
    let (mut row, mut used) = (String::new(), None);
    for word in text.split(' ') {
        let length = word.chars().count();
        used = match used {
            Some(used) if used + 1 + length <= room => {
                row.push(' ');
                Some(used + 1 + length)
            }
            Some(_) => {
                rows.push(std::mem::take(&mut row));
                Some(length)
            }
            None => Some(length),
        };
        row.push_str(word);
    }
    rows.push(row);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_full_and_long_words_stay_whole() {
        assert_eq!(rows("a bc d éé", 4), ["a bc", "d éé"]);
        assert_eq!(rows("a longer b", 4), ["a", "longer", "b"]);
        assert_eq!(rows("", 4), [""]);
        assert_eq!(rows("a  b", 4), ["a  b"]);
    }
}
