//! The command `vcl.list`: every program and label, and discarded programs that are still in use.

use std::fmt::Write;
use std::sync::Arc;

use lacquer_cli::columns::{self, Cell, left, right};
use lacquer_cli::json;
use lacquer_engine::vcl_table::{Entry, Vcl};
use lacquer_sources::clock;

use super::Reply;
use crate::process::Process;

pub fn list(process: &Process, argv: &[String]) -> Reply {
    let rows = rows(process);
    if argv.get(1).is_some_and(|word| word == "-j") {
        let objects: Vec<String> = rows.iter().map(Row::json).collect();
        return Reply::ok(json::reply(2, argv, clock::real(), &objects.join(",\n")));
    }
    Reply::ok(columns::layout(&rows.iter().map(Row::cells).collect::<Vec<_>>()))
}

struct Row {
    status: &'static str,
    state: &'static str,
    temperature: &'static str,
    busy: u32,
    name: String,
    link: Link,
}

enum Link {
    None,
    /// A label: its program, and the number of programs with `return (vcl(label))`.
    Label {
        target: String,
        users: usize,
    },
    /// A program, with the number of labels that point to it.
    Labelled(usize),
}

fn plural(count: usize, ending: &'static str) -> &'static str {
    if count > 1 { ending } else { "" }
}

fn rows(process: &Process) -> Vec<Row> {
    let entries = process.shared().vcls().entries();
    let active = process.shared().vcls().active_name();
    let leaving = process.shared().vcls().leaving();
    let programs = || {
        let present = entries.iter().filter_map(|e| match e {
            Entry::Program(vcl) => Some(vcl),
            Entry::Label { .. } => None,
        });
        present.chain(&leaving)
    };
    let mut rows = Vec::new();
    for entry in &entries {
        let is_active = active.as_deref() == Some(entry.name());
        let status = if is_active { "active" } else { "available" };
        rows.push(match entry {
            Entry::Program(vcl) => {
                let points_here =
                    |e: &&Entry| matches!(e, Entry::Label { target, .. } if Arc::ptr_eq(target, vcl));
                let labels = entries.iter().filter(points_here).count();
                Row::program(status, vcl, if labels == 0 { Link::None } else { Link::Labelled(labels) })
            }
            Entry::Label { name, target } => {
                let returns_here = |v: &&Arc<Vcl>| v.loaded.instance().program.labels.contains(name);
                let users = programs().filter(returns_here).count();
                Row {
                    status,
                    state: "label",
                    temperature: "warm",
                    busy: 0,
                    name: name.clone(),
                    link: Link::Label { target: target.name.clone(), users },
                }
            }
        });
    }
    rows.extend(leaving.iter().map(|vcl| Row::program("discarded", vcl, Link::None)));
    rows
}

impl Row {
    fn program(status: &'static str, vcl: &Vcl, link: Link) -> Row {
        Row {
            status,
            state: vcl.state().word(),
            temperature: vcl.temperature().word(),
            busy: vcl.busy(),
            name: vcl.name.clone(),
            link,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![
            left(self.status),
            left(self.state),
            left(self.temperature),
            right(self.busy.to_string()),
            left(&self.name),
        ];
        match &self.link {
            Link::None => {}
            Link::Label { target, users: 0 } => cells.extend([left("->"), left(target)]),
            Link::Label { target, users } => {
                let text = format!("{target} ({users} return(vcl){})", plural(*users, "'s"));
                cells.extend([left("->"), left(text)]);
            }
            Link::Labelled(labels) => {
                cells.extend([left("<-"), left(format!("({labels} label{})", plural(*labels, "s")))]);
            }
        }
        cells
    }

    fn json(&self) -> String {
        let mut out = format!(
            "{{\n  \"status\": \"{}\",\n  \"state\": \"{}\",\n  \"temperature\": \"{}\",\n  \"busy\": {},\n  \
             \"name\": {}",
            self.status,
            self.state,
            self.temperature,
            self.busy,
            json::string(&self.name)
        );
        match &self.link {
            Link::None => {}
            Link::Label { target, users } => {
                let _ = write!(out, ",\n  \"label\": {{\n    \"name\": {}", json::string(target));
                if *users > 0 {
                    let _ = write!(out, ",\n    \"refs\": {users}");
                }
                out.push_str("\n  }");
            }
            Link::Labelled(labels) => {
                let _ = write!(out, ",\n  \"labels\": {labels}");
            }
        }
        out.push_str("\n}");
        out
    }
}
