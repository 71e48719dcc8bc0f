//! The state of a compilation, and the steps that all parts of the parser share: reading tokens, reporting
//! errors, looking up names.
//!
//! Parsing and checking are one pass over the tokens, in the same order as in Varnish's compiler, so that both report
//! the same first error.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use crate::lexer::{Tok, Token, string_content};
use crate::options::Options;
use crate::program::{At, Program, Stmt};
use crate::report::Report;
use crate::signature::{ModuleSignatures, ObjectSignature};
use crate::source::{self, SourceText, Span};
use crate::symbols::{Proc, SymbolId, Symbols, TokenId};
use crate::text::Text;
use crate::types::HttpId;

/// The marker that an error was reported. Callers may append to the report and must return the marker.
#[derive(Debug)]
pub(crate) struct Stop;

pub(crate) type Res<T> = Result<T, Stop>;

/// The mode of a name's lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Does not report a missing name, and then keeps the position.
    Quiet,
    Create,
    Existing,
    /// Accepts the longest prefix that is a name.
    Partial,
    PartialQuiet,
}

impl Mode {
    pub fn partial(self) -> bool {
        matches!(self, Mode::Partial | Mode::PartialQuiet)
    }

    pub fn quiet(self) -> bool {
        matches!(self, Mode::Quiet | Mode::PartialQuiet)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mention {
    Nothing,
    Definition,
    Reference,
}

pub(crate) struct Module {
    pub name: String,
    /// The symbol of its first import.
    pub symbol: SymbolId,
    pub import: u32,
    pub signatures: Rc<ModuleSignatures>,
}

pub(crate) struct ObjectType {
    /// The name with the module's: `directors.shard`.
    pub name: String,
    pub import: u32,
    pub signature: Rc<ObjectSignature>,
}

/// The subroutines of a program.
#[derive(Default)]
pub(crate) struct Subs {
    pub procs: Vec<Proc>,
    pub bodies: Vec<Vec<Stmt>>,
    /// The subroutine that is being parsed.
    pub current: Option<usize>,
    /// The names of the subroutines in the built-in VCL.
    pub builtin: Vec<String>,
}

/// The modules and object types that a program imports.
#[derive(Default)]
pub(crate) struct Imported {
    pub modules: Vec<Module>,
    pub object_types: Vec<ObjectType>,
}

/// The numbers of entries in the program's lists, by their contents.
#[derive(Default)]
pub(crate) struct Ids {
    pub backends: HashMap<String, u32>,
    pub headers: HashMap<String, u32>,
    pub regexes: HashMap<Text, u32>,
    pub functions: HashMap<(u32, String, String), u32>,
}

/// The choice of the default backend and of the default probe.
#[derive(Default)]
pub(crate) struct Defaults {
    /// The first backend, which is the default unless one is named `default`.
    pub first_backend: Option<SymbolId>,
    pub probe: Option<u32>,
}

/// The texts that are compiled, with their tokens.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub options: &'a Options<'a>,
    pub sources: &'a [SourceText],
    pub tokens: &'a [Token],
}

pub(crate) struct Compiler<'a> {
    pub input: Input<'a>,
    /// The current token.
    pub t: TokenId,
    pub syntax: u32,
    pub symbols: Symbols,
    pub program: Program,
    pub subs: Subs,
    pub imported: Imported,
    pub ids: Ids,
    pub defaults: Defaults,
    pub trace_points: u32,
    pub nesting: u32,
    pub report: Report,
}

/// Maximum depth of nested blocks and parentheses.
pub(crate) const MAX_NESTING: u32 = 150;

impl<'a> Compiler<'a> {
    pub fn new(options: &'a Options<'a>, sources: &'a [SourceText], tokens: &'a [Token]) -> Compiler<'a> {
        Compiler {
            input: Input { options, sources, tokens },
            t: 0,
            syntax: 0,
            symbols: Symbols::new(),
            program: Program::default(),
            subs: Subs::default(),
            imported: Imported::default(),
            ids: Ids::default(),
            defaults: Defaults::default(),
            trace_points: 0,
            nesting: 0,
            report: Report::new(),
        }
    }

    pub fn kind(&self, token: TokenId) -> Tok {
        self.input.tokens.get(token).map_or(Tok::Eoi, |t| t.kind)
    }

    pub fn now(&self) -> Tok {
        self.kind(self.t)
    }

    pub fn span(&self, token: TokenId) -> Span {
        self.input.tokens[token.min(self.input.tokens.len() - 1)].span
    }

    /// Returns the source text of a token.
    pub fn bytes(&self, token: TokenId) -> &'a [u8] {
        let span = self.span(token);
        &self.input.sources[span.source as usize].text[span.start as usize..span.end as usize]
    }

    /// Returns the text of a token that is not a string, and thus ASCII. For a string that is not UTF-8, returns
    /// a text that equals no word.
    pub fn text(&self, token: TokenId) -> &'a str {
        std::str::from_utf8(self.bytes(token)).unwrap_or("\u{fffd}")
    }

    /// Returns a token as readable text.
    pub fn shown(&self, token: TokenId) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes(token))
    }

    /// Returns the contents of a string token.
    pub fn content(&self, token: TokenId) -> &'a [u8] {
        string_content(self.bytes(token))
    }

    /// Returns the contents as a name. Bytes that are not UTF-8 are replaced.
    pub fn content_text(&self, token: TokenId) -> Cow<'a, str> {
        String::from_utf8_lossy(self.content(token))
    }

    pub fn is_word(&self, token: TokenId, word: &str) -> bool {
        self.kind(token) == Tok::Id && self.text(token) == word
    }

    /// Returns the value of a number token.
    pub fn number(&self, token: TokenId) -> f64 {
        self.text(token).trim_end_matches('.').parse().unwrap_or(0.0)
    }

    pub fn at(&self, token: TokenId) -> At {
        source::at(self.input.sources, self.span(token))
    }

    pub fn advance(&mut self) {
        if self.t + 1 < self.input.tokens.len() {
            self.t += 1;
        }
    }

    /// Returns the joined texts of the tokens from `from` to before `to`.
    pub fn joined(&self, from: TokenId, to: TokenId) -> String {
        (from..to).map(|t| self.shown(t)).collect()
    }

    pub fn add_text(&mut self, text: impl AsRef<str>) {
        self.report.add_text(text.as_ref());
    }

    pub fn show(&mut self, token: TokenId) {
        let place = source::place(self.input.sources, self.span(token));
        self.report.add_place(place);
    }

    /// Shows the tokens from `first` to before `end`.
    pub fn show_range(&mut self, first: Option<TokenId>, end: TokenId) {
        let Some(first) = first else { return self.show(end) };
        let last = self.span(end.saturating_sub(1));
        let place = source::place_between(self.input.sources, self.span(first), last);
        self.report.add_place(place);
    }

    pub fn hint(&mut self, hint: impl Into<String>) {
        self.report.hint(hint.into());
    }

    pub fn fail<T>(&mut self, message: impl AsRef<str>, token: TokenId) -> Res<T> {
        self.add_text(message);
        self.show(token);
        Err(Stop)
    }

    pub fn fail_range<T>(&mut self, message: impl AsRef<str>, first: TokenId, end: TokenId) -> Res<T> {
        self.add_text(message);
        self.show_range(Some(first), end);
        Err(Stop)
    }

    /// Fails with a text that contains no location. The pretty rendering shows the token.
    pub fn fail_unplaced<T>(&mut self, message: impl AsRef<str>, token: TokenId) -> Res<T> {
        self.add_text(message);
        self.look_at(token);
        Err(Stop)
    }

    /// Records a location for the pretty rendering that the traditional text does not contain.
    pub fn look_at(&mut self, token: TokenId) {
        self.report.look_at(source::place(self.input.sources, self.span(token)));
    }

    /// Completes the report of an error.
    pub fn finish_error(&mut self) {
        self.report.finish_error();
    }

    /// Completes the report as a warning.
    pub fn finish_warning(&mut self) {
        self.add_text("(That was just a warning)\n");
        self.finish_note();
    }

    /// Completes the report as a warning, without the words that mark it as one.
    pub fn finish_note(&mut self) {
        self.report.finish_note();
    }

    /// Returns a token as error texts quote it.
    pub fn quoted(&self, token: TokenId) -> String {
        match self.kind(token) {
            Tok::Eoi => "end of input".to_owned(),
            Tok::Csrc => "C{ ... }C".to_owned(),
            _ => format!("'{}'", self.shown(token)),
        }
    }

    /// Reports an error if the current token has another kind. Does not advance.
    #[track_caller]
    pub fn want(&mut self, kind: Tok) -> Res<()> {
        if self.now() == kind {
            return Ok(());
        }
        let line = std::panic::Location::caller().line();
        let got = self.quoted(self.t);
        if let Some(hint) = crate::hints::for_unexpected_token(kind, self.now()) {
            self.hint(hint);
        }
        self.fail(format!("Expected {} got {got}\n(program line {line}), at\n", kind.name()), self.t)
    }

    #[track_caller]
    pub fn skip(&mut self, kind: Tok) -> Res<()> {
        self.want(kind)?;
        self.advance();
        Ok(())
    }

    pub fn enter(&mut self) -> Res<()> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return self.fail(format!("Nesting deeper than {MAX_NESTING} levels.\n"), self.t);
        }
        Ok(())
    }

    pub fn leave(&mut self) {
        self.nesting -= 1;
    }
}

pub(crate) fn has_vcl_prefix(name: &str) -> bool {
    name.get(..4).is_some_and(|p| p.eq_ignore_ascii_case("vcl_"))
}

/// Returns the message that a variable like `req`, `req.http` or `req.url` belongs to.
pub(crate) fn message_of(name: &str) -> Option<HttpId> {
    Some(match name.split('.').next()? {
        "req" => HttpId::Req,
        "req_top" => HttpId::ReqTop,
        "bereq" => HttpId::Bereq,
        "beresp" => HttpId::Beresp,
        "obj" => HttpId::Obj,
        "resp" => HttpId::Resp,
        "obj_stale" => HttpId::ObjStale,
        _ => return None,
    })
}
