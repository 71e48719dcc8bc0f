//! Literals in expressions: numbers, durations, sizes, strings, addresses and patterns.

use crate::compiler::{Compiler, Res};
use crate::lexer::Tok;
use crate::program::ExprKind;
use crate::symbols::Fmt;
use crate::text::Text;
use crate::value::Value;

impl Compiler<'_> {
    pub fn number_literal(&mut self, fmt: Fmt, sign: f64) -> Res<Value> {
        if fmt == Fmt::Bytes {
            let bytes = self.bytes_literal()?;
            return Ok(Value::one(Fmt::Bytes, ExprKind::Int(bytes)));
        }
        let token = self.t;
        let number = sign * self.number(token);
        self.advance();
        if self.now() == Tok::Id {
            let unit = self.duration_unit()?;
            return Ok(Value::one(Fmt::Duration, ExprKind::Real(number * unit)));
        }
        if fmt == Fmt::Real || self.kind(token) == Tok::Fnum {
            return Ok(Value::one(Fmt::Real, ExprKind::Real(number)));
        }
        Ok(Value::one(Fmt::Int, ExprKind::Int(number as i64)))
    }

    pub fn string_literal(&mut self, fmt: Fmt) -> Res<Value> {
        let token = self.t;
        let value = match fmt {
            Fmt::Ip => {
                if self.content(token).starts_with(b"/") {
                    let quoted = self.quoted(token);
                    return self.fail(format!("Cannot convert to an IP address: {quoted}"), token);
                }
                let address = self.resolve_one(token)?;
                Value::one(Fmt::Ip, ExprKind::Ip(address.ip(), address.port()))
            }
            Fmt::Regex => Value::one(Fmt::Regex, ExprKind::Regex(self.regex_literal()?)),
            _ => Value { literal: true, ..Value::string(ExprKind::Str(self.content(token).into())) },
        };
        self.advance();
        Ok(Value { start: Some(token), ..value })
    }

    /// Parses a pattern, which may be several literals joined with `+`. The last one remains the current token.
    fn regex_literal(&mut self) -> Res<u32> {
        let first = self.t;
        let mut pattern = Text::from(self.content(first));
        while self.kind(self.t + 1) == Tok::Plus {
            self.advance();
            self.advance();
            self.want(Tok::Cstr)?;
            pattern.0.extend_from_slice(self.content(self.t));
        }
        if let Some(&id) = self.ids.regexes.get(&pattern) {
            return Ok(id);
        }
        if let Err(error) = crate::regex::check(&pattern) {
            return self.fail_range(format!("Regexp compilation error:\n\n{error}\n\n"), first, self.t);
        }
        let id = self.program.regexes.len() as u32;
        self.program.regexes.push(pattern.clone());
        self.ids.regexes.insert(pattern, id);
        Ok(id)
    }
}
