//! Formats text in columns for `vcl.list`, `backend.list` and `vcl.deps`. A column is as wide as its widest cell. The
//! gap between columns is one to three spaces, chosen so that a line fits into 80.

const WIDTH: usize = 80;
const MIN_GAP: usize = 1;
const MAX_GAP: usize = 3;

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    right: bool,
}

/// Creates a left-aligned cell.
pub fn left(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), right: false }
}

/// Creates a right-aligned cell.
pub fn right(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), right: true }
}

/// Formats rows as lines. The last cell of a row is not padded.
pub fn layout(rows: &[Vec<Cell>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    if columns == 0 {
        return String::new();
    }
    let mut widths = vec![0; columns];
    let mut longest = 0;
    for row in rows {
        longest = longest.max(row.iter().map(|cell| cell.text.chars().count()).sum());
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    let gap = (WIDTH.saturating_sub(longest) / columns).clamp(MIN_GAP, MAX_GAP);
    let mut out = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let fill = widths[at] - cell.text.chars().count();
            let last = at + 1 == row.len();
            let (before, after) = match (cell.right, last) {
                (true, false) => (fill, gap),
                (true, true) => (fill, 0),
                (false, false) => (0, fill + gap),
                (false, true) => (0, 0),
            };
            out.extend(std::iter::repeat_n(' ', before));
            out.push_str(&cell.text);
            out.extend(std::iter::repeat_n(' ', after));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned() {
        let rows = [
            vec![left("active"), left("auto"), right("10"), left("boot")],
            vec![left("available"), left("cold"), right("2"), left("other")],
        ];
        assert_eq!(layout(&rows), "active      auto   10   boot\navailable   cold    2   other\n");
        assert_eq!(layout(&[]), "");
    }
}
