//! Splits a test file into statements, each with the lines that are indented below it.

/// Longer files are refused, in bytes.
const MAX_SIZE: usize = 16 << 20;
/// A tab reaches to the next multiple of this column.
const TAB: usize = 8;

/// A mistake in a test file.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: u32,
    pub what: String,
}

impl Fault {
    pub fn new(line: u32, what: impl Into<String>) -> Fault {
        Fault { line, what: what.into() }
    }
}

/// A line without the blanks around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'t> {
    pub number: u32,
    pub text: &'t str,
}

/// A statement and its details.
#[derive(Debug, PartialEq, Eq)]
pub struct Block<'t> {
    pub head: Line<'t>,
    pub details: Vec<Line<'t>>,
}

/// Splits a text. Empty lines and comments are left out. A line that is indented more than the statement before it is one
/// of its details; only the names of tests have none.
pub fn split(text: &[u8]) -> Result<Vec<Block<'_>>, Fault> {
    if text.len() > MAX_SIZE {
        return Err(Fault::new(1, format!("the file is larger than {} MiB", MAX_SIZE >> 20)));
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        Fault::new(line as u32, "the line is not UTF-8")
    })?;
    let mut blocks: Vec<Block<'_>> = Vec::new();
    // The indentation of the last statement; `None` after the name of a test.
    let mut current: Option<usize> = None;
    for (at, whole) in text.lines().enumerate() {
        let line = Line { number: at as u32 + 1, text: whole.trim() };
        if line.text.is_empty() || line.text.starts_with('#') {
            continue;
        }
        if let Some(control) = line.text.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(Fault::new(line.number, format!("the line contains {}", control.escape_default())));
        }
        let indent = indentation(whole);
        match blocks.last_mut().filter(|_| current.is_some_and(|statement| indent > statement)) {
            Some(block) => block.details.push(line),
            None => {
                current = (line.text.split_whitespace().next() != Some("test")).then_some(indent);
                blocks.push(Block { head: line, details: Vec::new() });
            }
        }
    }
    Ok(blocks)
}

fn indentation(line: &str) -> usize {
    let blanks = line.chars().take_while(|c| c.is_whitespace());
    blanks.fold(0, |column, c| if c == '\t' { (column / TAB + 1) * TAB } else { column + 1 })
}
