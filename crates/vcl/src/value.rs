//! Checked expressions before their final conversion, and the operations that combine them.

use crate::program::{ArithOp, CompareOp, Expr, ExprKind};
use crate::symbols::{Fmt, TokenId};
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

/// Joins parts into one STRING.
pub(crate) fn join(mut parts: Vec<Expr>) -> Expr {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            Expr { ty: Type::String, kind: ExprKind::Concat(parts) }
        }
    }
}

/// Returns type and operation of a property of a storage, which is not called.
pub(crate) fn storage_field(value: Value, fmt: Fmt, var: Var) -> (Fmt, ExprKind, bool) {
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

/// Returns the type of a sum or difference, or `None` if the types cannot be combined.
pub(crate) fn sum_type(op: ArithOp, left: Fmt, right: Fmt) -> Option<Fmt> {
    Some(match (left, right) {
        (Fmt::Bytes, Fmt::Bytes) => Fmt::Bytes,
        (Fmt::Duration, Fmt::Duration) => Fmt::Duration,
        (Fmt::Int, Fmt::Int) => Fmt::Int,
        (Fmt::Int | Fmt::Real, Fmt::Real) | (Fmt::Real, Fmt::Int) => Fmt::Real,
        (Fmt::Time, Fmt::Time) if op == ArithOp::Sub => Fmt::Duration,
        (Fmt::Time, Fmt::Duration) => Fmt::Time,
        _ => return None,
    })
}

/// Creates an operation whose operands are first converted to one representation, integer or floating point.
pub(crate) fn arithmetic(op: ArithOp, result: Fmt, left: Value, right: Value) -> Value {
    let depth = left.depth.max(right.depth) + 2;
    let (left, right) = (unrounded(left.expr()), unrounded(right.expr()));
    let floating = is_float(&left) || is_float(&right);
    let operand = |expr: Expr| match (floating, expr.ty) {
        (true, Type::Int | Type::Bytes) => convert(expr, Type::Real),
        (false, ty) if ty != result.ty() => convert(expr, result.ty()),
        _ => expr,
    };
    let (left, right) = (Box::new(operand(left)), Box::new(operand(right)));
    let kind = ExprKind::Arith(op, left, right);
    let kind = if floating && result.is_integral() {
        ExprKind::Convert(Box::new(Expr { ty: Type::Real, kind }))
    } else {
        kind
    };
    Value { depth, ..Value::one(result, kind) }
}

/// Returns both sides of a comparison of sizes in one representation.
pub(crate) fn same_representation(left: Expr, right: Expr) -> (Expr, Expr) {
    let (left, right) = (unrounded(left), unrounded(right));
    let operand = |expr: Expr, other: Type| match (other, expr.ty) {
        (Type::Real, Type::Bytes) => convert(expr, Type::Real),
        _ => expr,
    };
    let (left_type, right_type) = (left.ty, right.ty);
    (operand(left, right_type), operand(right, left_type))
}

/// Returns the REAL of which a product or quotient of BYTES is made. As in Varnish, only the result of a whole
/// expression is rounded.
fn unrounded(expr: Expr) -> Expr {
    match expr.kind {
        ExprKind::Convert(inner) if expr.ty == Type::Bytes && inner.ty == Type::Real => *inner,
        kind => Expr { kind, ..expr },
    }
}

fn is_float(expr: &Expr) -> bool {
    matches!(expr.ty, Type::Real | Type::Duration | Type::Time)
}

fn convert(expr: Expr, ty: Type) -> Expr {
    match (expr.kind, ty) {
        (ExprKind::Int(number), Type::Real) => Expr { ty, kind: ExprKind::Real(number as f64) },
        (ExprKind::Int(number), Type::Bytes) => Expr { ty, kind: ExprKind::Int(number) },
        (kind, _) => Expr { ty, kind: ExprKind::Convert(Box::new(Expr { ty: expr.ty, kind })) },
    }
}
