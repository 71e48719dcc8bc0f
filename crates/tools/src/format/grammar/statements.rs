//! Blocks and their statements.

use super::parser::{Lead, Parser, Res};
use lacquer_vcl::tokens::Tok;

impl Parser<'_> {
    /// Parses `{ statements }`.
    pub fn block(&mut self, lead: Lead) -> Res {
        self.open(lead)?;
        let open = self.at();
        while self.now() != Tok::RBrace {
            self.statement()?;
        }
        self.close(open, Lead::Line)
    }

    pub fn open(&mut self, lead: Lead) -> Res {
        self.want(Tok::LBrace, lead)?;
        self.level += 1;
        self.check_depth(self.level)
    }

    /// Parses the end of a block whose first token is `first`.
    pub fn close(&mut self, first: usize, lead: Lead) -> Res {
        self.level -= 1;
        let lead = if first == self.at() { Lead::Tight } else { lead };
        self.want(Tok::RBrace, lead)
    }

    fn statement(&mut self) -> Res {
        match self.word() {
            b"if" => self.if_statement(),
            b"set" => self.set_statement(),
            b"return" => self.return_statement(),
            b"unset" => {
                self.take(Lead::Line);
                self.name(Lead::Space)?;
                self.semicolon()
            }
            b"call" => {
                self.take(Lead::Line);
                self.postfix(Lead::SoftSpace)?;
                self.semicolon()
            }
            b"new" => {
                self.take(Lead::Line);
                self.want(Tok::Id, Lead::Space)?;
                self.want(Tok::Assign, Lead::Space)?;
                self.call(Lead::SoftSpace)?;
                self.semicolon()
            }
            b"include" => self.include(),
            b"" if self.now() == Tok::LBrace => self.block(Lead::Line),
            b"" => self.expected("a statement"),
            _ => {
                self.call(Lead::Line)?;
                self.semicolon()
            }
        }
    }

    fn if_statement(&mut self) -> Res {
        self.take(Lead::Line);
        self.condition()?;
        self.block(Lead::Space)?;
        loop {
            match self.word() {
                b"else" => {
                    self.take(Lead::Space);
                    if self.now() == Tok::LBrace {
                        return self.block(Lead::Space);
                    }
                    if self.word() != b"if" {
                        return self.expected("`if` or `{`");
                    }
                }
                b"elseif" | b"elsif" | b"elif" => {}
                _ => return Ok(()),
            }
            self.take(Lead::Space);
            self.condition()?;
            self.block(Lead::Space)?;
        }
    }

    fn condition(&mut self) -> Res {
        self.want(Tok::LParen, Lead::Space)?;
        self.parens += 1;
        self.expression(Lead::SoftTight)?;
        self.parens -= 1;
        self.want(Tok::RParen, Lead::SoftTight)
    }

    fn set_statement(&mut self) -> Res {
        self.take(Lead::Line);
        self.name(Lead::Space)?;
        match self.now() {
            Tok::Assign | Tok::Incr | Tok::Decr | Tok::Mul | Tok::Div => self.take(Lead::Space),
            _ => return self.expected("`=`"),
        }
        self.expression(Lead::SoftSpace)?;
        self.semicolon()
    }

    fn return_statement(&mut self) -> Res {
        self.take(Lead::Line);
        if self.now() == Tok::Semi {
            return self.semicolon();
        }
        self.want(Tok::LParen, Lead::Space)?;
        self.parens += 1;
        self.want(Tok::Id, Lead::SoftTight)?;
        if self.now() == Tok::LParen {
            self.arguments()?;
        }
        self.parens -= 1;
        self.want(Tok::RParen, Lead::SoftTight)?;
        self.semicolon()
    }
}
