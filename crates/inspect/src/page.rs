//! Text for terminals: escapes, and lines of at most [`WIDTH`] columns.

use std::fmt::Write as _;

use lacquer_params::rows;

/// Maximum number of columns of a line.
pub const WIDTH: usize = 100;
/// Maximum number of characters of a value that others have sent.
const MAX_VALUE: usize = 400;

/// Escapes bytes that others have sent: control characters and bytes that are not UTF-8 become `\xNN`, and other
/// characters that a terminal interprets become `\u{N}`.
pub fn plain(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    add_plain(&mut text, bytes);
    text
}

/// Appends bytes like [`plain`].
pub fn add_plain(text: &mut String, bytes: &[u8]) {
    if let Ok(printable) = std::str::from_utf8(bytes)
        && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
    {
        return text.push_str(printable);
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            add_plain_char(text, c);
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// Appends a character like [`plain`].
pub fn add_plain_char(text: &mut String, c: char) {
    let _ = match c {
        c if c.is_ascii_control() => write!(text, "\\x{:02x}", c as u32),
        c if c.is_control() || is_invisible(c) => write!(text, "\\u{{{:x}}}", c as u32),
        c => return text.push(c),
    };
}

/// Returns whether a character changes the direction of text or is not visible.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Escapes like [`plain`], and shortens long values.
pub fn short(bytes: &[u8]) -> String {
    let text = plain(bytes);
    let start = first_chars(&text, MAX_VALUE);
    if start.len() < text.len() { format!("{start}...") } else { text }
}

/// Returns the first characters of a text, at most this number.
pub fn first_chars(text: &str, count: usize) -> &str {
    // A character has at least one byte.
    let end = if text.len() > count { text.char_indices().nth(count) } else { None };
    end.map_or(text, |(end, _)| &text[..end])
}

/// Escapes each line of a text.
pub fn lines(text: &str) -> String {
    let escaped: Vec<String> =
        text.split('\n').map(|line| plain(line.replace('\t', "    ").as_bytes())).collect();
    escaped.join("\n")
}

/// Returns a text that another program wrote, escaped and with lines of at most [`WIDTH`] columns.
pub fn fit(text: &str) -> String {
    let mut out = String::new();
    for line in lines(text).split('\n') {
        if line.chars().count() <= WIDTH {
            out.push_str(line);
            out.push('\n');
        } else {
            let blanks = line.chars().take_while(|c| *c == ' ').count().min(WIDTH / 2);
            wrap(&mut out, &" ".repeat(blanks), line.trim_start());
        }
    }
    out
}

/// Appends a text whose first line begins with `first` and whose other lines begin with as many spaces. Words that are longer
/// than a line are cut.
pub fn wrap(out: &mut String, first: &str, text: &str) {
    let indent = first.chars().count();
    let room = WIDTH.saturating_sub(indent).max(20);
    let mut prefix = first.to_owned();
    let mut add = |line: &str| {
        let _ = writeln!(out, "{prefix}{}", line.trim_end());
        prefix = " ".repeat(indent);
    };
    for row in rows(text, room) {
        let mut rest = row.as_str();
        while let Some((at, _)) = rest.char_indices().nth(room) {
            let (line, tail) = rest.split_at(at);
            add(line);
            rest = tail;
        }
        add(rest);
    }
}

/// Returns a duration in a unit that suits it.
pub fn duration(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 0.0 => format!("-{}", duration(-s)),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 10.0 && s.fract() > 0.05 => format!("{s:.1} s"),
        s if s < 300.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_interprets_remains() {
        let text = plain(b"/a\x1b[31m\r\n\x7f\xff\xc3\xa9\xe2\x80\xae\xc2\x9b");
        assert_eq!(text, "/a\\x1b[31m\\x0d\\x0a\\x7f\\xffé\\u{202e}\\u{9b}");
        assert_eq!(short(&[b'x'; 1000]).len(), MAX_VALUE + 3);
        for (count, start) in [(0, ""), (1, "é"), (2, "éa"), (3, "éaé"), (4, "éaé")] {
            assert_eq!(first_chars("éaé", count), start);
        }
    }

    #[test]
    fn no_line_is_wider_than_a_page() {
        let mut out = String::new();
        wrap(&mut out, "    ", &format!("{} {}", "word ".repeat(60), "é".repeat(350)));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH && line.starts_with("    ")), "{out}");
        assert_eq!(out.matches('é').count(), 350);
        let fitted = fit(&format!("a  b\n  {}\n", "x,".repeat(100)));
        assert!(
            fitted.starts_with("a  b\n  x,") && fitted.lines().all(|line| line.len() <= WIDTH),
            "{fitted}"
        );
    }

    #[test]
    fn durations_have_suitable_units() {
        let texts = [0.00012, 0.012, 1.5, 120.0, 3600.0, 86400.0, 1e6, -2.0].map(duration);
        assert_eq!(texts, ["120 µs", "12.0 ms", "1.5 s", "120 s", "60 min", "24.0 h", "11.6 days", "-2 s"]);
    }
}
