//! The words that may follow at a place.

use std::collections::BTreeSet;

use lacquer_vcl::Catalogue;
use lacquer_vcl::signature::Signature;
use lacquer_vcl::types::Action;
use lacquer_vcl::variables_table::{ALL, ENTRIES, HEADERS};

use super::catalogue::{method, signature};
use super::outline::{Declared, Kind, Outline};
use super::word::{statement_before, word_at};

/// The beginnings of statements in subroutines, and of declarations.
const STATEMENTS: [&str; 9] = ["set", "unset", "if", "else", "elseif", "call", "return", "new", "synthetic"];
const DECLARATIONS: [&str; 7] = ["backend", "probe", "acl", "sub", "import", "include", "vcl"];
/// Headers that many programs use.
const COMMON_HEADERS: [&str; 14] = [
    "Accept-Encoding",
    "Age",
    "Authorization",
    "Cache-Control",
    "Content-Type",
    "Cookie",
    "ETag",
    "Host",
    "Location",
    "Set-Cookie",
    "User-Agent",
    "Vary",
    "X-Cache",
    "X-Forwarded-For",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    Variable,
    Function,
    Method,
    Class,
    Module,
    Keyword,
    /// The name of a backend, acl, probe or object.
    Name,
}

/// A word that may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub label: String,
    pub kind: CandidateKind,
    pub detail: String,
}

impl Candidate {
    fn new(label: impl Into<String>, kind: CandidateKind, detail: impl Into<String>) -> Candidate {
        Candidate { label: label.into(), kind, detail: detail.into() }
    }
}

/// Returns the words that may follow at an offset. They replace the part of the path before it. `outlines` are those of the
/// whole program.
pub fn complete(
    text: &str,
    offset: usize,
    own: &Outline,
    outlines: &[&Outline],
    catalogue: &dyn Catalogue,
) -> Vec<Candidate> {
    let word = word_at(text, offset);
    let prefix = word.prefix().to_owned();
    let before = statement_before(text, offset - prefix.len());
    let place = Place {
        before: before.trim(),
        prefix: &prefix,
        declared: outlines.iter().flat_map(|outline| &outline.declared).collect(),
        catalogue,
        methods: own.sub_at(offset).map_or(0, |sub| methods_of(&sub.name, outlines)),
    };
    let mut found = place.candidates();
    found.retain(|candidate| starts_with(&candidate.label, &prefix));
    found.sort_by(|a, b| a.label.cmp(&b.label));
    found.dedup_by(|a, b| a.label == b.label);
    found
}

/// Compares without regard to case.
fn starts_with(label: &str, prefix: &str) -> bool {
    label.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Returns the methods that reach a subroutine, all if none is known to do.
fn methods_of(name: &str, outlines: &[&Outline]) -> u32 {
    let (mut seen, mut next) = (BTreeSet::new(), vec![name]);
    let mut methods = 0;
    while let Some(name) = next.pop() {
        if !seen.insert(name) {
            continue;
        }
        methods |= method(name).map_or(0, |method| 1 << method as u32);
        let calls = outlines.iter().flat_map(|outline| &outline.calls);
        next.extend(calls.filter(|(_, called)| called == name).map(|(caller, _)| caller.as_str()));
    }
    if methods == 0 { ALL } else { methods }
}

/// The surroundings of a word that is typed.
struct Place<'p> {
    /// The statement before the word.
    before: &'p str,
    /// The path before the place.
    prefix: &'p str,
    declared: Vec<&'p Declared>,
    catalogue: &'p dyn Catalogue,
    /// The methods in which the place may run; 0 outside of subroutines.
    methods: u32,
}

impl Place<'_> {
    fn candidates(&self) -> Vec<Candidate> {
        let first = self.before.split_whitespace().next().unwrap_or_default();
        if first == "import" {
            let names = self.catalogue.names();
            return names
                .into_iter()
                .map(|name| Candidate::new(name, CandidateKind::Module, "module"))
                .collect();
        }
        if self.methods == 0 {
            return self.outside();
        }
        match first {
            "" => self.statements(),
            "call" => self.names(&[Kind::Sub]),
            "return" if self.before.ends_with('(') && !self.before.contains(',') => self.actions(),
            "set" | "unset" if self.before == first => self.variables(first),
            _ => {
                let mut all = self.variables("read");
                all.extend(self.names(&[Kind::Backend, Kind::Acl, Kind::Probe]));
                all.extend(self.of_modules());
                all
            }
        }
    }

    /// Returns the words outside of subroutines.
    fn outside(&self) -> Vec<Candidate> {
        if self.before.ends_with('=') || self.before.ends_with("default") {
            return self.names(&[Kind::Probe, Kind::Backend]);
        }
        let keyword = |word: &str| Candidate::new(word, CandidateKind::Keyword, "");
        if self.before.is_empty() {
            return DECLARATIONS.into_iter().map(keyword).collect();
        }
        if self.before == "sub" {
            let methods = lacquer_vcl::types::Method::ALL.into_iter();
            return methods.map(|method| keyword(method.sub_name())).collect();
        }
        Vec::new()
    }

    fn statements(&self) -> Vec<Candidate> {
        let keyword = |word: &str| Candidate::new(word, CandidateKind::Keyword, "");
        let mut all: Vec<Candidate> = STATEMENTS.into_iter().map(keyword).collect();
        all.extend(self.of_modules());
        all
    }

    fn actions(&self) -> Vec<Candidate> {
        let may = |action: &Action| lacquer_vcl::allowed_in(*action) & self.methods != 0;
        let allowed = Action::ALL.into_iter().filter(may);
        allowed.map(|action| Candidate::new(action.name(), CandidateKind::Keyword, "action")).collect()
    }

    fn names(&self, kinds: &[Kind]) -> Vec<Candidate> {
        let wanted = self.declared.iter().filter(|declared| kinds.contains(&declared.kind));
        wanted.map(|d| Candidate::new(&d.name, CandidateKind::Name, d.kind.word())).collect()
    }

    /// Returns the variables and headers for a use: `set`, `unset` or `read`.
    fn variables(&self, wanted: &str) -> Vec<Candidate> {
        let allows = |read: u32, write: u32, unset: u32| {
            let bits = match wanted {
                "set" => write,
                "unset" => unset,
                _ => read,
            };
            bits & self.methods != 0
        };
        let entries = ENTRIES.iter().filter(|entry| allows(entry.read, entry.write, entry.unset));
        let mut all: Vec<Candidate> = entries
            .map(|entry| {
                let detail = format!("{}: {}", entry.ty.name(), entry.var.prose());
                Candidate::new(entry.name, CandidateKind::Variable, detail)
            })
            .collect();
        for headers in HEADERS.iter().filter(|h| allows(h.read, h.write, h.unset)) {
            let is_typed = starts_with(self.prefix, headers.name);
            if is_typed {
                let header = |name: &str| {
                    Candidate::new(format!("{}.{name}", headers.name), CandidateKind::Variable, "HEADER")
                };
                all.extend(COMMON_HEADERS.into_iter().map(header));
            } else {
                all.push(Candidate::new(format!("{}.", headers.name), CandidateKind::Variable, "headers"));
            }
        }
        all
    }

    /// Returns modules and objects, or the functions of the one that is typed.
    fn of_modules(&self) -> Vec<Candidate> {
        let Some((first, _)) = self.prefix.split_once('.') else {
            return self.names(&[Kind::Module, Kind::Object]);
        };
        let Some(found) = self.declared.iter().find(|declared| declared.name == first) else {
            return Vec::new();
        };
        let candidate = |kind: CandidateKind, found: &Signature| {
            let name = format!("{first}.{}", found.name);
            let detail = signature(&name, found);
            Candidate::new(name, kind, detail)
        };
        let may = |found: &&Signature| found.allowed & self.methods != 0;
        match found.kind {
            Kind::Module => {
                let Some(module) = self.catalogue.module(&found.of) else { return Vec::new() };
                if self.before.starts_with("new ") {
                    let objects = module.objects.iter();
                    return objects.map(|object| candidate(CandidateKind::Class, &object.init)).collect();
                }
                module.functions.iter().filter(may).map(|f| candidate(CandidateKind::Function, f)).collect()
            }
            Kind::Object => {
                let Some((module, object)) = found.of.split_once('.') else { return Vec::new() };
                let of = self.declared.iter().find(|d| d.kind == Kind::Module && d.name == module);
                let Some(module) = of.and_then(|of| self.catalogue.module(&of.of)) else { return Vec::new() };
                let Some(object) = module.object(object) else { return Vec::new() };
                object.methods.iter().filter(may).map(|m| candidate(CandidateKind::Method, m)).collect()
            }
            _ => Vec::new(),
        }
    }
}
