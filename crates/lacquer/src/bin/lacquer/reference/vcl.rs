//! The names of VCL: subroutines, actions, statements, headers and variables.

use lacquer_tools::editor::methods;
use lacquer_tools::manual::{Entry, Group, Reference};
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl::variables_table::{ENTRIES, Entry as Variable, HEADERS};
use lacquer_vcl::{STATEMENTS, allowed_in, returns_of};

use super::sentence;

const ABOUT: &str = "VCL is the language of rules. A program consists of subroutines, which run at the steps of a request. \
    Where a subroutine of yours does not return, the built-in one follows.\n\n\
    The client side has `vcl_recv`, `vcl_hash`, `vcl_hit`, `vcl_miss`, `vcl_pass`, `vcl_pipe`, `vcl_purge`, `vcl_synth` and `vcl_deliver`; the backend side has \
    those whose names begin with `vcl_backend`. Functions of modules have pages of their own.";

/// The first words of variables, and titles for them.
const SUBJECTS: [(&str, &str); 13] = [
    ("req", "The client's request"),
    ("req_top", "The request of the page that includes this one"),
    ("bereq", "The request to the backend"),
    ("beresp", "The backend's response"),
    ("obj", "The object"),
    ("obj_stale", "The stale object that a backend has confirmed"),
    ("resp", "The response to the client"),
    ("client server remote local", "Addresses and names"),
    ("sess", "The client's connection"),
    ("now", "The time"),
    ("param", "Parameters"),
    ("storage", "Storages"),
    ("", "Others"),
];

pub fn reference(version: String) -> Reference {
    let mut groups = vec![subroutines(), actions(), statements(), headers()];
    let mut left: Vec<&Variable> = ENTRIES.iter().collect();
    for (words, title) in SUBJECTS {
        let is_one = |variable: &&Variable| {
            let first = variable.name.split('.').next().unwrap_or_default();
            words.is_empty() || words.split(' ').any(|word| word == first)
        };
        let (chosen, others) = left.into_iter().partition(is_one);
        left = others;
        groups.push(Group { title: title.to_owned(), about: String::new(), entries: variables(&chosen) });
    }
    groups.retain(|group| !group.entries.is_empty());
    Reference {
        name: "lacquer-vcl",
        title: "VCL",
        version,
        summary: "subroutines, variables and functions of VCL",
        about: ABOUT.to_owned(),
        groups,
        see_also: &["lacquer(1)", "lacquerd(1)", "vcl(7)"],
    }
}

fn subroutines() -> Group {
    let entry = |method: Method| {
        let bits = returns_of(method);
        let actions = Action::ALL.iter().filter(|action| bits & (1 << **action as u32) != 0);
        let names: Vec<String> = actions.map(|action| format!("`{}`", action.name())).collect();
        Entry {
            name: method.sub_name().to_owned(),
            facts: vec![format!("returns {}", names.join(", "))],
            text: method.prose().to_owned(),
        }
    };
    let entries = Method::ALL.into_iter().map(entry).collect();
    Group {
        title: "Subroutines".to_owned(),
        about: "Those of the client side, then those of the backend side.".to_owned(),
        entries,
    }
}

fn actions() -> Group {
    let entry = |action: Action| Entry {
        name: action.name().to_owned(),
        facts: vec![methods(allowed_in(action))],
        text: action.prose().to_owned(),
    };
    let mut entries: Vec<Entry> = Action::ALL.into_iter().map(entry).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let about = "What `return (...)` names, and where.".to_owned();
    Group { title: "Actions".to_owned(), about, entries }
}

fn statements() -> Group {
    let entry = |(name, text): &(&str, &str)| Entry {
        name: (*name).to_owned(),
        facts: Vec::new(),
        text: sentence(text),
    };
    let entries = STATEMENTS.iter().map(entry).collect();
    Group { title: "Statements and functions".to_owned(), about: String::new(), entries }
}

fn headers() -> Group {
    let entries = HEADERS.iter().map(|headers| Entry {
        name: format!("{}.NAME", headers.name),
        facts: uses(headers.read, headers.write, headers.unset),
        text: String::new(),
    });
    let about = "A header is a variable of type STRING. A name with other characters than letters, digits and `-` is quoted: `req.http.\"a.b\"`.";
    Group { title: "Headers".to_owned(), about: about.to_owned(), entries: entries.collect() }
}

/// Returns the entries of variables. Rows of one name are versions of it.
fn variables(rows: &[&Variable]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for row in rows {
        let mut facts = uses(row.read, row.write, row.unset);
        match (row.since, row.until) {
            (40, 40) => facts.push("VCL 4.0 only".to_owned()),
            (41, _) => facts.push("VCL 4.1".to_owned()),
            _ => {}
        }
        match entries.last_mut().filter(|entry| entry.name == row.name) {
            Some(entry) => entry.facts.extend(facts),
            None => {
                facts.insert(0, row.ty.name().to_owned());
                entries.push(Entry { name: row.name.to_owned(), facts, text: sentence(row.var.prose()) });
            }
        }
    }
    entries
}

fn uses(read: u32, write: u32, unset: u32) -> Vec<String> {
    let uses = [(read, "readable"), (write, "can be set"), (unset, "can be unset")];
    uses.iter()
        .filter(|(bits, _)| *bits != 0)
        .map(|(bits, verb)| format!("{verb} {}", methods(*bits)))
        .collect()
}
