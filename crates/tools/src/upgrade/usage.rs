//! Uses of variables in other places of the old text, on which the replacement of a statement depends.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Usage {
    /// The subroutines of the client's side that read each variable, whose name is in lower case.
    readers: BTreeMap<String, BTreeSet<String>>,
    /// The last token that sets each variable in each subroutine of the client's side.
    last_changes: BTreeMap<String, BTreeMap<String, usize>>,
    /// The last call in each subroutine.
    last_calls: BTreeMap<String, usize>,
    /// The first token that sets the lifetime of a response in `vcl_fetch` or in a subroutine that it calls, or that may do
    /// so in another file.
    first_lifetime: Option<usize>,
}

impl Usage {
    /// Adds a variable that a subroutine of the client's side reads, or changes at a token.
    pub fn add(&mut self, name: String, sub: &str, changed: Option<usize>) {
        match changed {
            Some(at) => drop(self.last_changes.entry(name).or_default().insert(sub.to_owned(), at)),
            None => drop(self.readers.entry(name).or_default().insert(sub.to_owned())),
        }
    }

    /// Adds a call in a subroutine.
    pub fn add_call(&mut self, sub: &str, at: usize) {
        self.last_calls.insert(sub.to_owned(), at);
    }

    /// Adds a token that sets the lifetime of a response.
    pub fn add_lifetime(&mut self, at: usize) {
        self.first_lifetime.get_or_insert(at);
    }

    /// Returns whether a subroutine of the client's side other than `sub` reads a variable.
    pub fn is_read_beside(&self, sub: &str, name: &str) -> bool {
        let readers = self.readers.get(&name.to_ascii_lowercase());
        readers.is_some_and(|subs| subs.iter().any(|other| other != sub))
    }

    /// Returns whether the client's side may change variables after a token of a subroutine: there, in a subroutine that
    /// it calls, or in one that calls it.
    pub fn may_change_after(&self, variables: &[&str], sub: &str, at: usize) -> bool {
        let calls_another = self.last_calls.get(sub).is_some_and(|call| *call > at);
        let changes = variables.iter().filter_map(|name| self.last_changes.get(*name));
        changes.flatten().any(|(changing, last)| match changing.as_str() {
            name if name == sub => *last > at,
            name => is_helper(sub) || calls_another && is_helper(name),
        })
    }

    /// Returns whether the lifetime of a response may have been set before a token of a subroutine. One that another
    /// calls, or that has called one (`has_called`), may run after any statement.
    pub fn may_have_lifetime(&self, sub: &str, at: usize, has_called: bool) -> bool {
        let is_around = is_helper(sub) || has_called;
        self.first_lifetime.is_some_and(|first| first < at || is_around)
    }
}

/// Returns whether others call a subroutine.
fn is_helper(sub: &str) -> bool {
    !sub.starts_with("vcl_")
}
