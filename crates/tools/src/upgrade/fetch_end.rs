//! The end of `vcl_fetch`. The built-in VCL follows it, and tests more than that of Varnish 2 and 3 did.

use super::actions::BARE;
use super::rewriter::Rewriter;
use lacquer_vcl::tokens::Tok;

/// The built-in `vcl_fetch` tested the lifetime, `Set-Cookie` and `Vary: *`, and not `Cache-Control`.
const OLD_END: &str = "\n
# In Varnish 2 and 3, a lifetime that vcl_fetch set applied to no-cache, no-store and private too.
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
        if is_first && self.usage.has_lifetime() && !self.ends_each_fetch() {
            self.write(OLD_END);
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
            let word = self.word(at);
            let is_bare = BARE.contains(&word) && self.kind(at + 1) == Tok::Semi;
            if is_bare || matches!(word, "return" | "error" | "restart") {
                return true;
            }
            at = self.end_of_chain(at).clamp(at + 1, close);
        }
        false
    }
}
