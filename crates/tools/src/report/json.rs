//! Diagnostics in JSON: a list of files, each with its list of diagnostics.

use lacquer_vcl::{Diagnostic, Severity};
use serde_json::{Value, json};

pub fn json(files: &[(String, Vec<Diagnostic>)]) -> String {
    let file = |(name, diagnostics): &(String, Vec<Diagnostic>)| {
        let diagnostics: Vec<Value> = diagnostics.iter().map(value).collect();
        json!({ "file": name, "diagnostics": diagnostics })
    };
    let files = Value::Array(files.iter().map(file).collect());
    format!("{files:#}\n")
}

fn value(diagnostic: &Diagnostic) -> Value {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let region = super::region(diagnostic);
    let region = region.as_ref();
    json!({
        "severity": severity,
        "message": diagnostic.message(),
        "rule": super::rule(diagnostic),
        "file": diagnostic.file(),
        "line": region.map(|r| r.line),
        "column": region.map(|r| r.column),
        "end_line": region.map(|r| r.end_line),
        "end_column": region.map(|r| r.end_column),
        "notes": diagnostic.notes(),
        "hint": diagnostic.hint,
    })
}
