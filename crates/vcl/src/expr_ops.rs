//! The operators, from `||` down to `*`, and the types of their operands.

use crate::compiler::{Compiler, Res, Stop};
use crate::expr::{Content, Value, to_bool};
use crate::lexer::Tok;
use crate::program::{ArithOp, CompareOp, Expr, ExprKind};
use crate::symbols::Fmt;
use crate::types::Type;

impl Compiler<'_> {
    pub fn or(&mut self, fmt: Fmt) -> Res<Value> {
        self.boolean_list(fmt, Tok::Cor)
    }

    /// Parses `a || b || c` or `a && b && c`.
    fn boolean_list(&mut self, fmt: Fmt, operator: Tok) -> Res<Value> {
        let is_or = operator == Tok::Cor;
        let mut first = self.t;
        let value = if is_or { self.boolean_list(fmt, Tok::Cand)? } else { self.not(fmt)? };
        if self.now() != operator {
            return Ok(value);
        }
        let mut terms = Vec::new();
        let mut depth = 0;
        let mut side = "preceded";
        let mut next = value;
        loop {
            let term = to_bool(next);
            if term.fmt != Fmt::Bool {
                let (name, found) = (operator.name(), self.type_name(term.fmt));
                let message = format!("'{name}' must be {side} by BOOL, found {found}.\n");
                return self.fail_range(message, first, self.t);
            }
            depth = depth.max(term.depth);
            terms.push(term.expr());
            if self.now() != operator {
                break;
            }
            self.advance();
            side = "followed";
            first = self.t;
            next = if is_or { self.boolean_list(fmt, Tok::Cand)? } else { self.not(fmt)? };
        }
        let kind = if is_or { ExprKind::Or(terms) } else { ExprKind::And(terms) };
        self.check_depth(Value::boolean(kind, depth))
    }

    fn not(&mut self, fmt: Fmt) -> Res<Value> {
        let first = self.t;
        if self.now() != Tok::Bang {
            return self.comparison(fmt);
        }
        self.advance();
        let value = to_bool(self.comparison(fmt)?);
        if value.fmt != Fmt::Bool {
            let found = self.type_name(value.fmt);
            let message = format!("'!' must be followed by BOOL, found {found}.\n");
            return self.fail_range(message, first, self.t);
        }
        let depth = value.depth;
        Ok(Value::boolean(ExprKind::Not(Box::new(value.expr())), depth))
    }

    fn comparison(&mut self, fmt: Fmt) -> Res<Value> {
        let value = self.sum(fmt)?;
        let operator = self.now();
        let op = match operator {
            Tok::Eq => Some(CompareOp::Eq),
            Tok::Neq => Some(CompareOp::Ne),
            Tok::Less => Some(CompareOp::Lt),
            Tok::Leq => Some(CompareOp::Le),
            Tok::Greater => Some(CompareOp::Gt),
            Tok::Geq => Some(CompareOp::Ge),
            Tok::Tilde | Tok::NoMatch => None,
            _ => return Ok(value),
        };
        let equality = matches!(op, Some(CompareOp::Eq | CompareOp::Ne));
        let value = match (value.fmt, op) {
            (Fmt::Int | Fmt::Duration | Fmt::Bytes | Fmt::Real | Fmt::Time, Some(op)) => {
                self.compare_same(value, op)?
            }
            (
                Fmt::Backend | Fmt::Acl | Fmt::Probe | Fmt::Stevedore | Fmt::Sub | Fmt::Bool | Fmt::Ip,
                Some(op),
            ) if equality => self.compare_same(value, op)?,
            (Fmt::Strings, Some(op)) => self.compare_strings(value, op)?,
            (Fmt::Ip, None) => self.match_acl(value)?,
            (Fmt::Strings, None) => self.match_regex(value)?,
            _ => {
                let name = self.type_name(value.fmt);
                let operator = self.text(self.t);
                return self.fail(format!("Operator {operator} not possible on {name}\n"), self.t);
            }
        };
        self.check_depth(value)
    }

    fn different_types<T>(&mut self, left: Fmt, right: Fmt, operator: usize) -> Res<T> {
        let (left, right, text) = (self.type_name(left), self.type_name(right), self.text(operator));
        self.fail(format!("Comparison of different types: {left} '{text}' {right}\n"), operator)
    }

    fn compare_same(&mut self, left: Value, op: CompareOp) -> Res<Value> {
        let operator = self.t;
        self.advance();
        let right = self.sum(left.fmt)?;
        if right.fmt != left.fmt {
            return self.different_types(left.fmt, right.fmt, operator);
        }
        let depth = left.depth.max(right.depth);
        Ok(Value::boolean(ExprKind::Compare(op, Box::new(left.expr()), Box::new(right.expr())), depth))
    }

    fn compare_strings(&mut self, left: Value, op: CompareOp) -> Res<Value> {
        let operator = self.t;
        self.advance();
        let right = self.sum(Fmt::Strings)?;
        if right.fmt != Fmt::Strings {
            return self.different_types(left.fmt, right.fmt, operator);
        }
        let depth = left.depth.max(right.depth);
        // If one side is a concatenation, an undefined string equals an empty one.
        let joined = left.parts() != 1 || right.parts() != 1;
        let side = |value: Value| match value.content {
            Content::Parts(parts) if joined => Expr { ty: Type::String, kind: ExprKind::Concat(parts) },
            _ => value.expr(),
        };
        Ok(Value::boolean(ExprKind::Compare(op, Box::new(side(left)), Box::new(side(right))), depth))
    }

    fn match_regex(&mut self, subject: Value) -> Res<Value> {
        let negated = self.now() == Tok::NoMatch;
        self.advance();
        let first = self.t;
        let regex = self.postfix(Fmt::Regex)?;
        self.type_check(&regex, Fmt::Regex, first)?;
        let depth = subject.depth.max(regex.depth);
        let (subject, regex) = (Box::new(subject.expr()), Box::new(regex.expr()));
        Ok(Value::boolean(ExprKind::Match { subject, regex, negated }, depth))
    }

    fn match_acl(&mut self, ip: Value) -> Res<Value> {
        let negated = self.now() == Tok::NoMatch;
        self.advance();
        let first = self.t;
        let acl = self.postfix(Fmt::Acl)?;
        self.type_check(&acl, Fmt::Acl, first)?;
        let depth = ip.depth.max(acl.depth);
        let (ip, acl) = (Box::new(ip.expr()), Box::new(acl.expr()));
        Ok(Value::boolean(ExprKind::AclMatch { ip, acl, negated }, depth))
    }

    fn sum(&mut self, fmt: Fmt) -> Res<Value> {
        let mut left = self.product(fmt)?;
        while matches!(self.now(), Tok::Plus | Tok::Minus) {
            let operator = self.t;
            let op = if self.now() == Tok::Plus { ArithOp::Add } else { ArithOp::Sub };
            let addable = left.fmt.is_integral() || left.fmt.is_float();
            self.advance();
            let wanted = if !addable && fmt == Fmt::Strings { Fmt::Strings } else { left.fmt };
            let right = self.product(wanted)?;
            left = if let Some(result) = sum_type(op, left.fmt, right.fmt) {
                arithmetic(op, result, left, right)
            } else if op == ArithOp::Add && (left.fmt == Fmt::Strings || fmt == Fmt::Strings) {
                self.concatenate(left, right)?
            } else {
                let (a, b) = (self.type_name(left.fmt), self.type_name(right.fmt));
                let message = format!("{a} {} {b} not possible.\n", self.text(operator));
                return self.fail_range(message, operator, self.t);
            };
            left = self.check_depth(left)?;
        }
        Ok(left)
    }

    fn concatenate(&mut self, left: Value, right: Value) -> Res<Value> {
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

    fn product(&mut self, fmt: Fmt) -> Res<Value> {
        let mut left = self.postfix(fmt)?;
        while let Some(op) = match self.now() {
            Tok::Star => Some(ArithOp::Mul),
            Tok::Slash => Some(ArithOp::Div),
            Tok::Percent => Some(ArithOp::Mod),
            _ => None,
        } {
            let operator = self.t;
            if op == ArithOp::Mod && left.fmt != Fmt::Int {
                return self.fail("Operator % only possible on INT.\n", operator);
            }
            let Some(factor) = left.fmt.factor() else {
                let name = self.type_name(left.fmt);
                let message = format!("Operator {} not possible on type {name}.\n", self.text(operator));
                return self.fail(message, operator);
            };
            self.advance();
            let right = self.postfix(factor)?;
            if right.fmt != Fmt::Int && right.fmt != factor {
                let (a, b) = (self.type_name(left.fmt), self.type_name(right.fmt));
                let message = format!("{a} {} {b} not possible.\n", self.text(operator));
                return self.fail(message, operator);
            }
            let of_whole = matches!(left.fmt, Fmt::Int | Fmt::Bytes) && right.fmt == Fmt::Int;
            if of_whole && op != ArithOp::Mul && matches!(right.content, Content::One(ExprKind::Int(0))) {
                return self.fail("Division by zero.\n", operator);
            }
            let result = left.fmt;
            left = self.check_depth(arithmetic(op, result, left, right))?;
        }
        Ok(left)
    }
}

/// Returns the type of a sum or difference, or `None` if the types cannot be combined.
fn sum_type(op: ArithOp, left: Fmt, right: Fmt) -> Option<Fmt> {
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
fn arithmetic(op: ArithOp, result: Fmt, left: Value, right: Value) -> Value {
    let depth = left.depth.max(right.depth) + 2;
    let floating = left.fmt.is_float() || right.fmt.is_float();
    let operand = |value: Value| match (floating, value.fmt) {
        (true, fmt) if fmt.is_integral() => convert(value.expr(), Type::Real),
        (false, fmt) if fmt != result => convert(value.expr(), result.ty()),
        _ => value.expr(),
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

fn convert(expr: Expr, ty: Type) -> Expr {
    match (expr.kind, ty) {
        (ExprKind::Int(number), Type::Real) => Expr { ty, kind: ExprKind::Real(number as f64) },
        (ExprKind::Int(number), Type::Bytes) => Expr { ty, kind: ExprKind::Int(number) },
        (kind, _) => Expr { ty, kind: ExprKind::Convert(Box::new(Expr { ty: expr.ty, kind })) },
    }
}
