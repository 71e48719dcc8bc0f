//! The top level of a program: version, subroutines, and the dispatch to other declarations.

use crate::compiler::{Compiler, Mention, Mode, Res, Stop, has_vcl_prefix, message_of};
use crate::diagnostics::Diagnostic;
use crate::lexer::Tok;
use crate::program::{Program, Sub};
use crate::returns_table::methods_by_name;
use crate::symbols::{Access, Action, Fmt, HIGHEST, Kind, LOWEST, Meaning, TokenId};
use crate::types::Method;
use crate::variables_table::{ALL, ENTRIES, HEADERS, Headers};
use std::fmt::Write as _;

/// The words that begin a declaration. All but the last are reserved; VCL that was written before Varnish 9 may use
/// `unused` as a name.
const DECLARATIONS: [&str; 7] = ["acl", "sub", "backend", "probe", "import", "vcl", "unused"];

impl Compiler<'_> {
    /// Declares the symbols of the language.
    pub fn declare_language(&mut self) {
        for method in methods_by_name() {
            let symbol =
                self.symbols.add_predefined(method.sub_name(), Kind::Sub, Fmt::Sub, Meaning::Nothing);
            let index = self.new_proc(symbol);
            self.subs.procs[index].method = Some(method);
            self.symbols.list[symbol].meaning = Meaning::Global(index as u32);
        }
        for word in &DECLARATIONS[..6] {
            let symbol = self.symbols.add_predefined(word, Kind::Reserved, Fmt::Void, Meaning::Nothing);
            self.symbols.list[symbol].since = HIGHEST;
        }
        let functions = [
            ("regsub", Fmt::String, Meaning::Regsub { all: false }),
            ("regsuball", Fmt::String, Meaning::Regsub { all: true }),
            ("true", Fmt::Bool, Meaning::Truth(true)),
            ("false", Fmt::Bool, Meaning::Truth(false)),
            ("default", Fmt::Default, Meaning::Default),
        ];
        for (name, fmt, meaning) in functions {
            self.symbols.add_predefined(name, Kind::Func, fmt, meaning);
        }
        let synthetic = 1 << Method::Synth as u32 | 1 << Method::BackendError as u32;
        let actions = [
            ("ban", Action::Ban, 0),
            ("call", Action::Call, 0),
            ("hash_data", Action::HashData, 1 << Method::Hash as u32),
            ("if", Action::If, 0),
            ("new", Action::New, 1 << Method::Init as u32),
            ("return", Action::Return, 0),
            ("set", Action::Set, 0),
            ("synthetic", Action::Synthetic, synthetic),
            ("unset", Action::Unset, 0),
        ];
        for (name, action, mask) in actions {
            let symbol = self.symbols.add_predefined(name, Kind::Action, Fmt::Void, Meaning::Action(action));
            self.symbols.list[symbol].access.action = mask;
        }
        self.declare_variables();
    }

    fn declare_variables(&mut self) {
        for entry in ENTRIES.iter().filter(|e| !e.name.starts_with("storage.<")) {
            let symbol = self.symbols.add_predefined(
                entry.name,
                Kind::Var,
                Fmt::from(entry.ty),
                Meaning::Var(entry.var),
            );
            let new = &mut self.symbols.list[symbol];
            (new.since, new.until) = (entry.since, entry.until);
            new.access = Access::variable(entry.read, entry.write, entry.unset);
        }
        for Headers { name, read, write, unset, protected, protected_read } in HEADERS {
            let Some(http) = message_of(name) else { continue };
            let parent = self.symbols.add_predefined(name, Kind::None, Fmt::Header, Meaning::Headers(http));
            let entry = &mut self.symbols.list[parent];
            entry.access = Access::variable(*read, *write, *unset);
            for header in protected.iter().copied() {
                let id = self.header_id(header);
                let full = format!("{name}.{header}");
                let symbol =
                    self.symbols.add_predefined(&full, Kind::Var, Fmt::Header, Meaning::Header(http, id));
                self.symbols.list[symbol].access.read = *protected_read;
            }
        }
        for storage in self.input.options.storages {
            let name = format!("storage.{storage}");
            let meaning = Meaning::Storage(storage.clone());
            let symbol = self.symbols.add_predefined(&name, Kind::Var, Fmt::Stevedore, meaning);
            self.symbols.list[symbol].access.read = ALL;
        }
        for label in self.input.options.labels {
            let symbol = self.symbols.add_predefined(label, Kind::Vcl, Fmt::Vcl, Meaning::Nothing);
            self.symbols.list[symbol].access.read = 1 << Method::Recv as u32;
        }
    }

    /// Scans the top level before parsing: backends keep the order of their definitions, and the built-in VCL
    /// defines the valid `vcl_` names.
    pub fn survey(&mut self) {
        self.subs.builtin = methods_by_name().iter().map(|m| m.sub_name().to_owned()).collect();
        let mut depth = 0_usize;
        for token in 0..self.input.tokens.len() {
            match self.kind(token) {
                Tok::LBrace => depth += 1,
                Tok::RBrace => depth = depth.saturating_sub(1),
                Tok::Id if depth == 0 && self.kind(token + 1) == Tok::Id => {
                    let name = self.text(token + 1);
                    match self.text(token) {
                        "backend" => {
                            self.backend_slot(name);
                        }
                        "sub" if self.is_builtin(token) && !self.subs.builtin.iter().any(|b| b == name) => {
                            self.subs.builtin.push(name.to_owned());
                        }
                        _ => {}
                    }
                }
                // The built-in VCL is well-formed, regardless of the text before it.
                Tok::Id if depth > 0 && self.text(token) == "vcl" && self.is_builtin(token) => depth = 0,
                _ => {}
            }
        }
    }

    fn is_builtin(&self, token: TokenId) -> bool {
        self.input.sources[self.span(token).source as usize].builtin
    }

    /// Returns the program and the warnings. There must be no errors.
    pub fn finish(mut self) -> (Program, Vec<Diagnostic>) {
        let mut program = std::mem::take(&mut self.program);
        program.syntax = self.syntax;
        program.methods = vec![0; Method::COUNT];
        for (index, (proc, body)) in
            self.subs.procs.iter().zip(std::mem::take(&mut self.subs.bodies)).enumerate()
        {
            if let Some(method) = proc.method {
                program.methods[method as usize] = index as u32;
            }
            let called_from = proc.method.map_or(proc.called_from, |m| 1 << m as u32);
            program.subs.push(Sub {
                name: self.symbols.name(proc.symbol).to_owned(),
                at: proc.at,
                body,
                reachable_from: if called_from == 0 { proc.allowed } else { called_from },
                allowed: proc.allowed,
            });
        }
        for backend in program.origins.backends.iter_mut().filter(|b| b.probe.is_none() && !b.none) {
            backend.probe = self.defaults.probe;
        }
        (program, self.report.into_diagnostics())
    }

    /// Parses all declarations. After an error, continues with the next one if the caller wants further errors.
    pub fn parse_program(&mut self) {
        if self.parse_version_first().is_err() {
            self.finish_error();
            return;
        }
        while self.now() != Tok::Eoi {
            let start = self.t;
            if self.declaration().is_err() {
                self.finish_error();
                self.subs.current = None;
                self.nesting = 0;
                if self.report.errors() >= self.input.options.max_errors {
                    return;
                }
                self.next_declaration(start);
            }
        }
    }

    fn parse_version_first(&mut self) -> Res<()> {
        if !self.is_word(self.t, "vcl") {
            let message = "VCL version declaration missing\n\
                Update your VCL to Version 4 syntax, and add\n\tvcl 4.1;\non the first line of the VCL files.\n";
            if (0..self.input.tokens.len()).any(|token| self.is_of_old_version(token)) {
                self.hint(crate::hints::OLD_VERSION);
            }
            return self.fail(message, self.t);
        }
        self.version()
    }

    /// Returns whether a token and those beside it exist only in VCL of Varnish 2 and 3.
    fn is_of_old_version(&self, token: TokenId) -> bool {
        let next = token + 1;
        match self.text(token) {
            "sub" => self.is_word(next, "vcl_fetch") || self.is_word(next, "vcl_error"),
            "req" => self.kind(next) == Tok::Dot && self.is_word(token + 2, "request"),
            "remove" => self.kind(next) == Tok::Id,
            "error" => self.kind(next) == Tok::Cnum,
            "director" => self.kind(next) == Tok::Id && self.kind(token + 2) == Tok::Id,
            _ => false,
        }
    }

    fn declaration(&mut self) -> Res<()> {
        let word = if self.now() == Tok::Id { self.text(self.t) } else { "" };
        match word {
            "acl" => self.parse_acl(),
            "sub" => self.subroutine(),
            "backend" => self.parse_backend(),
            "probe" => self.parse_probe(),
            "import" => self.parse_import(),
            "vcl" => self.version(),
            "unused" => self.unused(),
            _ if self.now() == Tok::Csrc => self.inline_c(),
            _ => {
                let list = "'acl', 'sub', 'backend', 'probe', 'import',  or 'vcl'";
                let found = self.quoted(self.t);
                if let Some(hint) = crate::hints::for_unknown_declaration(word) {
                    self.hint(hint);
                }
                self.fail(format!("Expected one of\n\t{list}\nFound: {found} at\n"), self.t)
            }
        }
    }

    fn next_declaration(&mut self, start: TokenId) {
        let mut depth = 0_usize;
        let mut token = start;
        loop {
            match self.kind(token) {
                Tok::Eoi => break,
                Tok::LBrace => depth += 1,
                Tok::RBrace => depth = depth.saturating_sub(1),
                Tok::Id | Tok::Csrc if depth == 0 && token > start => {
                    let ended = matches!(self.kind(token - 1), Tok::RBrace | Tok::Semi | Tok::Csrc);
                    // An extra or missing brace looks like an end, too.
                    let begins = DECLARATIONS.contains(&self.text(token))
                        || crate::hints::for_unknown_declaration(self.text(token)).is_some();
                    if ended && (begins || self.kind(token) == Tok::Csrc) {
                        break;
                    }
                }
                _ => {}
            }
            token += 1;
        }
        self.t = token;
    }

    /// Parses `vcl 4.1;`.
    fn version(&mut self) -> Res<()> {
        let first = self.t;
        self.advance();
        let number = self.want(Tok::Fnum);
        let text = self.text(self.t);
        let &[high, b'.', low] = text.as_bytes() else {
            return self.fail("Don't play silly buggers with VCL version numbers\n", self.t);
        };
        number?;
        let syntax = u32::from(high - b'0') * 10 + u32::from(low - b'0');
        let shown = |syntax: u32| format!("{}.{}", syntax / 10, syntax % 10);
        self.advance();
        if !(LOWEST..=HIGHEST).contains(&syntax) {
            if syntax < LOWEST {
                self.hint(crate::hints::OLD_VERSION);
            }
            let message = format!("VCL version {} not supported.\n", shown(syntax));
            return self.fail_range(message, first, self.t);
        }
        if self.now() != Tok::Semi {
            return self.fail_range("Expected 'vcl N.N;' found no semi-colon\n", first, self.t);
        }
        self.advance();
        if self.syntax == 0 {
            self.syntax = syntax;
        }
        if syntax > self.syntax {
            let (own, top) = (shown(syntax), shown(self.syntax));
            let message = format!("VCL version {own} higher than the top level version {top}\n");
            return self.fail_range(message, first, self.t);
        }
        Ok(())
    }

    /// Parses `unused name;`, which declares that a definition without a use is intended.
    fn unused(&mut self) -> Res<()> {
        self.advance();
        self.want(Tok::Id)?;
        let first = self.t;
        // A message like `req` is no symbol of its own.
        let is_message = message_of(self.text(first)).is_some() && self.kind(first + 1) != Tok::Dot;
        let symbol =
            if is_message { None } else { self.symbol(Kind::None, Mode::Existing, Mention::Reference)? };
        let kind = symbol.map_or(Kind::None, |symbol| self.symbols.list[symbol].kind);
        if !matches!(kind, Kind::Backend | Kind::Probe | Kind::Acl | Kind::Sub) {
            let end = self.t.max(first + 1);
            let message = format!("Symbol '{}' cannot follow 'unused'.\n", self.text(end - 1));
            self.hint("name a backend, a probe, an ACL or a subroutine");
            return self.fail_range(message, first, end);
        }
        self.skip(Tok::Semi)
    }

    /// Parses `sub name { ... }`. Appends to an existing subroutine.
    fn subroutine(&mut self) -> Res<()> {
        self.advance();
        self.want_name("subroutine")?;
        let name = self.t;
        let symbol = self.some_symbol(Kind::Sub, Mode::Create, Mention::Definition)?;
        let builtin = self.subs.builtin.iter().any(|b| b.eq_ignore_ascii_case(self.text(name)));
        let known = match self.symbols.list[symbol].meaning {
            Meaning::Global(index) => Some(index as usize),
            _ => None,
        };
        let defined =
            known.is_some_and(|i| self.subs.procs[i].name.is_some() || self.subs.procs[i].method.is_some());
        if !defined && !builtin && has_vcl_prefix(self.text(name)) {
            return self.reserved_sub(name);
        }
        self.globalize(symbol, Fmt::Sub);
        let index = self.global_index(symbol) as usize;
        if defined && self.subs.procs[index].method.is_none() && !builtin {
            let message = format!("Subroutine '{}' redefined\n", self.symbols.name(symbol));
            self.add_text(message);
            self.show(name);
            let previous = self.subs.procs[index].name.unwrap_or(name);
            return self.fail("Previously defined here:\n", previous);
        }
        if self.subs.procs[index].name.is_none() {
            self.subs.procs[index].name = Some(name);
            self.subs.procs[index].at = self.at(name);
        }
        self.subs.current = Some(index);
        let mut body = std::mem::take(&mut self.subs.bodies[index]);
        let parsed = self.compound(&mut body);
        self.subs.bodies[index] = body;
        self.subs.current = None;
        parsed
    }

    fn reserved_sub(&mut self, name: TokenId) -> Res<()> {
        self.add_text("The names 'vcl_*' are reserved for subroutines.\n");
        self.show(name);
        let mut list = String::from("Valid vcl_* subroutines are:\n");
        for sub in &self.subs.builtin {
            let _ = writeln!(list, "\t{sub}");
        }
        self.add_text(list);
        if let Some(hint) = crate::hints::for_unknown_method(self.text(name)) {
            self.hint(hint);
        }
        Err(Stop)
    }
}
