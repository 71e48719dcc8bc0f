//! Expressions as values, and conditions as branches: the recursion over a tree. The other files emit operations on
//! values.

use std::net::SocketAddr;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use lacquer_vcl::program::{CompareOp, Expr, ExprKind};
use lacquer_vcl::types::Type;

use super::call::{self, Call};
use super::number::int_condition;
use super::string;
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

    // Lists of strings, and arguments.

    /// Writes a list of strings to the scratch area. Returns pointer and count. The area remains reserved.
    pub fn strands(&mut self, e: &Expr) -> Result<(Value, Value), String> {
        if e.ty == Type::Strands && matches!(e.kind, ExprKind::Call { .. }) {
            return match self.value(e)? {
                Val::Strands(list, count) => Ok((list, count)),
                other => Err(format!("{other:?} is not STRANDS")),
            };
        }
        self.list(&parts(e))
    }

    fn list(&mut self, parts: &[&Expr]) -> Result<(Value, Value), String> {
        let at = self.reserve(string::CELL * parts.len());
        for (i, part) in parts.iter().enumerate() {
            let mark = self.mark();
            let (p, n) = self.str_value(part)?;
            self.release(mark);
            self.store_part(p, n, at + (string::CELL * i) as i32);
        }
        Ok((self.scratch_address(at), self.word(parts.len() as i64)))
    }

    pub fn join(&mut self, parts: &[&Expr]) -> Result<Val, String> {
        if let [one] = parts {
            return self.value_as(one, Type::String);
        }
        let mark = self.mark();
        let (list, count) = self.list(parts)?;
        let call = self.rt2(rt::text::join, &[list, count]);
        self.release(mark);
        let joined = self.string(call);
        self.check();
        Ok(joined)
    }

    /// Writes arguments to the scratch area. Returns the address of the first. The area remains reserved.
    pub fn args(&mut self, args: &[Option<Expr>]) -> Result<Value, String> {
        let at = self.reserve(call::CELL * args.len());
        for (i, arg) in args.iter().enumerate() {
            let cell = at + (call::CELL * i) as i32;
            match arg {
                Some(e) => {
                    let value = self.value_as(e, e.ty)?;
                    self.store_arg(value, e.ty, cell)?;
                }
                None => self.store_absent_arg(cell),
            }
        }
        Ok(self.scratch_address(at))
    }

    /// Emits a call whose value is discarded.
    pub fn effect(&mut self, e: &Expr) -> Result<(), String> {
        if matches!(e.kind, ExprKind::Call { .. }) {
            self.module_call(e)?
        } else {
            self.value(e)?
        };
        Ok(())
    }

    fn module_call(&mut self, e: &Expr) -> Result<Val, String> {
        let ExprKind::Call { function, object, args, call_site, .. } = &e.kind else {
            return Err("Not a call".to_owned());
        };
        let mark = self.mark();
        let result = self.reserve(call::CELL);
        let cells = self.args(args)?;
        let call =
            Call { function: *function, object: *object, args: args.len(), returns: e.ty, site: *call_site };
        let value = self.call_function(&call, cells, result)?;
        self.release(mark);
        Ok(value)
    }

    // Conditions.

    /// Emits a jump to `yes` or `no`.
    pub fn branch(&mut self, e: &Expr, yes: Block, no: Block) -> Result<(), String> {
        if let Some((other, text, is_same)) = with_constant(e) {
            let (p, n) = self.str_value(other)?;
            let (same, differs) = if is_same { (yes, no) } else { (no, yes) };
            self.branch_on_constant(p, n, text, same, differs);
            return Ok(());
        }
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

    /// Compares strings. Two single strings are compared directly (undefined equals nothing). If either side is a
    /// concatenation, the joined strings are compared (undefined is empty).
    fn compare_strings(&mut self, op: CompareOp, a: &Expr, b: &Expr) -> Result<Value, String> {
        let (a_parts, b_parts) = (parts(a), parts(b));
        let order = if a_parts.len() == 1 && b_parts.len() == 1 {
            let (ap, an) = self.str_value(a_parts[0])?;
            let (bp, bn) = self.str_value(b_parts[0])?;
            self.rt2(rt::text::compare, &[ap, an, bp, bn])
        } else {
            let mark = self.mark();
            let (ap, an) = self.list(&a_parts)?;
            let (bp, bn) = self.list(&b_parts)?;
            let call = self.rt4(rt::text::compare_strands, &[ap, an, bp, bn]);
            self.release(mark);
            call
        };
        let order = self.one(order);
        Ok(self.b.ins().icmp_imm_s(int_condition(op), order, 0))
    }

    fn truth_of(&mut self, e: &Expr) -> Result<Value, String> {
        match &e.kind {
            ExprKind::Not(inner) => {
                let truth = self.truth_of(inner)?;
                Ok(self.b.ins().bxor_imm_u(truth, 1))
            }
            ExprKind::Defined(inner) => self.defined(inner),
            ExprKind::Compare(..) if with_constant(e).is_some() => self.merged(e),
            ExprKind::Compare(op, a, b) if is_text(a.ty) => self.compare_strings(*op, a, b),
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

fn is_text(ty: Type) -> bool {
    matches!(ty, Type::String | Type::Enum | Type::Strands)
}

/// Returns the string that a condition compares with a constant, the constant, and whether they must be equal.
fn with_constant(e: &Expr) -> Option<(&Expr, &[u8], bool)> {
    let ExprKind::Compare(op @ (CompareOp::Eq | CompareOp::Ne), a, b) = &e.kind else { return None };
    let (other, text) = match (constant(a), constant(b)) {
        (None, Some(text)) => (a, text),
        (Some(text), None) => (b, text),
        _ => return None,
    };
    (is_text(a.ty) && parts(other).len() == 1).then_some((&**other, text, *op == CompareOp::Eq))
}

/// The parts that an expression joins: one unless it is a concatenation.
fn parts(e: &Expr) -> Vec<&Expr> {
    match &e.kind {
        ExprKind::Concat(parts) => parts.iter().collect(),
        _ => vec![e],
    }
}

fn constant(e: &Expr) -> Option<&[u8]> {
    match &e.kind {
        ExprKind::Str(text) => Some(text),
        ExprKind::Enum(text) => Some(text.as_bytes()),
        ExprKind::Concat(parts) => match parts.as_slice() {
            [one] => constant(one),
            _ => None,
        },
        _ => None,
    }
}
