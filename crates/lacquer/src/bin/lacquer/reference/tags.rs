//! The tags of log records.

use lacquer_shm::vsl::{Flags, Tag};
use lacquer_tools::manual::{Entry, Group, Reference};

use super::sentence;

const ABOUT: &str = "The daemon writes what happens to a log in shared memory. Each record has a tag. `varnishlog` shows all records, \
    `lacquer log` one line for each request, and `lacquer why` explains one of them.\n\n\
    A query chooses transactions by their records: `varnishlog -g request -q 'RespStatus >= 500'`. The parameter `vsl_mask` chooses which \
    tags are written.";

pub fn reference(version: String) -> Reference {
    let written = Tag::ALL.iter().filter(|tag| tag.flags() != Flags::Unused);
    let entries = written.map(|tag| {
        let mut text = sentence(tag.oneliner());
        if !tag.docs().is_empty() {
            text.push(' ');
            text.push_str(&sentence(tag.docs()));
        }
        Entry { name: tag.name().to_owned(), facts: Vec::new(), text }
    });
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_by_key(|entry| entry.name.to_ascii_lowercase());
    Reference {
        name: "lacquer-tags",
        title: "Log tags",
        version,
        summary: "tags of log records",
        about: ABOUT.to_owned(),
        groups: vec![Group { title: "All tags".to_owned(), about: String::new(), entries }],
        see_also: &["lacquer(1)", "lacquer-params(7)", "varnishlog(1)"],
    }
}
