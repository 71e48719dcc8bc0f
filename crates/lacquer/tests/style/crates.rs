//! The crates of the workspace and their dependencies, as Cargo reports them. The list in docs/architecture.md is
//! generated from them, and forbidden dependencies are reported. `UPDATE=1 cargo test -p lacquer --test style` writes
//! the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::source::Source;

const BEGIN: &str = "<!-- The list of crates: written by the style test. -->\n";
const END: &str = "<!-- End of the list. -->\n";
const WIDTH: usize = 100;

/// The crate of the installed programs. Crates that it does not depend on are listed last.
pub const INSTALLED: &str = "lacquer";

/// A crate of the workspace. Names of crates omit `lacquer-`.
pub struct Crate {
    /// The workspace crates among its dependencies, without those for its tests.
    pub uses: BTreeSet<String>,
    /// The first sentence of the comment of its library, or of each of its programs.
    purpose: String,
    size: Size,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Size {
    files: usize,
    lines: usize,
}

pub type Crates = BTreeMap<String, Crate>;

/// Reads the workspace's crates from `cargo metadata`.
pub fn read(root: &Path, sources: &[Source]) -> Crates {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(arguments).current_dir(root).output().expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    packages.iter().map(|package| (short(&package["name"]), Crate::of(package, root, sources))).collect()
}

impl Crate {
    fn of(package: &Value, root: &Path, sources: &[Source]) -> Crate {
        let manifest = text(&package["manifest_path"]);
        let folder = relative(manifest, root).trim_end_matches("Cargo.toml").to_owned();
        let inside = |s: &&Source| {
            s.path.strip_prefix(&folder).is_some_and(|path| path.starts_with("src/") || !path.contains('/'))
        };
        let files: Vec<&Source> = sources.iter().filter(inside).collect();
        let dependencies = package["dependencies"].as_array().expect("a list").iter();
        let used = dependencies.filter(|d| d["path"].is_string() && d["kind"] != "dev");
        Crate {
            uses: used.map(|d| short(&d["name"])).collect(),
            purpose: purpose(package, root, sources),
            size: Size { files: files.len(), lines: files.iter().map(|s| s.text.lines().count()).sum() },
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn short(name: &Value) -> String {
    text(name).trim_start_matches("lacquer-").to_owned()
}

fn relative<'a>(path: &'a str, root: &Path) -> &'a str {
    let root = root.to_str().expect("the path is UTF-8");
    path.strip_prefix(root).expect("below the root").trim_start_matches('/')
}

fn purpose(package: &Value, root: &Path, sources: &[Source]) -> String {
    let targets = package["targets"].as_array().expect("a list");
    for kind in ["lib", "bin", "test"] {
        let roots = targets.iter().filter(|target| target["kind"][0] == kind);
        let paths = roots.map(|target| relative(text(&target["src_path"]), root));
        let files = paths.filter_map(|path| sources.iter().find(|s| s.path == path));
        let sentences: Vec<String> = files.map(|s| first_sentence(&s.text)).collect();
        if !sentences.is_empty() {
            return sentences.join(" ");
        }
    }
    String::new()
}

/// Returns the first sentence of a module's comment, without links.
fn first_sentence(text: &str) -> String {
    let comment = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = comment.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ").replace("[`", "`").replace("`]", "`");
    match paragraph.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => paragraph,
    }
}

/// Returns `document` with a new list of crates. With `keep_sizes`, a size that has changed by less than a tenth stays,
/// so that the document does not change with every change of a file.
pub fn with_list(document: &str, crates: &Crates, keep_sizes: bool) -> String {
    let (before, rest) = document.split_once(BEGIN).expect("docs/architecture.md marks the list's beginning");
    let (old, after) = rest.split_once(END).expect("docs/architecture.md marks the list's end");
    let old = if keep_sizes { old } else { "" };
    format!("{before}{BEGIN}{}{END}{after}", list(crates, old))
}

fn list(crates: &Crates, old: &str) -> String {
    let installed = reached(INSTALLED, crates);
    let mut groups: BTreeMap<(bool, usize), Vec<&String>> = BTreeMap::new();
    for name in crates.keys() {
        let is_installed = name == INSTALLED || installed.contains(name.as_str());
        let group = (is_installed, if is_installed { height(name, crates) } else { 0 });
        groups.entry(group).or_default().push(name);
    }
    let mut entries = Vec::new();
    for names in groups.values().rev() {
        let mut group = String::new();
        for name in names {
            entry(name, &crates[*name], old, &mut group);
        }
        entries.push(group);
    }
    format!("\n```text\n{}```\n\n", entries.join("\n"))
}

fn entry(name: &str, this: &Crate, old: &str, out: &mut String) {
    let size = match size_in(old, name) {
        Some(old) if old.is_near(this.size) => old,
        _ => this.size,
    };
    writeln!(out, "{name:<12}{:>4} files{:>7} lines", size.files, size.lines).expect("a string grows");
    wrap(&this.purpose, out);
    let uses: Vec<&str> = this.uses.iter().map(String::as_str).collect();
    if !uses.is_empty() {
        wrap(&format!("-> {}", uses.join(", ")), out);
    }
}

/// Returns the length of the longest dependency path from a crate.
fn height(name: &str, crates: &Crates) -> usize {
    crates[name].uses.iter().map(|used| height(used, crates) + 1).max().unwrap_or(0)
}

fn size_in(old: &str, name: &str) -> Option<Size> {
    let mut words = old.lines().map(str::split_whitespace).find_map(|mut words| {
        let is_entry = words.next() == Some(name) && words.clone().nth(1) == Some("files");
        is_entry.then_some(words)
    })?;
    Some(Size { files: words.next()?.parse().ok()?, lines: words.nth(1)?.parse().ok()? })
}

impl Size {
    fn is_near(self, new: Size) -> bool {
        let is_near = |old: usize, new: usize| old.abs_diff(new) * 10 < new;
        is_near(self.files, new.files) && is_near(self.lines, new.lines)
    }
}

/// Appends the words of `text` in indented lines of the document's width.
pub fn wrap(text: &str, out: &mut String) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column == 0 || column + 1 + word.len() > WIDTH {
            out.push_str(if column == 0 { "    " } else { "\n    " });
            column = 4;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out.push('\n');
}

/// Returns all direct and indirect dependencies of a crate.
pub fn reached<'a>(name: &str, crates: &'a Crates) -> BTreeSet<&'a str> {
    let below = |used: &'a String| {
        let mut all = reached(used, crates);
        all.insert(used);
        all
    };
    crates[name].uses.iter().flat_map(below).collect()
}

#[test]
fn the_list_keeps_sizes_that_changed_little() {
    let one = |lines| {
        let uses = BTreeSet::from(["b".to_owned()]);
        let size = Size { files: 2, lines };
        let a = Crate { uses, purpose: "Does A.".to_owned(), size };
        let size = Size { files: 1, lines: 5 };
        let b = Crate { uses: BTreeSet::new(), purpose: String::new(), size };
        Crates::from([(INSTALLED.to_owned(), a), ("b".to_owned(), b)])
    };
    let empty = format!("Before.\n{BEGIN}{END}After.\n");
    let old = with_list(&empty, &one(1000), true);
    assert!(old.contains("lacquer        2 files   1000 lines\n    Does A.\n    -> b\n\nb"), "{old}");
    assert_eq!(with_list(&old, &one(1090), true), old);
    assert_ne!(with_list(&old, &one(1200), true), old);
    assert_ne!(with_list(&old, &one(1090), false), old);
    assert_eq!(first_sentence("//! Reads [`A`]s\n//! of B. Writes C.\n"), "Reads `A`s of B.");
}
