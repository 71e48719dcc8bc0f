//! The text that is being written, and its helpers.

use std::collections::{BTreeMap, BTreeSet};

use lacquer_http::Filter;
use lacquer_vcl::tokens::{Tok, Token};

use super::context::{Context, Contexts};
use super::director::Director;
use super::usage::Usage;
use super::variables::removed_header;

/// The beginning of a comment where a human must look.
pub const MARK: &str = "# UPGRADE:";

/// A rewritten text.
#[derive(Debug)]
pub struct Upgraded {
    pub text: Vec<u8>,
    /// The number of places where a human must look.
    pub open: usize,
    /// Storages that the new text names, which only the daemon's options define.
    pub storages: Vec<String>,
    /// The subroutine that the text is a part of, if it has no declarations.
    pub part_of: Option<String>,
    /// Whether the new text has responses cached that their origins call private, as the old one had.
    pub caches_private: bool,
}

/// The position of a token that is at fault, and the reason.
#[derive(Debug)]
pub struct Fault {
    pub token: usize,
    pub message: String,
}

pub type Res<T = ()> = Result<T, Fault>;

/// Writes the new text from the tokens of the old one. What becomes of each construct is in the other files.
pub struct Rewriter<'t> {
    pub text: &'t [u8],
    pub tokens: &'t [Token],
    pub ends: &'t BTreeMap<usize, usize>,
    pub contexts: Contexts,
    /// Directors of the old text by their names.
    pub directors: BTreeMap<String, Director>,
    /// The backend or director that was used where no subroutine set one.
    pub default_origin: String,
    /// The name of the module `purge` in the new text.
    pub purge_module: &'static str,
    pub usage: Usage,
    pub out: Output,
}

/// The new text, and what is to be written in front of it.
#[derive(Default)]
pub struct Output {
    pub text: Vec<u8>,
    pub imports: BTreeSet<&'static str>,
    /// Modules that the text imports itself.
    pub imported: BTreeSet<String>,
    /// The offset of the beginning of the current statement or declaration.
    pub statement: usize,
    pub open: usize,
    pub storages: Vec<String>,
    /// The old name of the current subroutine.
    pub sub: String,
    /// Whether the current subroutine has called another one.
    pub has_called: bool,
    /// Whether each open block has set `beresp.ttl` to a lifetime.
    pub lifetimes: Vec<bool>,
    /// Whether a `vcl_fetch` was written.
    pub has_fetch: bool,
    pub caches_private: bool,
    /// Marks of the current director.
    pub marks: Vec<String>,
}

impl<'t> Rewriter<'t> {
    pub fn new(text: &'t [u8], tokens: &'t [Token], ends: &'t BTreeMap<usize, usize>) -> Rewriter<'t> {
        let contexts = Contexts::of(text, tokens, ends);
        let mut rewriter = Rewriter {
            text,
            tokens,
            ends,
            contexts,
            directors: BTreeMap::new(),
            default_origin: String::new(),
            purge_module: "purge",
            usage: Usage::default(),
            out: Output::default(),
        };
        // A name of this text, of one that it includes, or of one that includes it may hide that of the module. A text
        // that others include has no backend.
        let declares = |at: usize| matches!(rewriter.word(at), "acl" | "backend" | "probe" | "sub");
        let names = |at: usize| declares(at) || matches!(rewriter.kind(at), Tok::Tilde | Tok::NoMatch);
        let may_be_hidden =
            |at: usize| rewriter.word(at) == "include" || rewriter.word(at) == "purge" && names(at - 1);
        let declares_origin = |at: usize| {
            matches!(rewriter.word(at), "backend" | "director") && rewriter.kind(at + 1) == Tok::Id
        };
        let is_included = !(0..tokens.len()).any(declares_origin);
        if is_included || rewriter.word(0) == "include" || (1..tokens.len()).any(may_be_hidden) {
            rewriter.purge_module = "purge_module";
        }
        rewriter
    }

    pub fn kind(&self, at: usize) -> Tok {
        self.tokens[at.min(self.tokens.len() - 1)].kind
    }

    pub fn word(&self, at: usize) -> &'t str {
        let text = self.text;
        let span = self.tokens[at.min(self.tokens.len() - 1)].span;
        std::str::from_utf8(&text[span.start as usize..span.end as usize]).unwrap_or_default()
    }

    pub fn bytes(&self, at: usize) -> &'t [u8] {
        let text = self.text;
        let span = self.tokens[at].span;
        &text[span.start as usize..span.end as usize]
    }

    /// Returns the white space and the comments before a token.
    pub fn gap(&self, at: usize) -> &'t [u8] {
        let text = self.text;
        let start = if at == 0 { 0 } else { self.tokens[at - 1].span.end };
        &text[start as usize..self.tokens[at].span.start as usize]
    }

    /// Copies a token with the gap before it.
    pub fn copy(&mut self, at: usize) {
        self.replace(at, self.bytes(at));
    }

    /// Writes something else for a token, after the gap before it.
    pub fn replace(&mut self, at: usize, new: &[u8]) {
        if at > 0 {
            self.out.text.extend_from_slice(self.gap(at));
        }
        self.out.text.extend_from_slice(new);
    }

    pub fn write(&mut self, text: &str) {
        self.out.text.extend_from_slice(text.as_bytes());
    }

    /// Writes the comments of the gap before a token that is not copied.
    pub fn keep_comments(&mut self, from: usize, to: usize) {
        for at in from..to {
            if self.gap(at).iter().any(|b| !b.is_ascii_whitespace()) {
                self.out.text.extend_from_slice(self.gap(at));
            }
        }
    }

    /// Begins a statement at a token: writes the gap before it.
    pub fn begin(&mut self, at: usize) {
        if at > 0 {
            self.out.text.extend_from_slice(self.gap(at));
        }
        self.out.statement = self.out.text.len();
    }

    /// Writes a comment for a human on a line before the current statement.
    pub fn mark(&mut self, what: &str) {
        self.mark_all(&[what]);
    }

    /// Writes several comments for a human on lines before the current statement.
    pub fn mark_all<S: AsRef<str>>(&mut self, marks: &[S]) {
        if marks.is_empty() {
            return;
        }
        self.out.open += marks.len();
        let start = self.out.statement;
        let line = self.out.text[..start].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let before = &self.out.text[line..start];
        let blanks = before.iter().take_while(|b| b.is_ascii_whitespace());
        let mut indent: String = blanks.map(|b| char::from(*b)).collect();
        let mut comment = String::new();
        if indent.len() < before.len() {
            indent.push_str("    ");
            comment = format!("\n{indent}");
        }
        for mark in marks {
            comment.extend([MARK, " ", mark.as_ref(), "\n", indent.as_str()]);
        }
        self.out.text.splice(start..start, comment.bytes());
        self.out.statement += comment.len();
    }

    /// Writes the tokens of a statement as a comment, with the reason.
    pub fn comment_out(&mut self, from: usize, to: usize, why: &str) {
        let (start, end) = (self.tokens[from].span.start, self.tokens[to - 1].span.end);
        let old = String::from_utf8_lossy(&self.text[start as usize..end as usize]).into_owned();
        self.mark(why);
        for (number, line) in old.lines().enumerate() {
            if number > 0 {
                self.write("\n");
            }
            self.write(&format!("# {}", line.trim_end()));
        }
        // The comment must not contain the text that follows on the same line.
        if self.tokens.len() > to && !self.gap(to).contains(&b'\n') {
            self.write("\n");
        }
    }

    /// Returns the index after the semicolon that ends a statement, or that of the brace that ends its block.
    pub fn end_of_statement(&self, from: usize) -> usize {
        let mut at = from;
        loop {
            match self.kind(at) {
                Tok::Semi => return at + 1,
                Tok::RBrace | Tok::Eoi => return at,
                Tok::LBrace | Tok::LParen => at = self.ends.get(&at).map_or(at, |end| *end) + 1,
                _ => at += 1,
            }
        }
    }

    /// Returns the index after a semicolon or a block.
    pub fn end_of_declaration(&self, from: usize) -> usize {
        let mut at = from;
        loop {
            match self.kind(at) {
                Tok::Semi => return at + 1,
                Tok::LBrace => return self.ends.get(&at).copied().unwrap_or(at) + 1,
                Tok::Eoi => return at,
                _ => at += 1,
            }
        }
    }

    /// Rewrites a backend or a probe.
    pub fn fields(&mut self, at: usize) -> usize {
        let end = self.end_of_declaration(at);
        let mut token = at;
        while token < end {
            if self.kind(token) == Tok::Dot && self.word(token + 1) == "saintmode_threshold" {
                let next = self.end_of_statement(token);
                self.begin(token);
                self.comment_out(token, next, "saint mode is the module saintmode now");
                token = next;
            } else {
                self.copy(token);
                token += 1;
            }
        }
        end
    }

    pub fn import(&mut self, module: &'static str) {
        self.out.imports.insert(module);
    }

    pub fn context_of(&self, sub: &str) -> Context {
        self.contexts.of_sub(sub)
    }

    /// Marks a use of the client's request in `vcl_fetch`, where only the request of the fetch exists now.
    pub fn mark_removed_header(&mut self, variable: &str, context: Context) {
        if !matches!(context, Context::Fetch | Context::BackendError) {
            return;
        }
        if let Some(header) = removed_header(variable, Filter::FETCH) {
            let why = format!(
                "fetches into the cache have no {header}: copy it to another header in vcl_recv, and read that"
            );
            self.mark(&why);
        }
    }

    /// Marks a change of the client's request in `vcl_fetch` that another subroutine reads.
    pub fn mark_unseen_change(&mut self, variable: &str, context: Context) {
        let is_of_fetch = matches!(context, Context::Fetch | Context::BackendError);
        if is_of_fetch && variable.starts_with("req.http.") && self.is_read_by_client(variable) {
            let why =
                "the client's side does not see this change: change beresp, and read resp in vcl_deliver";
            self.mark(why);
        }
    }

    /// Returns whether a subroutine of the client's side other than the current one reads a variable.
    pub fn is_read_by_client(&self, name: &str) -> bool {
        self.usage.is_read_beside(&self.out.sub, name)
    }

    /// Returns whether the client's side may change variables after a token of the current subroutine.
    pub fn may_change_after(&self, variables: &[&str], at: usize) -> bool {
        self.usage.may_change_after(variables, &self.out.sub, at)
    }

    /// Returns whether the lifetime of a response may have been set before a token of the current subroutine.
    pub fn may_have_lifetime(&self, at: usize) -> bool {
        self.usage.may_have_lifetime(&self.out.sub, at, self.out.has_called)
    }
}

/// A statement with its semicolon.
pub struct Statement {
    pub at: usize,
    pub semicolon: usize,
    pub context: Context,
}
