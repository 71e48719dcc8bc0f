//! The lookup of names: the longest prefix that is a symbol, headers that are created on first use, globals
//! before their definitions.

use crate::compiler::{Compiler, Mention, Mode, Res, Stop, has_vcl_prefix};
use crate::lexer::Tok;
use crate::program::At;
use crate::symbols::{Fmt, HIGHEST, Kind, LOWEST, Meaning, Proc, SymbolId, Symbols, TokenId, Use, UseKind};
use crate::variables_table::ALL;
use std::fmt::Write as _;

impl Compiler<'_> {
    /// Fails unless the current token is a plain name: no dots, no special characters.
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

    /// Looks up a name that begins at the current token. Afterwards the current token is the one after the name.
    pub fn symbol(&mut self, kind: Kind, mode: Mode, mention: Mention) -> Res<Option<SymbolId>> {
        let first = self.t;
        if self.syntax >= 41 && mode == Mode::Create && kind != Kind::Sub && has_vcl_prefix(self.text(first))
        {
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
                    node = self.symbols.child(node, &self.content_text(token));
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
                entry.mentions.defined.get_or_insert(first);
                entry.mentions.definitions += 1;
            }
            Mention::Reference => {
                entry.mentions.referenced.get_or_insert(first);
                entry.mentions.references += 1;
            }
        }
        Ok(Some(symbol))
    }

    /// Looks up like `symbol`, for modes that always find a symbol.
    pub fn some_symbol(&mut self, kind: Kind, mode: Mode, mention: Mention) -> Res<SymbolId> {
        self.symbol(kind, mode, mention)?.ok_or(Stop)
    }

    /// Returns the symbol at a node. Headers are created at their first use.
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
            let shown = if bad == '"' { "\\\"".to_owned() } else { bad.escape_debug().to_string() };
            return self.fail_unplaced(format!("Invalid character '{shown}' in header name.\n"), token);
        }
        let Meaning::Headers(http) = self.symbols.list[parent].meaning else { return Err(Stop) };
        let header = self.header_id(&name);
        let symbol = self.symbols.add(node, Kind::Var, LOWEST, HIGHEST);
        let access = self.symbols.list[parent].access;
        let entry = &mut self.symbols.list[symbol];
        entry.mentions.may_be_unused = true;
        entry.fmt = Fmt::Header;
        entry.meaning = Meaning::Header(http, header);
        entry.access = access;
        Ok(symbol)
    }

    pub fn header_id(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.headers.get(name) {
            return id;
        }
        let id = self.program.headers.len() as u32;
        self.program.headers.push(name.to_owned());
        self.ids.headers.insert(name.to_owned(), id);
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
                    let _ = write!(message, " {:.1} <=", f64::from(other.since) / 10.0);
                }
                message.push_str(" VCL syntax");
                if other.until < HIGHEST || other.kind == Kind::Reserved {
                    let _ = write!(message, " <= {:.1}", f64::from(other.until) / 10.0);
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
        let (defined, referenced) = (entry.mentions.defined, entry.mentions.referenced);
        self.add_text(format!("Symbol '{name}' has wrong type ({found}), expected {wanted}:\nAt: "));
        self.show_range(Some(first), self.t);
        match (defined, referenced) {
            (Some(token), _) => self.fail("Symbol was defined here: ", token),
            (None, Some(token)) => self.fail("Symbol was declared here: ", token),
            (None, None) => {
                self.add_text("Symbol was builtin\n");
                Err(Stop)
            }
        }
    }

    /// Makes a symbol a global object of the program and assigns it an index in the program's list.
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
                self.program.origins.probes.push(crate::program::Probe { name, ..Default::default() });
                self.program.origins.probes.len() - 1
            }
            Fmt::Sub => self.new_proc(symbol),
            _ => {
                self.program.modules.objects.push(crate::program::Object {
                    name,
                    import: 0,
                    type_name: String::new(),
                    null_ok: false,
                });
                self.program.modules.objects.len() - 1
            }
        };
        let entry = &mut self.symbols.list[symbol];
        entry.fmt = fmt;
        entry.kind = fmt.global_kind().unwrap_or(Kind::None);
        entry.meaning = Meaning::Global(index as u32);
        entry.access.read = ALL;
    }

    pub fn backend_slot(&mut self, name: &str) -> u32 {
        let key = name.to_ascii_lowercase();
        if let Some(&slot) = self.ids.backends.get(&key) {
            return slot;
        }
        let slot = self.program.origins.backends.len() as u32;
        self.program
            .origins
            .backends
            .push(crate::program::Backend { name: name.to_owned(), ..Default::default() });
        self.ids.backends.insert(key, slot);
        slot
    }

    pub fn new_proc(&mut self, symbol: SymbolId) -> usize {
        self.subs.procs.push(Proc {
            symbol,
            method: None,
            name: None,
            at: At::default(),
            calls: Vec::new(),
            uses: Vec::new(),
            returns: 0,
            return_tokens: [None; 19],
            active: false,
            allowed: ALL,
            called_from: 0,
        });
        self.subs.bodies.push(Vec::new());
        self.subs.procs.len() - 1
    }

    /// Returns the symbol for the current definition, or `None` for `default` in a type that allows it.
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
            if let Some(defined) = entry.mentions.defined {
                let message = if entry.kind == kind {
                    let mut kind = entry.kind.name().to_owned();
                    kind[..1].make_ascii_uppercase();
                    format!("{kind} '{name}' redefined.\n")
                } else {
                    format!("Name '{name}' already defined.\n")
                };
                self.add_text(message);
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
        entry.mentions.definitions = 1;
        entry.mentions.defined.get_or_insert(token);
        Ok(Some(symbol))
    }

    /// Returns the index of a global symbol in the program's list.
    pub fn global_index(&self, symbol: SymbolId) -> u32 {
        match self.symbols.list[symbol].meaning {
            Meaning::Global(index) => index,
            _ => u32::MAX,
        }
    }

    /// Records a use in the current subroutine. It is checked when all calls are known.
    pub fn note_use(&mut self, first: TokenId, end: Option<TokenId>, symbol: SymbolId, what: UseKind) {
        let entry = &self.symbols.list[symbol];
        let mask = match what {
            UseKind::Read => entry.access.read,
            UseKind::Write => entry.access.write,
            UseKind::Unset => entry.access.unset,
            UseKind::Action => entry.access.action,
        };
        let noted = Use { first, end: end.unwrap_or(first + 1), what, mask, readable: entry.access.read };
        if let Some(current) = self.subs.current {
            self.subs.procs[current].uses.push(noted);
        }
    }

    pub fn type_name(&self, fmt: Fmt) -> String {
        match fmt {
            Fmt::Object(index) => self.imported.object_types[index as usize].name.clone(),
            other => other.user_name().to_owned(),
        }
    }
}

fn empty_acl(name: String) -> crate::program::Acl {
    crate::program::Acl { name, entries: Vec::new(), log: false, table: false, fold: true, pedantic: true }
}
