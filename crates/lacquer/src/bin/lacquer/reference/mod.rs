//! The reference of parameters, counters, log tags, VCL and management commands, from the tables that define them.

mod cli;
mod counters;
mod params;
mod tags;
mod vcl;

use lacquer_tools::manual::Reference;

/// The names of the pages, and what makes each.
pub const REFERENCES: [(&str, fn(String) -> Reference); 5] = [
    ("lacquer-params", params::reference),
    ("lacquer-counters", counters::reference),
    ("lacquer-tags", tags::reference),
    ("lacquer-vcl", vcl::reference),
    ("lacquer-cli", cli::reference),
];

/// Returns a text with single backticks around code, and a full stop at its end.
fn sentence(text: &str) -> String {
    let text = text.trim().replace("``", "`");
    if text.is_empty() || text.ends_with(['.', ':', '!', '?']) { text } else { format!("{text}.") }
}
