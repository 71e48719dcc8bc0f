//! `vcl.list`, `vcl.deps` and `vcl.symtab` while no worker runs.

use std::fmt::Write;

use lacquer_cli::columns::{self, Cell, left, right};
use lacquer_cli::json;

use super::catalogue::{Catalogue, Entry};
use super::compile::Compiled;

fn temperature(entry: &Entry) -> &'static str {
    if entry.warm { "warm" } else { "cold" }
}

fn plural(count: usize, ending: &'static str) -> &'static str {
    if count > 1 { ending } else { "" }
}

impl Catalogue {
    fn status(&self, entry: &Entry) -> &'static str {
        if self.active() == Some(&entry.name) { "active" } else { "available" }
    }

    /// `vcl.list`
    pub fn list(&self) -> String {
        let row = |entry: &Entry| -> Vec<Cell> {
            let users = self.dependents(&entry.name).count();
            let mut row = vec![
                left(self.status(entry)),
                left(entry.state.word()),
                left(temperature(entry)),
                right("-"),
                left(&entry.name),
            ];
            if let Some(target) = self.target(&entry.name).filter(|_| entry.is_label()) {
                let calls = match users {
                    0 => String::new(),
                    n => format!(" ({n} return(vcl){})", plural(n, "'s")),
                };
                row.extend([left("->"), left(format!("{target}{calls}"))]);
            } else if users > 0 {
                row.extend([left("<-"), left(format!("({users} label{})", plural(users, "s")))]);
            }
            row
        };
        columns::layout(&self.entries().iter().map(row).collect::<Vec<_>>())
    }

    /// Returns the elements of `vcl.list -j`.
    pub fn list_json(&self) -> String {
        let object = |entry: &Entry| {
            let users = self.dependents(&entry.name).count();
            let mut out = format!(
                "{{\n  \"status\": \"{}\",\n  \"state\": \"{}\",\n  \"temperature\": \"{}\",\n  \"name\": {}",
                self.status(entry),
                entry.state.word(),
                temperature(entry),
                json::string(&entry.name)
            );
            if let Some(target) = self.target(&entry.name).filter(|_| entry.is_label()) {
                let _ = write!(out, ",\n  \"label\": {{\n    \"name\": {}", json::string(target));
                if users > 0 {
                    let _ = write!(out, ",\n    \"refs\": {users}");
                }
                out.push_str("\n  }");
            } else if users > 0 {
                let _ = write!(out, ",\n  \"labels\": {users}");
            }
            out.push_str("\n}");
            out
        };
        self.entries().iter().map(object).collect::<Vec<_>>().join(",\n")
    }

    /// `vcl.deps`
    pub fn deps(&self) -> String {
        let mut rows = Vec::new();
        for entry in self.entries() {
            let before = rows.len();
            rows.extend(self.depends_on(&entry.name).map(|to| vec![left(&entry.name), left(to)]));
            if rows.len() == before {
                rows.push(vec![left(&entry.name)]);
            }
        }
        columns::layout(&rows)
    }

    /// Returns the elements of `vcl.deps -j`.
    pub fn deps_json(&self) -> String {
        let object = |entry: &Entry| {
            let deps: Vec<String> = self.depends_on(&entry.name).map(json::string).collect();
            let deps = if deps.is_empty() {
                "[]".to_owned()
            } else {
                format!("[\n    {}\n  ]", deps.join(",\n    "))
            };
            format!("{{\n  \"name\": {},\n  \"deps\": {deps}\n}}", json::string(&entry.name))
        };
        self.entries().iter().map(object).collect::<Vec<_>>().join(",\n")
    }

    /// `vcl.symtab`
    pub fn symtab(&self) -> String {
        let mut out = String::new();
        for entry in self.entries() {
            let kind = if entry.is_label() { "Label" } else { "Vcl" };
            let _ = writeln!(out, "{kind}: {}", entry.name);
            let (mut imports, mut exports) = (String::new(), String::new());
            for to in self.depends_on(&entry.name) {
                let _ = writeln!(imports, "    {to}");
                if !entry.is_label() {
                    label_symbol(&mut imports, 6, to);
                }
            }
            for from in self.dependents(&entry.name) {
                let _ = writeln!(exports, "    {from}");
                if entry.is_label() {
                    label_symbol(&mut exports, 6, &entry.name);
                }
            }
            for (title, names) in [("imports from", imports), ("exports to", exports)] {
                if !names.is_empty() {
                    let _ = write!(out, "  {title}:\n{names}");
                }
            }
            if let Some(compiled) = &entry.compiled {
                symbols_of(&mut out, compiled);
            }
        }
        out
    }
}

/// Appends a JSON object in the notation of `vcl.symtab`.
fn object(out: &mut String, indent: usize, fields: &[(&str, &str)]) {
    let _ = writeln!(out, "{:indent$}{{object}}", "");
    for (name, value) in fields {
        let _ = writeln!(out, "{:indent$}  [\"{name}\"]: {value}", "");
    }
}

fn label_symbol(out: &mut String, indent: usize, label: &str) {
    let name = format!("{{string}} <{label}>");
    object(out, indent, &[("dir", "{string} <import>"), ("type", "{string} <$VCL>"), ("name", &name)]);
}

/// Appends the symbols of a program: its version, and the modules and labels that it imports.
fn symbols_of(out: &mut String, compiled: &Compiled) {
    out.push_str("  symtab:\n    {array}\n");
    object(out, 6, &[("version", "{number} <0>")]);
    for module in &compiled.modules {
        let name = format!("{{string}} <{module}>");
        // Varnish prints the paths of the module's file and of its copy here.
        let fields = [
            ("dir", "{string} <import>"),
            ("type", "{string} <$VMOD>"),
            ("name", name.as_str()),
            ("vext", "{false}"),
            ("file", "{string} <(built in)>"),
            ("dst", "{string} <(built in)>"),
        ];
        object(out, 6, &fields);
    }
    for label in &compiled.labels {
        label_symbol(out, 6, label);
    }
}

#[cfg(test)]
mod tests {
    use lacquer_cli::link::VclState;

    use super::*;

    #[test]
    fn columns_and_json() {
        let mut all = Catalogue::default();
        for name in ["vcl1", "vcl2"] {
            all.add(name, VclState::Auto, Some(Compiled::default()));
        }
        all.add("label1", VclState::Label, None);
        all.point("label1", "vcl2", 0.0);
        all.activate("vcl1", 0.0);
        assert_eq!(
            all.list(),
            "active      auto    warm   -   vcl1\n\
             available   auto    warm   -   vcl2     <-   (1 label)\n\
             available   label   warm   -   label1   ->   vcl2\n"
        );
        assert_eq!(all.deps(), "vcl1\nvcl2\nlabel1   vcl2\n");
        let symtab = all.symtab();
        assert!(
            symtab.starts_with("Vcl: vcl1\n  symtab:\n    {array}\n      {object}\n        [\"version\"]")
        );
        assert!(symtab.ends_with("Label: label1\n  imports from:\n    vcl2\n"));
        let parsed: serde_json::Value =
            serde_json::from_str(&format!("[{},{}]", all.list_json(), all.deps_json())).unwrap();
        assert_eq!(parsed[1]["labels"], 1);
        assert_eq!(parsed[5]["deps"][0], "vcl2");
    }
}
