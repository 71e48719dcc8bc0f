//! Tables for any width: columns with numbers, and one column that gets the rest. Narrow tables lose their less important
//! columns.

use lacquer_live::width::char_width;

/// The least width of the column that gets the rest, unless its texts are shorter.
const MIN_FLEXIBLE: usize = 12;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    pub kind: ColumnKind,
    /// Columns with the greatest number are dropped first; those with 0 remain.
    pub rank: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Texts, as wide as the widest one.
    Label,
    /// Numbers, at the right side of the column.
    Number,
    /// Texts or bars that get the rest of the width.
    Flexible,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    /// A part of the width of its column, from 0 to 1.
    Bar(f64),
}

#[derive(Clone, Debug)]
pub struct Row {
    pub cells: Vec<Cell>,
    pub look: Look,
}

/// How a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Title,
    Normal,
    /// It reports something bad.
    Bad,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

impl Column {
    pub const fn new(title: &'static str, kind: ColumnKind, rank: u8) -> Column {
        Column { title, kind, rank }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl Cell {
    fn width(&self) -> usize {
        match self {
            Cell::Text(text) => width(text),
            Cell::Bar(_) => 0,
        }
    }

    fn text(&self, room: usize) -> String {
        match self {
            Cell::Text(text) => clip(text, room),
            Cell::Bar(part) if *part > 0.0 => {
                let length = (part.min(1.0) * room as f64).ceil() as usize;
                "#".repeat(length.min(room))
            }
            Cell::Bar(_) => String::new(),
        }
    }
}

impl Row {
    pub fn new(cells: Vec<Cell>) -> Row {
        Row { cells, look: Look::Normal }
    }
}

impl Table {
    /// Returns the lines, none of them wider than `room`: the titles, if there are any, then the rows.
    pub fn lines(&self, room: usize) -> Vec<(Look, String)> {
        let (columns, widths) = self.layout(room);
        let mut lines = Vec::new();
        if columns.iter().any(|&at| !self.columns[at].title.is_empty()) {
            let title = |at: usize| Cell::from(self.columns[at].title);
            lines.push((Look::Title, self.line(&columns, &widths, title, room)));
        }
        for row in &self.rows {
            let cell = |at: usize| row.cells.get(at).cloned().unwrap_or(Cell::Bar(0.0));
            lines.push((row.look, self.line(&columns, &widths, cell, room)));
        }
        lines
    }

    fn line(&self, columns: &[usize], widths: &[usize], cell: impl Fn(usize) -> Cell, room: usize) -> String {
        let mut line = String::new();
        for (&at, &wide) in columns.iter().zip(widths) {
            if !line.is_empty() {
                line.push(' ');
            }
            let text = cell(at).text(wide);
            let blanks = " ".repeat(wide.saturating_sub(width(&text)));
            let (before, after) =
                if self.columns[at].kind == ColumnKind::Number { (&*blanks, "") } else { ("", &*blanks) };
            line.push_str(before);
            line.push_str(&text);
            line.push_str(after);
        }
        clip(line.trim_end(), room)
    }

    /// Returns the columns that are shown, and their widths.
    fn layout(&self, room: usize) -> (Vec<usize>, Vec<usize>) {
        let natural = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(at)).map(Cell::width);
            cells.chain([width(self.columns[at].title)]).max().unwrap_or(0)
        };
        let naturals: Vec<usize> = (0..self.columns.len()).map(natural).collect();
        let least = |at: usize| match self.columns[at].kind {
            ColumnKind::Flexible => naturals[at].min(MIN_FLEXIBLE),
            _ => naturals[at],
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        while shown.iter().map(|&at| least(at) + 1).sum::<usize>() > room + 1 {
            let worst = (0..shown.len()).max_by_key(|&place| self.columns[shown[place]].rank);
            match worst.filter(|&place| self.columns[shown[place]].rank > 0) {
                Some(place) => shown.remove(place),
                None => break,
            };
        }
        let is_flexible = |at: usize| self.columns[at].kind == ColumnKind::Flexible;
        let fixed: usize = shown.iter().filter(|&&at| !is_flexible(at)).map(|&at| naturals[at] + 1).sum();
        let rest = room.saturating_sub(fixed);
        let widths = shown.iter().map(|&at| if is_flexible(at) { rest } else { naturals[at] }).collect();
        (shown, widths)
    }
}

/// Returns the number of columns of a terminal that a text needs.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(char_width).sum() }
}

/// Shortens a text to a width.
pub fn clip(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let next = char_width(c);
        if used + next + 1 > room {
            break;
        }
        used += next;
        out.push(c);
    }
    if room > 0 {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = vec![
            Column::new("count", ColumnKind::Number, 0),
            Column::new("hits", ColumnKind::Number, 1),
            Column::new("time", ColumnKind::Number, 2),
            Column::new("url", ColumnKind::Flexible, 0),
        ];
        let row = |url: &str| Row::new(vec!["12".into(), "99.9 %".into(), "12.0 ms".into(), url.into()]);
        Table {
            columns,
            rows: vec![row("/a"), row("/日本語/日本語/日本語"), row(&"x".repeat(200)), Row::new(vec![])],
        }
    }

    #[test]
    fn no_line_is_wider_than_its_room() {
        for room in 0..120 {
            for (_, line) in table().lines(room) {
                assert!(width(&line) <= room, "{room}: {line:?}");
            }
        }
    }

    #[test]
    fn narrow_tables_lose_columns() {
        let title = |room: usize| table().lines(room)[0].1.clone();
        assert_eq!(title(80), "count   hits    time url");
        assert_eq!(title(28), "count   hits url");
        assert_eq!(title(20), "count url");
        assert_eq!(table().lines(80)[1].1, "   12 99.9 % 12.0 ms /a");
        assert_eq!(table().lines(18)[2].1, "   12 /日本語/日…");
    }

    #[test]
    fn bars_fill_their_column() {
        let columns = vec![Column::new("", ColumnKind::Label, 0), Column::new("", ColumnKind::Flexible, 1)];
        let row = |part| Row::new(vec!["a".into(), Cell::Bar(part)]);
        let all = Table { columns, rows: [1.0, 0.5, 0.001, 0.0, f64::NAN, 9.0].map(row).into() };
        let lines: Vec<String> = all.lines(12).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["a ##########", "a #####", "a #", "a", "a", "a ##########"]);
        assert_eq!(clip("abc", 0), "");
        assert_eq!(clip("日本", 3), "日…");
    }
}
