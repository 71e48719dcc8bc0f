//! Strings: lists, joining, comparison, conversions.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type as Machine, Value, types};
use lacquer_vcl::program::{CompareOp, Expr, ExprKind};
use lacquer_vcl::types::Type;
use lacquer_vcl_runtime::Str;

use super::number::int_condition;
use super::sub::{SubEmitter, Val};
use crate::rt;

/// Maximum length of constants that are compared inline, with at most two loads.
const INLINE: usize = 16;

/// A string takes a cell of two words in a list: the pointer, then the length.
const CELL: usize = size_of::<Str<'_>>();
const WORD: usize = size_of::<u64>();
const _: () = assert!(CELL == 2 * WORD && size_of::<usize>() == WORD);

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

impl SubEmitter<'_, '_, '_> {
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
        let at = self.reserve(CELL * parts.len());
        for (i, part) in parts.iter().enumerate() {
            let mark = self.mark();
            let (p, n) = self.str_value(part)?;
            self.release(mark);
            let cell = at + (CELL * i) as i32;
            self.scratch_store(p, cell);
            self.scratch_store(n, cell + WORD as i32);
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

    /// Converts any value to STRING.
    pub fn as_text(&mut self, value: Val, ty: Type) -> Result<Val, String> {
        let call = match value {
            Val::Str(..) => return Ok(value),
            Val::Bool(v) => return Ok(self.bool_text(v)),
            Val::Strands(list, count) => self.rt2(rt::text::join, &[list, count]),
            Val::Int(v) => self.rt1(rt::text::int_text, &[v]),
            Val::Real(v) if ty == Type::Time => self.rt1(rt::text::time_text, &[v]),
            Val::Real(v) => self.rt1(rt::text::real_text, &[v]),
            Val::Ip(v) => self.rt1(rt::text::ip_text, &[v]),
            Val::Blob(v) => self.rt1(rt::text::blob_text, &[v]),
            Val::Number(v) if ty == Type::Backend => self.rt1(rt::text::backend_text, &[v]),
            Val::Number(v) if ty == Type::Stevedore => self.rt1(rt::text::stevedore_text, &[v]),
            Val::Number(v) if ty == Type::Acl => self.rt1(rt::text::acl_text, &[v]),
            Val::Header(http, name) => return Ok(self.header(http, name)),
            Val::Named(http, name) => self.rt2(rt::vars::get_named, &[http, name]),
            Val::None | Val::Number(_) | Val::Http(_) => {
                return Err(format!("{ty:?} cannot be converted to STRING"));
            }
        };
        let text = self.string(call);
        self.check();
        Ok(text)
    }

    fn bool_text(&mut self, truth: Value) -> Val {
        let (yes, yes_len) = self.text(b"true");
        let (no, no_len) = self.text(b"false");
        Val::Str(self.b.ins().select(truth, yes, no), self.b.ins().select(truth, yes_len, no_len))
    }

    pub fn header(&mut self, http: u32, name: u32) -> Val {
        let (http, name) = (self.number(http), self.number(name));
        let call = self.rt2(rt::vars::get_header, &[http, name]);
        self.string(call)
    }

    /// Compares strings. Two single strings are compared directly (undefined equals nothing). If either side is a
    /// concatenation, the joined strings are compared (undefined is empty).
    pub fn compare_strings(&mut self, op: CompareOp, a: &Expr, b: &Expr) -> Result<Value, String> {
        if matches!(op, CompareOp::Eq | CompareOp::Ne)
            && let (_, Some(text), other) | (Some(text), None, other) = match (constant(a), constant(b)) {
                (None, Some(text)) => (None, Some(text), a),
                (Some(text), None) => (Some(text), None, b),
                _ => (None, None, a),
            }
            && parts(other).len() == 1
        {
            let (p, n) = self.str_value(other)?;
            let same = self.same_as_constant(p, n, text);
            return Ok(if op == CompareOp::Eq { same } else { self.b.ins().bxor_imm_u(same, 1) });
        }
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

    /// Compares a string with `text`: the length first, then the bytes if the lengths are equal.
    fn same_as_constant(&mut self, p: Value, n: Value, text: &[u8]) -> Value {
        if text.is_empty() {
            let empty = self.b.ins().icmp_imm_s(IntCC::Equal, n, 0);
            let defined = self.b.ins().icmp_imm_s(IntCC::NotEqual, p, 0);
            return self.b.ins().band(empty, defined);
        }
        let long = self.b.ins().icmp_imm_s(IntCC::Equal, n, text.len() as i64);
        let (look, done) = (self.b.create_block(), self.b.create_block());
        let result = self.b.append_block_param(done, types::I8);
        self.b.ins().brif(long, look, &[], done, &[long.into()]);
        self.b.switch_to_block(look);
        let same = if text.len() <= INLINE {
            self.same_bytes(p, text)
        } else {
            let (constant, length) = self.text(text);
            let call = self.rt3(rt::text::same_bytes, &[p, constant, length]);
            self.truth(call)
        };
        self.b.ins().jump(done, &[same.into()]);
        self.b.switch_to_block(done);
        result
    }

    /// Compares with loads of the largest fitting size. The last load overlaps the previous one if the length is odd.
    fn same_bytes(&mut self, p: Value, text: &[u8]) -> Value {
        let (machine, size): (Machine, usize) = match text.len() {
            8.. => (types::I64, 8),
            4..8 => (types::I32, 4),
            2..4 => (types::I16, 2),
            _ => (types::I8, 1),
        };
        let first = self.same_piece(p, text, 0, machine, size);
        if text.len() == size {
            return first;
        }
        let last = self.same_piece(p, text, text.len() - size, machine, size);
        self.b.ins().band(first, last)
    }

    fn same_piece(&mut self, p: Value, text: &[u8], at: usize, machine: Machine, size: usize) -> Value {
        let loaded = self.b.ins().load(machine, MemFlagsData::new().with_notrap(), p, at as i32);
        let mut bytes = [0u8; 8];
        bytes[..size].copy_from_slice(&text[at..at + size]);
        let wanted = self.b.ins().iconst(machine, i64::from_ne_bytes(bytes));
        self.b.ins().icmp(IntCC::Equal, loaded, wanted)
    }
}
