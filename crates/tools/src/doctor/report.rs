//! Findings as text, as JSON, and as a file for sysctl.

use std::fmt::Write as _;

use serde_json::{Value, json as value};

use super::facts::{Finding, Grade, Remedy};

/// The column at which findings begin, and the number of columns.
const INDENT: usize = 21;
const WIDTH: usize = 100;

impl Grade {
    fn word(self) -> &'static str {
        match self {
            Grade::Good => "good",
            Grade::Unknown => "unknown",
            Grade::Better => "better",
            Grade::Bad => "bad",
        }
    }

    /// Returns the sequence of a terminal that begins its color.
    fn color(self) -> &'static str {
        match self {
            Grade::Good => "\x1b[32m",
            Grade::Unknown => "\x1b[36m",
            Grade::Better => "\x1b[33m",
            Grade::Bad => "\x1b[31m",
        }
    }
}

impl Remedy {
    fn command(&self) -> Option<String> {
        match self {
            Remedy::None => None,
            Remedy::Sysctl(name, value) if value.contains(' ') => {
                Some(format!("sysctl -w {name}=\"{value}\""))
            }
            Remedy::Sysctl(name, value) => Some(format!("sysctl -w {name}={value}")),
            Remedy::Command(command) => Some(command.clone()),
        }
    }
}

/// Returns a report for readers: a line for each good setting, more for others.
pub fn text(findings: &[Finding], colors: bool) -> String {
    let mut out = String::new();
    for finding in findings {
        let word = finding.grade.word();
        let (begin, end) = if colors { (finding.grade.color(), "\x1b[0m") } else { ("", "") };
        let _ = writeln!(out, "{begin}{word:<8}{end}{:<12} {}", finding.topic, finding.is);
        if finding.grade == Grade::Good {
            continue;
        }
        add_wrapped(&format!("should be {}", finding.should), &mut out);
        add_wrapped(&format!("because {}", finding.why), &mut out);
        if let Some(command) = finding.remedy.command() {
            let _ = writeln!(out, "{:INDENT$}-> {command}", "");
        }
    }
    let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
    let (good, better, bad) = (count(Grade::Good), count(Grade::Better), count(Grade::Bad));
    let _ = writeln!(out, "\n{good} settings are good, {better} could be better, {bad} are bad.");
    if findings.iter().any(|finding| matches!(finding.remedy, Remedy::Sysctl(..))) {
        out.push_str("lacquer doctor --fix prints a file for sysctl that changes those of the kernel.\n");
    }
    out
}

/// Adds a text below the column of the findings.
fn add_wrapped(text: &str, out: &mut String) {
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used == 0 || INDENT + used + 1 + length > WIDTH {
            let _ = write!(out, "{}{:INDENT$}{word}", if used == 0 { "" } else { "\n" }, "");
            used = length;
        } else {
            let _ = write!(out, " {word}");
            used += 1 + length;
        }
    }
    out.push('\n');
}

/// Returns the findings as a list of objects.
pub fn json(findings: &[Finding]) -> String {
    let object = |finding: &Finding| {
        let sysctl = match &finding.remedy {
            Remedy::Sysctl(name, setting) => value!({ "name": name, "value": setting }),
            _ => Value::Null,
        };
        value!({
            "topic": finding.topic,
            "grade": finding.grade.word(),
            "is": finding.is,
            "should": finding.should,
            "why": finding.why,
            "command": finding.remedy.command(),
            "sysctl": sysctl,
        })
    };
    let list = Value::Array(findings.iter().map(object).collect());
    format!("{list:#}\n")
}

/// Returns a file for /etc/sysctl.d that mends the settings of the kernel.
pub fn sysctl_file(findings: &[Finding]) -> String {
    let mut out = String::from(
        "# Kernel settings for Lacquer, by lacquer doctor --fix. To use them:\n\
         #     lacquer doctor --fix > /etc/sysctl.d/60-lacquer.conf && sysctl --system\n",
    );
    for finding in findings {
        if let Remedy::Sysctl(name, value) = &finding.remedy {
            let _ = write!(out, "\n# {}; it was: {}\n{name} = {value}\n", finding.why, finding.is);
        }
    }
    out
}
