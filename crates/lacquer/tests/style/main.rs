//! The style rules that a machine can check. Each rule is one test that lists every violation with advice on what to
//! do instead. docs/contributing.md contains the reasons.

mod crates;
mod cycles;
mod docs;
mod layers;
mod methods;
mod paths;
mod source;
mod tree;

use crates::{Crates, reached};
use source::{Source, line_of, words};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;

const MAX_FIELDS: usize = 12;

/// Maximum number of disabled clippy lints, in the workspace's manifest and in the code together.
const MAX_CLIPPY_EXCEPTIONS: usize = 12;

/// Where `unsafe` is allowed: crates, or files whose path has one of these prefixes. The host of the vmods' tests takes
/// the place of the worker's, and makes the same promise.
const UNSAFE_ALLOWED: [&str; 10] = [
    "crates/engine/src/stable_values.rs",
    "crates/rings/",
    "crates/shm/",
    "crates/sources/src/system.rs",
    "crates/storage/",
    "crates/system/",
    "crates/vcl-native/",
    "crates/vcl-runtime/",
    "crates/vmods/tests/modules/host.rs",
    "crates/worker/src/storages.rs",
];

/// Crates of functions over bytes and values: they use no socket and no clock, and `now` is an argument.
const PURE_CRATES: [&str; 9] = ["params", "cli", "http", "h2", "h3", "flow", "cache", "filters", "vcl"];

/// The connection between manager and worker is part of a pure crate, but uses a socket.
const PURE_EXCEPTIONS: [&str; 2] = ["crates/cli/src/link.rs", "crates/cli/src/link/"];

/// Crates that a crate must not depend on, even indirectly, and the reason.
const FORBIDDEN_DEPENDENCIES: [(&str, &[&str], &str); 3] = [
    (
        "manager",
        &[
            "worker",
            "sessions",
            "engine",
            "net",
            "cache",
            "deliver",
            "filters",
            "flow",
            "h2",
            "h3",
            "storage",
            "vcl-native",
        ],
        "the privileged process runs no code that faces the network",
    ),
    ("worker", &["manager"], "the process that faces the network has no privileged code"),
    (crates::INSTALLED, &["testing", "bench", "sim"], "these crates are for tests and measurements only"),
];

/// Objects are bytes in an arena or on a disk. The arena maps memory and the disk has threads, but neither uses a socket
/// or a clock.
const PURE_USES: [(&str, &str); 2] = [("cache", "storage"), ("cache", "disk")];

const IMPURE_NAMES: [&str; 10] = [
    "tokio",
    "socket2",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "SystemTime::now",
    "Instant::now",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository exists")
}

fn sources() -> Vec<Source> {
    let mut sources = source::all(&root());
    let targets = crates::targets(&root());
    let product = tree::product(&sources, &targets);
    let crates = crates::read(&root(), &sources);
    for s in sources.iter_mut().filter(|s| crates.values().any(|c| s.path.starts_with(&c.folder))) {
        if !product.contains(&s.path) {
            s.product.clear();
        }
    }
    sources
}

fn report(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "\n{rule}:\n  {}\n", faults.join("\n  "));
}

/// Returns every occurrence of `word` as a whole word in a text derived from each file.
fn places<'a>(
    sources: &'a [Source],
    text: impl Fn(&'a Source) -> &'a str,
    word: &'a str,
) -> Vec<(&'a Source, usize)> {
    let in_file = |s: &'a Source| {
        let text = text(s);
        words(text, word).map(|at| (s, line_of(text, at))).collect::<Vec<_>>()
    };
    sources.iter().flat_map(in_file).collect()
}

fn at(source: &Source, line: usize) -> String {
    format!("{}:{line}", source.path)
}

#[test]
fn every_file_begins_with_a_comment() {
    let uncommented = |s: &Source| (!s.text.starts_with("//!")).then(|| s.path.clone());
    let faults: Vec<_> = sources().iter().filter_map(uncommented).collect();
    report("begin the file with a //! comment: its purpose and the reasons for its design", &faults);
}

#[test]
fn no_file_is_too_long() {
    let too_long = |s: &Source| {
        let lines = s.text.lines().count();
        (lines > MAX_FILE_LINES).then(|| format!("{} has {lines} lines", s.path))
    };
    let faults: Vec<_> = sources().iter().filter_map(too_long).collect();
    report("split the file by concern", &faults);
}

#[test]
fn folders_begin_with_mod_rs() {
    let sources = sources();
    let beside = |s: &Source| {
        let folder = format!("{}/", s.path.strip_suffix(".rs").unwrap_or(&s.path));
        sources.iter().any(|other| other.path.starts_with(&folder)).then(|| s.path.clone())
    };
    let faults: Vec<_> = sources.iter().filter_map(beside).collect();
    report("move the file into the folder of its name, as mod.rs", &faults);
}

#[test]
fn every_file_is_built() {
    let sources = sources();
    let built = tree::built(&sources, &crates::targets(&root()));
    let crates = crates();
    let is_forgotten =
        |s: &&Source| !built.contains(&s.path) && crates.values().any(|c| s.path.starts_with(&c.folder));
    let faults: Vec<_> = sources.iter().filter(is_forgotten).map(|s| s.path.clone()).collect();
    report("declare the file as a module, or remove it", &faults);
}

#[test]
fn no_function_is_too_long() {
    let mut faults = Vec::new();
    for s in &sources() {
        for f in s.functions().iter().filter(|f| f.lines > MAX_FUNCTION_LINES) {
            faults.push(format!("{}: {} has {} lines", at(s, f.line), f.name, f.lines));
        }
    }
    report("split the function by what it does", &faults);
}

#[test]
fn types_of_the_product_have_few_fields() {
    let crates = crates();
    let installed = reached(crates::INSTALLED, &crates);
    let is_product = |s: &&Source| s.krate() == crates::INSTALLED || installed.contains(s.krate());
    let mut faults = Vec::new();
    for s in sources().iter().filter(is_product).filter(|s| !s.is_test()) {
        let larger = s.structs().into_iter().filter(|found| found.fields > MAX_FIELDS);
        faults.extend(
            larger.map(|found| format!("{}: {} has {} fields", at(s, found.line), found.name, found.fields)),
        );
    }
    report("make parts with names of the domain", &faults);
}

#[test]
fn unsafe_is_confined() {
    let sources = sources();
    let outside = |(s, line): (&Source, usize)| {
        let allowed = UNSAFE_ALLOWED.iter().any(|allowed| s.path.starts_with(allowed));
        (!allowed && !s.path.contains("/examples/")).then(|| at(s, line))
    };
    let faults: Vec<_> =
        places(&sources, |s| s.code.as_str(), "unsafe").into_iter().filter_map(outside).collect();
    report(&format!("unsafe code is allowed only in {}", UNSAFE_ALLOWED.join(", ")), &faults);
}

#[test]
fn unsafe_code_explains_its_soundness() {
    let sources = sources();
    let unexplained = |(s, line): (&Source, usize)| (!has_safety_comment(s, line)).then(|| at(s, line));
    let faults: Vec<_> =
        places(&sources, |s| s.code.as_str(), "unsafe").into_iter().filter_map(unexplained).collect();
    report("write a // SAFETY: comment directly above (`# Safety` in the docs of an unsafe fn)", &faults);
}

/// Searches upwards from `line` through its statement and the comment above it. A type (`unsafe extern "C" fn(…)`) or
/// a block of foreign declarations needs no comment.
fn has_safety_comment(s: &Source, line: usize) -> bool {
    let text: Vec<&str> = s.text.lines().collect();
    let code: Vec<&str> = s.code.lines().collect();
    let here = code[line - 1];
    if !here.contains("unsafe {") && !here.contains("unsafe impl") && !here.contains("unsafe fn") {
        return true;
    }
    for i in (0..line).rev() {
        let lower = text[i].to_lowercase();
        if lower.contains("// safety:") || lower.contains("/// # safety") {
            return true;
        }
        let above = code[i].trim_end();
        let statement_ended = above.ends_with([';', '{', '}']) && i + 1 < line;
        let nothing_here = text[i].trim().is_empty();
        if statement_ended || nothing_here {
            return false;
        }
    }
    false
}

#[test]
fn other_crates_forbid_unsafe() {
    let may_use =
        |s: &Source| UNSAFE_ALLOWED.iter().any(|allowed| allowed.split('/').nth(1) == Some(s.krate()));
    let is_root = |s: &Source| {
        let inside = s.path.split_once("/src/").map_or("", |(_, inside)| inside);
        let bin = inside.strip_prefix("bin/").is_some_and(|b| !b.contains('/') || b.ends_with("/main.rs"));
        inside == "lib.rs" || inside == "main.rs" || bin
    };
    let open = |s: &Source| !s.code.contains("#![forbid(unsafe_code)]");
    let faults: Vec<_> =
        sources().iter().filter(|s| is_root(s) && !may_use(s) && open(s)).map(|s| s.path.clone()).collect();
    report("put #![forbid(unsafe_code)] after the module comment", &faults);
}

#[test]
fn pure_crates_use_no_socket_and_no_clock() {
    let sources = sources();
    let mut faults = Vec::new();
    for name in IMPURE_NAMES {
        for (s, line) in places(&sources, |s| s.product.as_str(), name) {
            let excepted = PURE_EXCEPTIONS.iter().any(|e| s.path.starts_with(e));
            if PURE_CRATES.contains(&s.krate()) && !excepted {
                faults.push(format!("{} uses {name}", at(s, line)));
            }
        }
    }
    report("take bytes and `now` as arguments; the caller owns sockets and clocks", &faults);
}

/// Crates that run in a simulated world.
const SIMULATED: [&str; 7] = ["deliver", "engine", "net", "sessions", "vcl-runtime", "vmods", "worker"];

/// Returns the clock or the source of random numbers that a path names.
fn foreign_source(path: &str) -> Option<&'static str> {
    const FOREIGN: [&str; 7] = [
        "std::time::Instant",
        "std::time::SystemTime",
        "std::time::*",
        "tokio::time::Instant",
        "tokio::time::*",
        "getrandom",
        "rand",
    ];
    FOREIGN.into_iter().find(|&foreign| {
        path.strip_prefix(foreign).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

#[test]
fn time_and_randomness_have_one_source() {
    let sources = sources();
    let mut faults = Vec::new();
    for s in sources.iter().filter(|s| SIMULATED.contains(&s.krate())) {
        let used = paths::resolved(&s.product);
        faults.extend(
            used.iter().filter_map(|path| Some(format!("{} uses {}", s.path, foreign_source(path)?))),
        );
    }
    report("use lacquer_sources: a simulated world sets its clocks and random numbers", &faults);
}

#[test]
fn product_code_does_not_unwrap() {
    let mut faults = Vec::new();
    for s in &sources() {
        for (offset, _) in s.product.match_indices(".unwrap()") {
            faults.push(at(s, line_of(&s.product, offset)));
        }
    }
    report("return an error, or expect(\"why this cannot happen\")", &faults);
}

#[test]
fn no_code_is_unfinished() {
    let sources = sources();
    let mut faults = Vec::new();
    for name in ["todo!", "unimplemented!", "dbg!"] {
        for s in &sources {
            for (offset, _) in s.code.match_indices(name) {
                faults.push(format!("{} has {name}", at(s, line_of(&s.code, offset))));
            }
        }
    }
    report("finish it, or return an error and name the gap in docs/status.md", &faults);
}

#[test]
fn modules_do_not_form_cycles() {
    let sources = sources();
    let crates: BTreeSet<&str> = sources.iter().map(Source::krate).filter(|name| !name.is_empty()).collect();
    let cycle = |name: &str, modules: &Vec<String>| format!("{name}: {}", modules.join(" "));
    let mut found = Vec::new();
    for name in crates {
        found.extend(cycles::Graph::of(name, &sources).cycles().iter().map(|modules| cycle(name, modules)));
    }
    report("move what both need below them, or pass it in", &found);
}

fn crates() -> Crates {
    crates::read(&root(), &sources())
}

#[test]
fn the_list_of_crates_is_up_to_date() {
    let path = root().join("docs/architecture.md");
    let document = std::fs::read_to_string(&path).expect("readable");
    let update = std::env::var_os("UPDATE").is_some();
    let current = crates::with_list(&document, &crates(), !update);
    if update {
        return std::fs::write(&path, current).expect("writable");
    }
    let advice = "run `UPDATE=1 cargo test -p lacquer --test style` and review docs/architecture.md";
    assert!(document == current, "\nthe list of crates is out of date: {advice}\n");
}

#[test]
fn the_page_of_modules_is_up_to_date() {
    let path = root().join("docs/modules.md");
    let current = layers::page(&sources());
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(&path, current).expect("writable");
    }
    let document = std::fs::read_to_string(&path).expect("readable");
    let advice = "run `UPDATE=1 cargo test -p lacquer --test style`";
    assert!(document == current, "\nthe layers of the modules have changed: {advice}\n");
}

#[test]
fn crates_have_no_forbidden_dependencies() {
    let crates = crates();
    let mut faults = crates::out_of_place(&crates);
    for (name, others, why) in FORBIDDEN_DEPENDENCIES {
        let below = reached(name, &crates);
        for other in others {
            assert!(crates.contains_key(*other), "no crate is named {other}");
            if below.contains(other) {
                faults.push(format!("{name} depends on {other}: {why}"));
            }
        }
    }
    for name in PURE_CRATES {
        let is_allowed = |used: &str| PURE_CRATES.contains(&used) || PURE_USES.contains(&(name, used));
        let impure = crates[name].uses.iter().filter(|used| !is_allowed(used));
        faults.extend(impure.map(|used| format!("{name} is pure and uses {used}")));
    }
    report("move the shared items to a lower crate, or pass them as arguments", &faults);
}

#[test]
fn exceptions_from_clippy_are_few_and_have_reasons() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has one");
    let (_, lints) = manifest.split_once("[workspace.lints.clippy]").expect("it configures clippy");
    let allowed =
        lints.lines().take_while(|line| !line.starts_with('[')).filter(|line| line.contains("\"allow\""));
    let mut places: Vec<(String, bool)> =
        allowed.map(|line| (format!("Cargo.toml: {line}"), line.contains("# "))).collect();
    for s in &sources() {
        for (offset, _) in s.code.match_indices("clippy::") {
            let attribute = s.code[offset..].split_once(']').map_or("", |(inside, _)| inside);
            places.push((at(s, line_of(&s.code, offset)), attribute.contains("reason")));
        }
    }
    let unexplained: Vec<_> =
        places.iter().filter(|(_, reason)| !reason).map(|(place, _)| place.clone()).collect();
    report("give the reason, in a comment or as `reason = \"...\"`", &unexplained);
    if places.len() > MAX_CLIPPY_EXCEPTIONS {
        let places: Vec<_> = places.into_iter().map(|(place, _)| place).collect();
        report(
            &format!("follow clippy's advice: at most {MAX_CLIPPY_EXCEPTIONS} exceptions are allowed"),
            &places,
        );
    }
}

/// Returns each crate's folder and manifest.
fn manifests() -> Vec<(PathBuf, String)> {
    let crates = std::fs::read_dir(root().join("crates")).expect("readable").flatten().map(|e| e.path());
    let folders = crates.chain([root().join("tests/attack")]);
    let manifest = |folder: PathBuf| {
        let text = std::fs::read_to_string(folder.join("Cargo.toml")).expect("every crate has one");
        (folder, text)
    };
    folders.map(manifest).collect()
}

#[test]
fn every_dependency_is_explained() {
    let listed = std::fs::read_to_string(root().join("docs/dependencies.md")).expect("the list exists");
    let mut faults = Vec::new();
    for (folder, manifest) in manifests() {
        let unknown = |name: &&str| !name.starts_with("lacquer-") && !listed.contains(&format!("`{name}`"));
        let names = dependencies(&manifest).into_iter().filter(unknown);
        faults.extend(names.map(|name| format!("{}: {name}", folder.display())));
    }
    report("add a line to docs/dependencies.md: why it is needed, and its license", &faults);
}

#[test]
fn every_dependency_is_used() {
    let sources = sources();
    let mut faults = Vec::new();
    for (folder, manifest) in manifests() {
        let inside = format!("{}/", folder.strip_prefix(root()).expect("below the root").display());
        for name in dependencies(&manifest) {
            let name = name.replace('-', "_");
            let used = |s: &Source| s.path.starts_with(&inside) && words(&s.code, &name).next().is_some();
            if !sources.iter().any(used) {
                faults.push(format!("{inside}Cargo.toml: {name}"));
            }
        }
    }
    report("remove the dependency from the manifest: no file of the crate names it", &faults);
}

/// Returns the names in the dependency sections of a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if inside && let Some((key, _)) = line.split_once('=') {
            names.push(key.trim().trim_end_matches(".workspace"));
        }
    }
    names
}

#[test]
fn the_scanner_separates_code_from_prose() {
    let text = r##"//! unsafe here is prose
fn a<'x>(s: &'x [u8; 3]) -> &'x str { let c = '"'; r#"fn b() { unsafe "# }
trait T { fn declared(&self); }
/* fn c() { /* } */ */
#[cfg(test)]
mod tests { fn d() { None.unwrap() } }
fn e() {
    g('\'', "{")
}
"##;
    let s = Source::new("crates/x/src/lib.rs", text.to_owned());
    let names: Vec<_> = s.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    let expected =
        [("a", 2, 1), ("d", 6, 1), ("e", 7, 3)].map(|(n, line, lines)| (n.to_owned(), line, lines));
    assert_eq!(names, expected);
    assert_eq!(words(&s.code, "unsafe").count(), 0);
    assert!(!s.product.contains("unwrap"));
    assert_eq!(s.krate(), "x");
    let s = Source::new(
        "crates/x/src/lib.rs",
        "struct A<'a> { b: Vec<(u8, c::D)>, e: fn(u8) -> F, pub g: H }".into(),
    );
    let found: Vec<_> = s.structs().into_iter().map(|s| (s.name, s.fields)).collect();
    assert_eq!(found, [("A".to_owned(), 3)]);
}
