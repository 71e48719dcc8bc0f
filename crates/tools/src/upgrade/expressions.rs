//! Expressions: new names, and `+` between strings that stood beside each other.

use super::context::Context;
use super::rewriter::Rewriter;
use super::variables::{self, New};
use lacquer_vcl::tokens::Tok;

impl Rewriter<'_> {
    /// Writes the tokens of an expression.
    pub fn expression(&mut self, from: usize, to: usize, context: Context) {
        let mut at = from;
        // Whether the token before ends a value, and where the text of the current sum begins.
        let mut after_value = false;
        let mut sum: Option<Sum> = None;
        while at < to {
            let kind = self.kind(at);
            let begins = matches!(kind, Tok::Cstr | Tok::Id | Tok::Cnum | Tok::Fnum);
            if begins && after_value {
                self.join(&mut sum);
            }
            match kind {
                Tok::Id => {
                    self.begin_sum(&mut sum, at, self.is_text(at));
                    let statement = self.out.statement;
                    at = self.name(at, to, context);
                    // A mark before the statement has moved the sum.
                    if let Some(sum) = sum.as_mut() {
                        sum.start += self.out.statement - statement;
                    }
                    after_value = true;
                }
                Tok::Cnum | Tok::Fnum => {
                    self.begin_sum(&mut sum, at, false);
                    self.copy(at);
                    at += 1;
                    // The unit of a duration.
                    if at < to && self.kind(at) == Tok::Id {
                        self.copy(at);
                        at += 1;
                    }
                    after_value = true;
                }
                _ => {
                    if kind == Tok::Cstr {
                        self.begin_sum(&mut sum, at, true);
                    }
                    self.copy(at);
                    after_value = matches!(kind, Tok::Cstr | Tok::RParen);
                    if !after_value {
                        sum = None;
                    }
                    at += 1;
                }
            }
        }
    }

    /// Writes an expression without the white space before it.
    pub fn expression_without_gap(&mut self, from: usize, to: usize, context: Context) {
        let (mut start, statement) = (self.out.text.len(), self.out.statement);
        self.expression(from, to, context);
        start += self.out.statement - statement;
        let blank = self.out.text[start..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.out.text.drain(start..start + blank);
    }

    fn begin_sum(&self, sum: &mut Option<Sum>, at: usize, is_text: bool) {
        if sum.is_none() {
            *sum = Some(Sum { start: self.out.text.len() + self.gap(at).len(), is_text });
        }
    }

    /// Writes the operator between two values. A sum that begins with a number would be one of numbers.
    fn join(&mut self, sum: &mut Option<Sum>) {
        if let Some(sum) = sum.as_mut().filter(|sum| !sum.is_text) {
            let empty = b"\"\" + ";
            self.out.text.splice(sum.start..sum.start, empty.iter().copied());
            sum.is_text = true;
        }
        self.write(" +");
    }

    /// Returns whether a name is that of a text: a header, a URL or a replacement.
    fn is_text(&self, at: usize) -> bool {
        matches!(self.word(at), "regsub" | "regsuball")
            || self.kind(at + 1) == Tok::Dot && matches!(self.word(at + 2), "http" | "url")
    }

    /// Returns a name with dots, and the index after it.
    pub fn whole_name(&self, at: usize) -> (String, usize) {
        let mut name = self.word(at).to_owned();
        let mut end = at + 1;
        while self.kind(end) == Tok::Dot && self.kind(end + 1) == Tok::Id {
            name.push('.');
            name.push_str(self.word(end + 1));
            end += 2;
        }
        (name, end)
    }

    /// Writes a name, and returns the index after it. A call is written with its arguments.
    fn name(&mut self, at: usize, to: usize, context: Context) -> usize {
        let (name, end) = self.whole_name(at);
        let end = end.min(to);
        if self.kind(end) == Tok::LParen && end < to {
            for token in at..=end {
                self.copy(token);
            }
            let close = self.ends.get(&end).copied().unwrap_or(end).min(to);
            self.expression(end + 1, close, context);
            if close < to {
                self.copy(close);
            }
            return close + 1;
        }
        if let Some(choice) = self.directors.get(&name).map(|found| found.choice(context.is_backend())) {
            self.replace(at, choice.as_bytes());
            return end;
        }
        self.mark_removed_header(&name, context);
        match variables::value(&name, context, self.may_have_lifetime(at)) {
            New::Name(new) => self.replace(at, new.as_bytes()),
            New::With(module, new) => {
                self.import(module);
                self.replace(at, new.as_bytes());
            }
            New::Gone(why) => {
                self.replace(at, name.as_bytes());
                self.mark(why);
            }
        }
        end
    }
}

/// Values that are added.
struct Sum {
    /// The offset of its text.
    start: usize,
    /// Whether its first value is a text.
    is_text: bool,
}
