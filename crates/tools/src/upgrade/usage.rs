//! Uses of variables in other places of the old text, on which the replacement of a statement depends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::context::Context;
use super::rewriter::Rewriter;
use lacquer_vcl::tokens::Tok;

#[derive(Debug, Default)]
pub struct Usage {
    /// The subroutines of the client's side that read each variable, whose name is in lower case.
    readers: BTreeMap<String, BTreeSet<String>>,
    /// The last token that sets each variable in each subroutine of the client's side.
    last_changes: BTreeMap<String, BTreeMap<String, usize>>,
    /// The last call in each subroutine.
    last_calls: BTreeMap<String, usize>,
    /// The first token that sets the lifetime of a response in `vcl_fetch` or in a subroutine that it calls.
    first_lifetime: Option<usize>,
}

impl Usage {
    /// Adds a variable that a subroutine of the client's side reads, or changes at a token.
    fn add(&mut self, name: String, sub: &str, changed: Option<usize>) {
        match changed {
            Some(at) => drop(self.last_changes.entry(name).or_default().insert(sub.to_owned(), at)),
            None => drop(self.readers.entry(name).or_default().insert(sub.to_owned())),
        }
    }
}

impl Rewriter<'_> {
    /// Records the uses of variables in all subroutines.
    pub fn find_usage(&mut self) {
        let mut usage = Usage::default();
        let mut at = 0;
        while self.kind(at) != Tok::Eoi {
            if self.word(at) == "sub" && self.kind(at + 2) == Tok::LBrace {
                let close = self.ends.get(&(at + 2)).copied().unwrap_or(at + 2);
                self.add_uses(self.word(at + 1), at + 3..close, &mut usage);
                at = close;
            }
            at += 1;
        }
        self.usage = usage;
    }

    fn add_uses(&self, sub: &str, body: Range<usize>, usage: &mut Usage) {
        let is_client = !self.context_of(sub).is_backend() || self.contexts.is_shared(sub);
        let is_fetch = self.context_of(sub) == Context::Fetch || self.contexts.is_shared(sub);
        let mut at = body.start;
        let mut is_target = false;
        while at < body.end {
            if self.kind(at) != Tok::Id {
                is_target = false;
                at += 1;
                continue;
            }
            let (name, end) = self.whole_name(at);
            if is_target && is_fetch && matches!(name.as_str(), "beresp.ttl" | "obj.ttl") {
                usage.first_lifetime.get_or_insert(at);
            }
            if name == "call" {
                usage.last_calls.insert(sub.to_owned(), at);
            } else if is_client && end > at + 1 {
                usage.add(name.to_ascii_lowercase(), sub, is_target.then_some(at));
            }
            is_target = matches!(name.as_str(), "set" | "unset" | "remove");
            at = end;
        }
    }

    /// Returns whether a subroutine of the client's side other than the current one reads a variable.
    pub fn is_read_by_client(&self, name: &str) -> bool {
        let readers = self.usage.readers.get(&name.to_ascii_lowercase());
        readers.is_some_and(|subs| subs.iter().any(|sub| *sub != self.out.sub))
    }

    /// Returns whether the client's side may change variables after a token of the current subroutine: there, in a
    /// subroutine that it calls, or in one that calls it.
    pub fn may_change_after(&self, variables: &[&str], at: usize) -> bool {
        let sub = self.out.sub.as_str();
        let calls_another = self.usage.last_calls.get(sub).is_some_and(|call| *call > at);
        let changes = variables.iter().filter_map(|name| self.usage.last_changes.get(*name));
        changes.flatten().any(|(changing, last)| match changing.as_str() {
            name if name == sub => *last > at,
            name => is_helper(sub) || calls_another && is_helper(name),
        })
    }

    /// Returns whether the lifetime of a response may have been set before a token. A subroutine that another one calls,
    /// or that has called one, may run after any statement.
    pub fn may_have_lifetime(&self, at: usize) -> bool {
        let is_around = is_helper(&self.out.sub) || self.out.has_called;
        self.usage.first_lifetime.is_some_and(|first| first < at || is_around)
    }
}

/// Returns whether others call a subroutine.
fn is_helper(sub: &str) -> bool {
    !sub.starts_with("vcl_")
}
