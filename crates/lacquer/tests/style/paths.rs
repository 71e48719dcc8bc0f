//! Finds the paths in a file: those of its `use` declarations, and those in its code.

use std::collections::{BTreeMap, BTreeSet};

/// The parts of a path. A module's path starts within its crate; the path of the crate's root is empty.
pub type Name = Vec<String>;

/// One path of a `use` declaration.
pub struct Use {
    pub path: Name,
    /// The name by which the file refers to it.
    pub shown_as: String,
    pub is_public: bool,
}

/// Returns the paths of all `use` declarations, and the code without these declarations.
pub fn split(code: &str) -> (Vec<Use>, String) {
    let (mut uses, mut other, mut rest) = (Vec::new(), String::new(), code);
    while let Some(at) = next_use(rest) {
        let (before, declaration) = rest.split_at(at);
        let is_public = is_public(before);
        let end = declaration.find(';').unwrap_or(declaration.len());
        let mut paths = Vec::new();
        expand(&Name::new(), &declaration["use ".len()..end], &mut paths);
        uses.extend(paths.into_iter().map(|(path, shown_as)| Use { path, shown_as, is_public }));
        other.push_str(before);
        rest = &declaration[end..];
    }
    other.push_str(rest);
    (uses, other)
}

/// Returns all paths in a file. Imported names are replaced by their full paths.
pub fn resolved(code: &str) -> BTreeSet<String> {
    let (uses, other) = split(code);
    let imported: BTreeMap<&str, &Name> = uses.iter().map(|u| (u.shown_as.as_str(), &u.path)).collect();
    let full = |path: Name| match imported.get(path[0].as_str()) {
        Some(prefix) => [prefix, &path[1..]].concat(),
        None => path,
    };
    let inline = inline(&other).into_iter().filter(|path| !path.is_empty()).map(full);
    inline.chain(uses.iter().map(|u| u.path.clone())).map(|path| path.join("::")).collect()
}

fn next_use(code: &str) -> Option<usize> {
    crate::source::words(code, "use").find(|&at| code[at..].starts_with("use "))
}

/// Returns whether the declaration that follows `before` is public.
fn is_public(before: &str) -> bool {
    let line = before.rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
    line.starts_with("pub")
}

/// Adds all paths of a `use` tree, with the names that the file uses for them.
fn expand(prefix: &Name, tree: &str, into: &mut Vec<(Name, String)>) {
    let tree = tree.trim();
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, group.strip_suffix('}')),
        None => (tree, None),
    };
    let (path, renamed) = match head.split_once(" as ") {
        Some((path, name)) if group.is_none() => (path, Some(name.trim())),
        _ => (head, None),
    };
    let mut name = prefix.clone();
    name.extend(path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    let Some(group) = group else {
        if name.len() > 1 && name.last().is_some_and(|last| last == "self") {
            name.pop();
        }
        let shown = renamed.or(name.last().map(String::as_str)).unwrap_or_default().to_owned();
        return into.push((name, shown));
    };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&name, &group[start..at], into);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !group[start..].trim().is_empty() {
        expand(&name, &group[start..], into);
    }
}

/// Returns the paths in `code` that have at least two parts.
pub fn inline(code: &str) -> Vec<Name> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = code.split(|c| !is_part(c)).filter(|path| path.contains("::"));
    let parts = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let paths: BTreeSet<Name> = paths.filter(|path| !path.starts_with("::")).map(parts).collect();
    paths.into_iter().collect()
}

#[test]
fn grouped_and_renamed_imports_are_resolved() {
    let code = "use std::{io, time::{self as clock, Duration, Instant as Moment}};
        fn f() { Moment::now(); clock::SystemTime::now(); io::stdin(); a::b(); }";
    let expected = [
        "a::b",
        "std::io",
        "std::io::stdin",
        "std::time",
        "std::time::Duration",
        "std::time::Instant",
        "std::time::Instant::now",
        "std::time::SystemTime::now",
    ];
    assert_eq!(resolved(code).into_iter().collect::<Vec<_>>(), expected);
}
