//! Statements.

use cranelift_codegen::ir::InstBuilder;
use lacquer_vcl::program::{ArithOp, Expr, ExprKind, Return, SetOp, Stmt};
use lacquer_vcl::types::{Action, HttpId, Type};
use lacquer_vcl::variables_table::{ENTRIES, Var};

use super::sub::{SubEmitter, Val};
use crate::rt;

impl SubEmitter<'_, '_, '_> {
    /// Emits statements. Returns true if control never reaches their end.
    pub fn stmts(&mut self, body: &[Stmt]) -> Result<bool, String> {
        for stmt in body {
            self.spread_exits();
            let mark = self.mark();
            let ended = self.stmt(stmt)?;
            self.release(mark);
            if ended {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<bool, String> {
        match stmt {
            Stmt::Set { target, op, value, .. } => self.set(*target, *op, value)?,
            Stmt::SetHeader { http, header, value, .. } => self.set_header(*http, *header, value)?,
            Stmt::SetBody { target, op, value, .. } => self.set_body(*target, *op, value)?,
            Stmt::Unset { target, .. } => {
                let var = self.number(*target as u32);
                self.rt1(rt::vars::unset, &[var]);
                self.check();
            }
            Stmt::UnsetHeader { http, header, .. } => {
                let (http, header) = (self.number(*http as u32), self.number(*header));
                self.rt2(rt::vars::unset_header, &[http, header]);
                self.check();
            }
            Stmt::If { arms, otherwise } => return self.choose(arms, otherwise),
            Stmt::CallSub { sub, .. } => self.call_sub(*sub),
            Stmt::CallDynamic { sub, .. } => {
                let sub = self.number_value(sub)?;
                self.rt1(rt::flow::call_sub, &[sub]);
                self.check();
            }
            Stmt::Do { call, .. } => {
                self.effect(call)?;
            }
            Stmt::New { object, args, .. } => {
                let cells = self.args(args)?;
                let (object, count) = (self.number(*object), self.word(args.len() as i64));
                self.rt3(rt::flow::new_object, &[object, cells, count]);
                self.check();
            }
            Stmt::HashData { value, .. } => {
                let (parts, count) = self.strands(value)?;
                self.rt2(rt::flow::hash_data, &[parts, count]);
                self.check();
            }
            Stmt::Ban { value, .. } => {
                let (p, n) = self.str_value(value)?;
                self.rt1(rt::flow::ban, &[p, n]);
                self.check();
            }
            Stmt::Synthetic { value, .. } => {
                let (parts, count) = self.strands(value)?;
                self.rt2(rt::vars::synthetic, &[parts, count]);
                self.check();
            }
            Stmt::Trace { at, number } => self.trace(*number, *at),
            Stmt::Return { how, .. } => {
                self.finish(how)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets a header. As in Varnish, the header loses its value if the function that computes the new one fails.
    fn set_header(&mut self, http: HttpId, header: u32, value: &Expr) -> Result<(), String> {
        let put = |this: &mut Self, p, n| {
            let (http, header) = (this.number(http as u32), this.number(header));
            this.rt3(rt::vars::set_header, &[http, header, p, n]);
        };
        if matches!(value.kind, ExprKind::Concat(_)) {
            let (parts, count) = self.strands(value)?;
            let (http, header) = (self.number(http as u32), self.number(header));
            self.rt4(rt::vars::set_header_parts, &[http, header, parts, count]);
            self.check();
            return Ok(());
        }
        if !matches!(value.kind, ExprKind::Call { .. }) {
            let (p, n) = self.str_value(value)?;
            put(self, p, n);
            self.check();
            return Ok(());
        }
        let (lost, next) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(lost);
        let exit = std::mem::replace(&mut self.exit, lost);
        let value = self.str_value(value);
        self.exit = exit;
        let (p, n) = value?;
        put(self, p, n);
        self.check();
        self.b.ins().jump(next, &[]);
        self.b.switch_to_block(lost);
        let null = self.word(0);
        put(self, null, null);
        self.leave();
        self.b.switch_to_block(next);
        Ok(())
    }

    fn choose(&mut self, arms: &[(Expr, Vec<Stmt>)], otherwise: &[Stmt]) -> Result<bool, String> {
        let end = self.b.create_block();
        let mut reached = false;
        for (condition, body) in arms {
            let (yes, no) = (self.b.create_block(), self.b.create_block());
            let mark = self.mark();
            self.branch(condition, yes, no)?;
            self.release(mark);
            self.b.switch_to_block(yes);
            if !self.stmts(body)? {
                self.b.ins().jump(end, &[]);
                reached = true;
            }
            self.b.switch_to_block(no);
        }
        let ended = if otherwise.is_empty() { false } else { self.stmts(otherwise)? };
        if !ended {
            self.b.ins().jump(end, &[]);
            reached = true;
        }
        if reached {
            self.b.switch_to_block(end);
        }
        Ok(!reached)
    }

    fn finish(&mut self, how: &Return) -> Result<(), String> {
        let action = match how {
            Return::Plain(Action::Fail) | Return::Fail(None) => {
                let (p, n) = self.text(b"Failed from VCL");
                self.rt1(rt::flow::fail, &[p, n]);
                self.leave();
                return Ok(());
            }
            Return::Fail(Some(text)) => {
                let (p, n) = self.str_value(text)?;
                self.rt1(rt::flow::fail, &[p, n]);
                self.leave();
                return Ok(());
            }
            Return::Plain(action) => *action as u32,
            Return::Status { action, status, reason } => {
                let status = self.int_value(status)?;
                let (p, n) = match reason {
                    Some(reason) => self.str_value(reason)?,
                    None => (self.word(0), self.word(0)),
                };
                self.rt2(rt::flow::return_status, &[status, p, n]);
                self.check();
                *action as u32
            }
            Return::PassFor(seconds) => {
                let seconds = self.real_value(seconds)?;
                self.rt1(rt::flow::return_pass_for, &[seconds]);
                self.check();
                Action::Pass as u32
            }
            Return::Vcl(label) => {
                let label = self.number(*label);
                self.rt1(rt::flow::return_vcl, &[label]);
                self.check();
                Action::Vcl as u32
            }
            Return::FromSub => 0,
        };
        let action = self.number(action);
        self.b.ins().return_(&[action]);
        Ok(())
    }

    fn set(&mut self, target: Var, op: SetOp, value: &Expr) -> Result<(), String> {
        let ty = ENTRIES.iter().find(|e| e.var == target).map_or(value.ty, |e| e.ty);
        let new = self.assigned(target, ty, op, value)?;
        let var = self.number(target as u32);
        match (ty, new) {
            (Type::Bool, Val::Bool(v)) => {
                let v = self.widen(v);
                self.rt2(rt::vars::set_bool, &[var, v])
            }
            (_, Val::Int(v)) => self.rt2(rt::vars::set_int, &[var, v]),
            (_, Val::Real(v)) => self.rt2(rt::vars::set_real, &[var, v]),
            (_, Val::Str(p, n)) => self.rt2(rt::vars::set_str, &[var, p, n]),
            (Type::Backend, Val::Number(v)) => self.rt2(rt::vars::set_backend, &[var, v]),
            (Type::Stevedore, Val::Number(v)) => self.rt2(rt::vars::set_stevedore, &[var, v]),
            _ => return Err(format!("{} cannot be set to a {:?}", target.name(), value.ty)),
        };
        self.check();
        Ok(())
    }

    /// Emits the new value of a variable, in the variable's own type.
    fn assigned(&mut self, target: Var, ty: Type, op: SetOp, value: &Expr) -> Result<Val, String> {
        let op = match op {
            SetOp::Assign => return self.value_as(value, ty),
            SetOp::Add => ArithOp::Add,
            SetOp::Sub => ArithOp::Sub,
            SetOp::Mul => ArithOp::Mul,
            SetOp::Div => ArithOp::Div,
        };
        let old = Expr { ty, kind: ExprKind::Var(target) };
        if ty == Type::String {
            let mut parts = vec![&old];
            match &value.kind {
                ExprKind::Concat(more) => parts.extend(more),
                _ => parts.push(value),
            }
            return self.join(&parts);
        }
        let old = self.value(&old)?;
        let new = self.value(value)?;
        self.arith(op, old, new, ty)
    }

    fn set_body(&mut self, target: Var, op: SetOp, value: &Expr) -> Result<(), String> {
        let var = self.number(target as u32);
        let append = self.number(u32::from(op == SetOp::Add));
        if value.ty == Type::Blob {
            let blob = self.blob_value(value)?;
            self.rt3(rt::vars::set_body_blob, &[var, append, blob]);
        } else {
            let (parts, count) = self.strands(value)?;
            self.rt4(rt::vars::set_body, &[var, append, parts, count]);
        }
        self.check();
        Ok(())
    }
}
