//! The results as text and as JSON.

use std::fmt::Write as _;

use lacquer_inspect::page::{plain, wrap};
use serde_json::{Value, json};

use crate::judge::Mismatch;
use crate::runner::{File, Results, TestResult};

const RED: &str = "\x1b[1;31m";
const GREEN: &str = "\x1b[1;32m";
const PLAIN: &str = "\x1b[0m";

/// Returns the failures and a summary. `lists_all` also lists the tests that have passed.
pub fn text(results: &Results, has_colors: bool, lists_all: bool) -> String {
    let paint =
        |color: &str, text: &str| if has_colors { format!("{color}{text}{PLAIN}") } else { text.to_owned() };
    let mut out = String::new();
    for file in &results.files {
        for test in &file.tests {
            if !test.failures.is_empty() {
                let place = format!("{}:{}", file.name, test.line);
                let _ = writeln!(
                    out,
                    "{} {}  ({})",
                    paint(RED, "FAIL"),
                    plain(test.name.as_bytes()),
                    plain(place.as_bytes())
                );
                test.failures.iter().for_each(|failure| describe(&mut out, file, test, failure));
                out.push('\n');
            } else if lists_all {
                let _ = writeln!(out, "{}   {}", paint(GREEN, "ok"), plain(test.name.as_bytes()));
            }
        }
    }
    if results.is_stuck {
        out.push_str("Other tests may not have run.\n");
    }
    let (all, failed) = results.counts();
    let passed = format!("{} passed", all - failed);
    let passed = if failed == 0 && all > 0 { paint(GREEN, &passed) } else { passed };
    let failed = if failed > 0 { paint(RED, &format!("{failed} failed")) } else { "0 failed".to_owned() };
    let requests = results.requests;
    let rate = if results.seconds > 0.0 { requests as f64 / results.seconds } else { 0.0 };
    let _ =
        writeln!(out, "{passed}, {failed}: {requests} requests in {:.2} s ({rate:.0}/s)", results.seconds);
    out
}

fn describe(out: &mut String, file: &File, test: &TestResult, failure: &Mismatch) {
    let line = if failure.line == 0 { test.line } else { failure.line };
    let place = plain(format!("{}:{line}", file.name).as_bytes());
    if failure.subject.is_empty() {
        wrap(out, &format!("  {place}: "), &plain(failure.got.as_bytes()));
    } else {
        let _ = writeln!(out, "  {place}: {}", failure.subject);
        let _ = writeln!(out, "    - expected: {}", failure.expected);
        let _ = writeln!(out, "    + got:      {}", failure.got);
    }
    failure.notes.iter().for_each(|note| wrap(out, "      ", note));
}

pub fn json(results: &Results) -> String {
    let failure = |test: &TestResult, failure: &Mismatch| {
        json!({
            "line": if failure.line == 0 { test.line } else { failure.line },
            "subject": if failure.subject.is_empty() { Value::Null } else { Value::from(failure.subject.as_str()) },
            "expected": if failure.subject.is_empty() { Value::Null } else { Value::from(failure.expected.as_str()) },
            "got": failure.got,
            "notes": failure.notes,
        })
    };
    let test = |test: &TestResult| {
        let failures: Vec<Value> = test.failures.iter().map(|found| failure(test, found)).collect();
        json!({ "name": test.name, "line": test.line, "passed": failures.is_empty(), "failures": failures })
    };
    let file = |file: &File| {
        let tests: Vec<Value> = file.tests.iter().map(test).collect();
        json!({ "file": file.name, "tests": tests })
    };
    let files: Vec<Value> = results.files.iter().map(file).collect();
    let (all, failed) = results.counts();
    let whole = json!({
        "files": files,
        "passed": all - failed,
        "failed": failed,
        "requests": results.requests,
        "seconds": results.seconds,
    });
    format!("{whole:#}\n")
}
