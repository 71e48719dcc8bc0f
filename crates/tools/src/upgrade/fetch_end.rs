//! The end of `vcl_fetch`. The built-in VCL follows it, and tests more than that of Varnish 2 and 3 did.

use super::actions::BARE;
use super::context::Context;
use super::rewriter::Rewriter;
use lacquer_vcl::tokens::Tok;

/// The built-in `vcl_fetch` tested the lifetime, `Set-Cookie` and `Vary: *`, and not `Cache-Control`. A daemon with
/// `feature=+rfc9111` follows `Cache-Control` all the same.
const OLD_END: &str = "\n
# As in Varnish 2 and 3, responses with no-cache, no-store or private are cached, and shared by all clients. Remove this
# subroutine if they should not be. In Varnish, leave out the condition: only Lacquer has param.rfc9111.
sub vcl_beresp_control {
    if (!param.rfc9111) {
        return;
    }
}";

impl Rewriter<'_> {
    /// Writes the end of the old built-in VCL after the first `vcl_fetch`, if responses can reach it with a lifetime that
    /// the text has set.
    pub fn old_end_of_fetch(&mut self) {
        let is_first = !std::mem::replace(&mut self.out.has_fetch, true);
        if is_first && self.has_lifetime_at_end() && !self.ends_each_fetch() {
            self.out.caches_private = true;
            self.write(OLD_END);
        }
    }

    /// Returns whether a response can leave a subroutine of the fetch, without an action, after its lifetime was set.
    fn has_lifetime_at_end(&self) -> bool {
        let mut at = 0;
        while self.kind(at) != Tok::Eoi {
            if self.word(at) == "sub" && self.kind(at + 2) == Tok::LBrace {
                let name = self.word(at + 1);
                let close = self.ends.get(&(at + 2)).copied().unwrap_or(at + 2);
                let is_fetch = self.context_of(name) == Context::Fetch || self.contexts.is_shared(name);
                if is_fetch && self.leaves_with_lifetime(at + 3, close) {
                    return true;
                }
                at = close;
            }
            at += 1;
        }
        false
    }

    /// Returns whether a block can end, without an action, after a statement of it that sets a lifetime.
    fn leaves_with_lifetime(&self, from: usize, close: usize) -> bool {
        let mut has_lifetime = false;
        let mut at = from;
        while at < close {
            if self.is_end(at) {
                return false;
            }
            has_lifetime |= self.may_set_lifetime(at);
            let end = self.end_of_chain(at).clamp(at + 1, close);
            while at < end {
                let block_end = self.ends.get(&at).filter(|_| self.kind(at) == Tok::LBrace);
                if let Some(block_end) = block_end {
                    has_lifetime |= self.leaves_with_lifetime(at + 1, *block_end);
                }
                at = block_end.map_or(at, |end| *end) + 1;
            }
        }
        has_lifetime
    }

    /// Returns whether a statement sets the lifetime of a response to more than zero, or may do so in another file.
    fn may_set_lifetime(&self, at: usize) -> bool {
        match self.word(at) {
            "set" => {
                let (name, operator) = self.whole_name(at + 1);
                matches!(name.as_str(), "beresp.ttl" | "obj.ttl") && !self.is_zero(operator + 1)
            }
            "include" => true,
            "call" => !self.contexts.is_declared(self.word(at + 1)),
            _ => false,
        }
    }

    /// Returns whether a `vcl_fetch` ends without a condition, so that neither another one nor the built-in one runs.
    fn ends_each_fetch(&self) -> bool {
        let mut at = 0;
        while self.kind(at) != Tok::Eoi {
            if self.word(at) == "sub" && self.word(at + 1) == "vcl_fetch" && self.kind(at + 2) == Tok::LBrace
            {
                let close = self.ends.get(&(at + 2)).copied().unwrap_or(at + 2);
                if self.has_unconditional_end(at + 3, close) {
                    return true;
                }
                at = close;
            }
            at += 1;
        }
        false
    }

    fn has_unconditional_end(&self, from: usize, close: usize) -> bool {
        let mut at = from;
        while at < close {
            if self.is_end(at) {
                return true;
            }
            at = self.end_of_chain(at).clamp(at + 1, close);
        }
        false
    }

    /// Returns whether a statement ends the subroutine.
    fn is_end(&self, at: usize) -> bool {
        let word = self.word(at);
        let is_bare = BARE.contains(&word) && self.kind(at + 1) == Tok::Semi;
        is_bare || matches!(word, "return" | "error" | "restart")
    }
}
