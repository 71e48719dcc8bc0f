//! Determines which files belong to the product and which are tests, in the same way as Cargo: from the root files of
//! the targets along the module declarations. The name of a file or a folder has no influence.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, words};

/// The root file of a Cargo target.
pub struct Target {
    pub path: String,
    /// The target is a test, a benchmark or an example.
    pub is_test: bool,
}

/// Returns the files of the product: those that are reached by declarations without `cfg(test)` from the root file of a
/// library, a program or a build script.
pub fn product(sources: &[Source], targets: &[Target]) -> BTreeSet<String> {
    let roots = targets.iter().filter(|target| !target.is_test);
    reached(sources, roots, |s| s.product.as_str())
}

/// Returns all files that Cargo builds.
pub fn built(sources: &[Source], targets: &[Target]) -> BTreeSet<String> {
    reached(sources, targets.iter(), |s| s.code.as_str())
}

fn reached<'a>(
    sources: &[Source],
    roots: impl Iterator<Item = &'a Target>,
    code: impl Fn(&Source) -> &str,
) -> BTreeSet<String> {
    let by_path: BTreeMap<&str, &Source> = sources.iter().map(|s| (s.path.as_str(), s)).collect();
    let mut next: Vec<(String, bool)> = roots.map(|root| (root.path.clone(), true)).collect();
    let mut seen = BTreeSet::new();
    while let Some((path, is_root)) = next.pop() {
        let Some(&source) = by_path.get(path.as_str()) else { continue };
        if !seen.insert(path.clone()) {
            continue;
        }
        let folder = folder_of_parts(&path, is_root);
        let code = code(source);
        for name in declared(code) {
            next.extend([format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")].map(|p| (p, false)));
        }
        next.extend(named(code, &source.text).map(|name| (format!("{folder}{name}"), false)));
    }
    seen
}

/// Returns the folder that contains the modules that a file declares.
fn folder_of_parts(path: &str, is_root: bool) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    if is_root || file == "mod.rs" {
        format!("{folder}/")
    } else {
        format!("{}/", path.trim_end_matches(".rs"))
    }
}

/// Returns the names of the modules that are declared without a body.
fn declared(code: &str) -> Vec<&str> {
    let name = |at: usize| {
        let (name, _) = code[at + "mod".len()..].split_once(';')?;
        let name = name.trim();
        name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
    };
    words(code, "mod").filter_map(name).collect()
}

/// Returns the files that `path = "other.rs"` attributes name. `code` is `text` with its literals blanked, so positions
/// are the same in both.
fn named<'a>(code: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    words(code, "path").filter_map(|at| text[at..].strip_prefix("path = \"")?.split('"').next())
}

#[test]
fn only_what_a_test_declares_is_a_test() {
    let file = |path: &str, text: &str| Source::new(path, text.to_owned());
    let sources = [
        file(
            "crates/x/src/lib.rs",
            "mod a; mod tests; #[cfg(test)] mod b_tests; #[path = \"other.rs\"] mod c;",
        ),
        file("crates/x/src/other.rs", ""),
        file("crates/x/src/a/mod.rs", "#[cfg(all(test, not(loom)))] mod part; mod inline { fn f() {} }"),
        file("crates/x/src/a/part.rs", "mod deep;"),
        file("crates/x/src/a/part/deep.rs", ""),
        file("crates/x/src/b_tests.rs", ""),
        file("crates/x/src/forgotten_tests.rs", ""),
        file("crates/x/src/tests/mod.rs", ""),
        file("crates/x/tests/all.rs", "mod common;"),
        file("crates/x/tests/common/mod.rs", ""),
        file("crates/x/tests/unused.rs", ""),
    ];
    let target = |path: &str, is_test| Target { path: path.to_owned(), is_test };
    let targets = [target("crates/x/src/lib.rs", false), target("crates/x/tests/all.rs", true)];
    let found: Vec<_> = product(&sources, &targets).into_iter().collect();
    let expected =
        ["a/mod.rs", "lib.rs", "other.rs", "tests/mod.rs"].map(|path| format!("crates/x/src/{path}"));
    assert_eq!(found, expected);
    let built = built(&sources, &targets);
    let not_built: Vec<&str> =
        sources.iter().map(|s| s.path.as_str()).filter(|path| !built.contains(*path)).collect();
    assert_eq!(not_built, ["crates/x/src/forgotten_tests.rs", "crates/x/tests/unused.rs"]);
}
