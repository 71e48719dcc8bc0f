//! Conversions of expressions to the type that their context expects.

use crate::compiler::{Compiler, MAX_NESTING, Res, Stop};
use crate::program::{Expr, ExprKind};
use crate::symbols::{Fmt, TokenId};
use crate::types::Type;
use crate::value::{Content, Value, to_bool};

impl Compiler<'_> {
    pub fn convert(&mut self, mut value: Value, fmt: Fmt, first: TokenId) -> Res<Expr> {
        if value.fmt == fmt {
            return self.value_expr(value);
        }
        let to_string = fmt.string_form() || (fmt == Fmt::Body && value.fmt != Fmt::Blob);
        if to_string && value.fmt != Fmt::Strings {
            value = match self.stringify(value.clone()) {
                Ok(value) => value,
                Err(Stop) => {
                    // Varnish appends the general error text to the special one.
                    self.type_check(&value, fmt, first)?;
                    return Err(Stop);
                }
            };
        }
        match (value.fmt, fmt) {
            (Fmt::Blob, Fmt::Body) | (Fmt::Strings, Fmt::Body | Fmt::String) => Ok(value.expr()),
            (Fmt::Strings, Fmt::Strands) => {
                let Content::Parts(parts) = value.content else { return Err(Stop) };
                Ok(Expr { ty: Type::Strands, kind: ExprKind::Concat(parts) })
            }
            (_, Fmt::Bool) => {
                let value = to_bool(value);
                self.type_check(&value, fmt, first)?;
                Ok(value.expr())
            }
            _ => {
                self.type_check(&value, fmt, first)?;
                Ok(value.expr())
            }
        }
    }

    pub fn value_expr(&mut self, value: Value) -> Res<Expr> {
        if let Content::Object(_) = value.content {
            return self.fail("An object is not a value; use one of its methods.\n", self.t);
        }
        Ok(value.expr())
    }

    pub fn type_check(&mut self, value: &Value, fmt: Fmt, first: TokenId) -> Res<()> {
        if value.fmt == fmt {
            return Ok(());
        }
        let (has, wanted) = (self.type_name(value.fmt), fmt.user_name());
        if fmt == Fmt::Duration && matches!(value.fmt, Fmt::Int | Fmt::Real) {
            self.hint(crate::hints::DURATION_WITHOUT_UNIT);
        }
        if fmt == Fmt::Duration && crate::hints::is_text(value.fmt) {
            let literal = if value.literal { self.content_text(first) } else { "".into() };
            self.hint(crate::hints::for_quoted_duration(&literal));
        }
        self.fail_range(format!("Expression has type {has}, expected {wanted}\n"), first, self.t)
    }

    pub fn stringify(&mut self, value: Value) -> Res<Value> {
        if !value.fmt.converts_to_string() {
            let name = self.type_name(value.fmt);
            self.add_text(format!("Cannot convert {name} to STRING.\n"));
            self.show_range(value.start, self.t);
            return Err(Stop);
        }
        let depth = value.depth + 1;
        let kind = match (value.fmt, value.expr()) {
            (Fmt::Header, Expr { kind: kind @ (ExprKind::Header(..) | ExprKind::NullStr), .. }) => kind,
            (_, expr) => ExprKind::ToString(Box::new(expr)),
        };
        Ok(Value { depth, ..Value::string(kind) })
    }

    /// Fails if a tree is too deep for the recursive functions that walk it.
    pub fn check_depth(&mut self, value: Value) -> Res<Value> {
        if value.depth > 2 * MAX_NESTING {
            return self.fail("Expression has too many nested operations.\n", self.t);
        }
        Ok(value)
    }

    /// Joins two values as STRINGS. Adjacent literals become one.
    pub fn concatenate(&mut self, left: Value, right: Value) -> Res<Value> {
        let left = if left.fmt == Fmt::Strings { left } else { self.stringify(left)? };
        let right = if right.fmt == Fmt::Strings { right } else { self.stringify(right)? };
        let (depth, start) = (left.depth.max(right.depth), left.start);
        let merge = left.literal && right.literal;
        let literal = merge && right.literal;
        let (Content::Parts(mut parts), Content::Parts(more)) = (left.content, right.content) else {
            return Err(Stop);
        };
        let mut more = more.into_iter();
        if merge
            && let (Some(Expr { kind: ExprKind::Str(end), .. }), [Expr { kind: ExprKind::Str(next), .. }, ..]) =
                (parts.last_mut(), more.as_slice())
        {
            end.0.extend_from_slice(next);
            more.next();
        }
        parts.extend(more);
        Ok(Value { fmt: Fmt::Strings, content: Content::Parts(parts), literal, start, depth })
    }
}
