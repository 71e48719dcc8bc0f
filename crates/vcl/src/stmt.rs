//! Statements: blocks, conditions, and actions.

use crate::compiler::{Compiler, Mention, Mode, Res, Stop};
use crate::lexer::Tok;
use crate::program::{At, Expr, ExprKind, Return, SetOp, Stmt};
use crate::returns_table::allowed_in;
use crate::symbols::{Action, Fmt, Kind, Meaning, SymbolId, TokenId, UseKind};
use crate::types::{self, Type};
use crate::value::join;

impl Compiler<'_> {
    fn trace_point(&mut self, out: &mut Vec<Stmt>) {
        self.trace_points += 1;
        out.push(Stmt::Trace { at: self.at(self.t), number: self.trace_points });
    }

    /// Parses `{ statements }`.
    pub fn compound(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        self.enter()?;
        let level = self.nesting;
        self.skip(Tok::LBrace)?;
        self.trace_point(out);
        loop {
            let start = self.t;
            match self.now() {
                Tok::RBrace => {
                    self.advance();
                    self.leave();
                    return Ok(());
                }
                Tok::Eoi => {
                    return self.fail_unplaced("End of input while in compound statement\n", self.t);
                }
                _ => {}
            }
            if self.statement(out).is_err() {
                if !self.recover(start) {
                    return Err(Stop);
                }
                self.nesting = level;
            }
        }
    }

    /// Skips a faulty statement up to the next one in this block, if the caller wants further errors.
    fn recover(&mut self, start: TokenId) -> bool {
        if self.report.errors() + 1 >= self.input.options.max_errors {
            return false;
        }
        let mut depth = 0_u32;
        let mut token = start;
        let next = loop {
            match self.kind(token) {
                Tok::Eoi => return false,
                Tok::LBrace => depth += 1,
                Tok::RBrace if depth == 0 => break token,
                Tok::RBrace => {
                    depth -= 1;
                    if depth == 0 && !self.continues_condition(token + 1) {
                        break token + 1;
                    }
                }
                Tok::Semi if depth == 0 => break token + 1,
                _ => {}
            }
            token += 1;
        };
        // If the statement consumed the rest of its block, another error caused this one.
        if next <= start {
            return false;
        }
        self.finish_error();
        self.t = next;
        true
    }

    /// Returns whether a token after a block belongs to the condition before that block.
    fn continues_condition(&self, token: TokenId) -> bool {
        self.kind(token) == Tok::Id && matches!(self.text(token), "else" | "elseif" | "elsif" | "elif")
    }

    pub fn inline_c(&mut self) -> Res<()> {
        self.hint(
            "Lacquer compiles VCL without a C compiler; use a module (std, var, str, header, digest, ...) \
             for what the C code does",
        );
        self.fail("Inline-C not allowed\n", self.t)
    }

    fn statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        let start = self.t;
        match self.now() {
            Tok::LBrace => self.compound(out),
            Tok::Csrc => self.inline_c(),
            Tok::Id => match self.some_symbol(Kind::None, Mode::Partial, Mention::Nothing) {
                Ok(symbol) => self.symbol_statement(symbol, start, out),
                Err(Stop) => self.fail("Symbol not found.\n", self.t),
            },
            _ => self.fail("Expected an action, 'if', '{' or '}'\n", start),
        }
    }

    fn symbol_statement(&mut self, symbol: SymbolId, start: TokenId, out: &mut Vec<Stmt>) -> Res<()> {
        let entry = &self.symbols.list[symbol];
        let kind = entry.kind;
        match entry.meaning.clone() {
            Meaning::Action(action) => {
                if entry.access.action != 0 {
                    self.note_use(start, None, symbol, UseKind::Action);
                }
                self.action(action, self.at(start), out)
            }
            Meaning::Function(callable) => {
                let call = match self.call(&callable, symbol, None) {
                    Ok(call) => call,
                    Err(Stop) => {
                        if self.t != start {
                            self.add_text("While compiling function call:\n\n");
                            self.show_range(Some(start), self.t);
                        }
                        return Err(Stop);
                    }
                };
                self.skip(Tok::Semi)?;
                out.push(Stmt::Do { at: self.at(start), call });
                Ok(())
            }
            Meaning::Method => {
                let _ = self.method_without_object(start);
                self.add_text("While compiling function call:\n\n");
                self.show_range(Some(start), self.t);
                Err(Stop)
            }
            Meaning::Global(_) if kind == Kind::Instance => {
                self.want(Tok::Dot)?;
                self.t = start;
                let fmt = self.symbols.list[symbol].fmt;
                let value = self.postfix(fmt)?;
                self.skip(Tok::Semi)?;
                let call = self.value_expr(value)?;
                out.push(Stmt::Do { at: self.at(start), call });
                Ok(())
            }
            _ => self.fail("Symbol cannot be used here.\n", self.t),
        }
    }

    fn action(&mut self, action: Action, at: At, out: &mut Vec<Stmt>) -> Res<()> {
        match action {
            Action::If => self.if_statement(out),
            Action::Call => self.call_statement(at, out),
            Action::Set => self.set_statement(at, out),
            Action::Unset => self.unset_statement(at, out),
            Action::Return => self.return_statement(at, out),
            Action::New => self.new_statement(at, out),
            Action::Ban => {
                let value = self.parenthesised(Fmt::String)?;
                out.push(Stmt::Ban { at, value });
                Ok(())
            }
            Action::HashData => {
                let value = self.parenthesised(Fmt::Strands)?;
                out.push(Stmt::HashData { at, value });
                Ok(())
            }
            Action::Synthetic => {
                let value = self.parenthesised(Fmt::Strands)?;
                out.push(Stmt::Synthetic { at, value });
                Ok(())
            }
        }
    }

    fn parenthesised(&mut self, fmt: Fmt) -> Res<Expr> {
        self.skip(Tok::LParen)?;
        let value = self.expression(fmt)?;
        self.skip(Tok::RParen)?;
        self.skip(Tok::Semi)?;
        Ok(value)
    }

    fn condition(&mut self) -> Res<Expr> {
        self.skip(Tok::LParen)?;
        let value = self.expression(Fmt::Bool);
        if self.now() == Tok::Assign {
            self.hint(crate::hints::ASSIGNMENT_IN_CONDITION);
        }
        let value = value?;
        self.skip(Tok::RParen)?;
        Ok(value)
    }

    fn block(&mut self) -> Res<Vec<Stmt>> {
        let mut body = Vec::new();
        self.compound(&mut body)?;
        Ok(body)
    }

    fn if_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        let mut arms = vec![(self.condition()?, self.block()?)];
        while self.continues_condition(self.t) {
            if self.is_word(self.t, "else") {
                self.advance();
                if self.now() == Tok::LBrace {
                    let otherwise = self.block()?;
                    out.push(Stmt::If { arms, otherwise });
                    return Ok(());
                }
                if !self.is_word(self.t, "if") {
                    return self.fail("'else' must be followed by 'if' or '{'\n", self.t);
                }
            }
            self.advance();
            arms.push((self.condition()?, self.block()?));
        }
        out.push(Stmt::If { arms, otherwise: Vec::new() });
        self.trace_point(out);
        Ok(())
    }

    fn call_statement(&mut self, at: At, out: &mut Vec<Stmt>) -> Res<()> {
        self.want(Tok::Id)?;
        let first = self.t;
        let known = self.symbol(Kind::None, Mode::PartialQuiet, Mention::Reference)?;
        let symbol = match known {
            Some(symbol) => symbol,
            None => {
                let symbol = self.some_symbol(Kind::Sub, Mode::Create, Mention::Reference)?;
                self.globalize(symbol, Fmt::Sub);
                symbol
            }
        };
        if self.symbols.list[symbol].kind == Kind::Sub {
            if let Some(current) = self.subs.current {
                self.subs.procs[current].calls.push((symbol, first));
            }
            self.skip(Tok::Semi)?;
            out.push(Stmt::CallSub { at, sub: self.global_index(symbol) });
            return Ok(());
        }
        self.t = first;
        // Varnish checks for the end of the statement even after an error.
        let sub = self.expression(Fmt::Sub);
        self.skip(Tok::Semi)?;
        out.push(Stmt::CallDynamic { at, sub: sub? });
        Ok(())
    }

    fn set_statement(&mut self, at: At, out: &mut Vec<Stmt>) -> Res<()> {
        self.want(Tok::Id)?;
        let first = self.t;
        let symbol = self.some_symbol(Kind::Var, Mode::Existing, Mention::Nothing)?;
        self.note_use(first, Some(self.t), symbol, UseKind::Write);
        let fmt = self.symbols.list[symbol].fmt;
        let op = match (fmt, self.now()) {
            (_, Tok::Assign) => Some(SetOp::Assign),
            (Fmt::Int | Fmt::Time | Fmt::Duration | Fmt::String | Fmt::Header | Fmt::Body, Tok::Incr) => {
                Some(SetOp::Add)
            }
            (Fmt::Int | Fmt::Time | Fmt::Duration, Tok::Decr) => Some(SetOp::Sub),
            (Fmt::Int | Fmt::Time | Fmt::Duration, Tok::Mul) => Some(SetOp::Mul),
            (Fmt::Int | Fmt::Time | Fmt::Duration, Tok::Div) => Some(SetOp::Div),
            _ => None,
        };
        let Some(op) = op else { return self.skip(Tok::Assign) };
        self.advance();
        let wanted = match (fmt, op) {
            (Fmt::Time, SetOp::Add | SetOp::Sub) => Fmt::Duration,
            (Fmt::Time | Fmt::Duration, SetOp::Mul | SetOp::Div) => Fmt::Real,
            (Fmt::String | Fmt::Header, _) => Fmt::Strands,
            (fmt, _) => fmt,
        };
        let value = self.expression(wanted)?;
        self.skip(Tok::Semi)?;
        out.push(self.assignment(at, symbol, op, value)?);
        Ok(())
    }

    fn assignment(&mut self, at: At, symbol: SymbolId, op: SetOp, value: Expr) -> Res<Stmt> {
        let fmt = self.symbols.list[symbol].fmt;
        let target = match self.symbols.list[symbol].meaning {
            Meaning::Header(http, header) => {
                let mut parts = strands(value);
                if op == SetOp::Add {
                    parts.insert(0, Expr { ty: Type::String, kind: ExprKind::Header(http, header) });
                }
                return Ok(Stmt::SetHeader { at, http, header, value: join(parts) });
            }
            Meaning::Var(target) => target,
            // Other variables cannot be written anywhere, which the check of uses reports.
            _ => return Ok(Stmt::Return { at, how: Return::Fail(None) }),
        };
        Ok(match fmt {
            Fmt::Body => Stmt::SetBody { at, target, op, value },
            Fmt::String => Stmt::Set { at, target, op, value: join(strands(value)) },
            _ => Stmt::Set { at, target, op, value },
        })
    }

    fn unset_statement(&mut self, at: At, out: &mut Vec<Stmt>) -> Res<()> {
        self.want(Tok::Id)?;
        let first = self.t;
        let symbol = self.some_symbol(Kind::Var, Mode::Existing, Mention::Nothing)?;
        if self.symbols.list[symbol].access.unset == 0 {
            self.show_range(Some(first), self.t);
            self.add_text("Variable cannot be unset.\n");
            return Err(Stop);
        }
        self.note_use(first, Some(self.t), symbol, UseKind::Unset);
        self.skip(Tok::Semi)?;
        match self.symbols.list[symbol].meaning {
            Meaning::Header(http, header) => out.push(Stmt::UnsetHeader { at, http, header }),
            Meaning::Var(target) => out.push(Stmt::Unset { at, target }),
            _ => {}
        }
        Ok(())
    }

    fn return_statement(&mut self, at: At, out: &mut Vec<Stmt>) -> Res<()> {
        let Some(current) = self.subs.current else { return Err(Stop) };
        if self.now() == Tok::Semi && self.subs.procs[current].method.is_none() {
            self.advance();
            out.push(Stmt::Return { at, how: Return::FromSub });
            return Ok(());
        }
        self.skip(Tok::LParen)?;
        self.want(Tok::Id)?;
        let word = self.text(self.t);
        let Some(action) = types::Action::ALL.into_iter().find(|a| a.name() == word) else {
            let method = self.subs.procs[current].method;
            if let Some(hint) = crate::hints::for_unknown_return(word, method) {
                self.hint(hint);
            }
            return self.fail("Expected return action name.\n", self.t);
        };
        let proc = &mut self.subs.procs[current];
        proc.returns |= 1 << action as u32;
        proc.allowed &= allowed_in(action);
        proc.return_tokens[action as usize].get_or_insert(self.t);
        self.advance();
        let how = self.return_arguments(action)?;
        self.skip(Tok::RParen)?;
        self.skip(Tok::Semi)?;
        out.push(Stmt::Return { at, how });
        Ok(())
    }

    fn return_arguments(&mut self, action: types::Action) -> Res<Return> {
        use types::Action as A;
        if self.now() != Tok::LParen {
            return match action {
                A::Synth | A::Vcl => self.fail("Missing argument.\n", self.t),
                A::Fail => Ok(Return::Fail(None)),
                action => Ok(Return::Plain(action)),
            };
        }
        if !matches!(action, A::Synth | A::Error | A::Vcl | A::Pass | A::Fail) {
            return self.fail("Arguments not allowed.\n", self.t);
        }
        self.advance();
        let how = match action {
            A::Synth | A::Error => {
                let status = self.expression(Fmt::Int)?;
                let mut reason = None;
                if self.now() == Tok::Comma {
                    self.advance();
                    reason = Some(self.expression(Fmt::String)?);
                }
                Return::Status { action, status, reason }
            }
            A::Pass => Return::PassFor(self.expression(Fmt::Duration)?),
            A::Fail => Return::Fail(Some(self.expression(Fmt::String)?)),
            _ => Return::Vcl(self.label()?),
        };
        self.skip(Tok::RParen)?;
        Ok(how)
    }

    fn label(&mut self) -> Res<u32> {
        self.want(Tok::Id)?;
        let symbol = self.some_symbol(Kind::Vcl, Mode::Existing, Mention::Nothing)?;
        let name = self.symbols.name(symbol).to_owned();
        if let Some(index) = self.program.labels.iter().position(|l| *l == name) {
            return Ok(index as u32);
        }
        self.program.labels.push(name);
        Ok(self.program.labels.len() as u32 - 1)
    }
}

/// Returns the parts of a STRANDS value.
fn strands(value: Expr) -> Vec<Expr> {
    match value.kind {
        ExprKind::Concat(parts) => parts,
        kind => vec![Expr { ty: Type::String, kind }],
    }
}
