//! The commands of the management port.

use lacquer_cli::command_table::COMMANDS;
use lacquer_tools::manual::{Entry, Group, Reference};

use super::sentence;

const ABOUT: &str = "These commands control a running daemon. `lacquer cli -n NAME COMMAND` sends one, as does \
    `varnishadm`. Some have a command of `lacquer` of their own. A listener for the network (`lacquerd -T`) needs the secret of `-S`.\n\n\
    Arguments with blanks stand in double quotes. `-j` prints JSON.";

pub fn reference(version: String) -> Reference {
    let shown = COMMANDS.iter().filter(|spec| !spec.debug);
    let entries = shown.map(|spec| {
        let more: Vec<&str> = spec.more.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let texts = std::iter::once(spec.help).chain(more);
        let text: Vec<String> = texts.map(sentence).collect();
        Entry { name: spec.syntax.to_owned(), facts: Vec::new(), text: text.join("\n\n") }
    });
    Reference {
        name: "lacquer-cli",
        title: "Management commands",
        version,
        summary: "commands of the management port",
        about: ABOUT.to_owned(),
        groups: vec![Group {
            title: "All commands".to_owned(),
            about: String::new(),
            entries: entries.collect(),
        }],
        see_also: &["lacquer(1)", "lacquerd(1)", "varnishadm(1)"],
    }
}
