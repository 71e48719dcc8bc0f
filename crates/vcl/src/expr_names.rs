//! Names in expressions whose value needs no further parsing.

use crate::compiler::{Compiler, Res, Stop};
use crate::program::ExprKind;
use crate::symbols::{Fmt, Kind, Meaning, SymbolId, TokenId};
use crate::value::Value;

impl Compiler<'_> {
    pub fn in_call_context(&self, symbol: SymbolId) -> bool {
        let entry = &self.symbols.list[symbol];
        !matches!(
            (&entry.meaning, entry.kind),
            (Meaning::Nothing | Meaning::Action(_) | Meaning::Object { .. }, _)
        )
    }

    pub fn method_without_object(&mut self, first: TokenId) -> Res<Value> {
        let name = self.joined(first, self.t);
        let object = name.rsplit_once('.').map_or(name.as_str(), |(object, _)| object);
        self.hint(format!("create an object in vcl_init (new x = {object}(...);) and call its method"));
        self.add_text("Syntax error.");
        Err(Stop)
    }

    pub fn global(&mut self, symbol: SymbolId, kind: Kind, index: u32, fmt: Fmt) -> Res<Value> {
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

    pub fn default_symbol(&mut self, token: TokenId, fmt: Fmt) -> Res<Value> {
        match (fmt, self.defaults.probe) {
            (Fmt::Backend, _) => Ok(Value::one(Fmt::Backend, ExprKind::DefaultBackend)),
            (Fmt::Probe, Some(probe)) => Ok(Value::one(Fmt::Probe, ExprKind::Probe(probe))),
            (Fmt::Probe, None) => self.fail("No default probe defined\n", token),
            _ => {
                if crate::hints::is_text(fmt) {
                    self.hint("write a text in quotes: \"default\"");
                }
                self.fail("Symbol 'default' is a reserved word.\n", token)
            }
        }
    }
}
