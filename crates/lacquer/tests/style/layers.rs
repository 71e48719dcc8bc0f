//! Generates docs/modules.md: the modules of the crates that serve requests, in layers.

use std::fmt::Write as _;

use crate::crates::wrap;
use crate::cycles::Graph;
use crate::source::Source;

/// The crates that take part in a request, from the outermost to the innermost.
const CRATES: [&str; 9] =
    ["worker", "sessions", "engine", "net", "deliver", "cache", "flow", "filters", "storage"];

const BEGINNING: &str = "\
# The modules

The modules of the crates that take part in a request, in layers. A module uses only modules of its crate that are
listed in a lower line. [architecture.md](architecture.md) shows the dependencies between crates. The style test writes
this page (`UPDATE=1 cargo test -p lacquer --test style`).
";

/// Returns the text of the page.
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
