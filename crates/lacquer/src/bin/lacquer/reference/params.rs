//! The parameters of the daemon.

use std::fmt::Write as _;

use lacquer_params::{Listing, ParamSet};
use lacquer_tools::manual::{Entry, Group, Reference};
use serde_json::Value;

use super::sentence;

const ABOUT: &str = "Parameters change the behavior of a daemon. Most of them take effect at once.\n\n\
    At the start: `lacquerd -p NAME=VALUE`, `lacquer run -p NAME=VALUE`, or the table `[param]` in `lacquer.toml`. In a \
    running daemon: `lacquer param NAME VALUE`, or the management command `param.set`. `lacquer param` lists all of them with their values.\n\n\
    Those that operators change most often are `default_ttl` and `default_grace` (how long pages are kept without headers that decide), \
    `stale_if_error` (old pages instead of errors), `connect_timeout`, `first_byte_timeout` and `between_bytes_timeout` (how long \
    backends may take), and `feature`, which switches HTTP/2 and RFC 9111 on.";

/// The flags of a parameter, in words.
const FLAGS: [(&str, &str); 6] = [
    ("obj_sticky", "applies to new objects"),
    ("delayed_effect", "takes effect after a while"),
    ("must_reload", "takes effect when VCL is loaded"),
    ("must_restart", "takes effect when the worker is restarted"),
    ("experimental", "experimental"),
    ("wizard", "for developers"),
];

pub fn reference(version: String) -> Reference {
    let set = ParamSet::new();
    let listing = Listing { json: true, ..Listing::default() };
    let text = format!("[{}]", set.show(&listing).unwrap_or_default());
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    Reference {
        name: "lacquer-params",
        title: "Parameters",
        version,
        summary: "parameters of the daemon",
        about: ABOUT.to_owned(),
        groups: vec![Group {
            title: "All parameters".to_owned(),
            about: String::new(),
            entries: rows.iter().map(|row| entry(&set, row)).collect(),
        }],
        see_also: &["lacquer(1)", "lacquerd(1)", "lacquer-cli(7)"],
    }
}

fn entry(set: &ParamSet, row: &Value) -> Entry {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    if row["implemented"] == false {
        let facts = vec!["accepted for compatibility, without effect".to_owned()];
        return Entry { name: text("name").to_owned(), facts, text: String::new() };
    }
    let mut facts = vec![match text("default") {
        "" => "default empty".to_owned(),
        default => format!("default `{default}`"),
    }];
    let units = text("units");
    if !matches!(units, "" | "bool" | "list") {
        facts.push(format!("in {units}"));
    }
    for (key, word) in [("minimum", "at least"), ("maximum", "at most")] {
        if !text(key).is_empty() {
            facts.push(format!("{word} `{}`", text(key)));
        }
    }
    let flags = row["flags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    facts.extend(
        flags
            .filter_map(|flag| FLAGS.iter().find(|(name, _)| *name == flag))
            .map(|(_, words)| (*words).to_owned()),
    );
    let name = text("name");
    let long = set.show(&Listing { name: Some(name), long: true, ..Listing::default() }).unwrap_or_default();
    if long.contains("nothing uses it") {
        facts.push("accepted for compatibility, without effect".to_owned());
    }
    Entry { name: name.to_owned(), facts, text: description(text("description")) }
}

/// Returns a description whose bits are a list.
fn description(text: &str) -> String {
    let mut out = String::new();
    let mut is_list = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let bit = line.split_once('\t');
        if !out.is_empty() {
            out.push_str(if is_list && bit.is_some() { "\n" } else { "\n\n" });
        }
        is_list = bit.is_some();
        match bit {
            Some((bit, meaning)) => {
                let _ = write!(out, "- `{bit}`: {}", sentence(meaning));
            }
            None => out.push_str(&sentence(line)),
        }
    }
    out
}
