//! The modules of a crate and which of them use which: from `use` declarations, paths and calls of methods, with
//! re-exports followed to the module that has the item. Modules in a cycle cannot be read, tested or moved one without the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::methods::{self, Method, Methods};
use crate::paths::{self, Name, Use};
use crate::source::{Source, is_word, words};

/// The modules of one crate.
pub struct Graph {
    modules: BTreeMap<Name, Module>,
    /// The module with each method, by the module of its type.
    methods: BTreeMap<(Name, Method), Name>,
}

#[derive(Default)]
struct Module {
    uses: Vec<Name>,
    /// Names that other modules can import from here (private ones: only submodules), and where they are defined.
    exports: BTreeMap<String, Name>,
    inline: Vec<Name>,
    types: BTreeSet<String>,
    methods: Methods,
}

impl Graph {
    pub fn of(name: &str, sources: &[Source]) -> Graph {
        let folder = format!("crates/{name}/src/");
        let files = sources.iter().filter_map(|s| Some((s.path.strip_prefix(&folder)?, s)));
        let files = files.filter(|(path, s)| !path.starts_with("bin/") && !s.is_test());
        let modules = files.map(|(path, s)| (module_name(path), Module::read(&s.product))).collect();
        let mut graph = Graph { modules, methods: BTreeMap::new() };
        for (name, module) in &graph.modules {
            let key = |method: &Method| Some((graph.home(name, &method.of)?, method.clone()));
            let keys: Vec<_> = module.methods.defined.iter().filter_map(key).collect();
            graph.methods.extend(keys.into_iter().map(|key| (key, name.clone())));
        }
        graph
    }

    /// Returns the module that defines the type which another one knows by this name.
    fn home(&self, name: &Name, of: &str) -> Option<Name> {
        let module = &self.modules[name];
        if module.types.contains(of) {
            return Some(name.clone());
        }
        self.resolve(name, module.exports.get(of)?, 0)
    }

    fn edges(&self, targets: impl Fn(&Name, &Module) -> BTreeSet<Name>) -> BTreeMap<&Name, BTreeSet<Name>> {
        let targets =
            |(name, module)| (name, targets(name, module).into_iter().filter(|t| t != name).collect());
        self.modules.iter().map(targets).collect()
    }

    /// Returns the modules in layers, from the lowest on. A module names only modules of the layers below its own. There
    /// must be no cycles.
    pub fn layers(&self) -> Vec<Vec<String>> {
        let edges = self.edges(|name, module| self.named(name, module));
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

    /// Returns the modules that reach themselves, in groups that reach each other.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let edges = self.edges(|name, module| &self.named(name, module) | &self.called(name, module));
        let reach: BTreeMap<&Name, BTreeSet<Name>> =
            edges.keys().map(|&name| (name, reachable(name, &edges))).collect();
        let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
        for (&name, reached) in reach.iter().filter(|(name, reached)| reached.contains(**name)) {
            let group = reached.iter().filter(|other| reach[*other].contains(name));
            groups.insert(group.map(|other| other.join("::")).collect());
        }
        groups.into_iter().collect()
    }

    /// The modules that a module names.
    fn named(&self, name: &Name, module: &Module) -> BTreeSet<Name> {
        let inline = module.inline.iter().filter(|path| self.is_own(name, path));
        module.uses.iter().chain(inline).filter_map(|path| self.resolve(name, path, 0)).collect()
    }

    /// The modules whose methods a module calls.
    fn called(&self, name: &Name, module: &Module) -> BTreeSet<Name> {
        let of = |method: &Method| self.methods.get(&(self.home(name, &method.of)?, method.clone())).cloned();
        module.methods.called.iter().filter_map(of).collect()
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
        let (declared, other) = paths::split(code);
        let mut module = Module {
            inline: paths::inline(&other),
            types: ["struct", "enum"].into_iter().flat_map(|kind| names_after(code, kind)).collect(),
            methods: methods::read(code),
            ..Module::default()
        };
        for Use { path, shown_as, is_public } in declared {
            module.exports.insert(shown_as, path.clone());
            if !is_public {
                module.uses.push(path);
            }
        }
        module
    }
}

/// The names that follow a word.
fn names_after<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = String> + 'a {
    let name =
        move |at: usize| code[at + word.len()..].trim_start().chars().take_while(|c| is_word(*c)).collect();
    words(code, word).map(name)
}

#[test]
fn cycles_are_found_through_methods() {
    let file = |path: &str, text: &str| Source::new(path, text.to_owned());
    let sources = [
        file("crates/x/src/lib.rs", "mod a; mod b; mod thing; pub use thing::Thing;"),
        file("crates/x/src/thing.rs", "pub struct Thing; pub enum Other { A } impl Other { fn a(&self) {} }"),
        file("crates/x/src/a.rs", "use crate::Thing; impl Thing { fn a(&self) { self.b() } }"),
        file(
            "crates/x/src/b.rs",
            "use crate::thing::*; use crate::Thing; impl Thing { fn b(&self) {} }
            fn f(thing: &mut Thing, other: &Other) { thing.a(); other.a() }",
        ),
    ];
    assert_eq!(Graph::of("x", &sources).cycles(), [["a", "b"]]);
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
