//! Diagnostics in SARIF 2.1.0, the format that code forges show beside a change.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use lacquer_vcl::{Diagnostic, Severity};
use serde_json::{Value, json};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The rule of everything that the compiler itself reports.
const COMPILER: &str = "vcl";
/// The rule of everything that is reported about a file of settings.
const SETTINGS: &str = "settings";

pub fn sarif(files: &[(String, Vec<Diagnostic>)]) -> String {
    let all = || files.iter().flat_map(|(name, diagnostics)| diagnostics.iter().map(move |d| (name, d)));
    let names: BTreeSet<String> = all().map(|(name, diagnostic)| rule(name, diagnostic)).collect();
    let rules: Vec<Value> = names.iter().map(|id| json!({ "id": id })).collect();
    let results: Vec<Value> = all().map(|(name, diagnostic)| result(name, diagnostic)).collect();
    let driver = json!({ "name": "lacquer check", "version": env!("CARGO_PKG_VERSION"), "rules": rules });
    let run = json!({
        "tool": { "driver": driver },
        "columnKind": "unicodeCodePoints",
        "results": results,
    });
    let log = json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": [run] });
    format!("{log:#}\n")
}

fn rule(file: &str, diagnostic: &Diagnostic) -> String {
    let is_settings = Path::new(file).extension().is_some_and(|ending| ending == "toml");
    let general = if is_settings { SETTINGS } else { COMPILER };
    super::rule(diagnostic).unwrap_or_else(|| general.to_owned())
}

fn result(file: &str, diagnostic: &Diagnostic) -> Value {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut message = diagnostic.message();
    for line in diagnostic.notes() {
        let _ = write!(message, "\n{line}");
    }
    if let Some(hint) = &diagnostic.hint {
        let _ = write!(message, "\nHint: {hint}");
    }
    let uri = uri(diagnostic.file().unwrap_or(file));
    let mut place = json!({ "artifactLocation": { "uri": uri } });
    if let Some(region) = super::region(diagnostic) {
        place["region"] = json!({
            "startLine": region.line,
            "startColumn": region.column,
            "endLine": region.end_line,
            "endColumn": region.end_column,
        });
    }
    json!({
        "ruleId": rule(file, diagnostic),
        "level": level,
        "message": { "text": message },
        "locations": [{ "physicalLocation": place }],
    })
}

/// Returns the name of a file as a reference of RFC 3986.
fn uri(file: &str) -> String {
    let mut uri = String::with_capacity(file.len());
    for byte in file.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                uri.push(byte.into());
            }
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}
