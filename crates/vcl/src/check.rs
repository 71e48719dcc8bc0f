//! Checks that need the whole program: names are defined and used, returns are allowed, variables are available,
//! and no subroutine recurses.
//!
//! Each walk follows calls from a root with an explicit stack, so that long chains need no recursion. A
//! subroutine is checked once for each root.

use crate::compiler::Compiler;
use crate::returns_table::returns_of;
use crate::symbols::{Kind, SymbolId, Use, UseKind};
use crate::types::{Action, Method};
use std::fmt::Write as _;

/// One subroutine in a chain of calls.
struct Frame {
    proc: usize,
    next_call: usize,
}

/// A walk found an error. The stack still contains the calls that lead to it.
struct Found;

impl Compiler<'_> {
    /// Runs all checks, in the order in which their errors must appear.
    pub fn check_program(&mut self) {
        // After an error, some text was not parsed. It may define and use names that would seem to be missing.
        let whole = self.report.errors() == 0;
        let checks: [(fn(&mut Self), bool); 5] = [
            (Self::check_references, false),
            (Self::check_returns, false),
            (Self::check_uses, false),
            (Self::check_default_backend, true),
            (Self::report_late_error, true),
        ];
        for (check, _) in checks.iter().filter(|(_, wants_whole)| whole || !wants_whole) {
            check(self);
            if self.enough() {
                return;
            }
        }
    }

    fn enough(&self) -> bool {
        self.report.errors() >= self.input.options.max_errors
    }

    fn check_references(&mut self) {
        let whole = self.report.errors() == 0;
        for symbol in self.symbols.walk() {
            let entry = &self.symbols.list[symbol];
            if entry.mentions.may_be_unused || self.enough() {
                continue;
            }
            let kind = entry.kind.name();
            match (
                entry.mentions.definitions,
                entry.mentions.references,
                entry.mentions.defined,
                entry.mentions.referenced,
            ) {
                (0, 1.., _, Some(token)) => {
                    let name = self.text(token);
                    let near = self.near_global(symbol);
                    // A similar name suggests that the definition is not in text that was not parsed.
                    if !whole && near.is_none() {
                        continue;
                    }
                    self.add_text(format!("Undefined {kind} {name}, first reference:\n"));
                    self.show(token);
                    if let Some(near) = near {
                        self.hint(format!("did you mean '{near}'?"));
                    }
                    self.finish_error();
                }
                (1.., 0, Some(token), _) if whole => {
                    let name = self.text(token);
                    self.add_text(format!("Unused {kind} {name}, defined:\n"));
                    self.show(token);
                    if self.input.options.err_unref {
                        self.hint("remove it, use it, or set the parameter vcc_feature to -err_unref");
                        self.finish_error();
                    } else {
                        self.finish_warning();
                    }
                }
                _ => {}
            }
        }
    }

    fn near_global(&self, symbol: SymbolId) -> Option<String> {
        let kind = self.symbols.list[symbol].kind;
        let defined = (0..self.symbols.list.len())
            .filter(|s| self.symbols.list[*s].kind == kind && self.symbols.list[*s].mentions.definitions > 0);
        let names = defined.map(|s| self.symbols.name(s));
        lacquer_params::nearest(self.symbols.name(symbol), names).map(str::to_owned)
    }

    fn subs_by_name(&self) -> Vec<usize> {
        let subs = self.symbols.walk().into_iter().filter(|s| self.symbols.list[*s].kind == Kind::Sub);
        let procs = subs.map(|s| self.global_index(s) as usize);
        procs.filter(|p| self.subs.procs.get(*p).is_some_and(|p| p.name.is_some())).collect()
    }

    fn proc_name(&self, proc: usize) -> String {
        self.subs.procs[proc].name.map_or_else(String::new, |token| self.text(token).to_owned())
    }

    fn show_name(&mut self, proc: usize) {
        if let Some(name) = self.subs.procs[proc].name {
            self.show(name);
        }
    }

    /// Walks the calls from a root. `enter` checks a subroutine when it is first reached. Subroutines in `seen`
    /// are valid. On the way back, callers inherit the limits of their callees.
    fn descend(
        &mut self,
        root: usize,
        seen: &mut [bool],
        mut enter: impl FnMut(&mut Self, usize) -> Result<(), Found>,
    ) -> Result<(), (Found, Vec<Frame>)> {
        let mut stack = vec![Frame { proc: root, next_call: 0 }];
        if let Err(found) = enter(self, root) {
            return Err((found, stack));
        }
        self.subs.procs[root].active = true;
        while let Some(frame) = stack.last_mut() {
            let proc = frame.proc;
            if let Some((symbol, _)) = self.subs.procs[proc].calls.get(frame.next_call).copied() {
                frame.next_call += 1;
                let callee = self.global_index(symbol) as usize;
                if self.subs.procs[callee].active {
                    self.add_text("Subroutine recurses on\n");
                    self.show_name(callee);
                    return Err((Found, stack));
                }
                if seen[callee] {
                    self.subs.procs[proc].allowed &= self.subs.procs[callee].allowed;
                    continue;
                }
                if let Err(found) = enter(self, callee) {
                    return Err((found, stack));
                }
                self.subs.procs[callee].active = true;
                stack.push(Frame { proc: callee, next_call: 0 });
            } else {
                seen[proc] = true;
                self.subs.procs[proc].active = false;
                stack.pop();
                if let Some(caller) = stack.last() {
                    self.subs.procs[caller.proc].allowed &= self.subs.procs[proc].allowed;
                }
            }
        }
        Ok(())
    }

    /// Appends the calls that led to an error to the report, innermost first.
    fn add_calls(&mut self, stack: Vec<Frame>) {
        for frame in stack.into_iter().rev() {
            self.subs.procs[frame.proc].active = false;
            let Some((_, token)) =
                frame.next_call.checked_sub(1).map(|i| self.subs.procs[frame.proc].calls[i])
            else {
                continue;
            };
            let name = self.proc_name(frame.proc);
            self.add_text(format!("\n...called from \"{name}\"\n"));
            self.show(token);
        }
    }

    fn check_returns(&mut self) {
        let mut seen_anyhow = vec![false; self.subs.procs.len()];
        for root in self.subs_by_name() {
            if self.enough() {
                return;
            }
            let Some(method) = self.subs.procs[root].method else {
                if seen_anyhow[root] {
                    continue;
                }
                if let Err((Found, stack)) = self.descend(root, &mut seen_anyhow, |_, _| Ok(())) {
                    self.add_calls(stack);
                    self.finish_error();
                }
                continue;
            };
            let mut seen = vec![false; self.subs.procs.len()];
            let legal = returns_of(method);
            let walked = self.descend(root, &mut seen, |this, proc| {
                this.subs.procs[proc].called_from |= 1 << method as u32;
                this.check_returns_of(proc, legal)
            });
            if let Err((Found, stack)) = walked {
                self.add_calls(stack);
                let mut text =
                    format!("\n...which is the \"{}\" subroutine\nLegal returns are:", method.sub_name());
                for action in Action::ALL.into_iter().filter(|a| legal & 1 << *a as u32 != 0) {
                    let _ = write!(text, " \"{}\"", action.name());
                }
                text.push('\n');
                self.add_text(text);
                self.finish_error();
            }
        }
    }

    fn check_returns_of(&mut self, proc: usize, legal: u32) -> Result<(), Found> {
        let illegal = self.subs.procs[proc].returns & !legal;
        if illegal == 0 {
            return Ok(());
        }
        for action in Action::ALL.into_iter().filter(|a| illegal & 1 << *a as u32 != 0) {
            self.add_text(format!("Invalid return \"{}\"\n", action.name()));
            if let Some(token) = self.subs.procs[proc].return_tokens[action as usize] {
                self.show(token);
            }
            if let Some(hint) = crate::hints::for_illegal_return(action, legal) {
                self.hint(hint);
            }
        }
        let name = self.proc_name(proc);
        self.add_text(format!("\n...in subroutine \"{name}\"\n"));
        self.show_name(proc);
        Err(Found)
    }

    fn check_uses(&mut self) {
        for proc in 0..self.subs.procs.len() {
            let limit = self.subs.procs[proc].uses.iter().fold(u32::MAX, |mask, u| mask & u.mask);
            self.subs.procs[proc].allowed &= limit;
        }
        let mut seen_anyhow = vec![false; self.subs.procs.len()];
        for root in self.subs_by_name() {
            if self.enough() {
                return;
            }
            let Some(method) = self.subs.procs[root].method else {
                if !seen_anyhow[root] {
                    let _ = self.descend(root, &mut seen_anyhow, |_, _| Ok(()));
                }
                continue;
            };
            match self.illegal_use(root, method) {
                UseCheck::Allowed => {}
                UseCheck::Reported => {
                    self.finish_error();
                    continue;
                }
                UseCheck::Illegal(illegal) => {
                    self.hint_places(&illegal, method);
                    self.show_range(Some(illegal.first), illegal.end);
                    let (what, name) = (illegal.what.error_text(), self.proc_name(root));
                    self.add_text(format!("{what} in subroutine '{name}'.\nAt: "));
                    self.finish_error();
                    continue;
                }
            }
            let mut seen = vec![false; self.subs.procs.len()];
            let walked = self.descend(root, &mut seen, |this, proc| this.check_uses_of(proc, root, method));
            if let Err((Found, stack)) = walked {
                self.add_calls(stack);
                self.add_text(format!("\n...which is the \"{}\" subroutine\n", method.sub_name()));
                self.finish_error();
            }
        }
        self.check_possible();
    }

    fn check_uses_of(&mut self, proc: usize, root: usize, method: Method) -> Result<(), Found> {
        if proc == root {
            return Ok(());
        }
        match self.illegal_use(proc, method) {
            UseCheck::Allowed => Ok(()),
            UseCheck::Reported => Err(Found),
            UseCheck::Illegal(illegal) => {
                self.hint_places(&illegal, method);
                self.show_range(Some(illegal.first), illegal.end);
                let what = illegal.what.error_text();
                self.add_text(format!("{what} from subroutine '{}'.\n", method.sub_name()));
                let name = self.proc_name(proc);
                self.add_text(format!("\n...in subroutine \"{name}\"\n"));
                self.show_name(proc);
                Err(Found)
            }
        }
    }

    fn illegal_use(&mut self, proc: usize, method: Method) -> UseCheck {
        let here = 1 << method as u32;
        let uses = &self.subs.procs[proc].uses;
        let Some(mut illegal) = uses.iter().copied().find(|u| u.mask & here == 0) else {
            return UseCheck::Allowed;
        };
        if illegal.mask == 0 && illegal.what == UseKind::Write {
            let text = if illegal.readable == 0 {
                "Variable cannot be set.\n"
            } else if illegal.readable & here == 0 {
                illegal.what = UseKind::Read;
                return UseCheck::Illegal(illegal);
            } else {
                "Variable is read only.\n"
            };
            let name = self.joined(illegal.first, illegal.end);
            self.hint(crate::hints::for_read_only(&name));
            self.show_range(Some(illegal.first), illegal.end);
            self.add_text(text);
            return UseCheck::Reported;
        }
        UseCheck::Illegal(illegal)
    }

    /// Adds the hint where a variable or an action that a method does not allow is allowed.
    fn hint_places(&mut self, illegal: &Use, method: Method) {
        let name = self.joined(illegal.first, illegal.end);
        if let Some(hint) = crate::hints::for_illegal_use(&name, illegal.what, illegal.mask, method) {
            self.hint(hint);
        }
    }

    /// Checks that subroutines without a static call are allowed in at least one method.
    fn check_possible(&mut self) {
        for proc in self.subs_by_name() {
            if self.enough() || self.report.errors() > 0 {
                return;
            }
            if self.subs.procs[proc].allowed == 0 {
                self.add_text("Impossible Subroutine");
                self.show_name(proc);
                self.hint("no method allows all that it uses, so it cannot be called");
                self.finish_error();
            }
        }
    }

    fn report_late_error(&mut self) {
        if let Some((message, first, end)) = self.report.take_late_error() {
            self.add_text(message);
            self.show_range(Some(first), end);
            self.finish_error();
        }
    }

    fn check_default_backend(&mut self) {
        if self.program.origins.default_backend.is_none() {
            let message = "No backends or directors found in VCL program, at least one is necessary.\n";
            self.add_text(message);
            self.hint("`backend default none;` is enough if all backends come from modules");
            self.finish_error();
        }
    }
}

enum UseCheck {
    Allowed,
    /// The report is complete.
    Reported,
    Illegal(Use),
}
