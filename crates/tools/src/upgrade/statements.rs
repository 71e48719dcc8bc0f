//! Statements: blocks, conditions, and the statements that remain statements.

use super::context::Context;
use super::director::EARLY_CHOICE;
use super::rewriter::{Fault, Res, Rewriter, Statement};
use super::variables::{self, New, removed_header};
use lacquer_http::Filter;
use lacquer_vcl::tokens::Tok;

impl Rewriter<'_> {
    /// Rewrites a statement, or the beginning or end of a block. Returns the index after it.
    pub fn statement(&mut self, at: usize, limit: usize, context: Context) -> Res<usize> {
        match self.kind(at) {
            Tok::LBrace | Tok::RBrace | Tok::Semi => {
                match self.kind(at) {
                    Tok::LBrace => self.out.lifetimes.push(false),
                    Tok::RBrace => drop(self.out.lifetimes.pop()),
                    _ => {}
                }
                self.copy(at);
                return Ok(at + 1);
            }
            Tok::Csrc => {
                self.begin(at);
                self.comment_out(at, at + 1, "inline C does not exist here; use a module");
                return Ok(at + 1);
            }
            Tok::Id => {}
            _ => return Err(Fault { token: at, message: "a statement is expected here".to_owned() }),
        }
        let word = self.word(at);
        if matches!(word, "if" | "else" | "elseif" | "elsif" | "elif") {
            return Ok(self.condition(at, limit, context));
        }
        let end = self.end_of_statement(at).min(limit);
        if end == at || self.kind(end - 1) != Tok::Semi {
            return Err(Fault { token: at, message: "this statement has no semicolon".to_owned() });
        }
        let semicolon = end - 1;
        self.begin(at);
        let whole = Statement { at, semicolon, context };
        match word {
            "set" => self.set(&whole),
            "unset" | "remove" => self.unset(&whole),
            "call" => self.call(&whole),
            "include" => self.include(&whole),
            _ if self.action(&whole) => {}
            _ => {
                self.rest_of(at, at);
                self.expression(at + 1, semicolon, context);
                self.copy(semicolon);
            }
        }
        Ok(end)
    }

    /// Writes a token whose gap was written by `begin`.
    fn rest_of(&mut self, from: usize, to: usize) {
        self.out.text.extend_from_slice(self.bytes(from));
        (from + 1..=to).for_each(|token| self.copy(token));
    }

    /// Rewrites `if (...)`, `else if (...)` and `else`, up to the block.
    fn condition(&mut self, at: usize, limit: usize, context: Context) -> usize {
        self.begin(at);
        self.rest_of(at, at);
        let mut next = at + 1;
        if self.word(at) == "else" && self.word(next) == "if" {
            self.copy(next);
            next += 1;
        }
        if self.kind(next) == Tok::LParen && next < limit {
            let close = self.ends.get(&next).copied().unwrap_or(next).min(limit);
            self.copy(next);
            self.expression(next + 1, close, context);
            if close < limit {
                self.copy(close);
            }
            next = close + 1;
        }
        next
    }

    fn set(&mut self, whole: &Statement) {
        let Statement { at, semicolon, context } = *whole;
        let (name, operator) = self.whole_name(at + 1);
        let value = operator + 1;
        if operator >= semicolon {
            return self.comment_out(at, semicolon + 1, "this assignment is not complete");
        }
        let is_zero = self.is_zero(value);
        match (name.as_str(), context) {
            ("req.hash", Context::Hash) => {
                self.write("hash_data(");
                self.expression_without_gap(value, semicolon, context);
                self.write(");");
                return;
            }
            ("obj.ttl", Context::Hit) if is_zero => {
                return self.purge();
            }
            ("obj.ttl" | "obj.grace" | "obj.keep", Context::Hit) => {
                let why =
                    "a stored object does not change; import purge and use purge.soft(), or set beresp.ttl";
                return self.comment_out(at, semicolon + 1, why);
            }
            ("beresp.cacheable" | "obj.cacheable", Context::Fetch) => {
                return match self.word(value) {
                    "false" => self.write("set beresp.uncacheable = true;"),
                    _ => {
                        let why = "a response with a ttl is cacheable; set beresp.ttl";
                        self.comment_out(at, semicolon + 1, why);
                    }
                };
            }
            ("beresp.storage" | "beresp.storage_hint", _) if self.kind(value) == Tok::Cstr => {
                let storage = self.word(value).trim_matches('"').to_owned();
                self.mark("the storage must have this name in the daemon's options");
                self.write(&format!("set beresp.storage = storage.{storage};"));
                self.out.storages.push(storage);
                return;
            }
            ("beresp.storage_hint", _) => {
                let why = "there is no beresp.storage_hint; set beresp.storage = storage.NAME;";
                return self.comment_out(at, semicolon + 1, why);
            }
            ("beresp.ttl" | "obj.ttl", Context::Fetch) => {
                if let Some(known) = self.out.lifetimes.last_mut() {
                    *known = !is_zero;
                }
            }
            _ => {}
        }
        let new = match variables::target(&name, context) {
            New::Name(new) | New::With(_, new) => new,
            New::Gone(why) => return self.comment_out(at, semicolon + 1, why),
        };
        self.mark_lost_bereq(&name, context);
        self.mark_unseen_change(&name, context);
        if name == "req.backend" && self.chooses_early(value) {
            self.mark(EARLY_CHOICE);
        }
        self.write("set");
        self.replace(at + 1, new.as_bytes());
        self.copy(operator);
        self.expression(value, semicolon, context);
        self.copy(semicolon);
        if name.eq_ignore_ascii_case("req.http.X-Forwarded-For") {
            self.mark("X-Forwarded-For contains the client's address already, before vcl_recv");
        }
    }

    /// Returns whether a value begins with the number zero.
    pub fn is_zero(&self, value: usize) -> bool {
        matches!(self.word(value), "0" | "0.0")
    }

    fn unset(&mut self, whole: &Statement) {
        let Statement { at, semicolon, context } = *whole;
        let (name, end) = self.whole_name(at + 1);
        let new = match variables::target(&name, context) {
            New::Name(new) | New::With(_, new) => new,
            New::Gone(why) => return self.comment_out(at, semicolon + 1, why),
        };
        self.mark_lost_bereq(&name, context);
        self.mark_unseen_change(&name, context);
        self.write("unset");
        self.replace(at + 1, new.as_bytes());
        (end..=semicolon).for_each(|token| self.copy(token));
    }

    /// Marks a change of the backend's request that has become one of the client's.
    fn mark_lost_bereq(&mut self, name: &str, context: Context) {
        if !context.lost_bereq() || !name.starts_with("bereq.") {
            return;
        }
        let is_removed =
            name.strip_prefix("be").and_then(|name| removed_header(name, Filter::FETCH)).is_some();
        self.mark(if context == Context::Miss && is_removed {
            "fetches into the cache remove this: set it in vcl_backend_fetch, from a copy in another header"
        } else {
            "this had changed bereq only: a better place is vcl_backend_fetch, without the req"
        });
    }

    /// Returns whether a value is a director that chooses by values that the text may change later.
    fn chooses_early(&self, value: usize) -> bool {
        let director = self.directors.get(self.word(value));
        director.is_some_and(|director| self.may_change_after(director.selectors(), value))
    }

    /// Copies an `include`. The copy of `vcl_error` cannot use the file of the original.
    fn include(&mut self, whole: &Statement) {
        if whole.context == Context::BackendError {
            self.mark(
                "failed fetches need another version of this file: lacquer upgrade-vcl --in vcl_backend_error FILE",
            );
        }
        self.rest_of(whole.at, whole.semicolon);
    }

    fn call(&mut self, whole: &Statement) {
        let old = self.word(whole.at + 1);
        let is_copy = whole.context == Context::BackendError;
        let is_of_fetch = is_copy || whole.context == Context::Fetch;
        let new = match old {
            "vcl_fetch" => "vcl_backend_response",
            "vcl_error" => "vcl_synth",
            other if is_of_fetch => self.contexts.error_copy(other).unwrap_or(other),
            other => other,
        }
        .to_owned();
        if is_copy && !self.contexts.is_declared(old) {
            self.mark("failed fetches need another version of this, with beresp, from its own file");
        }
        self.out.has_called = true;
        self.write("call");
        self.replace(whole.at + 1, new.as_bytes());
        (whole.at + 2..=whole.semicolon).for_each(|token| self.copy(token));
    }
}
