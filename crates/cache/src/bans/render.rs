//! Formats the ban list for `ban.list`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bans::list::{Ban, BanList};
use crate::bans::test::{Operand, Test};

impl BanList {
    /// Returns the text of `ban.list`; with `debug`, including the additions of debug flag `lurker`. The operands are as they
    /// were given, and need not be UTF-8.
    pub fn text(&self, debug: bool) -> Vec<u8> {
        let mut out = b"Present bans:\n".to_vec();
        for ban in &self.snapshot() {
            let state = if ban.is_completed() { "C" } else { "-" };
            let _ = write!(out, "{:10.6} {:5} {state}", ban.time, ban.objects.load(Ordering::Relaxed));
            if debug {
                let req = if ban.needs_request() { "R" } else { "-" };
                let obj = if ban.tests_object() { "O" } else { "-" };
                let _ = write!(out, "{req}{obj} {:#x} ", Arc::as_ptr(ban).addr());
            }
            out.extend_from_slice(b"  ");
            out.extend_from_slice(&spec(ban, false));
            out.push(b'\n');
        }
        out
    }

    /// Returns the elements after the head of the array that `ban.list -j` prints, each line indented by two spaces.
    pub fn json(&self, debug: bool) -> String {
        let entries: Vec<String> = self.snapshot().iter().map(|ban| json_entry(ban, debug)).collect();
        entries.join(",\n")
    }
}

fn json_entry(ban: &Arc<Ban>, debug: bool) -> String {
    let mut out = String::from("  {\n");
    let _ = writeln!(out, "    \"time\": {:.6},", ban.time);
    let _ = writeln!(out, "    \"refs\": {},", ban.objects.load(Ordering::Relaxed));
    let _ = writeln!(out, "    \"completed\": {},", ban.is_completed());
    let _ = write!(out, "    \"spec\": \"{}\"", String::from_utf8_lossy(&spec(ban, true)));
    if debug {
        let _ = write!(out, ",\n    \"req_tests\": {},\n", ban.needs_request());
        let _ = writeln!(out, "    \"obj_tests\": {},", ban.tests_object());
        let _ = writeln!(out, "    \"pointer\": \"{:#x}\",", Arc::as_ptr(ban).addr());
        out.push_str("    \"objcores\": [\n    ]");
    }
    out.push_str("\n  }");
    out
}

/// Returns the conditions; empty for a completed ban.
fn spec(ban: &Ban, quote: bool) -> Vec<u8> {
    if ban.is_completed() {
        return Vec::new();
    }
    ban.tests.iter().map(|test| render(test, quote)).collect::<Vec<_>>().join(&b" && "[..])
}

fn render(test: &Test, quote: bool) -> Vec<u8> {
    let header = test.field.header().unwrap_or_default();
    let mut out = format!("{}{header} {} ", test.field.name(), test.oper.name()).into_bytes();
    match &test.operand {
        Operand::Text(words) | Operand::Regex(words, _) if quote => {
            out.extend_from_slice(escape(&String::from_utf8_lossy(words)).as_bytes());
        }
        Operand::Text(words) | Operand::Regex(words, _) => out.extend_from_slice(words),
        Operand::Seconds(seconds) => out.extend_from_slice(duration(*seconds).as_bytes()),
    }
    out
}

/// Escapes a text as Varnish does, so that both C and JSON readers understand it.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || c == '\x7f' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// Formats seconds in the largest unit that divides them, as Varnish does.
fn duration(seconds: f64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(365 * 86400, "y"), (7 * 86400, "w"), (86400, "d"), (3600, "h"), (60, "m")];
    let whole = seconds.floor() as u64;
    let millis = (seconds * 1e3).floor() as u64 % 1000;
    match (whole, millis) {
        (0, 0) => "0s".into(),
        (0, _) => format!("{millis}ms"),
        (_, 0) => {
            let unit = UNITS.iter().find(|(n, _)| whole >= *n && whole.is_multiple_of(*n));
            unit.map_or_else(|| format!("{whole}s"), |(n, name)| format!("{}{name}", whole / n))
        }
        _ => format!("{whole}.{millis:03}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_printed_as_varnish_does() {
        for (seconds, text) in [
            (0.0, "0s"),
            (0.123, "123ms"),
            (6.789, "6.789s"),
            (10.0, "10s"),
            (90.0 * 60.0, "90m"),
            (18.0 * 3600.0, "18h"),
            (86400.0, "1d"),
            (63.0 * 86400.0, "9w"),
            (365.0 * 86400.0, "1y"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
