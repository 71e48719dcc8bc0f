//! The modules of the crates that serve requests, in layers: docs/modules.md is made of them.

use std::fmt::Write as _;

use crate::circles::Graph;
use crate::crates::wrap;
use crate::source::Source;

/// The crates on the way of a request, from the outside in.
const CRATES: [&str; 9] =
    ["worker", "sessions", "engine", "net", "deliver", "cache", "flow", "filters", "storage"];

const BEGINNING: &str = "\
# The modules

The modules of the crates on a request's way, in layers: a module uses only modules of its crate that stand in a line
below its own. [architecture.md](architecture.md) says which crate uses which. The style test writes this page
(`UPDATE=1 cargo test -p lacquer --test style`).
";

/// Returns the page.
pub fn page(sources: &[Source]) -> String {
    let mut page = BEGINNING.to_owned();
    for name in CRATES {
        let layers = Graph::of(name, sources).layers();
        let modules: usize = layers.iter().map(Vec::len).sum();
        let count = layers.len();
        write!(page, "\n## {name}: {modules} modules in {count} layers\n\n```text\n")
            .expect("a string grows");
        for layer in layers.iter().rev() {
            wrap(&layer.join("  "), &mut page);
        }
        page.push_str("```\n");
    }
    page
}
