//! A text without declarations: statements for the inside of a subroutine, where an `include` reads them.

use std::collections::BTreeSet;

use super::actions::BARE;
use super::context::Context;
use super::rewriter::{Fault, MARK, Rewriter, Upgraded};
use lacquer_vcl::tokens::Tok;

/// The subroutines that a text can be a part of, by their old and new names.
pub const SUBROUTINES: [&str; 13] = [
    "vcl_recv",
    "vcl_pipe",
    "vcl_pass",
    "vcl_hash",
    "vcl_hit",
    "vcl_miss",
    "vcl_fetch",
    "vcl_deliver",
    "vcl_error",
    "vcl_synth",
    "vcl_backend_fetch",
    "vcl_backend_response",
    "vcl_backend_error",
];

/// Words that begin a statement, and no declaration.
const STATEMENTS: [&str; 18] = [
    "ban",
    "ban_hash",
    "ban_url",
    "call",
    "error",
    "esi",
    "hash_data",
    "if",
    "log",
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

const DECLARATIONS: [&str; 7] = ["acl", "backend", "director", "import", "probe", "sub", "vcl"];

impl Rewriter<'_> {
    /// Returns the subroutine that a text of statements is most likely a part of, or `None` for a text of declarations.
    pub fn sub_of_part(&self) -> Option<&'static str> {
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
            return Some("vcl_recv");
        }
        let next = self.kind(at + 1);
        let word = self.word(at);
        let is_statement = STATEMENTS.contains(&word)
            || next == Tok::Semi && (BARE.contains(&word) || word == "restart")
            || next == Tok::Dot;
        (self.kind(at) == Tok::Id && is_statement).then(|| self.likely_sub())
    }

    /// Returns the subroutine that has the variables and actions of a text.
    fn likely_sub(&self) -> &'static str {
        let mut names = BTreeSet::new();
        let mut at = 0;
        while self.kind(at) != Tok::Eoi {
            let (name, end) = self.whole_name(at);
            names.insert(name);
            at = end;
        }
        let has = |name: &str| names.contains(name);
        let has_of = |message: &str| names.iter().any(|name| name.starts_with(message));
        let has_cacheable = has("obj.cacheable") || has("obj.prefetch") || has("obj.valid");
        if has_of("beresp.") || has("hit_for_pass") || has("esi") || has_cacheable {
            "vcl_fetch"
        } else if has("synthetic") || has("obj.response") {
            "vcl_error"
        } else if has_of("resp.") {
            "vcl_deliver"
        } else if has("hash_data") || has("req.hash") {
            "vcl_hash"
        } else if has("obj.ttl") && !has("error") {
            "vcl_fetch"
        } else if has("obj.status") {
            "vcl_error"
        } else if has_of("obj.") {
            "vcl_hit"
        } else if has_of("bereq.") {
            "vcl_miss"
        } else {
            "vcl_recv"
        }
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
        })
    }
}
