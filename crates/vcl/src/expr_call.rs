//! Calls of module functions, once their arguments are parsed: defaults, and the numbers of functions and calls.

use std::fmt::Write as _;

use crate::compiler::{Compiler, Res, Stop};
use crate::lexer::Tok;
use crate::program::{Expr, ExprKind, Function};
use crate::signature::{Param, Private, Signature};
use crate::symbols::{Callable, TokenId, UseKind};
use crate::types::Type;

impl Compiler<'_> {
    pub fn call_expr(
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
            self.program.modules.call_sites += 1;
            self.program.modules.call_sites - 1
        })
    }

    fn function_id(&mut self, callable: &Callable) -> u32 {
        let key = (callable.import, callable.object.clone(), callable.signature.name.clone());
        if let Some(&id) = self.ids.functions.get(&key) {
            return id;
        }
        let id = self.program.modules.functions.len() as u32;
        let (import, object, name) = key.clone();
        self.program.modules.functions.push(Function { import, object, name });
        self.ids.functions.insert(key, id);
        id
    }

    /// Parses an argument that is one of these words.
    pub fn enum_argument(&mut self, values: &[String]) -> Res<Expr> {
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

    pub fn fill_defaults(
        &mut self,
        signature: &Signature,
        given: Vec<Option<Expr>>,
    ) -> Res<Vec<Option<Expr>>> {
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

    pub fn note_call(&mut self, name: TokenId, signature: &Signature) {
        let readable = signature.readable();
        let noted =
            crate::symbols::Use { first: name, end: name + 1, what: UseKind::Read, mask: readable, readable };
        if let Some(current) = self.subs.current {
            self.subs.procs[current].uses.push(noted);
        }
    }
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
