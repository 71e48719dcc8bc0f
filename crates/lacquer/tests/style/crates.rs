//! The crates of the workspace and their dependencies, as Cargo reports them. The list in docs/architecture.md is
//! generated from them, and forbidden dependencies are reported. `UPDATE=1 cargo test -p lacquer --test style` writes
//! the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::source::Source;
use crate::tree::Target;

const BEGIN: &str = "<!-- The list of crates: written by the style test. -->\n";
const END: &str = "<!-- End of the list. -->\n";
const WIDTH: usize = 100;

/// The crate of the installed programs.
pub const INSTALLED: &str = "lacquer";

/// The crates for tests and measurements, from top to bottom. They use crates of the product; no crate of the product
/// uses them.
pub const TOOLS: [&[&str]; 2] = [&["attack", "bench", "sim"], &["testing"]];

/// The layers of the product, from top to bottom. A crate uses only crates of lower layers.
pub const LAYERS: [&[&str]; 12] = [
    &[INSTALLED],
    &["admin", "top", "vcl-test"],
    &["live"],
    &["inspect", "manager", "tools", "worker"],
    &["sessions"],
    &["engine"],
    &["vmods", "vcl-native"],
    &["deliver"],
    &["acme", "cache", "h3", "net", "quic", "vcl-runtime", "jail"],
    &["flow", "h2", "vcl", "cli", "tls"],
    &["disk", "filters", "http", "names", "params", "shm", "sources", "storage"],
    &["rings", "system"],
];

/// Returns the number of a crate's layer, counted from the top. Tools are above the product.
pub fn layer(name: &str) -> Option<usize> {
    TOOLS.iter().chain(&LAYERS).position(|layer| layer.contains(&name))
}

/// A crate of the workspace. Names of crates omit `lacquer-`.
pub struct Crate {
    /// The workspace crates among its dependencies, without those for its tests.
    pub uses: BTreeSet<String>,
    /// The first sentence of the comment of its library, or of each of its programs.
    purpose: String,
    /// The path of its folder, with a trailing slash.
    pub folder: String,
    size: Size,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Size {
    files: usize,
    lines: usize,
}

pub type Crates = BTreeMap<String, Crate>;

/// Returns the packages of the workspace, as reported by `cargo metadata`.
fn packages(root: &Path) -> &'static [Value] {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| metadata(root))["packages"].as_array().expect("a list")
}

fn metadata(root: &Path) -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(arguments).current_dir(root).output().expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Reads the workspace's crates.
pub fn read(root: &Path, sources: &[Source]) -> Crates {
    let packages = packages(root).iter();
    packages.map(|package| (short(&package["name"]), Crate::of(package, root, sources))).collect()
}

/// Returns the root files of all targets that Cargo builds in the workspace.
pub fn targets(root: &Path) -> Vec<Target> {
    let all = packages(root).iter().flat_map(|package| package["targets"].as_array().expect("a list"));
    let target = |target: &Value| Target {
        path: relative(text(&target["src_path"]), root).to_owned(),
        is_test: ["test", "bench", "example"].contains(&text(&target["kind"][0])),
    };
    all.map(target).collect()
}

/// Returns the crates that no layer lists, the listed names that no crate has, and the crates that use a crate that is
/// not in a lower layer.
pub fn out_of_place(crates: &Crates) -> Vec<String> {
    let mut faults = Vec::new();
    for name in TOOLS.iter().chain(&LAYERS).flat_map(|layer| layer.iter()) {
        if !crates.contains_key(*name) {
            faults.push(format!("no crate is named {name}"));
        }
    }
    for (name, this) in crates {
        let Some(own) = layer(name) else {
            faults.push(format!("{name} stands in no layer"));
            continue;
        };
        let above = this.uses.iter().filter(|used| layer(used).is_some_and(|other| other <= own));
        faults.extend(above.map(|used| format!("{name} uses {used}, which is not below it")));
    }
    faults
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
            folder,
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
    let tools = TOOLS.concat();
    let mut entries = Vec::new();
    for names in LAYERS.into_iter().chain([&tools[..]]) {
        let mut group = String::new();
        for &name in names {
            if let Some(this) = crates.get(name) {
                entry(name, this, old, &mut group);
            }
        }
        entries.push(group);
    }
    entries.retain(|group| !group.is_empty());
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
        let uses = BTreeSet::from(["shm".to_owned()]);
        let size = Size { files: 2, lines };
        let a = Crate { uses, purpose: "Does A.".to_owned(), folder: String::new(), size };
        let size = Size { files: 1, lines: 5 };
        let b = Crate { uses: BTreeSet::new(), purpose: String::new(), folder: String::new(), size };
        Crates::from([(INSTALLED.to_owned(), a), ("shm".to_owned(), b)])
    };
    let empty = format!("Before.\n{BEGIN}{END}After.\n");
    let old = with_list(&empty, &one(1000), true);
    assert!(old.contains("lacquer        2 files   1000 lines\n    Does A.\n    -> shm\n\nshm"), "{old}");
    assert_eq!(with_list(&old, &one(1090), true), old);
    assert_ne!(with_list(&old, &one(1200), true), old);
    assert_ne!(with_list(&old, &one(1090), false), old);
    assert_eq!(first_sentence("//! Reads [`A`]s\n//! of B. Writes C.\n"), "Reads `A`s of B.");
}

#[test]
fn crates_stand_above_those_that_they_use() {
    let one = |uses: &[&str]| Crate {
        uses: uses.iter().map(|&name| name.to_owned()).collect(),
        purpose: String::new(),
        folder: String::new(),
        size: Size { files: 1, lines: 1 },
    };
    let all = TOOLS.iter().chain(&LAYERS).flat_map(|layer| layer.iter());
    let mut crates: Crates = all.map(|&name| (name.to_owned(), one(&[]))).collect();
    assert_eq!(out_of_place(&crates), Vec::<String>::new());
    crates.insert("engine".to_owned(), one(&["cache", "sessions"]));
    crates.insert("flow".to_owned(), one(&["h2", "http", "sim"]));
    crates.insert("h4".to_owned(), one(&["http"]));
    crates.remove("jail");
    let faults = [
        "no crate is named jail",
        "engine uses sessions, which is not below it",
        "flow uses h2, which is not below it",
        "flow uses sim, which is not below it",
        "h4 stands in no layer",
    ];
    assert_eq!(out_of_place(&crates), faults);
}
