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
    /// The first token that sets the lifetime of a response in `vcl_fetch` or in a subroutine that it calls.
    first_lifetime: Option<usize>,
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
            if is_client && !is_target && end > at + 1 {
                usage.readers.entry(name.to_ascii_lowercase()).or_default().insert(sub.to_owned());
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

    /// Returns whether the lifetime of a response may have been set before a token. A subroutine that another one calls,
    /// or that has called one, may run after any statement.
    pub fn may_have_lifetime(&self, at: usize) -> bool {
        let is_helper = !self.out.sub.starts_with("vcl_");
        self.usage.first_lifetime.is_some_and(|first| first < at || is_helper || self.out.has_called)
    }
}
