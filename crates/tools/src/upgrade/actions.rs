//! Actions: what ends a subroutine, and the statements that became functions.

use super::context::Context;
use super::rewriter::{Rewriter, Statement};
use lacquer_vcl::tokens::Tok;

/// Actions that were statements of their own in VCL 2.
pub const BARE: [&str; 11] = [
    "pass",
    "pipe",
    "lookup",
    "hash",
    "fetch",
    "deliver",
    "insert",
    "discard",
    "keep",
    "hit_for_pass",
    "miss",
];

impl Rewriter<'_> {
    /// Rewrites an action. Returns false if the statement is none.
    pub fn action(&mut self, whole: &Statement) -> bool {
        let Statement { at, semicolon, context } = *whole;
        let is_call = self.kind(at + 1) == Tok::LParen && self.ends.get(&(at + 1)) == Some(&(semicolon - 1));
        let argument = if is_call { at + 2 } else { at + 1 };
        let end = if is_call { semicolon.saturating_sub(1) } else { semicolon };
        match self.word(at) {
            "return" if is_call && self.kind(at + 3) == Tok::RParen => self.ending(whole, self.word(at + 2)),
            "return" if self.kind(at + 1) == Tok::Id => self.ending(whole, self.word(at + 1)),
            "return" => return false,
            "restart" => self.ending(whole, "restart"),
            "error" => self.error(whole, argument, end),
            "synthetic" => self.function("synthetic", argument, end, context),
            "log" => {
                self.import("std");
                self.function("std.log", argument, end, context);
            }
            "esi" if at + 1 == semicolon => self.write("set beresp.do_esi = true;"),
            "rollback" => {
                self.import("std");
                self.write(if context.is_backend() { "std.rollback(bereq);" } else { "std.rollback(req);" });
            }
            "purge" if at + 1 == semicolon => self.purge(),
            "purge" if is_call => self.function("ban", argument, end, context),
            "purge_url" | "ban_url" => {
                self.write("ban(\"req.url ~ \" +");
                self.expression(argument, end, context);
                self.write(");");
            }
            "purge_hash" | "ban_hash" => self.comment_out(at, semicolon + 1, "bans by hash no longer exist"),
            word if at + 1 == semicolon && BARE.contains(&word) => self.ending(whole, word),
            _ => return false,
        }
        true
    }

    /// Writes the removal of the object of a hit.
    pub fn purge(&mut self) {
        let module = self.purge_module;
        self.import(if module == "purge" { "purge" } else { "purge as purge_module" });
        self.write(&format!("{module}.hard();"));
    }

    fn function(&mut self, name: &str, from: usize, to: usize, context: Context) {
        self.write(name);
        self.write("(");
        self.expression_without_gap(from, to, context);
        self.write(");");
    }

    /// Writes the end of a subroutine by an action of the old text.
    fn ending(&mut self, whole: &Statement, word: &str) {
        use Context::{BackendError, Client, Error, Fetch, Hash, Hit, Miss, Pass};
        match (whole.context, word) {
            (Hit, "fetch" | "miss") => {
                self.write("set req.hash_always_miss = true;\n");
                let indent = self.indent();
                self.write(&format!("{indent}return (restart);"));
            }
            (Fetch, "pass" | "hit_for_pass") => {
                // The lifetime of the hit-for-pass was that of the response.
                let has_lifetime = self.out.lifetimes.last() == Some(&true);
                let lifetime = if has_lifetime { "beresp.ttl" } else { "120s" };
                self.write(&format!("return (pass({lifetime}));"));
            }
            (Pass, "pass") => self.write("return (fetch);"),
            (Fetch, "insert" | "keep") => self.write("return (deliver);"),
            (Fetch | BackendError, "restart") => {
                if self.is_read_by_client("req.restarts") {
                    self.mark("vcl_recv does not run again: choose the backend here, by bereq.retries");
                }
                self.write("return (retry);");
            }
            (Fetch, "discard" | "fetch") => {
                self.mark("the response is delivered without being cached");
                self.write("set beresp.uncacheable = true;\n");
                let indent = self.indent();
                self.write(&format!("{indent}return (deliver);"));
            }
            (Fetch, "error") => self.write("return (error(503));"),
            (Hash, "hash") => self.write("return (lookup);"),
            (Client, "lookup") => self.write("return (hash);"),
            (Client | Hit | Miss | Pass, "error") => self.write("return (synth(503));"),
            (Hit | Miss | Pass | Client | Error, "discard" | "keep" | "insert") => {
                let why = format!("there is no return ({word})");
                self.comment_out(whole.at, whole.semicolon + 1, &why);
            }
            _ => self.write(&format!("return ({word});")),
        }
    }

    /// Returns the white space before the current statement on its line.
    fn indent(&self) -> String {
        let before = &self.out.text[..self.out.statement];
        let line = before.rsplit(|b| *b == b'\n').next().unwrap_or_default();
        line.iter().take_while(|b| b.is_ascii_whitespace()).map(|b| char::from(*b)).collect()
    }

    /// Rewrites `error 404 "reason";`.
    fn error(&mut self, whole: &Statement, from: usize, to: usize) {
        let action = match whole.context {
            Context::Fetch => "error",
            Context::Error | Context::BackendError => {
                let why = "an error response cannot become another one";
                return self.comment_out(whole.at, whole.semicolon + 1, why);
            }
            _ => "synth",
        };
        self.write(&format!("return ({action}("));
        if from >= to {
            self.write("503");
        } else {
            // The status is a number or a variable, perhaps in parentheses; the reason may follow without a comma.
            let (status, status_end) = match self.ends.get(&from) {
                Some(close) if self.kind(from) == Tok::LParen => (from + 1..*close, close + 1),
                _ => (from..self.whole_name(from).1.min(to), self.whole_name(from).1),
            };
            self.expression_without_gap(status.start, status.end, whole.context);
            let reason = if self.kind(status_end) == Tok::Comma { status_end + 1 } else { status_end };
            if reason < to {
                self.write(", ");
                self.expression_without_gap(reason, to, whole.context);
            }
        }
        self.write("));");
    }
}
