//! Arithmetic and conversions between the numeric types. INT and BYTES wrap around as in Varnish; a
//! division by zero fails the transaction.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};
use lacquer_vcl::program::{ArithOp, CompareOp};
use lacquer_vcl::types::Type;

use super::sub::{SubEmitter, Val};
use crate::rt;

pub fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::Int | Type::Bytes)
}

pub fn is_real(ty: Type) -> bool {
    matches!(ty, Type::Real | Type::Duration | Type::Time)
}

pub fn int_condition(op: CompareOp) -> IntCC {
    match op {
        CompareOp::Eq => IntCC::Equal,
        CompareOp::Ne => IntCC::NotEqual,
        CompareOp::Lt => IntCC::SignedLessThan,
        CompareOp::Le => IntCC::SignedLessThanOrEqual,
        CompareOp::Gt => IntCC::SignedGreaterThan,
        CompareOp::Ge => IntCC::SignedGreaterThanOrEqual,
    }
}

fn real_condition(op: CompareOp) -> FloatCC {
    match op {
        CompareOp::Eq => FloatCC::Equal,
        CompareOp::Ne => FloatCC::NotEqual,
        CompareOp::Lt => FloatCC::LessThan,
        CompareOp::Le => FloatCC::LessThanOrEqual,
        CompareOp::Gt => FloatCC::GreaterThan,
        CompareOp::Ge => FloatCC::GreaterThanOrEqual,
    }
}

impl SubEmitter<'_, '_, '_> {
    /// Converts a number to the machine form of `ty`. Other values do not change.
    pub fn convert(&mut self, value: Val, ty: Type) -> Val {
        match value {
            Val::Int(v) if is_real(ty) => Val::Real(self.b.ins().fcvt_from_sint(types::F64, v)),
            Val::Real(v) if is_integer(ty) => Val::Int(self.b.ins().fcvt_to_sint_sat(types::I64, v)),
            other => other,
        }
    }

    /// Computes with reals if either operand is one, then converts to `ty`.
    pub fn arith(&mut self, op: ArithOp, a: Val, b: Val, ty: Type) -> Result<Val, String> {
        let result = if let (Val::Int(a), Val::Int(b)) = (a, b) {
            Val::Int(self.int_arith(op, a, b))
        } else {
            let (Val::Real(a), Val::Real(b)) = (self.convert(a, Type::Real), self.convert(b, Type::Real))
            else {
                return Err(format!("No arithmetic on {a:?} and {b:?}"));
            };
            Val::Real(match op {
                ArithOp::Add => self.b.ins().fadd(a, b),
                ArithOp::Sub => self.b.ins().fsub(a, b),
                ArithOp::Mul => self.b.ins().fmul(a, b),
                ArithOp::Div => self.b.ins().fdiv(a, b),
                ArithOp::Mod => return Err("Operator % only possible on INT".to_owned()),
            })
        };
        Ok(self.convert(result, ty))
    }

    fn int_arith(&mut self, op: ArithOp, a: Value, b: Value) -> Value {
        match op {
            ArithOp::Add => self.b.ins().iadd(a, b),
            ArithOp::Sub => self.b.ins().isub(a, b),
            ArithOp::Mul => self.b.ins().imul(a, b),
            ArithOp::Div | ArithOp::Mod => self.divide(op, a, b),
        }
    }

    /// Handles the divisors 0 and -1 in separate branches, because the machine traps on them.
    fn divide(&mut self, op: ArithOp, a: Value, b: Value) -> Value {
        let [zero, not_zero, minus, plain, done] = std::array::from_fn(|_| self.b.create_block());
        self.b.set_cold_block(zero);
        let result = self.b.append_block_param(done, types::I64);
        self.b.ins().brif(b, not_zero, &[], zero, &[]);

        self.b.switch_to_block(zero);
        self.rt0(rt::flow::division_by_zero);
        self.leave();

        self.b.switch_to_block(not_zero);
        let is_minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
        self.b.ins().brif(is_minus_one, minus, &[], plain, &[]);

        self.b.switch_to_block(minus);
        let value = if op == ArithOp::Div { self.b.ins().ineg(a) } else { self.word(0) };
        self.b.ins().jump(done, &[BlockArg::Value(value)]);

        self.b.switch_to_block(plain);
        let value = if op == ArithOp::Div { self.b.ins().sdiv(a, b) } else { self.b.ins().srem(a, b) };
        self.b.ins().jump(done, &[BlockArg::Value(value)]);

        self.b.switch_to_block(done);
        result
    }

    /// Compares numbers, booleans and indices.
    pub fn compare(&mut self, op: CompareOp, a: Val, b: Val) -> Result<Value, String> {
        Ok(match (a, b) {
            (Val::Int(a), Val::Int(b))
            | (Val::Bool(a), Val::Bool(b))
            | (Val::Number(a), Val::Number(b))
            | (Val::Blob(a), Val::Blob(b)) => self.b.ins().icmp(int_condition(op), a, b),
            (Val::Int(_) | Val::Real(_), Val::Int(_) | Val::Real(_)) => {
                let (Val::Real(a), Val::Real(b)) = (self.convert(a, Type::Real), self.convert(b, Type::Real))
                else {
                    return Err("numbers did not convert".to_owned());
                };
                self.b.ins().fcmp(real_condition(op), a, b)
            }
            _ => return Err(format!("No comparison of {a:?} and {b:?}")),
        })
    }

    /// Converts a BOOL to an I32.
    pub fn widen(&mut self, truth: Value) -> Value {
        self.b.ins().uextend(types::I32, truth)
    }
}
