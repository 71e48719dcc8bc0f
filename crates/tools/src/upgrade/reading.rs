//! Reads the whole old text for the uses of variables, before it is rewritten.

use std::ops::Range;

use lacquer_vcl::tokens::Tok;

use super::context::Context;
use super::rewriter::Rewriter;
use super::usage::Usage;

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

    /// Records the uses of variables in a text that is a part of a subroutine.
    pub fn find_usage_of_part(&mut self, sub: &str, end: usize) {
        let mut usage = Usage::default();
        self.add_uses(sub, 0..end, &mut usage);
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
            let may_set_lifetime = match name.as_str() {
                "beresp.ttl" | "obj.ttl" => is_target,
                "include" => true,
                "call" => !self.contexts.is_declared(self.word(end)),
                _ => false,
            };
            if is_fetch && may_set_lifetime {
                usage.add_lifetime(at);
            }
            if name == "call" {
                usage.add_call(sub, at);
            } else if is_client && end > at + 1 {
                usage.add(name.to_ascii_lowercase(), sub, is_target.then_some(at));
            }
            is_target = matches!(name.as_str(), "set" | "unset" | "remove");
            at = end;
        }
    }
}
