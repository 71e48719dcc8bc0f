//! The state of one compilation, and the small moves every part of the parser makes: look at tokens,
//! complain, look up names.
//!
//! Parsing and checking are one pass over the tokens, in the order in which Varnish's compiler does
//! them, so that the first error is the one its users know.

use std::collections::HashMap;
use std::rc::Rc;

use crate::Options;
use crate::diagnostics::{Diagnostic, Piece, Place, Severity};
use crate::lexer::{Tok, Token, string_content};
use crate::program::{At, Program, Stmt};
use crate::signature::{ModuleSignatures, ObjectSignature};
use crate::source::{self, SourceText, Span};
use crate::symbols::{Fmt, HIGHEST, Kind, LOWEST, Meaning, Proc, SymbolId, Symbols, TokenId, Use, UseKind};
use crate::types::HttpId;
use crate::variables_table::ALL;

/// An error has been reported; whoever gets this may add to the report and must pass it on.
#[derive(Debug)]
pub(crate) struct Stop;

pub(crate) type Res<T> = Result<T, Stop>;

/// How a name is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Silent; the position stays if there is no such name.
    Quiet,
    Create,
    Existing,
    /// The longest part that is a name.
    Partial,
    PartialQuiet,
}

impl Mode {
    fn partial(self) -> bool {
        matches!(self, Mode::Partial | Mode::PartialQuiet)
    }

    fn quiet(self) -> bool {
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
    /// With the module's name: `directors.shard`.
    pub name: String,
    pub import: u32,
    pub signature: Rc<ObjectSignature>,
}

pub(crate) struct Compiler<'a> {
    pub options: &'a Options<'a>,
    pub sources: &'a [SourceText],
    pub tokens: &'a [Token],
    /// The token in hand.
    pub t: TokenId,
    pub syntax: u32,
    pub symbols: Symbols,
    pub program: Program,
    pub procs: Vec<Proc>,
    pub bodies: Vec<Vec<Stmt>>,
    /// The subroutine being parsed.
    pub current: Option<usize>,
    pub builtin_subs: Vec<String>,
    pub modules: Vec<Module>,
    pub object_types: Vec<ObjectType>,
    pub backend_slots: HashMap<String, u32>,
    /// The first backend, while it is the default for want of one with that name.
    pub first_backend: Option<SymbolId>,
    pub default_probe: Option<u32>,
    pub header_ids: HashMap<String, u32>,
    pub regex_ids: HashMap<String, u32>,
    pub function_ids: HashMap<(u32, String, String), u32>,
    pub trace_points: u32,
    pub nesting: u32,
    pub diagnostics: Vec<Diagnostic>,
    pub errors: usize,
    report: Diagnostic,
    focus: Option<Place>,
}

/// How deep blocks and parentheses may nest.
pub(crate) const MAX_NESTING: u32 = 150;

impl<'a> Compiler<'a> {
    pub fn new(options: &'a Options<'a>, sources: &'a [SourceText], tokens: &'a [Token]) -> Compiler<'a> {
        Compiler {
            options,
            sources,
            tokens,
            t: 0,
            syntax: 0,
            symbols: Symbols::new(),
            program: Program::default(),
            procs: Vec::new(),
            bodies: Vec::new(),
            current: None,
            builtin_subs: Vec::new(),
            modules: Vec::new(),
            object_types: Vec::new(),
            backend_slots: HashMap::new(),
            first_backend: None,
            default_probe: None,
            header_ids: HashMap::new(),
            regex_ids: HashMap::new(),
            function_ids: HashMap::new(),
            trace_points: 0,
            nesting: 0,
            diagnostics: Vec::new(),
            errors: 0,
            report: Diagnostic::new(Severity::Error),
            focus: None,
        }
    }

    // Tokens.

    pub fn kind(&self, token: TokenId) -> Tok {
        self.tokens.get(token).map_or(Tok::Eoi, |t| t.kind)
    }

    pub fn now(&self) -> Tok {
        self.kind(self.t)
    }

    pub fn span(&self, token: TokenId) -> Span {
        self.tokens[token.min(self.tokens.len() - 1)].span
    }

    pub fn text(&self, token: TokenId) -> &'a str {
        let span = self.span(token);
        &self.sources[span.source as usize].text[span.start as usize..span.end as usize]
    }

    /// What a string token says.
    pub fn content(&self, token: TokenId) -> &'a str {
        string_content(self.text(token))
    }

    pub fn is_word(&self, token: TokenId, word: &str) -> bool {
        self.kind(token) == Tok::Id && self.text(token) == word
    }

    /// The number a token stands for.
    pub fn number(&self, token: TokenId) -> f64 {
        self.text(token).trim_end_matches('.').parse().unwrap_or(0.0)
    }

    pub fn at(&self, token: TokenId) -> At {
        source::at(self.sources, self.span(token))
    }

    pub fn advance(&mut self) {
        if self.t + 1 < self.tokens.len() {
            self.t += 1;
        }
    }

    /// The texts of the tokens from one to before the other, joined.
    pub fn joined(&self, from: TokenId, to: TokenId) -> String {
        (from..to).map(|t| self.text(t)).collect()
    }

    // Complaints.

    pub fn say(&mut self, text: impl AsRef<str>) {
        if let Some(Piece::Text(last)) = self.report.pieces.last_mut() {
            last.push_str(text.as_ref());
        } else {
            self.report.pieces.push(Piece::Text(text.as_ref().to_owned()));
        }
    }

    pub fn show(&mut self, token: TokenId) {
        let place = source::place(self.sources, self.span(token));
        self.report.pieces.push(Piece::Place(place));
    }

    /// Shows from a token to the one before `end`.
    pub fn show_range(&mut self, first: Option<TokenId>, end: TokenId) {
        let Some(first) = first else { return self.show(end) };
        let last = self.span(end.saturating_sub(1));
        let place = source::place_between(self.sources, self.span(first), last);
        self.report.pieces.push(Piece::Place(place));
    }

    pub fn hint(&mut self, hint: impl Into<String>) {
        self.report.hint.get_or_insert(hint.into());
    }

    pub fn fail<T>(&mut self, message: impl AsRef<str>, token: TokenId) -> Res<T> {
        self.say(message);
        self.show(token);
        Err(Stop)
    }

    pub fn fail_range<T>(&mut self, message: impl AsRef<str>, first: TokenId, end: TokenId) -> Res<T> {
        self.say(message);
        self.show_range(Some(first), end);
        Err(Stop)
    }

    /// Fails with a text that names no place; people are shown the token all the same.
    pub fn fail_unplaced<T>(&mut self, message: impl AsRef<str>, token: TokenId) -> Res<T> {
        self.say(message);
        self.focus = Some(source::place(self.sources, self.span(token)));
        Err(Stop)
    }

    /// Closes the report of an error.
    pub fn finish_error(&mut self) {
        let mut report = std::mem::replace(&mut self.report, Diagnostic::new(Severity::Error));
        let focus = self.focus.take();
        report.focus = focus.filter(|_| report.place().is_none());
        crate::hints::improve(&mut report);
        self.diagnostics.push(report);
        self.errors += 1;
    }

    /// What has been said so far turns out to be a warning only.
    pub fn finish_warning(&mut self) {
        self.say("(That was just a warning)\n");
        self.finish_note();
    }

    /// As a warning, without the words that say so.
    pub fn finish_note(&mut self) {
        let mut report = std::mem::replace(&mut self.report, Diagnostic::new(Severity::Error));
        report.severity = Severity::Warning;
        self.diagnostics.push(report);
    }

    /// A token as error texts quote it.
    pub fn quoted(&self, token: TokenId) -> String {
        match self.kind(token) {
            Tok::Eoi => "end of input".to_owned(),
            Tok::Csrc => "C{ ... }C".to_owned(),
            _ => format!("'{}'", self.text(token)),
        }
    }

    /// Complains if the token in hand is another one, without stopping.
    #[track_caller]
    pub fn want(&mut self, kind: Tok) -> Res<()> {
        if self.now() == kind {
            return Ok(());
        }
        let line = std::panic::Location::caller().line();
        let got = self.quoted(self.t);
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

    // Names.

    /// The name in hand must be plain: no dots, no odd characters.
    pub fn want_name(&mut self, what: &str) -> Res<()> {
        self.want(Tok::Id)?;
        let mut end = self.t + 1;
        let mut dotted = false;
        while self.kind(end) == Tok::Dot {
            dotted = true;
            end += 1;
            if self.kind(end) != Tok::Id {
                break;
            }
            end += 1;
        }
        if dotted {
            let name = self.joined(self.t, end);
            let message = format!("Name of {what}, '{name}', contains illegal character '.'\n");
            return self.fail_range(message, self.t, end);
        }
        Ok(())
    }

    /// A name that ends at the token in hand; afterwards the token after the name is in hand.
    pub fn symbol(&mut self, kind: Kind, mode: Mode, mention: Mention) -> Res<Option<SymbolId>> {
        let first = self.t;
        if self.syntax >= 41 && mode == Mode::Create && kind != Kind::Sub && has_vcl_prefix(self.text(first)) {
            return self.fail("Symbols named 'vcl_*' are reserved.\nAt:", first);
        }
        let mut node = Symbols::ROOT;
        let mut token = first;
        let mut found: Option<(SymbolId, usize, TokenId)> = None;
        loop {
            if self.kind(token) == Tok::Cstr {
                if self.syntax < 41 {
                    return self.fail("Quoted headers are available for VCL >= 4.1.\nAt:", token);
                }
                if !self.content(token).is_empty() {
                    node = self.symbols.child(node, self.content(token));
                }
            } else {
                node = self.symbols.child(node, self.text(token));
            }
            if let Some(symbol) = self.find(node, kind, token)? {
                found = Some((symbol, node, token));
            }
            if self.kind(token + 1) != Tok::Dot {
                break;
            }
            match self.kind(token + 2) {
                Tok::Id => {}
                Tok::Cstr if found.is_some_and(|f| self.symbols.is_headers(f.0)) => {}
                _ => break,
            }
            token += 2;
        }
        let mut mode = mode;
        if mode.partial() && found.is_some_and(|f| self.symbols.list[f.0].kind == Kind::Vmod) {
            mode = Mode::Existing;
        }
        match found {
            Some((_, at, last)) if mode.partial() => (node, token) = (at, last),
            Some((_, at, _)) if at != node => found = None,
            _ => {}
        }
        let mut symbol = found.map(|f| f.0);
        if symbol.is_none() && mode.quiet() {
            return Ok(None);
        }
        if symbol.is_none() && mode == Mode::Create {
            symbol = Some(self.symbols.add(node, kind, self.syntax, self.syntax));
        }
        self.t = token + 1;
        let Some(symbol) = symbol else { return self.not_found(node, kind, first) };
        self.check_kind(symbol, kind, first)?;
        let entry = &mut self.symbols.list[symbol];
        match mention {
            Mention::Nothing => {}
            Mention::Definition => {
                entry.defined.get_or_insert(first);
                entry.definitions += 1;
            }
            Mention::Reference => {
                entry.referenced.get_or_insert(first);
                entry.references += 1;
            }
        }
        Ok(Some(symbol))
    }

    /// As `symbol`, for modes that always find one.
    pub fn some_symbol(&mut self, kind: Kind, mode: Mode, mention: Mention) -> Res<SymbolId> {
        self.symbol(kind, mode, mention)?.ok_or(Stop)
    }

    /// The symbol at a node; headers come into being when they are first named.
    fn find(&mut self, node: usize, kind: Kind, token: TokenId) -> Res<Option<SymbolId>> {
        if let Some(symbol) = self.symbols.find(node, kind, self.syntax, self.syntax, self.syntax) {
            return Ok(Some(symbol));
        }
        let Some(parent) = self.symbols.header_parent(node) else { return Ok(None) };
        self.header_symbol(node, parent, token).map(Some)
    }

    fn header_symbol(&mut self, node: usize, parent: SymbolId, token: TokenId) -> Res<SymbolId> {
        let name = self.symbols.node_name(node).to_owned();
        if name.len() >= 127 {
            let start: String = name.chars().take(20).collect();
            return self.fail_unplaced(format!("HTTP header ({start}..) is too long.\n"), token);
        }
        if let Some(bad) = name.chars().find(|c| !c.is_ascii() || !crate::lexer::is_tchar(*c as u8)) {
            return self.fail_unplaced(format!("Invalid character '{bad}' in header name.\n"), token);
        }
        let Meaning::Headers(http) = self.symbols.list[parent].meaning else { return Err(Stop) };
        let header = self.header_id(&name);
        let symbol = self.symbols.add(node, Kind::Var, LOWEST, HIGHEST);
        let (read, write, unset) = {
            let parent = &self.symbols.list[parent];
            (parent.read, parent.write, parent.unset)
        };
        let entry = &mut self.symbols.list[symbol];
        entry.no_ref_needed = true;
        entry.fmt = Fmt::Header;
        entry.meaning = Meaning::Header(http, header);
        (entry.read, entry.write, entry.unset) = (read, write, unset);
        Ok(symbol)
    }

    pub fn header_id(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.header_ids.get(name) {
            return id;
        }
        let id = self.program.headers.len() as u32;
        self.program.headers.push(name.to_owned());
        self.header_ids.insert(name.to_owned(), id);
        id
    }

    fn not_found<T>(&mut self, node: usize, kind: Kind, first: TokenId) -> Res<T> {
        let name = self.joined(first, self.t);
        let mut message = format!("Symbol not found: '{name}'");
        if let Some(other) = self.symbols.find(node, kind, LOWEST, HIGHEST, self.syntax) {
            let other = &self.symbols.list[other];
            if !matches!(other.kind, Kind::Object | Kind::Instance) {
                message.push_str(" (Only available when");
                if other.since > LOWEST {
                    message.push_str(&format!(" {:.1} <=", f64::from(other.since) / 10.0));
                }
                message.push_str(" VCL syntax");
                if other.until < HIGHEST {
                    message.push_str(&format!(" <= {:.1}", f64::from(other.until) / 10.0));
                }
                message.push(')');
            }
        }
        message.push_str("\nAt: ");
        if let Some(hint) = crate::hints::for_unknown_symbol(&name, &self.symbols) {
            self.hint(hint);
        }
        self.fail_range(message, first, self.t)
    }

    fn check_kind(&mut self, symbol: SymbolId, kind: Kind, first: TokenId) -> Res<()> {
        let entry = &self.symbols.list[symbol];
        if kind == Kind::None || kind == entry.kind || entry.fmt == Fmt::Default {
            return Ok(());
        }
        let name = self.joined(first, self.t);
        let (found, wanted) = (entry.kind.name(), kind.name());
        let (defined, referenced) = (entry.defined, entry.referenced);
        self.say(format!("Symbol '{name}' has wrong type ({found}), expected {wanted}:\nAt: "));
        self.show_range(Some(first), self.t);
        match (defined, referenced) {
            (Some(token), _) => self.fail("Symbol was defined here: ", token),
            (None, Some(token)) => self.fail("Symbol was declared here: ", token),
            (None, None) => {
                self.say("Symbol was builtin\n");
                Err(Stop)
            }
        }
    }

    /// Makes a symbol a global object of the program and gives it a place in the program's list.
    pub fn globalize(&mut self, symbol: SymbolId, fmt: Fmt) {
        if matches!(self.symbols.list[symbol].meaning, Meaning::Global(_)) {
            return;
        }
        let name = self.symbols.name(symbol).to_owned();
        let index = match fmt {
            Fmt::Acl => {
                self.program.acls.push(empty_acl(name));
                self.program.acls.len() - 1
            }
            Fmt::Backend => self.backend_slot(&name) as usize,
            Fmt::Probe => {
                self.program.probes.push(crate::program::Probe { name, ..Default::default() });
                self.program.probes.len() - 1
            }
            Fmt::Sub => self.new_proc(symbol),
            _ => {
                self.program.objects.push(crate::program::Object {
                    name,
                    import: 0,
                    type_name: String::new(),
                    null_ok: false,
                });
                self.program.objects.len() - 1
            }
        };
        let entry = &mut self.symbols.list[symbol];
        entry.fmt = fmt;
        entry.kind = fmt.global_kind().unwrap_or(Kind::None);
        entry.meaning = Meaning::Global(index as u32);
        entry.read = ALL;
    }

    pub fn backend_slot(&mut self, name: &str) -> u32 {
        let key = name.to_ascii_lowercase();
        if let Some(&slot) = self.backend_slots.get(&key) {
            return slot;
        }
        let slot = self.program.backends.len() as u32;
        self.program.backends.push(crate::program::Backend { name: name.to_owned(), ..Default::default() });
        self.backend_slots.insert(key, slot);
        slot
    }

    pub fn new_proc(&mut self, symbol: SymbolId) -> usize {
        self.procs.push(Proc {
            symbol,
            method: None,
            name: None,
            at: At::default(),
            calls: Vec::new(),
            uses: Vec::new(),
            returns: 0,
            return_tokens: [None; 19],
            called: 0,
            active: false,
            allowed: ALL,
            called_from: 0,
        });
        self.bodies.push(Vec::new());
        self.procs.len() - 1
    }

    /// The symbol for a definition in hand; `None` for `default` where the type has one.
    pub fn handle_symbol(&mut self, fmt: Fmt) -> Res<Option<SymbolId>> {
        if self.text(self.t) == "default" && matches!(fmt, Fmt::Backend | Fmt::Probe) {
            self.advance();
            return Ok(None);
        }
        let kind = fmt.global_kind().unwrap_or(Kind::None);
        let token = self.t;
        let name = self.text(token);
        let mut symbol = self.symbol(Kind::None, Mode::Quiet, Mention::Nothing)?;
        if let Some(symbol) = symbol {
            let entry = &self.symbols.list[symbol];
            if let Some(defined) = entry.defined {
                let message = if entry.kind == kind {
                    let mut kind = entry.kind.name().to_owned();
                    kind[..1].make_ascii_uppercase();
                    format!("{kind} '{name}' redefined.\n")
                } else {
                    format!("Name '{name}' already defined.\n")
                };
                self.say(message);
                self.show(token);
                return self.fail("First definition:\n", defined);
            }
            if entry.kind != kind {
                let message = format!("Name {name} must have type '{}'.\n", entry.kind.name());
                return self.fail(message, token);
            }
        } else {
            symbol = self.symbol(kind, Mode::Create, Mention::Nothing)?;
        }
        let symbol = symbol.ok_or(Stop)?;
        self.globalize(symbol, fmt);
        let entry = &mut self.symbols.list[symbol];
        entry.definitions = 1;
        entry.defined.get_or_insert(token);
        Ok(Some(symbol))
    }

    /// Index in the program's list of a global symbol.
    pub fn global_index(&self, symbol: SymbolId) -> u32 {
        match self.symbols.list[symbol].meaning {
            Meaning::Global(index) => index,
            _ => u32::MAX,
        }
    }

    /// Notes a use in the current subroutine, to be judged when the calls are known.
    pub fn note_use(&mut self, first: TokenId, end: Option<TokenId>, symbol: SymbolId, what: UseKind) {
        let entry = &self.symbols.list[symbol];
        let mask = match what {
            UseKind::Read => entry.read,
            UseKind::Write => entry.write,
            UseKind::Unset => entry.unset,
            UseKind::Action => entry.action_mask,
        };
        let noted = Use { first, end: end.unwrap_or(first + 1), what, mask, readable: entry.read };
        if let Some(current) = self.current {
            self.procs[current].uses.push(noted);
        }
    }

    pub fn type_name(&self, fmt: Fmt) -> String {
        match fmt {
            Fmt::Object(index) => self.object_types[index as usize].name.clone(),
            other => other.user_name().to_owned(),
        }
    }
}

fn empty_acl(name: String) -> crate::program::Acl {
    crate::program::Acl { name, entries: Vec::new(), log: false, table: false, fold: false, pedantic: true }
}

pub(crate) fn has_vcl_prefix(name: &str) -> bool {
    name.get(..4).is_some_and(|p| p.eq_ignore_ascii_case("vcl_"))
}

/// The message behind a variable like `req`, `req.http` or `req.url`.
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
