//! Expressions as values, and conditions as branches.

use std::net::SocketAddr;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{Block, Inst, InstBuilder, Value, types};
use lacquer_vcl::program::{CompareOp, Expr, ExprKind};
use lacquer_vcl::types::Type;
use lacquer_vcl::variables_table::Var;

use super::sub::{SubEmitter, Val};
use crate::rt;

impl SubEmitter<'_, '_, '_> {
    pub fn value(&mut self, e: &Expr) -> Result<Val, String> {
        Ok(match &e.kind {
            ExprKind::Var(var) => self.var(*var, e.ty)?,
            ExprKind::StorageVar(storage, var) => self.storage_var(storage, *var, e.ty),
            ExprKind::StorageField(storage, var) => {
                let storage = self.number_value(storage)?;
                let code = self.number(*var as u32);
                let call = self.rt2(rt::vars::storage_field, &[storage, code]);
                self.field(call, e.ty)
            }
            ExprKind::ChangeCase { upper, value } => {
                let (p, n) = self.str_value(value)?;
                let upper = self.number(u32::from(*upper));
                let call = self.rt2(rt::text::change_case, &[upper, p, n]);
                let text = self.string(call);
                self.check();
                text
            }
            ExprKind::ResolveBackend(backend) => {
                let backend = self.number_value(backend)?;
                let call = self.rt1(rt::flow::resolve_backend, &[backend]);
                let chosen = Val::Number(self.one(call));
                self.check();
                chosen
            }
            ExprKind::Header(http, name) => self.header(*http as u32, *name),
            ExprKind::Concat(_) if e.ty == Type::Strands => {
                let (list, count) = self.strands(e)?;
                Val::Strands(list, count)
            }
            ExprKind::Concat(parts) => {
                let parts: Vec<&Expr> = parts.iter().collect();
                self.join(&parts)?
            }
            ExprKind::ToString(inner) => {
                let value = self.value(inner)?;
                self.as_text(value, inner.ty)?
            }
            ExprKind::Convert(inner) => self.value_as(inner, e.ty)?,
            ExprKind::Negate(inner) => match self.value(inner)? {
                Val::Int(v) => Val::Int(self.b.ins().ineg(v)),
                Val::Real(v) => Val::Real(self.b.ins().fneg(v)),
                other => return Err(format!("{other:?} cannot be negated")),
            },
            ExprKind::Arith(op, a, b) => {
                let a = self.value(a)?;
                let b = self.value(b)?;
                self.arith(*op, a, b, e.ty)?
            }
            ExprKind::Regsub { all, subject, regex, replacement } => {
                self.regsub(*all, subject, regex, replacement)?
            }
            ExprKind::Call { .. } => self.module_call(e)?,
            ExprKind::And(_) | ExprKind::Or(_) => Val::Bool(self.merged(e)?),
            ExprKind::Not(_)
            | ExprKind::Defined(_)
            | ExprKind::Compare(..)
            | ExprKind::Match { .. }
            | ExprKind::AclMatch { .. }
            | ExprKind::SubCallable(_) => Val::Bool(self.truth_of(e)?),
            _ => self.constant(e)?,
        })
    }

    /// Emits a constant: a literal or a name.
    fn constant(&mut self, e: &Expr) -> Result<Val, String> {
        Ok(match &e.kind {
            ExprKind::Bool(v) => Val::Bool(self.b.ins().iconst(types::I8, i64::from(*v))),
            ExprKind::Int(v) => {
                let v = self.word(*v);
                self.convert(Val::Int(v), e.ty)
            }
            ExprKind::Real(v) => {
                let v = self.b.ins().f64const(*v);
                self.convert(Val::Real(v), e.ty)
            }
            ExprKind::Str(text) => {
                let (p, n) = self.text(text);
                Val::Str(p, n)
            }
            ExprKind::Enum(text) => {
                let (p, n) = self.text(text.as_bytes());
                Val::Str(p, n)
            }
            ExprKind::NullStr => Val::Str(self.word(0), self.word(0)),
            ExprKind::Ip(ip, port) => {
                let at = self.shared.constants.address(SocketAddr::new(*ip, *port));
                Val::Ip(self.word(at as i64))
            }
            ExprKind::Blob(bytes) => {
                let at = self.shared.constants.blob(bytes);
                Val::Blob(self.word(at as i64))
            }
            ExprKind::Backend(index) => {
                let id = self.shared.instance.backends.get(*index as usize).copied().unwrap_or_default();
                Val::Number(self.number(id.0))
            }
            ExprKind::DefaultBackend => Val::Number(self.number(self.shared.instance.default_backend.0)),
            ExprKind::NoBackend => Val::Number(self.number(0)),
            ExprKind::Probe(i) | ExprKind::Acl(i) | ExprKind::Sub(i) | ExprKind::Regex(i) => {
                Val::Number(self.number(i + 1))
            }
            ExprKind::Stevedore(name) => {
                let (p, n) = self.text(name.as_bytes());
                let call = self.rt1(rt::vars::stevedore_by_name, &[p, n]);
                Val::Number(self.one(call))
            }
            ExprKind::HttpRef(http) => Val::Http(*http as u32),
            ExprKind::HeaderRef(http, name) => Val::Header(*http as u32, *name),
            other => return Err(format!("{other:?} is not a constant")),
        })
    }

    /// Emits a value in the machine form of `ty`.
    pub fn value_as(&mut self, e: &Expr, ty: Type) -> Result<Val, String> {
        if ty == Type::Strands {
            let (list, count) = self.strands(e)?;
            return Ok(Val::Strands(list, count));
        }
        let value = self.value(e)?;
        Ok(match ty {
            Type::String if !matches!(value, Val::Str(..)) => self.as_text(value, e.ty)?,
            _ => self.convert(value, ty),
        })
    }

    pub fn str_value(&mut self, e: &Expr) -> Result<(Value, Value), String> {
        match self.value_as(e, Type::String)? {
            Val::Str(p, n) => Ok((p, n)),
            other => Err(format!("{other:?} is not a STRING")),
        }
    }

    pub fn int_value(&mut self, e: &Expr) -> Result<Value, String> {
        match self.value_as(e, Type::Int)? {
            Val::Int(v) => Ok(v),
            other => Err(format!("{other:?} is not an INT")),
        }
    }

    pub fn real_value(&mut self, e: &Expr) -> Result<Value, String> {
        match self.value_as(e, Type::Real)? {
            Val::Real(v) => Ok(v),
            other => Err(format!("{other:?} is not a REAL")),
        }
    }

    fn ip_value(&mut self, e: &Expr) -> Result<Value, String> {
        match self.value(e)? {
            Val::Ip(v) => Ok(v),
            other => Err(format!("{other:?} is not an IP")),
        }
    }

    pub fn blob_value(&mut self, e: &Expr) -> Result<Value, String> {
        match self.value(e)? {
            Val::Blob(v) => Ok(v),
            other => Err(format!("{other:?} is not a BLOB")),
        }
    }

    pub fn number_value(&mut self, e: &Expr) -> Result<Value, String> {
        match self.value(e)? {
            Val::Number(v) => Ok(v),
            other => Err(format!("{other:?} is not an index")),
        }
    }

    fn var(&mut self, var: Var, ty: Type) -> Result<Val, String> {
        let code = self.number(var as u32);
        Ok(match ty {
            Type::Bool => {
                let call = self.rt1(rt::vars::get_bool, &[code]);
                Val::Bool(self.truth(call))
            }
            Type::Int | Type::Bytes => {
                let call = self.rt1(rt::vars::get_int, &[code]);
                Val::Int(self.one(call))
            }
            Type::Real | Type::Duration | Type::Time => {
                let call = self.rt1(rt::vars::get_real, &[code]);
                Val::Real(self.one(call))
            }
            Type::String | Type::Enum => {
                let call = self.rt1(rt::vars::get_str, &[code]);
                self.string(call)
            }
            Type::Ip => {
                let call = self.rt1(rt::vars::get_ip, &[code]);
                let value = Val::Ip(self.one(call));
                self.check();
                value
            }
            Type::Blob => {
                let call = self.rt1(rt::vars::get_blob, &[code]);
                let value = Val::Blob(self.one(call));
                self.check();
                value
            }
            Type::Backend => {
                let call = self.rt1(rt::vars::get_backend, &[code]);
                Val::Number(self.one(call))
            }
            Type::Stevedore => {
                let call = self.rt1(rt::vars::get_stevedore, &[code]);
                Val::Number(self.one(call))
            }
            _ => return Err(format!("{} of type {ty:?} has no value", var.name())),
        })
    }

    fn storage_var(&mut self, storage: &str, var: Var, ty: Type) -> Val {
        let (p, n) = self.text(storage.as_bytes());
        let code = self.number(var as u32);
        let call = self.rt2(rt::vars::storage_var, &[p, n, code]);
        self.field(call, ty)
    }

    /// Converts a storage's field, which the runtime returns as an integer, to its type.
    fn field(&mut self, call: Inst, ty: Type) -> Val {
        if ty == Type::Bool { Val::Bool(self.truth(call)) } else { Val::Int(self.one(call)) }
    }

    fn regsub(&mut self, all: bool, subject: &Expr, regex: &Expr, with: &Expr) -> Result<Val, String> {
        let (sp, sn) = self.str_value(subject)?;
        let regex = self.number_value(regex)?;
        let (wp, wn) = self.str_value(with)?;
        let mut number = self.b.ins().uextend(types::I64, regex);
        if all {
            let flag = self.word(rt::text::ALL as i64);
            number = self.b.ins().bor(number, flag);
        }
        let call = self.rt3(rt::text::regsub, &[sp, sn, number, wp, wn]);
        let result = self.string(call);
        self.check();
        Ok(result)
    }

    // Conditions.

    /// Emits a jump to `yes` or `no`.
    pub fn branch(&mut self, e: &Expr, yes: Block, no: Block) -> Result<(), String> {
        match &e.kind {
            ExprKind::Not(inner) => return self.branch(inner, no, yes),
            ExprKind::And(all) => {
                for each in all {
                    let next = self.b.create_block();
                    self.branch(each, next, no)?;
                    self.b.switch_to_block(next);
                }
                self.b.ins().jump(yes, &[]);
            }
            ExprKind::Or(all) => {
                for each in all {
                    let next = self.b.create_block();
                    self.branch(each, yes, next)?;
                    self.b.switch_to_block(next);
                }
                self.b.ins().jump(no, &[]);
            }
            _ => {
                let truth = self.truth_of(e)?;
                self.b.ins().brif(truth, yes, &[], no, &[]);
            }
        }
        Ok(())
    }

    /// Emits a condition that consists of branches as a value.
    fn merged(&mut self, e: &Expr) -> Result<Value, String> {
        let [yes, no, done] = std::array::from_fn(|_| self.b.create_block());
        let result = self.b.append_block_param(done, types::I8);
        self.branch(e, yes, no)?;
        for (block, truth) in [(yes, 1), (no, 0)] {
            self.b.switch_to_block(block);
            let truth = self.b.ins().iconst(types::I8, truth);
            self.b.ins().jump(done, &[truth.into()]);
        }
        self.b.switch_to_block(done);
        Ok(result)
    }

    fn truth_of(&mut self, e: &Expr) -> Result<Value, String> {
        match &e.kind {
            ExprKind::Not(inner) => {
                let truth = self.truth_of(inner)?;
                Ok(self.b.ins().bxor_imm_u(truth, 1))
            }
            ExprKind::Defined(inner) => self.defined(inner),
            ExprKind::Compare(op, a, b) if matches!(a.ty, Type::String | Type::Enum | Type::Strands) => {
                self.compare_strings(*op, a, b)
            }
            ExprKind::Compare(op, a, b) if a.ty == Type::Ip => {
                let (a, b) = (self.ip_value(a)?, self.ip_value(b)?);
                let call = self.rt2(rt::text::same_ip, &[a, b]);
                let same = self.truth(call);
                self.check();
                Ok(if *op == CompareOp::Eq { same } else { self.b.ins().bxor_imm_u(same, 1) })
            }
            ExprKind::Compare(op, a, b) => {
                let a = self.value(a)?;
                let b = self.value(b)?;
                self.compare(*op, a, b)
            }
            ExprKind::Match { subject, regex, negated } => {
                let (p, n) = self.str_value(subject)?;
                let regex = self.number_value(regex)?;
                let call = self.rt2(rt::text::matches, &[p, n, regex]);
                let truth = self.truth(call);
                self.check();
                Ok(self.b.ins().bxor_imm_u(truth, i64::from(*negated)))
            }
            ExprKind::AclMatch { ip, acl, negated } => {
                let acl = self.number_value(acl)?;
                let ip = self.ip_value(ip)?;
                let call = self.rt2(rt::text::acl_match, &[acl, ip]);
                let truth = self.truth(call);
                self.check();
                Ok(self.b.ins().bxor_imm_u(truth, i64::from(*negated)))
            }
            ExprKind::SubCallable(sub) => {
                let sub = self.number_value(sub)?;
                let call = self.rt1(rt::flow::sub_callable, &[sub]);
                Ok(self.truth(call))
            }
            _ => match self.value(e)? {
                Val::Bool(truth) => Ok(truth),
                other => Err(format!("{other:?} is not a condition")),
            },
        }
    }

    /// Strings are true if any part is defined, INT if not 0, DURATION if above 0, other types if there is a value.
    fn defined(&mut self, e: &Expr) -> Result<Value, String> {
        if let ExprKind::Concat(parts) = &e.kind {
            let mut any = self.b.ins().iconst(types::I8, 0);
            for part in parts {
                let (p, _) = self.str_value(part)?;
                let defined = self.b.ins().icmp_imm_s(IntCC::NotEqual, p, 0);
                any = self.b.ins().bor(any, defined);
            }
            return Ok(any);
        }
        Ok(match self.value(e)? {
            Val::Bool(truth) => truth,
            Val::Int(v) | Val::Number(v) | Val::Ip(v) | Val::Blob(v) | Val::Str(v, _) => {
                self.b.ins().icmp_imm_s(IntCC::NotEqual, v, 0)
            }
            Val::Real(v) => {
                let zero = self.b.ins().f64const(0.0);
                self.b.ins().fcmp(FloatCC::GreaterThan, v, zero)
            }
            Val::Strands(_, count) => self.b.ins().icmp_imm_s(IntCC::NotEqual, count, 0),
            Val::Header(http, name) => match self.header(http, name) {
                Val::Str(p, _) => self.b.ins().icmp_imm_s(IntCC::NotEqual, p, 0),
                other => return Err(format!("{other:?} is not a condition")),
            },
            Val::None | Val::Named(..) | Val::Http(_) => return Err("Not a condition".to_owned()),
        })
    }
}
