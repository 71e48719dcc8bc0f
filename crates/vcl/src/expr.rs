//! Expressions: the type that a context expects, conversions to it, and the primary forms.
//!
//! The grammar is Varnish's. Precedence from low to high: `or`, `and`, `not`, comparison, sum, product, postfix,
//! primary. The expected type is passed down, because literals and names depend on it.

use crate::compiler::{Compiler, MAX_NESTING, Mention, Mode, Res, Stop};
use crate::lexer::{Tok, blob_content};
use crate::program::{CompareOp, Expr, ExprKind};
use crate::stmt::join;
use crate::symbols::{Fmt, Kind, Meaning, SymbolId, TokenId, UseKind};
use crate::text::Text;
use crate::types::Type;
use crate::variables_table::Var;

/// A checked expression that may still be converted to another type.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub fmt: Fmt,
    pub content: Content,
    /// Whether it ends in a literal string, to which another one can be joined.
    pub literal: bool,
    /// The token of a literal.
    pub start: Option<TokenId>,
    pub depth: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    One(ExprKind),
    /// STRINGS: the parts in order, each of type STRING.
    Parts(Vec<Expr>),
    /// An object of a module, followed by one of its methods.
    Object(u32),
}

impl Value {
    pub fn one(fmt: Fmt, kind: ExprKind) -> Value {
        Value { fmt, content: Content::One(kind), literal: false, start: None, depth: 1 }
    }

    /// Creates STRINGS with a value of type STRING as its only part.
    pub fn string(kind: ExprKind) -> Value {
        let part = Expr { ty: Type::String, kind };
        Value {
            fmt: Fmt::Strings,
            content: Content::Parts(vec![part]),
            literal: false,
            start: None,
            depth: 1,
        }
    }

    /// Creates a value. STRING and STRANDS become STRINGS; other types do not change.
    pub fn of(fmt: Fmt, kind: ExprKind) -> Value {
        match fmt {
            Fmt::String => Value::string(kind),
            Fmt::Strands => {
                let strands = Expr { ty: Type::Strands, kind };
                Value::string(ExprKind::ToString(Box::new(strands)))
            }
            fmt => Value::one(fmt, kind),
        }
    }

    pub fn boolean(kind: ExprKind, depth: u32) -> Value {
        Value { depth: depth + 1, ..Value::one(Fmt::Bool, kind) }
    }

    pub fn parts(&self) -> usize {
        match &self.content {
            Content::Parts(parts) => parts.len(),
            _ => 1,
        }
    }

    /// Returns the value as an expression. Several strings are joined.
    pub fn expr(self) -> Expr {
        match self.content {
            Content::One(kind) => Expr { ty: self.fmt.ty(), kind },
            Content::Parts(parts) => join(parts),
            Content::Object(_) => Expr { ty: Type::Instance, kind: ExprKind::NullStr },
        }
    }
}

impl Compiler<'_> {
    /// Parses an expression of exactly this type.
    pub fn expression(&mut self, fmt: Fmt) -> Res<Expr> {
        let first = self.t;
        let value = self.or(if fmt.string_form() { Fmt::Strings } else { fmt })?;
        self.convert(value, fmt, first)
    }

    fn convert(&mut self, mut value: Value, fmt: Fmt, first: TokenId) -> Res<Expr> {
        if value.fmt == fmt {
            return self.value_expr(value);
        }
        let to_string = fmt.string_form() || (fmt == Fmt::Body && value.fmt != Fmt::Blob);
        if to_string && value.fmt != Fmt::Strings {
            value = match self.stringify(value.clone()) {
                Ok(value) => value,
                Err(Stop) => {
                    // Varnish appends the general error text to the special one.
                    self.type_check(&value, fmt, first)?;
                    return Err(Stop);
                }
            };
        }
        match (value.fmt, fmt) {
            (Fmt::Blob, Fmt::Body) | (Fmt::Strings, Fmt::Body | Fmt::String) => Ok(value.expr()),
            (Fmt::Strings, Fmt::Strands) => {
                let Content::Parts(parts) = value.content else { return Err(Stop) };
                Ok(Expr { ty: Type::Strands, kind: ExprKind::Concat(parts) })
            }
            (_, Fmt::Bool) => {
                let value = to_bool(value);
                self.type_check(&value, fmt, first)?;
                Ok(value.expr())
            }
            _ => {
                self.type_check(&value, fmt, first)?;
                Ok(value.expr())
            }
        }
    }

    pub fn value_expr(&mut self, value: Value) -> Res<Expr> {
        if let Content::Object(_) = value.content {
            return self.fail("An object is not a value; use one of its methods.\n", self.t);
        }
        Ok(value.expr())
    }

    pub fn type_check(&mut self, value: &Value, fmt: Fmt, first: TokenId) -> Res<()> {
        if value.fmt == fmt {
            return Ok(());
        }
        let (has, wanted) = (self.type_name(value.fmt), fmt.user_name());
        if fmt == Fmt::Duration && matches!(value.fmt, Fmt::Int | Fmt::Real) {
            self.hint("a duration needs a unit: 10s, 5m, 1.5h; std.duration() converts a number");
        }
        self.fail_range(format!("Expression has type {has}, expected {wanted}\n"), first, self.t)
    }

    pub fn stringify(&mut self, value: Value) -> Res<Value> {
        if !value.fmt.converts_to_string() {
            let name = self.type_name(value.fmt);
            self.add_text(format!("Cannot convert {name} to STRING.\n"));
            self.show_range(value.start, self.t);
            return Err(Stop);
        }
        let depth = value.depth + 1;
        let kind = match (value.fmt, value.expr()) {
            (Fmt::Header, Expr { kind: kind @ (ExprKind::Header(..) | ExprKind::NullStr), .. }) => kind,
            (_, expr) => ExprKind::ToString(Box::new(expr)),
        };
        Ok(Value { depth, ..Value::string(kind) })
    }

    /// Fails if a tree is too deep for the recursive functions that walk it.
    pub fn check_depth(&mut self, value: Value) -> Res<Value> {
        if value.depth > 2 * MAX_NESTING {
            return self.fail("Expression has too many nested operations.\n", self.t);
        }
        Ok(value)
    }

    /// Parses a primary, then `.property` and `.method()` of its type.
    pub fn postfix(&mut self, fmt: Fmt) -> Res<Value> {
        let mut value = self.primary(fmt)?;
        while self.now() == Tok::Dot {
            self.advance();
            self.want(Tok::Id)?;
            value = self.type_member(value)?;
            if value.fmt.string_form() {
                let depth = value.depth;
                value = Value { depth, ..Value::of(value.fmt, value.expr().kind) };
            }
            value = self.check_depth(value)?;
        }
        Ok(value)
    }

    fn type_member(&mut self, value: Value) -> Res<Value> {
        let word = self.text(self.t);
        if let Content::Object(object) = value.content {
            return self.object_method(object, value.fmt);
        }
        let depth = value.depth + 1;
        let boxed = |value: Value| Box::new(value.expr());
        let (fmt, kind, call) = match (value.fmt, word.to_ascii_lowercase().as_str()) {
            (Fmt::Backend, "resolve") => (Fmt::Backend, ExprKind::ResolveBackend(boxed(value)), true),
            (Fmt::Strings, "upper" | "lower") => {
                let upper = word.eq_ignore_ascii_case("upper");
                (Fmt::String, ExprKind::ChangeCase { upper, value: boxed(value) }, true)
            }
            (Fmt::Stevedore, "free_space") => storage_field(value, Fmt::Bytes, Var::StorageFreeSpace),
            (Fmt::Stevedore, "used_space") => storage_field(value, Fmt::Bytes, Var::StorageUsedSpace),
            (Fmt::Stevedore, "happy") => storage_field(value, Fmt::Bool, Var::StorageHappy),
            _ => {
                let name = match value.fmt {
                    Fmt::Object(_) => self.type_name(value.fmt),
                    fmt => fmt.name().to_owned(),
                };
                let member = self.quoted(self.t);
                let whole = self.joined(self.t.saturating_sub(2), self.t + 1);
                if let Some(hint) = crate::hints::for_unknown_symbol(&whole, &self.symbols) {
                    self.hint(hint);
                }
                return self.fail(format!("Unknown property {member} for type {name}\n"), self.t);
            }
        };
        self.advance();
        if call {
            self.skip(Tok::LParen)?;
            self.skip(Tok::RParen)?;
        }
        Ok(Value { depth, ..Value::one(fmt, kind) })
    }

    fn primary(&mut self, fmt: Fmt) -> Res<Value> {
        match self.now() {
            Tok::LParen => {
                self.advance();
                self.enter()?;
                let value = self.or(fmt)?;
                self.leave();
                self.skip(Tok::RParen)?;
                return Ok(value);
            }
            Tok::Id => return self.name(fmt),
            Tok::Cstr => return self.string_literal(fmt),
            Tok::Minus if matches!(fmt, Fmt::Int | Fmt::Real | Fmt::Duration | Fmt::Strings) => {
                self.advance();
                if matches!(self.now(), Tok::Fnum | Tok::Cnum) {
                    return self.number_literal(fmt, -1.0);
                }
                return self.negation(fmt);
            }
            Tok::Fnum | Tok::Cnum => return self.number_literal(fmt, 1.0),
            Tok::Cblob => {
                let start = Some(self.t);
                let kind = ExprKind::Blob(blob_content(self.bytes(self.t)));
                self.advance();
                return Ok(Value { start, ..Value::one(Fmt::Blob, kind) });
            }
            _ => {}
        }
        let token = self.quoted(self.t);
        let message = format!("Unknown token {token} when looking for {}\n\n", self.type_name(fmt));
        self.fail(message, self.t)
    }

    fn negation(&mut self, fmt: Fmt) -> Res<Value> {
        let first = self.t;
        self.enter()?;
        let value = self.or(fmt)?;
        self.leave();
        if !(value.fmt.is_integral() || value.fmt.is_float()) {
            let message = format!("Operator - not possible on type {}.\n", self.type_name(value.fmt));
            self.late_error.get_or_insert((message, first, self.t));
            return Ok(value);
        }
        let (fmt, depth) = (value.fmt, value.depth + 1);
        let negated = Value { depth, ..Value::one(fmt, ExprKind::Negate(Box::new(value.expr()))) };
        self.check_depth(negated)
    }

    fn number_literal(&mut self, fmt: Fmt, sign: f64) -> Res<Value> {
        if fmt == Fmt::Bytes {
            let bytes = self.bytes_literal()?;
            return Ok(Value::one(Fmt::Bytes, ExprKind::Int(bytes)));
        }
        let token = self.t;
        let number = sign * self.number(token);
        self.advance();
        if self.now() == Tok::Id {
            let unit = self.duration_unit()?;
            return Ok(Value::one(Fmt::Duration, ExprKind::Real(number * unit)));
        }
        if fmt == Fmt::Real || self.kind(token) == Tok::Fnum {
            return Ok(Value::one(Fmt::Real, ExprKind::Real(number)));
        }
        Ok(Value::one(Fmt::Int, ExprKind::Int(number as i64)))
    }

    fn string_literal(&mut self, fmt: Fmt) -> Res<Value> {
        let token = self.t;
        let value = match fmt {
            Fmt::Ip => {
                if self.content(token).starts_with(b"/") {
                    let quoted = self.quoted(token);
                    return self.fail(format!("Cannot convert to an IP address: {quoted}"), token);
                }
                let address = self.resolve_one(token)?;
                Value::one(Fmt::Ip, ExprKind::Ip(address.ip(), address.port()))
            }
            Fmt::Regex => Value::one(Fmt::Regex, ExprKind::Regex(self.regex_literal()?)),
            _ => Value { literal: true, ..Value::string(ExprKind::Str(self.content(token).into())) },
        };
        self.advance();
        Ok(Value { start: Some(token), ..value })
    }

    /// Parses a pattern, which may be several literals joined with `+`. The last one remains the current token.
    fn regex_literal(&mut self) -> Res<u32> {
        let first = self.t;
        let mut pattern = Text::from(self.content(first));
        while self.kind(self.t + 1) == Tok::Plus {
            self.advance();
            self.advance();
            self.want(Tok::Cstr)?;
            pattern.0.extend_from_slice(self.content(self.t));
        }
        if let Some(&id) = self.regex_ids.get(&pattern) {
            return Ok(id);
        }
        if let Err(error) = crate::regex::check(&pattern) {
            return self.fail_range(format!("Regexp compilation error:\n\n{error}\n\n"), first, self.t);
        }
        let id = self.program.regexes.len() as u32;
        self.program.regexes.push(pattern.clone());
        self.regex_ids.insert(pattern, id);
        Ok(id)
    }

    fn name(&mut self, fmt: Fmt) -> Res<Value> {
        let first = self.t;
        let mut symbol = self.symbol(Kind::None, Mode::PartialQuiet, Mention::Reference)?;
        if symbol.is_none() && fmt.global_kind().is_some() && self.kind(first + 1) != Tok::Dot {
            let new = self.some_symbol(Kind::None, Mode::Create, Mention::Reference)?;
            self.globalize(new, fmt);
            symbol = Some(new);
        }
        let symbol = match symbol {
            Some(symbol) => symbol,
            None => self.some_symbol(Kind::None, Mode::Partial, Mention::Reference)?,
        };
        let entry = &self.symbols.list[symbol];
        if entry.kind == Kind::Instance {
            let content = Content::Object(self.global_index(symbol));
            return Ok(Value { content, ..Value::one(entry.fmt, ExprKind::NullStr) });
        }
        if entry.kind == Kind::Func && entry.fmt == Fmt::Void {
            return self.fail("Function returns VOID:\n", self.t);
        }
        let value = match self.evaluate(symbol, first, fmt) {
            Ok(value) => value,
            Err(Stop) => {
                if self.in_call_context(symbol) {
                    self.add_text("While compiling function call:\n\n");
                    self.show_range(Some(first), self.t);
                }
                return Err(Stop);
            }
        };
        if value.fmt == Fmt::Header && fmt != Fmt::Header {
            return self.stringify(value);
        }
        Ok(value)
    }

    fn in_call_context(&self, symbol: SymbolId) -> bool {
        let entry = &self.symbols.list[symbol];
        !matches!(
            (&entry.meaning, entry.kind),
            (Meaning::Nothing | Meaning::Action(_) | Meaning::Object { .. }, _)
        )
    }

    fn evaluate(&mut self, symbol: SymbolId, first: TokenId, fmt: Fmt) -> Res<Value> {
        let entry = &self.symbols.list[symbol];
        let own = entry.fmt;
        let kind = entry.kind;
        match entry.meaning.clone() {
            Meaning::Var(var) => {
                self.note_use(first, None, symbol, UseKind::Read);
                let kind = match own {
                    Fmt::Http => match crate::compiler::message_of(var.name()) {
                        Some(http) => ExprKind::HttpRef(http),
                        None => ExprKind::Var(var),
                    },
                    _ => ExprKind::Var(var),
                };
                Ok(Value::of(own, kind))
            }
            Meaning::Header(http, header) => {
                self.note_use(first, None, symbol, UseKind::Read);
                let kind = match fmt {
                    Fmt::Header => ExprKind::HeaderRef(http, header),
                    _ => ExprKind::Header(http, header),
                };
                Ok(Value::one(Fmt::Header, kind))
            }
            Meaning::Storage(name) => {
                self.note_use(first, None, symbol, UseKind::Read);
                Ok(Value::one(Fmt::Stevedore, ExprKind::Stevedore(name)))
            }
            Meaning::Truth(truth) => Ok(Value::one(Fmt::Bool, ExprKind::Bool(truth))),
            Meaning::Default => self.default_symbol(first, fmt),
            Meaning::Regsub { all } => self.regsub(all),
            Meaning::Function(callable) => {
                let call = self.call(&callable, symbol, None)?;
                Ok(Value::of(Fmt::from(call.ty), call.kind))
            }
            Meaning::Headers(_) => {
                let name = self.joined(first, self.t);
                let message = format!("'{name}' is not a value; use one header, as in {name}.host\n");
                self.late_error.get_or_insert((message, first, self.t));
                self.note_use(first, None, symbol, UseKind::Read);
                Ok(Value::one(Fmt::Header, ExprKind::NullStr))
            }
            Meaning::Method => self.method_without_object(first),
            Meaning::Global(index) => self.global(symbol, kind, index, fmt),
            _ => {
                let message = format!(
                    "Symbol '{}' type ({}) cannot be used in expression.\n",
                    self.text(first),
                    kind.name()
                );
                self.add_text(message);
                self.show(first);
                if let Some(defined) = self.symbols.list[symbol].defined {
                    self.add_text("That symbol was defined here:\n");
                    self.show(defined);
                }
                Err(Stop)
            }
        }
    }

    pub fn method_without_object(&mut self, first: TokenId) -> Res<Value> {
        let name = self.joined(first, self.t);
        let object = name.rsplit_once('.').map_or(name.as_str(), |(object, _)| object);
        self.hint(format!("create an object in vcl_init (new x = {object}(...);) and call its method"));
        self.add_text("Syntax error.");
        Err(Stop)
    }

    fn global(&mut self, symbol: SymbolId, kind: Kind, index: u32, fmt: Fmt) -> Res<Value> {
        if kind == Kind::Sub && fmt != Fmt::Sub {
            let name = self.symbols.name(symbol).to_owned();
            return self.fail(format!("Symbol '{name}' can only be used as a SUB expression\n"), self.t);
        }
        if kind == Kind::Probe && fmt == Fmt::Strings {
            let name = self.symbols.name(symbol).to_owned();
            return Ok(Value { literal: true, ..Value::string(ExprKind::Str(name.into())) });
        }
        Ok(match kind {
            Kind::Acl => Value::one(Fmt::Acl, ExprKind::Acl(index)),
            Kind::Probe => Value::one(Fmt::Probe, ExprKind::Probe(index)),
            Kind::Sub => Value::one(Fmt::Sub, ExprKind::Sub(index)),
            _ => Value::one(Fmt::Backend, ExprKind::Backend(index)),
        })
    }

    fn default_symbol(&mut self, token: TokenId, fmt: Fmt) -> Res<Value> {
        match (fmt, self.default_probe) {
            (Fmt::Backend, _) => Ok(Value::one(Fmt::Backend, ExprKind::DefaultBackend)),
            (Fmt::Probe, Some(probe)) => Ok(Value::one(Fmt::Probe, ExprKind::Probe(probe))),
            (Fmt::Probe, None) => self.fail("No default probe defined\n", token),
            _ => self.fail("Symbol 'default' is a reserved word.\n", token),
        }
    }

    fn regsub(&mut self, all: bool) -> Res<Value> {
        self.skip(Tok::LParen)?;
        self.enter()?;
        let subject = Box::new(self.expression(Fmt::String)?);
        self.skip(Tok::Comma)?;
        let regex = Box::new(self.expression(Fmt::Regex)?);
        self.skip(Tok::Comma)?;
        let replacement = Box::new(self.expression(Fmt::String)?);
        self.leave();
        self.skip(Tok::RParen)?;
        Ok(Value::string(ExprKind::Regsub { all, subject, regex, replacement }))
    }
}

fn storage_field(value: Value, fmt: Fmt, var: Var) -> (Fmt, ExprKind, bool) {
    let kind = match value.content {
        Content::One(ExprKind::Stevedore(name)) => ExprKind::StorageVar(name, var),
        _ => ExprKind::StorageField(Box::new(value.expr()), var),
    };
    (fmt, kind, false)
}

/// Converts a value to a condition. Types that are not conditions do not change.
pub(crate) fn to_bool(value: Value) -> Value {
    let depth = value.depth;
    let compare = |value: Value, op, zero| {
        let right = Expr { ty: value.fmt.ty(), kind: zero };
        ExprKind::Compare(op, Box::new(value.expr()), Box::new(right))
    };
    let kind = match value.fmt {
        Fmt::Backend => ExprKind::Defined(Box::new(value.expr())),
        Fmt::Int => compare(value, CompareOp::Ne, ExprKind::Int(0)),
        Fmt::Duration => compare(value, CompareOp::Gt, ExprKind::Real(0.0)),
        Fmt::Strings => {
            let Content::Parts(parts) = value.content else { return value };
            let mut defined: Vec<Expr> = parts
                .into_iter()
                .map(|p| Expr { ty: Type::Bool, kind: ExprKind::Defined(Box::new(p)) })
                .collect();
            match defined.pop() {
                Some(only) if defined.is_empty() => only.kind,
                last => {
                    defined.extend(last);
                    ExprKind::Or(defined)
                }
            }
        }
        _ => return value,
    };
    Value::boolean(kind, depth)
}
