//! A text without declarations: statements for the inside of a subroutine, where an `include` reads them.

use std::collections::BTreeSet;

use super::actions::BARE;
use super::context::Context;
use super::rewriter::{Fault, MARK, Res, Rewriter, Upgraded};
use lacquer_vcl::tokens::Tok;

/// The subroutines that a text can be a part of, by their old and new names.
pub const SUBROUTINES: [&str; 16] = [
    "vcl_init",
    "vcl_recv",
    "vcl_pipe",
    "vcl_pass",
    "vcl_hash",
    "vcl_purge",
    "vcl_hit",
    "vcl_miss",
    "vcl_fetch",
    "vcl_deliver",
    "vcl_error",
    "vcl_synth",
    "vcl_backend_fetch",
    "vcl_backend_response",
    "vcl_backend_error",
    "vcl_fini",
];

/// Words that begin a statement, and no declaration.
const STATEMENTS: [&str; 19] = [
    "ban",
    "ban_hash",
    "ban_url",
    "call",
    "error",
    "esi",
    "hash_data",
    "if",
    "log",
    "new",
    "purge",
    "purge_hash",
    "purge_url",
    "remove",
    "return",
    "rollback",
    "set",
    "synthetic",
    "unset",
];

/// Variables that only `vcl_backend_fetch` and later subroutines of VCL 4 have.
const BACKEND_FETCH: [&str; 4] = ["bereq.backend", "bereq.method", "bereq.retries", "bereq.uncacheable"];

const UNCLEAR: &str =
    "this may be a part of vcl_pipe, vcl_pass, vcl_miss or vcl_backend_fetch: name the subroutine with --in";

const DECLARATIONS: [&str; 7] = ["acl", "backend", "director", "import", "probe", "sub", "vcl"];

impl Rewriter<'_> {
    /// Returns the subroutine that a text of statements is most likely a part of, or `None` for a text of declarations.
    /// Fails if the statements do not tell.
    pub fn sub_of_part(&self) -> Res<Option<&'static str>> {
        let mut at = 0;
        loop {
            at = match (self.kind(at), self.word(at)) {
                (Tok::Csrc, _) => at + 1,
                (Tok::Id, "include") => self.end_of_statement(at).max(at + 1),
                _ => break,
            };
        }
        // Comments alone can be included anywhere, but a version line cannot.
        if self.kind(0) == Tok::Eoi && !self.gap(0).trim_ascii().is_empty() {
            return Ok(Some("vcl_recv"));
        }
        let next = self.kind(at + 1);
        let word = self.word(at);
        let is_statement = STATEMENTS.contains(&word)
            || next == Tok::Semi && (BARE.contains(&word) || word == "restart")
            || next == Tok::Dot;
        if self.kind(at) == Tok::Id && is_statement { self.likely_sub().map(Some) } else { Ok(None) }
    }

    /// Returns the subroutine that has the variables and actions of a text.
    fn likely_sub(&self) -> Res<&'static str> {
        let mut names = BTreeSet::new();
        let mut at = 0;
        let (mut is_target, mut changes_object) = (false, false);
        while self.kind(at) != Tok::Eoi {
            let (name, end) = self.whole_name(at);
            changes_object |= is_target && name.starts_with("obj.");
            is_target = matches!(name.as_str(), "set" | "unset" | "remove");
            names.insert(name);
            at = end;
        }
        let has = |name: &str| names.contains(name);
        let has_of = |message: &str| names.iter().any(|name| name.starts_with(message));
        let has_cacheable = has("obj.cacheable") || has("obj.prefetch") || has("obj.valid");
        let is_backend_fetch = has("abandon") || BACKEND_FETCH.iter().any(|name| has(name));
        Ok(if has_of("beresp.") || has("hit_for_pass") || has("esi") || has_cacheable {
            "vcl_fetch"
        } else if has("retry") {
            "vcl_backend_response"
        } else if is_backend_fetch {
            "vcl_backend_fetch"
        } else if has("new") {
            "vcl_init"
        } else if has("synthetic") || has("obj.response") {
            "vcl_error"
        } else if has_of("resp.") {
            "vcl_deliver"
        } else if has("hash_data") || has("req.hash") {
            "vcl_hash"
        } else if has("obj.ttl") && !has("error") {
            if changes_object { "vcl_fetch" } else { "vcl_hit" }
        } else if has("obj.status") {
            "vcl_error"
        } else if has_of("obj.") {
            "vcl_hit"
        } else if has_of("bereq.") && has("pipe") {
            "vcl_pipe"
        } else if has_of("bereq.") {
            if !self.has_old_words() {
                let token = (0..at).find(|at| self.word(*at) == "bereq").unwrap_or(0);
                return Err(Fault { token, message: UNCLEAR.to_owned() });
            }
            "vcl_miss"
        } else {
            "vcl_recv"
        })
    }

    /// Returns whether a text has statements or variables that only VCL of versions 2 and 3 has.
    fn has_old_words(&self) -> bool {
        (0..self.tokens.len()).any(|at| {
            let begins = at == 0 || matches!(self.kind(at - 1), Tok::Semi | Tok::LBrace | Tok::RBrace);
            let is_alone = self.kind(at + 1) == Tok::Semi;
            match self.word(at) {
                "error" | "log" | "remove" => begins,
                "req" | "bereq" => {
                    self.kind(at + 1) == Tok::Dot && matches!(self.word(at + 2), "request" | "backend")
                }
                word => begins && is_alone && (word == "restart" || BARE.contains(&word)),
            }
        })
    }

    /// Rewrites a text of statements.
    pub fn run_part(mut self, sub: &str) -> Result<Upgraded, Fault> {
        let context = Context::of_part(sub);
        let end = self.tokens.len() - 1;
        self.contexts.add(sub, context);
        self.find_usage_of_part(sub, end);
        // The text that includes this one may have an ACL of this name.
        self.purge_module = "purge_module";
        sub.clone_into(&mut self.out.sub);
        self.out.lifetimes = vec![false];
        self.out.text = self.gap(0).to_vec();
        let mut at = 0;
        while at < end {
            if DECLARATIONS.contains(&self.word(at)) {
                let message = format!("a part of {sub} cannot contain a declaration");
                return Err(Fault { token: at, message });
            }
            at = self.statement(at, end, context)?;
        }
        if end > 0 {
            self.out.text.extend_from_slice(self.gap(end));
        }
        let imports: Vec<String> = self
            .out
            .imports
            .iter()
            .map(|module| {
                format!("{MARK} the file that includes this needs, at its beginning: import {module};\n")
            })
            .collect();
        let mut text = imports.concat().into_bytes();
        text.extend_from_slice(&self.out.text);
        Ok(Upgraded {
            text,
            open: self.out.open + imports.len(),
            storages: self.out.storages,
            part_of: Some(sub.to_owned()),
            caches_private: false,
        })
    }
}
