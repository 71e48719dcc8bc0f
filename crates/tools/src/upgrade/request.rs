//! The backend's request, which `vcl_miss` and `vcl_pass` could change in Varnish 2 and 3. It exists in
//! `vcl_backend_fetch` now, which runs for both, so a change that all requests of the subroutine had is moved there.

use std::collections::BTreeSet;
use std::ops::Range;

use super::context::Context;
use super::rewriter::{Res, Rewriter};
use super::variables::removed_header;
use lacquer_http::Filter;
use lacquer_vcl::tokens::Tok;

/// Conditions of statements that run in `vcl_backend_fetch` instead.
const MOVED_FROM_MISS: &str = "!bereq.uncacheable";
const MOVED_FROM_PASS: &str = "bereq.uncacheable";

impl Rewriter<'_> {
    /// Returns the statements of a subroutine that have the same effect in `vcl_backend_fetch`: those that change only the
    /// backend's request, by values that are known there, and that each fetch of this subroutine had run.
    pub fn to_be_moved(&self, open: usize, close: usize, context: Context) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let removed = if context == Context::Pass { Filter::PASS } else { Filter::FETCH };
        let (mut moved, mut kept) = (BTreeSet::new(), BTreeSet::new());
        let mut at = open + 1;
        let mut is_reached = true;
        while at < close {
            let end = self.end_of_chain(at).clamp(at + 1, close);
            is_reached = is_reached && !self.may_fetch(at, end, context);
            let changed = self.changed_in_bereq(at..end);
            if is_reached && self.changes_only_bereq(at..end, &moved, removed) {
                moved.extend(changed);
                found.push(at..end);
            } else {
                kept.extend(changed);
            }
            at = end;
        }
        // The statements that remain run before those that are moved, so the two must not change the same fields.
        loop {
            let (late, fine): (Vec<_>, Vec<_>) = found.into_iter().partition(|range| {
                self.changed_in_bereq(range.clone()).iter().any(|name| kept.contains(name))
            });
            found = fine;
            if late.is_empty() {
                return found;
            }
            for range in late {
                kept.extend(self.changed_in_bereq(range));
            }
        }
    }

    /// Writes `vcl_backend_fetch` with the statements that were left out.
    pub fn backend_fetch(&mut self, moved: &[Range<usize>], context: Context) -> Res {
        if moved.is_empty() {
            return Ok(());
        }
        let (old, condition) = match context {
            Context::Pass => ("vcl_pass", MOVED_FROM_PASS),
            _ => ("vcl_miss", MOVED_FROM_MISS),
        };
        self.write(&format!(
            "\n\n# Changes of the backend's request, which had been in {old}.\n\
             sub vcl_backend_fetch {{\n    if ({condition}) {{"
        ));
        for range in moved {
            let mut at = range.start;
            while at < range.end {
                at = self.statement(at, range.end, Context::BackendFetch)?;
            }
        }
        self.write("\n    }\n}");
        Ok(())
    }

    /// Returns the index after a statement. Conditions that follow each other by `else` are one.
    pub fn end_of_chain(&self, from: usize) -> usize {
        if self.word(from) != "if" {
            return self.end_of_statement(from);
        }
        let mut at = from;
        loop {
            while !matches!(self.kind(at), Tok::LBrace | Tok::RBrace | Tok::Semi | Tok::Eoi) {
                at += 1;
            }
            let end = self.ends.get(&at).map_or(at, |close| close + 1);
            if end <= at || !matches!(self.word(end), "else" | "elseif" | "elsif" | "elif") {
                return end;
            }
            at = end;
        }
    }

    /// Returns whether a statement may end the subroutine with a fetch, so that later statements do not run.
    fn may_fetch(&self, from: usize, to: usize, context: Context) -> bool {
        let ends = |word: &str| match context {
            Context::Pass => matches!(word, "fetch" | "pass" | "call"),
            _ => matches!(word, "fetch" | "call"),
        };
        let is_word = |at: usize| at == from || self.kind(at - 1) != Tok::Dot;
        let is_unconditional =
            |at: usize| self.word(from) != "if" && matches!(self.word(at), "return" | "error" | "restart");
        (from..to).any(|at| is_word(at) && (ends(self.word(at)) || is_unconditional(at)))
    }

    /// Returns the names of the fields of `bereq` that statements change, without `bereq.`.
    fn changed_in_bereq(&self, range: Range<usize>) -> BTreeSet<String> {
        let is_change = |at: &usize| matches!(self.word(*at), "set" | "unset" | "remove");
        let names = range.filter(is_change).map(|at| self.whole_name(at + 1).0.to_ascii_lowercase());
        names.filter_map(|name| name.strip_prefix("bereq.").map(str::to_owned)).collect()
    }

    /// Returns whether a statement changes nothing but `bereq`, by values that are known to a fetch. The fields of `bereq`
    /// that were changed before differ from those of `req`.
    fn changes_only_bereq(&self, range: Range<usize>, before: &BTreeSet<String>, removed: Filter) -> bool {
        let mut own = BTreeSet::new();
        let mut target = None;
        let mut changes = 0;
        let mut at = range.start;
        while at < range.end {
            if self.kind(at) != Tok::Id {
                if self.kind(at) == Tok::Semi {
                    own.extend(target.take());
                }
                at += 1;
                continue;
            }
            let (name, end) = self.whole_name(at);
            let name = name.to_ascii_lowercase();
            let is_after_number = matches!(self.kind(at.saturating_sub(1)), Tok::Cnum | Tok::Fnum);
            match name.as_str() {
                "if" | "else" | "elseif" | "elsif" | "elif" => {}
                "set" | "unset" | "remove" => {
                    let written = self.whole_name(end).0.to_ascii_lowercase();
                    let Some(field) = written.strip_prefix("bereq.") else { return false };
                    target = Some(field.to_owned());
                    changes += 1;
                }
                // The unit of a duration, or an ACL.
                _ if is_after_number || self.kind(at - 1) == Tok::Tilde => {}
                name if name
                    .strip_prefix("req.")
                    .is_some_and(|name| before.contains(name) || own.contains(name)) =>
                {
                    return false;
                }
                name if !is_known_to_fetch(name) || removed_header(name, removed).is_some() => return false,
                _ => {}
            }
            at = end;
        }
        changes > 0
    }
}

/// Returns whether a name means the same in `vcl_miss`, `vcl_pass` and `vcl_backend_fetch`.
fn is_known_to_fetch(name: &str) -> bool {
    match name.split_once('.') {
        Some(("bereq", rest)) => rest != "backend.name",
        Some(("req", "url" | "request" | "method" | "proto")) => true,
        Some(("req", rest)) => rest.starts_with("http."),
        Some(("client" | "server", rest)) => matches!(rest, "ip" | "identity" | "hostname"),
        Some(_) => false,
        None => matches!(name, "regsub" | "regsuball" | "now" | "true" | "false"),
    }
}
