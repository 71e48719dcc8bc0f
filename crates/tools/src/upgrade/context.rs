//! Where a subroutine runs, which decides what its variables and actions become.

use std::collections::{BTreeMap, BTreeSet};

use lacquer_vcl::tokens::{Tok, Token};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// `vcl_recv` and other subroutines of the client's side.
    Client,
    Hash,
    Hit,
    Miss,
    Pass,
    /// `vcl_fetch`, now `vcl_backend_response`.
    Fetch,
    /// `vcl_error`, now `vcl_synth`.
    Error,
    /// The copy of `vcl_error` for failed fetches.
    BackendError,
    /// A subroutine of VCL 4 on the backend's side, whose variables have their new names.
    Backend,
    /// Statements of `vcl_miss` and `vcl_pass` on the backend's request, now in `vcl_backend_fetch`.
    BackendFetch,
}

impl Context {
    fn of_method(name: &str) -> Option<Context> {
        Some(match name {
            "vcl_fetch" => Context::Fetch,
            "vcl_error" => Context::Error,
            "vcl_hit" => Context::Hit,
            "vcl_miss" => Context::Miss,
            "vcl_pass" => Context::Pass,
            "vcl_hash" => Context::Hash,
            name if name.starts_with("vcl_backend") => Context::Backend,
            name if name.starts_with("vcl_") => Context::Client,
            _ => return None,
        })
    }

    /// Returns the context of a part of a subroutine, by the subroutine's old or new name.
    pub fn of_part(sub: &str) -> Context {
        match sub {
            "vcl_backend_response" => Context::Fetch,
            "vcl_synth" => Context::Error,
            "vcl_backend_error" => Context::BackendError,
            other => Context::of_method(other).unwrap_or(Context::Client),
        }
    }

    pub fn is_backend(self) -> bool {
        matches!(self, Context::Fetch | Context::BackendError | Context::Backend | Context::BackendFetch)
    }

    /// Returns whether `bereq` was available here and is no longer.
    pub fn lost_bereq(self) -> bool {
        matches!(self, Context::Miss | Context::Pass)
    }
}

/// The contexts of the subroutines of a text.
pub struct Contexts {
    found: BTreeMap<String, Context>,
    /// Subroutines that both sides call.
    shared: BTreeSet<String>,
    /// Subroutines of the text.
    declared: BTreeSet<String>,
    /// The second versions of the subroutines that `vcl_error` calls, for its copy and for `vcl_fetch`.
    error_copies: BTreeMap<String, String>,
}

impl Contexts {
    /// Follows the calls from the subroutines of the flow. A helper that several of them call has the context of one of
    /// them: of one of the client's side, if there is one.
    pub fn of(text: &[u8], tokens: &[Token], ends: &BTreeMap<usize, usize>) -> Contexts {
        let word = |at: usize| {
            let span = tokens[at].span;
            std::str::from_utf8(&text[span.start as usize..span.end as usize]).unwrap_or_default()
        };
        let mut calls: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for at in 0..tokens.len().saturating_sub(2) {
            if word(at) == "sub" && tokens[at + 2].kind == Tok::LBrace {
                let end = ends.get(&(at + 2)).copied().unwrap_or(at + 2);
                let called = (at + 3..end).filter(|i| word(*i) == "call").map(|i| word(i + 1));
                calls.entry(word(at + 1)).or_default().extend(called);
            }
        }
        let mut found = BTreeMap::new();
        let methods: Vec<(&str, Context)> =
            calls.keys().filter_map(|name| Some((*name, Context::of_method(name)?))).collect();
        let mut open = methods.clone();
        // The last one is the first to be followed.
        open.sort_by_key(|(_, context)| !context.is_backend());
        while let Some((name, context)) = open.pop() {
            if found.contains_key(name) {
                continue;
            }
            found.insert(name.to_owned(), context);
            open.extend(calls.get(name).into_iter().flatten().map(|called| (*called, context)));
        }
        let [client, backend] = [false, true].map(|is_backend| {
            let of_side = methods.iter().filter(|(_, context)| context.is_backend() == is_backend);
            reachable(&calls, of_side.map(|(name, _)| *name).collect())
        });
        let shared = client.intersection(&backend).map(|name| (*name).to_owned()).collect();
        let declared = calls.keys().map(|name| (*name).to_owned()).collect();
        let mut copied = reachable(&calls, vec!["vcl_error"]);
        copied.retain(|name| !name.starts_with("vcl_") && calls.contains_key(name));
        // Names of declarations of all kinds must differ.
        let used: BTreeSet<&str> = (0..tokens.len()).filter(|_| !copied.is_empty()).map(word).collect();
        let error_copies = copied.into_iter().map(|name| (name.to_owned(), copy_name(name, &used))).collect();
        Contexts { found, shared, declared, error_copies }
    }

    /// Adds a subroutine of another text.
    pub fn add(&mut self, sub: &str, context: Context) {
        self.found.insert(sub.to_owned(), context);
    }

    pub fn of_sub(&self, name: &str) -> Context {
        self.found.get(name).copied().unwrap_or(Context::Client)
    }

    /// Returns whether the text declares a subroutine.
    pub fn is_declared(&self, name: &str) -> bool {
        self.declared.contains(name)
    }

    /// Returns the name of the second version of a subroutine, which the copy of `vcl_error` and `vcl_fetch` call.
    pub fn error_copy(&self, name: &str) -> Option<&str> {
        self.error_copies.get(name).map(String::as_str)
    }

    /// Returns whether both sides call a subroutine, so that it needs two versions.
    pub fn is_shared(&self, name: &str) -> bool {
        self.shared.contains(name)
    }
}

/// Returns a name for the second version of a subroutine, which the text does not use. Different subroutines get different
/// names.
fn copy_name(name: &str, used: &BTreeSet<&str>) -> String {
    let mut copy = format!("{name}_backend");
    while used.contains(copy.as_str()) {
        copy.push_str("_error");
    }
    copy
}

/// Returns some subroutines and all that they call.
fn reachable<'t>(calls: &BTreeMap<&'t str, BTreeSet<&'t str>>, mut open: Vec<&'t str>) -> BTreeSet<&'t str> {
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(calls.get(name).into_iter().flatten());
        }
    }
    seen
}
