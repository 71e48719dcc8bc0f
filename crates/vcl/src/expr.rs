//! The grammar of expressions, which is recursive. The operations on parsed values are in the files `expr_*.rs` and
//! `value.rs`.
//!
//! The grammar is Varnish's. Precedence from low to high: `or`, `and`, `not`, comparison, sum, product, postfix,
//! primary. The expected type is passed down, because literals and names depend on it.

use std::rc::Rc;

use crate::compiler::{Compiler, Mention, Mode, Res, Stop};
use crate::lexer::{Tok, blob_content};
use crate::program::{ArithOp, CompareOp, Expr, ExprKind};
use crate::signature::{Param, ParamKind, Signature};
use crate::symbols::{Callable, Fmt, Kind, Meaning, SymbolId, TokenId, UseKind};
use crate::types::Type;
use crate::value::{Content, Value, arithmetic, same_representation, storage_field, sum_type, to_bool};
use crate::variables_table::Var;

impl Compiler<'_> {
    /// Parses an expression of exactly this type.
    pub fn expression(&mut self, fmt: Fmt) -> Res<Expr> {
        let first = self.t;
        let value = self.or(if fmt.string_form() { Fmt::Strings } else { fmt })?;
        self.convert(value, fmt, first)
    }

    // Operators.

    fn or(&mut self, fmt: Fmt) -> Res<Value> {
        self.boolean_list(fmt, Tok::Cor)
    }

    /// Parses `a || b || c` or `a && b && c`.
    fn boolean_list(&mut self, fmt: Fmt, operator: Tok) -> Res<Value> {
        let is_or = operator == Tok::Cor;
        let mut first = self.t;
        let value = if is_or { self.boolean_list(fmt, Tok::Cand)? } else { self.not(fmt)? };
        if self.now() != operator {
            return Ok(value);
        }
        let mut terms = Vec::new();
        let mut depth = 0;
        let mut side = "preceded";
        let mut next = value;
        loop {
            let term = to_bool(next);
            if term.fmt != Fmt::Bool {
                let (name, found) = (operator.name(), self.type_name(term.fmt));
                let message = format!("'{name}' must be {side} by BOOL, found {found}.\n");
                return self.fail_range(message, first, self.t);
            }
            depth = depth.max(term.depth);
            terms.push(term.expr());
            if self.now() != operator {
                break;
            }
            self.advance();
            side = "followed";
            first = self.t;
            next = if is_or { self.boolean_list(fmt, Tok::Cand)? } else { self.not(fmt)? };
        }
        let kind = if is_or { ExprKind::Or(terms) } else { ExprKind::And(terms) };
        self.check_depth(Value::boolean(kind, depth))
    }

    fn not(&mut self, fmt: Fmt) -> Res<Value> {
        let first = self.t;
        if self.now() != Tok::Bang {
            return self.comparison(fmt);
        }
        self.advance();
        let value = to_bool(self.comparison(fmt)?);
        if value.fmt != Fmt::Bool {
            let found = self.type_name(value.fmt);
            let message = format!("'!' must be followed by BOOL, found {found}.\n");
            return self.fail_range(message, first, self.t);
        }
        let depth = value.depth;
        Ok(Value::boolean(ExprKind::Not(Box::new(value.expr())), depth))
    }

    fn comparison(&mut self, fmt: Fmt) -> Res<Value> {
        let value = self.sum(fmt)?;
        let operator = self.now();
        let op = match operator {
            Tok::Eq => Some(CompareOp::Eq),
            Tok::Neq => Some(CompareOp::Ne),
            Tok::Less => Some(CompareOp::Lt),
            Tok::Leq => Some(CompareOp::Le),
            Tok::Greater => Some(CompareOp::Gt),
            Tok::Geq => Some(CompareOp::Ge),
            Tok::Tilde | Tok::NoMatch => None,
            _ => return Ok(value),
        };
        let equality = matches!(op, Some(CompareOp::Eq | CompareOp::Ne));
        let value = match (value.fmt, op) {
            (Fmt::Int | Fmt::Duration | Fmt::Bytes | Fmt::Real | Fmt::Time, Some(op)) => {
                self.compare_same(value, op)?
            }
            (
                Fmt::Backend | Fmt::Acl | Fmt::Probe | Fmt::Stevedore | Fmt::Sub | Fmt::Bool | Fmt::Ip,
                Some(op),
            ) if equality => self.compare_same(value, op)?,
            (Fmt::Strings, Some(op)) => self.compare_strings(value, op)?,
            (Fmt::Ip, None) => self.match_acl(value)?,
            (Fmt::Strings, None) => self.match_regex(value)?,
            _ => {
                let name = self.type_name(value.fmt);
                let operator = self.text(self.t);
                return self.fail(format!("Operator {operator} not possible on {name}\n"), self.t);
            }
        };
        self.check_depth(value)
    }

    fn different_types<T>(&mut self, left: &Value, right: &Value, operator: usize) -> Res<T> {
        if let Some(hint) = crate::hints::for_different_types(left.fmt, right.fmt, right.literal) {
            self.hint(hint);
        }
        let (left, right) = (self.type_name(left.fmt), self.type_name(right.fmt));
        let text = self.text(operator);
        self.fail(format!("Comparison of different types: {left} '{text}' {right}\n"), operator)
    }

    fn compare_same(&mut self, left: Value, op: CompareOp) -> Res<Value> {
        let operator = self.t;
        self.advance();
        let right = self.sum(left.fmt)?;
        if right.fmt != left.fmt {
            return self.different_types(&left, &right, operator);
        }
        let depth = left.depth.max(right.depth);
        let (left, right) = same_representation(left.expr(), right.expr());
        Ok(Value::boolean(ExprKind::Compare(op, Box::new(left), Box::new(right)), depth))
    }

    fn compare_strings(&mut self, left: Value, op: CompareOp) -> Res<Value> {
        let operator = self.t;
        self.advance();
        let right = self.sum(Fmt::Strings)?;
        if right.fmt != Fmt::Strings {
            return self.different_types(&left, &right, operator);
        }
        let depth = left.depth.max(right.depth);
        // If one side is a concatenation, an undefined string equals an empty one.
        let joined = left.parts() != 1 || right.parts() != 1;
        let side = |value: Value| match value.content {
            Content::Parts(parts) if joined => Expr { ty: Type::String, kind: ExprKind::Concat(parts) },
            _ => value.expr(),
        };
        Ok(Value::boolean(ExprKind::Compare(op, Box::new(side(left)), Box::new(side(right))), depth))
    }

    fn match_regex(&mut self, subject: Value) -> Res<Value> {
        let negated = self.now() == Tok::NoMatch;
        self.advance();
        let first = self.t;
        let regex = self.postfix(Fmt::Regex)?;
        self.type_check(&regex, Fmt::Regex, first)?;
        let depth = subject.depth.max(regex.depth);
        let (subject, regex) = (Box::new(subject.expr()), Box::new(regex.expr()));
        Ok(Value::boolean(ExprKind::Match { subject, regex, negated }, depth))
    }

    fn match_acl(&mut self, ip: Value) -> Res<Value> {
        let negated = self.now() == Tok::NoMatch;
        self.advance();
        let first = self.t;
        let acl = self.postfix(Fmt::Acl)?;
        self.type_check(&acl, Fmt::Acl, first)?;
        let depth = ip.depth.max(acl.depth);
        let (ip, acl) = (Box::new(ip.expr()), Box::new(acl.expr()));
        Ok(Value::boolean(ExprKind::AclMatch { ip, acl, negated }, depth))
    }

    fn sum(&mut self, fmt: Fmt) -> Res<Value> {
        let mut left = self.product(fmt)?;
        while matches!(self.now(), Tok::Plus | Tok::Minus) {
            let operator = self.t;
            let op = if self.now() == Tok::Plus { ArithOp::Add } else { ArithOp::Sub };
            let addable = left.fmt.is_integral() || left.fmt.is_float();
            self.advance();
            let wanted = if !addable && fmt == Fmt::Strings { Fmt::Strings } else { left.fmt };
            let right = self.product(wanted)?;
            left = if let Some(result) = sum_type(op, left.fmt, right.fmt) {
                arithmetic(op, result, left, right)
            } else if op == ArithOp::Add && (left.fmt == Fmt::Strings || fmt == Fmt::Strings) {
                self.concatenate(left, right)?
            } else {
                let (a, b) = (self.type_name(left.fmt), self.type_name(right.fmt));
                let message = format!("{a} {} {b} not possible.\n", self.text(operator));
                return self.fail_range(message, operator, self.t);
            };
            left = self.check_depth(left)?;
        }
        Ok(left)
    }

    fn product(&mut self, fmt: Fmt) -> Res<Value> {
        let mut left = self.postfix(fmt)?;
        while let Some(op) = match self.now() {
            Tok::Star => Some(ArithOp::Mul),
            Tok::Slash => Some(ArithOp::Div),
            Tok::Percent => Some(ArithOp::Mod),
            _ => None,
        } {
            let operator = self.t;
            if op == ArithOp::Mod && left.fmt != Fmt::Int {
                return self.fail("Operator % only possible on INT.\n", operator);
            }
            let Some(factor) = left.fmt.factor() else {
                let name = self.type_name(left.fmt);
                let message = format!("Operator {} not possible on type {name}.\n", self.text(operator));
                return self.fail(message, operator);
            };
            self.advance();
            let right = self.postfix(factor)?;
            if right.fmt != Fmt::Int && right.fmt != factor {
                let (a, b) = (self.type_name(left.fmt), self.type_name(right.fmt));
                let message = format!("{a} {} {b} not possible.\n", self.text(operator));
                return self.fail(message, operator);
            }
            let of_whole = matches!(left.fmt, Fmt::Int | Fmt::Bytes) && right.fmt == Fmt::Int;
            if of_whole && op != ArithOp::Mul && matches!(right.content, Content::One(ExprKind::Int(0))) {
                return self.fail("Division by zero.\n", operator);
            }
            let result = left.fmt;
            left = self.check_depth(arithmetic(op, result, left, right))?;
        }
        Ok(left)
    }

    // Primaries.

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
            self.report.note_late_error((message, first, self.t));
            return Ok(value);
        }
        let (fmt, depth) = (value.fmt, value.depth + 1);
        let negated = Value { depth, ..Value::one(fmt, ExprKind::Negate(Box::new(value.expr()))) };
        self.check_depth(negated)
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
                self.report.note_late_error((message, first, self.t));
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
                if let Some(defined) = self.symbols.list[symbol].mentions.defined {
                    self.add_text("That symbol was defined here:\n");
                    self.show(defined);
                }
                Err(Stop)
            }
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

    // Calls.

    /// Parses the arguments of a function whose name was just parsed, and creates the call.
    pub fn call(&mut self, callable: &Callable, symbol: SymbolId, object: Option<u32>) -> Res<Expr> {
        let name = self.t - 1;
        let args = self.arguments(&callable.signature)?;
        self.skip(Tok::RParen)?;
        self.note_use(name, None, symbol, UseKind::Read);
        Ok(self.call_expr(callable, object, args, name))
    }

    /// Parses `(…` up to the closing parenthesis, which remains the current token. Returns one slot for each
    /// parameter that is visible in VCL.
    pub fn arguments(&mut self, signature: &Rc<Signature>) -> Res<Vec<Option<Expr>>> {
        self.skip(Tok::LParen)?;
        self.enter()?;
        let params: Vec<&Param> = signature.slots().collect();
        let mut given: Vec<Option<Expr>> = vec![None; params.len()];
        for (slot, param) in params.iter().enumerate() {
            if self.now() == Tok::RParen || (self.now() == Tok::Id && self.kind(self.t + 1) == Tok::Assign) {
                break;
            }
            given[slot] = match self.argument(param) {
                Ok(value) => Some(value),
                Err(Stop) => {
                    let name = param.name.as_deref().unwrap_or("(unnamed argument)");
                    self.add_text(format!("Expected argument: {} {name}\n\n", param.ty().name()));
                    return Err(Stop);
                }
            };
            if self.now() == Tok::RParen {
                break;
            }
            self.skip(Tok::Comma)?;
        }
        while self.now() == Tok::Id {
            self.named_argument(&params, &mut given)?;
            if self.now() == Tok::RParen {
                break;
            }
            self.skip(Tok::Comma)?;
        }
        self.leave();
        self.fill_defaults(signature, given)
    }

    fn named_argument(&mut self, params: &[&Param], given: &mut [Option<Expr>]) -> Res<()> {
        let word = self.text(self.t);
        let Some(slot) = params.iter().position(|p| p.name.as_deref() == Some(word)) else {
            let names: Vec<&str> = params.iter().filter_map(|p| p.name.as_deref()).collect();
            if let Some(near) = lacquer_params::nearest(word, names.iter().copied()) {
                self.hint(format!("did you mean '{near}'?"));
            }
            return self.fail(format!("Unknown argument '{word}'\n"), self.t);
        };
        if given[slot].is_some() {
            return self.fail(format!("Argument '{word}' already used\n"), self.t);
        }
        self.advance();
        self.skip(Tok::Assign)?;
        given[slot] = Some(self.argument(params[slot])?);
        Ok(())
    }

    fn argument(&mut self, param: &Param) -> Res<Expr> {
        let ParamKind::Enum(values) = &param.kind else {
            return self.expression(Fmt::from(param.ty()));
        };
        self.enum_argument(values)
    }

    /// Parses `.method(…)` of an object. The method's name is the current token.
    fn object_method(&mut self, object: u32, fmt: Fmt) -> Res<Value> {
        let Fmt::Object(index) = fmt else { return Err(Stop) };
        let object_type = &self.imported.object_types[index as usize];
        let (import, signature) = (object_type.import, Rc::clone(&object_type.signature));
        let word = self.text(self.t);
        let module = self.imported.modules.iter().find(|m| m.import == import);
        let alias = module.and_then(|m| {
            let full = format!("{}.{word}", signature.name);
            m.signatures.aliases.iter().find(|(old, _)| *old == full).map(|(_, new)| new.clone())
        });
        let name = alias.as_deref().and_then(|a| a.split('.').nth(1)).unwrap_or(word);
        let method = signature.methods.iter().find(|m| m.name.eq_ignore_ascii_case(name));
        let Some(method) = method else {
            let (member, name) = (self.quoted(self.t), self.type_name(fmt));
            if let Some(near) =
                lacquer_params::nearest(word, signature.methods.iter().map(|m| m.name.as_str()))
            {
                self.hint(format!("did you mean '{near}'?"));
            }
            return self.fail(format!("Unknown property {member} for type {name}\n"), self.t);
        };
        let method = Rc::new(method.clone());
        let callable = Callable { import, object: signature.name.clone(), signature: Rc::clone(&method) };
        let name = self.t;
        self.advance();
        let args = self.arguments(&method)?;
        self.skip(Tok::RParen)?;
        self.note_call(name, &method);
        let call = self.call_expr(&callable, Some(object), args, name);
        Ok(Value::one(Fmt::from(call.ty), call.kind))
    }
}
