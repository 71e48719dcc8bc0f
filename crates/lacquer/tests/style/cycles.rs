//! The modules of a crate and their dependencies, found from `use` declarations and paths; re-exports are followed to
//! the module that defines the item. Modules that form a cycle cannot be read, tested or moved separately.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// A module's path within its crate; the root's is empty.
type Name = Vec<String>;

/// The modules of one crate.
pub struct Graph {
    modules: BTreeMap<Name, Module>,
}

#[derive(Default)]
struct Module {
    uses: Vec<Name>,
    /// Names that other modules can import from here (private ones: only submodules), and where they are defined.
    exports: BTreeMap<String, Name>,
    inline: Vec<Name>,
}

impl Graph {
    pub fn of(name: &str, sources: &[Source]) -> Graph {
        let folder = format!("crates/{name}/src/");
        let files = sources.iter().filter_map(|s| Some((s.path.strip_prefix(&folder)?, s)));
        let files = files.filter(|(path, _)| !path.starts_with("bin/"));
        Graph { modules: files.map(|(path, s)| (module_name(path), Module::read(&s.product))).collect() }
    }

    fn edges(&self) -> BTreeMap<&Name, BTreeSet<Name>> {
        self.modules.iter().map(|(name, module)| (name, self.targets(name, module))).collect()
    }

    /// Returns the modules in layers, the lowest first. A module uses only modules of lower layers. There must be no
    /// cycles.
    pub fn layers(&self) -> Vec<Vec<String>> {
        let edges = self.edges();
        let mut heights: BTreeMap<&Name, usize> = BTreeMap::new();
        while heights.len() < edges.len() {
            let known = heights.len();
            for (&name, targets) in &edges {
                let below: Option<Vec<usize>> = targets.iter().map(|t| heights.get(t).copied()).collect();
                if let Some(below) = below {
                    heights.insert(name, below.into_iter().max().map_or(0, |height| height + 1));
                }
            }
            assert!(heights.len() > known, "modules use each other in a cycle");
        }
        let mut layers = vec![Vec::new(); heights.values().max().map_or(0, |height| height + 1)];
        for (name, height) in heights.into_iter().filter(|(name, _)| !name.is_empty()) {
            layers[height].push(name.join("::"));
        }
        layers.retain(|layer| !layer.is_empty());
        layers
    }

    /// Returns the modules that depend on themselves, grouped by cycle.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let edges = self.edges();
        let reach: BTreeMap<&Name, BTreeSet<Name>> =
            edges.keys().map(|&name| (name, reachable(name, &edges))).collect();
        let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
        for (&name, reached) in reach.iter().filter(|(name, reached)| reached.contains(**name)) {
            let group = reached.iter().filter(|other| reach[*other].contains(name));
            groups.insert(group.map(|other| other.join("::")).collect());
        }
        groups.into_iter().collect()
    }

    fn targets(&self, name: &Name, module: &Module) -> BTreeSet<Name> {
        let inline = module.inline.iter().filter(|path| self.is_own(name, path));
        let found = module.uses.iter().chain(inline).filter_map(|path| self.resolve(name, path, 0));
        found.filter(|target| target != name).collect()
    }

    /// Returns whether a path in code refers to this crate: it starts with `crate`, `super` or a submodule.
    fn is_own(&self, name: &Name, path: &Name) -> bool {
        let is_child = || self.modules.contains_key(&[&name[..], &path[..1]].concat());
        path.first().is_some_and(|first| first == "crate" || first == "super") || is_child()
    }

    /// Returns the module that defines the item with this path.
    fn resolve(&self, from: &Name, path: &[String], depth: u32) -> Option<Name> {
        let mut rest = path;
        let mut at = match rest.first()?.as_str() {
            "crate" => Name::new(),
            _ => from.clone(),
        };
        if let "crate" | "self" = rest[0].as_str() {
            rest = &rest[1..];
        }
        while rest.first().is_some_and(|part| part == "super") {
            at.pop();
            rest = &rest[1..];
        }
        while let [part, tail @ ..] = rest {
            let inner = [&at[..], std::slice::from_ref(part)].concat();
            if self.modules.contains_key(&inner) {
                (at, rest) = (inner, tail);
            } else if let Some(path) = self.modules.get(&at).and_then(|module| module.exports.get(part)) {
                return if depth < 8 { self.resolve(&at, path, depth + 1) } else { None };
            } else {
                break;
            }
        }
        let starts_here = path[0] == "crate" || path[0] == "super" || path[0] == "self" || at != *from;
        (self.modules.contains_key(&at) && starts_here).then_some(at)
    }
}

fn module_name(path: &str) -> Name {
    let mut parts: Name = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
        parts.pop();
    }
    parts
}

fn reachable(from: &Name, edges: &BTreeMap<&Name, BTreeSet<Name>>) -> BTreeSet<Name> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(name) = next.pop() {
        for target in edges.get(name).into_iter().flatten() {
            if seen.insert(target.clone()) {
                next.push(target);
            }
        }
    }
    seen
}

impl Module {
    fn read(code: &str) -> Module {
        let mut module = Module::default();
        let mut rest = code;
        let mut other = String::new();
        while let Some(at) = next_use(rest) {
            let (before, declaration) = rest.split_at(at);
            let is_exported = is_public(before);
            let end = declaration.find(';').unwrap_or(declaration.len());
            let mut paths = Vec::new();
            expand(&Name::new(), &declaration["use ".len()..end], &mut paths);
            for (path, exported_as) in paths {
                module.exports.insert(exported_as, path.clone());
                if !is_exported {
                    module.uses.push(path);
                }
            }
            other.push_str(before);
            rest = &declaration[end..];
        }
        other.push_str(rest);
        module.inline = inline_paths(&other);
        module
    }
}

fn next_use(code: &str) -> Option<usize> {
    crate::source::words(code, "use").find(|&at| code[at..].starts_with("use "))
}

/// Returns whether a declaration after this code is public.
fn is_public(before: &str) -> bool {
    let line = before.rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
    line.starts_with("pub")
}

/// Appends all paths of a `use` tree, with the names that they are imported as.
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
        let exported_as = renamed.or(name.last().map(String::as_str)).unwrap_or_default().to_owned();
        return into.push((name, exported_as));
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

/// Returns the paths in code with at least two parts.
fn inline_paths(code: &str) -> Vec<Name> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = code.split(|c| !is_part(c)).filter(|path| path.contains("::"));
    let parts = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let paths: BTreeSet<Name> = paths.filter(|path| !path.starts_with("::")).map(parts).collect();
    paths.into_iter().collect()
}

#[test]
fn cycles_are_found_through_re_exports() {
    let file = |path: &str, text: &str| Source::new(path, text.to_owned());
    let sources = [
        file("crates/x/src/lib.rs", "mod a; mod b; mod c; pub use b::Thing;"),
        file("crates/x/src/a.rs", "use crate::Thing; fn f() { crate::c::g(); }"),
        file("crates/x/src/b/mod.rs", "mod inner; pub use inner::{Thing as Other, Thing};"),
        file("crates/x/src/b/inner.rs", "use super::super::a; pub struct Thing;"),
        file("crates/x/src/c.rs", "pub fn g() {} #[cfg(test)] mod tests { use crate::a; }"),
    ];
    let cycles = Graph::of("x", &sources).cycles();
    assert_eq!(cycles, [["a", "b::inner"]], "c is in no cycle");
}

#[test]
fn modules_use_only_lower_layers() {
    let file = |path: &str, text: &str| Source::new(path, text.to_owned());
    let sources = [
        file("crates/x/src/lib.rs", "mod a; mod b; mod c; mod d;"),
        file("crates/x/src/a.rs", "use crate::b; use super::c::C;"),
        file("crates/x/src/b.rs", "use crate::c::C;"),
        file("crates/x/src/c.rs", "pub struct C;"),
        file("crates/x/src/d.rs", "fn f() { crate::c::g(); }"),
    ];
    assert_eq!(Graph::of("x", &sources).layers(), [vec!["c"], vec!["b", "d"], vec!["a"]]);
}
