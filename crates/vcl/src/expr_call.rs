//! Calls of module functions and methods, and `new`: arguments by position and by name.

use std::fmt::Write as _;
use std::rc::Rc;

use crate::compiler::{Compiler, Mention, Mode, Res, Stop};
use crate::expr::Value;
use crate::lexer::Tok;
use crate::program::{At, Expr, ExprKind, Function, Stmt};
use crate::signature::{Param, ParamKind, Private, Signature};
use crate::symbols::{Callable, Fmt, Kind, Meaning, SymbolId, TokenId, UseKind};
use crate::types::Type;
use crate::variables_table::CLIENT;

impl Compiler<'_> {
    /// Parses the arguments of a function whose name was just parsed, and creates the call.
    pub fn call(&mut self, callable: &Callable, symbol: SymbolId, object: Option<u32>) -> Res<Expr> {
        let name = self.t - 1;
        let args = self.arguments(&callable.signature)?;
        self.skip(Tok::RParen)?;
        self.note_use(name, None, symbol, UseKind::Read);
        Ok(self.call_expr(callable, object, args, name))
    }

    fn call_expr(
        &mut self,
        callable: &Callable,
        object: Option<u32>,
        args: Vec<Option<Expr>>,
        name: TokenId,
    ) -> Expr {
        let function = self.function_id(callable);
        let call_site = self.call_site(&callable.signature);
        let at = self.at(name);
        let kind = ExprKind::Call { function, object, args, call_site, at };
        Expr { ty: callable.signature.returns, kind }
    }

    fn call_site(&mut self, signature: &Signature) -> Option<u32> {
        signature.has_private(Private::Call).then(|| {
            self.program.call_sites += 1;
            self.program.call_sites - 1
        })
    }

    fn function_id(&mut self, callable: &Callable) -> u32 {
        let key = (callable.import, callable.object.clone(), callable.signature.name.clone());
        if let Some(&id) = self.function_ids.get(&key) {
            return id;
        }
        let id = self.program.functions.len() as u32;
        let (import, object, name) = key.clone();
        self.program.functions.push(Function { import, object, name });
        self.function_ids.insert(key, id);
        id
    }

    /// Parses `(…` up to the closing parenthesis, which remains the current token. Returns one slot for each
    /// parameter that is visible in VCL.
    fn arguments(&mut self, signature: &Rc<Signature>) -> Res<Vec<Option<Expr>>> {
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
            if let Some(near) = crate::hints::nearest(word, names.iter().copied()) {
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
        self.want(Tok::Id)?;
        let word = self.text(self.t);
        if !values.iter().any(|v| v == word) {
            let mut message = String::from("Wrong enum value.  Expected one of:\n");
            for value in values {
                let _ = writeln!(message, "\t{value}");
            }
            return self.fail(message, self.t);
        }
        self.advance();
        Ok(Expr { ty: Type::Enum, kind: ExprKind::Enum(word.to_owned()) })
    }

    fn fill_defaults(&mut self, signature: &Signature, given: Vec<Option<Expr>>) -> Res<Vec<Option<Expr>>> {
        let mut args = Vec::with_capacity(given.len());
        let mut given = given.into_iter();
        let mut missing = false;
        for (i, param) in signature.params.iter().enumerate() {
            if param.is_private() {
                continue;
            }
            let mut arg = given.next().flatten();
            if arg.is_none() && !param.optional {
                if param.default.is_none() {
                    let text = match &param.name {
                        Some(name) => format!("Argument '{name}' missing\n"),
                        None => format!("Argument {} missing\n", i + 1),
                    };
                    self.add_text(text);
                    self.show(self.t);
                    missing = true;
                }
                arg = param.default_expr();
            }
            args.push(arg);
        }
        if missing {
            self.want(Tok::RParen)?;
            return Err(Stop);
        }
        Ok(args)
    }

    /// Parses `.method(…)` of an object. The method's name is the current token.
    pub fn object_method(&mut self, object: u32, fmt: Fmt) -> Res<Value> {
        let Fmt::Object(index) = fmt else { return Err(Stop) };
        let object_type = &self.object_types[index as usize];
        let (import, signature) = (object_type.import, Rc::clone(&object_type.signature));
        let word = self.text(self.t);
        let module = self.modules.iter().find(|m| m.import == import);
        let alias = module.and_then(|m| {
            let full = format!("{}.{word}", signature.name);
            m.signatures.aliases.iter().find(|(old, _)| *old == full).map(|(_, new)| new.clone())
        });
        let name = alias.as_deref().and_then(|a| a.split('.').nth(1)).unwrap_or(word);
        let method = signature.methods.iter().find(|m| m.name.eq_ignore_ascii_case(name));
        let Some(method) = method else {
            let (member, name) = (self.quoted(self.t), self.type_name(fmt));
            if let Some(near) = crate::hints::nearest(word, signature.methods.iter().map(|m| m.name.as_str()))
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

    fn note_call(&mut self, name: TokenId, signature: &Signature) {
        let readable = readable(signature);
        let noted =
            crate::symbols::Use { first: name, end: name + 1, what: UseKind::Read, mask: readable, readable };
        if let Some(current) = self.current {
            self.procs[current].uses.push(noted);
        }
    }

    /// Parses `new name = module.type(…);`.
    pub fn new_statement(&mut self, at: At, out: &mut Vec<Stmt>) -> Res<()> {
        self.want(Tok::Id)?;
        self.want_name("VCL object")?;
        let symbol = self.handle_symbol(Fmt::Instance)?.ok_or(Stop)?;
        self.symbols.list[symbol].no_ref_needed = true;
        self.skip(Tok::Assign)?;
        self.want(Tok::Id)?;
        let type_symbol = self.some_symbol(Kind::Object, Mode::Existing, Mention::Nothing)?;
        let Meaning::Object { import, signature, fmt } = self.symbols.list[type_symbol].meaning.clone()
        else {
            return Err(Stop);
        };
        self.symbols.list[symbol].fmt = fmt;
        let object = self.global_index(symbol);
        if let Some(entry) = self.program.objects.get_mut(object as usize) {
            entry.import = import;
            entry.type_name.clone_from(&signature.name);
            entry.null_ok = signature.null_ok;
        }
        let name = self.t - 1;
        let init = Rc::new(signature.init.clone());
        let args = self.arguments(&init).and_then(|args| self.skip(Tok::RParen).map(|()| args));
        let args = match args {
            Ok(args) => args,
            Err(Stop) => {
                self.add_text("While compiling function call:\n");
                return Err(Stop);
            }
        };
        self.note_use(name, None, type_symbol, UseKind::Read);
        self.skip(Tok::Semi)?;
        out.push(Stmt::New { at, object, args });
        Ok(())
    }
}

/// Returns the methods that a function may be called from. A function with state for the top request is restricted
/// to the client's side.
pub(crate) fn readable(signature: &Signature) -> u32 {
    if signature.has_private(Private::Top) { signature.allowed & CLIENT } else { signature.allowed }
}

impl Param {
    /// Returns the default as an expression, or `None` for C's null in a type without a literal for it.
    pub fn default_expr(&self) -> Option<Expr> {
        let text = self.default.as_deref()?;
        let ty = self.ty();
        let kind = match ty {
            Type::Bool => ExprKind::Bool(!matches!(text, "0" | "false")),
            Type::Int | Type::Bytes => ExprKind::Int(text.parse().ok()?),
            Type::Real | Type::Duration | Type::Time => ExprKind::Real(text.parse().ok()?),
            Type::String if text == "NULL" => ExprKind::NullStr,
            Type::String => ExprKind::Str(text.into()),
            Type::Strands => {
                ExprKind::Concat(vec![Expr { ty: Type::String, kind: ExprKind::Str(text.into()) }])
            }
            Type::Enum => ExprKind::Enum(text.to_owned()),
            Type::Backend => ExprKind::NoBackend,
            _ => return None,
        };
        Some(Expr { ty, kind })
    }
}
