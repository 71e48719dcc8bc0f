//! Declarations at the top level.

use std::ops::Range;

use super::context::Context;
use super::rewriter::{Fault, Output, Res, Rewriter, Upgraded};
use lacquer_vcl::tokens::Tok;

/// Subroutines that no longer exist.
const GONE: [&str; 4] = ["vcl_timeout", "vcl_discard", "vcl_prefetch", "vcl_log"];

impl Rewriter<'_> {
    /// Rewrites the whole text.
    pub fn run(mut self) -> Result<Upgraded, Fault> {
        let first = self.gap(0).to_vec();
        let mut at = 0;
        while self.kind(at) != Tok::Eoi {
            at = self.declaration(at)?;
        }
        let last = if at == 0 { &b""[..] } else { self.gap(at) };
        self.out.text.extend_from_slice(last);
        let mut text = first;
        text.extend_from_slice(b"vcl 4.1;\n");
        // The directors must be made before a subroutine uses them, and their module is needed for that.
        let is_missing = |module: &str| module == "directors" || !self.out.imported.contains(module);
        for module in self.out.imports.iter().filter(|module| is_missing(module)) {
            text.extend_from_slice(format!("import {module};\n").as_bytes());
        }
        if !self.directors.is_empty() {
            let statements = self.director_statements();
            text.extend_from_slice(format!("\nsub vcl_init {{\n{statements}}}\n").as_bytes());
        }
        let (director, is_marked) = self.default_director();
        text.extend_from_slice(director.as_bytes());
        let open = self.out.open + usize::from(is_marked);
        let body = std::mem::take(&mut self.out.text);
        if !body.starts_with(b"\n") && !body.is_empty() {
            text.push(b'\n');
        }
        text.extend_from_slice(&body);
        let Output { storages, caches_private, .. } = self.out;
        Ok(Upgraded { text, open, storages, part_of: None, caches_private })
    }

    /// Rewrites a declaration. Returns the index after it.
    pub fn declaration(&mut self, at: usize) -> Res<usize> {
        match (self.kind(at), self.word(at)) {
            (Tok::Id, "vcl") => {
                let end = self.end_of_statement(at);
                self.keep_comments(at, end);
                Ok(end)
            }
            (Tok::Id, "sub") if self.kind(at + 2) == Tok::LBrace => self.subroutine(at),
            (Tok::Id, "director") => self.director(at),
            (Tok::Id, "backend" | "probe") => Ok(self.fields(at)),
            (Tok::Csrc, _) => {
                self.begin(at);
                self.comment_out(at, at + 1, "inline C does not exist here; use a module");
                Ok(at + 1)
            }
            (Tok::Id, _) => {
                if self.word(at) == "import" {
                    self.out.imported.insert(self.word(at + 1).to_owned());
                }
                let end = self.end_of_declaration(at);
                (at..end).for_each(|token| self.copy(token));
                Ok(end)
            }
            _ => Err(Fault { token: at, message: "a declaration is expected here".to_owned() }),
        }
    }

    fn subroutine(&mut self, at: usize) -> Res<usize> {
        let name = self.word(at + 1);
        let open = at + 2;
        let close = self.ends.get(&open).copied().unwrap_or(open);
        if GONE.contains(&name) {
            self.begin(at);
            self.comment_out(at, close + 1, &format!("{name} no longer exists"));
            return Ok(close + 1);
        }
        name.clone_into(&mut self.out.sub);
        let context = self.context_of(name);
        let new = match name {
            "vcl_fetch" => "vcl_backend_response",
            "vcl_error" => "vcl_synth",
            name => name,
        };
        self.begin(at);
        let error_copy = self.contexts.error_copy(name).map(str::to_owned);
        let is_shared = self.contexts.is_shared(name);
        if is_shared && error_copy.is_none() {
            self.mark("both sides call this: copy it, with bereq and beresp for the backend's side");
        }
        self.write("sub");
        self.replace(at + 1, new.as_bytes());
        self.copy(open);
        let moved = if context.lost_bereq() { self.to_be_moved(open, close, context) } else { Vec::new() };
        self.body(open, close, context, &moved)?;
        self.copy(close);
        self.backend_fetch(&moved, context)?;
        if name == "vcl_fetch" {
            self.old_end_of_fetch();
        }
        let copy = match name {
            "vcl_error" => Some("vcl_backend_error".to_owned()),
            _ => error_copy,
        };
        if let Some(copy) = copy {
            let why = if is_shared {
                "The same for the backend's side."
            } else {
                "Failed fetches, which had been errors of vcl_error."
            };
            self.write(&format!("\n\n# {why}\nsub {copy} {{"));
            self.body(open, close, Context::BackendError, &[])?;
            self.copy(close);
        }
        Ok(close + 1)
    }

    /// Writes the statements of a block but those that are written elsewhere.
    fn body(&mut self, open: usize, close: usize, context: Context, moved: &[Range<usize>]) -> Res {
        let mut moved = moved.iter().peekable();
        let mut at = open + 1;
        self.out.lifetimes = vec![false];
        self.out.has_called = false;
        while at < close {
            at = match moved.next_if(|range| range.start == at) {
                Some(range) => range.end,
                None => self.statement(at, close, context)?,
            };
        }
        Ok(())
    }
}
