//! Expressions. Their precedence does not matter for the places of tokens.

use super::parser::{Lead, Parser, Res};
use lacquer_vcl::tokens::Tok;

impl Parser<'_> {
    /// Parses operands with operators between them. `lead` is that of the first token.
    pub fn expression(&mut self, lead: Lead) -> Res {
        self.operand(lead)?;
        while matches!(
            self.now(),
            Tok::Cor
                | Tok::Cand
                | Tok::Eq
                | Tok::Neq
                | Tok::Less
                | Tok::Leq
                | Tok::Greater
                | Tok::Geq
                | Tok::Tilde
                | Tok::NoMatch
                | Tok::Plus
                | Tok::Minus
                | Tok::Star
                | Tok::Slash
                | Tok::Percent
        ) {
            self.take(Lead::SoftSpace);
            self.operand(Lead::SoftSpace)?;
        }
        Ok(())
    }

    fn operand(&mut self, lead: Lead) -> Res {
        let mut lead = lead;
        if self.now() == Tok::Bang {
            self.take(lead);
            lead = Lead::Tight;
        }
        if self.now() == Tok::Minus {
            self.take(lead);
            lead = Lead::Tight;
        }
        self.postfix(lead)
    }

    /// Parses a value with its properties and methods.
    pub fn postfix(&mut self, lead: Lead) -> Res {
        match self.now() {
            Tok::LParen => {
                self.take(lead);
                self.open_paren()?;
                self.expression(Lead::SoftTight)?;
                self.close_paren()?;
            }
            Tok::Cnum | Tok::Fnum => {
                self.take(lead);
                if self.now() == Tok::Id {
                    self.take(Lead::Tight);
                }
            }
            Tok::Cstr | Tok::Cblob => self.take(lead),
            Tok::Id => self.name(lead)?,
            _ => return self.expected("a value"),
        }
        self.suffixes()
    }

    /// Parses a name that is called.
    pub fn call(&mut self, lead: Lead) -> Res {
        self.name(lead)?;
        if self.now() != Tok::LParen {
            return self.expected("`(`");
        }
        self.suffixes()
    }

    /// Parses calls and properties.
    fn suffixes(&mut self) -> Res {
        loop {
            match self.now() {
                Tok::LParen => self.arguments()?,
                Tok::Dot => {
                    self.take(Lead::Tight);
                    self.want(Tok::Id, Lead::Tight)?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Parses `a.b.c`; a header may be in quotes.
    pub fn name(&mut self, lead: Lead) -> Res {
        self.want(Tok::Id, lead)?;
        while self.now() == Tok::Dot {
            self.take(Lead::Tight);
            let kind = if self.now() == Tok::Cstr { Tok::Cstr } else { Tok::Id };
            self.want(kind, Lead::Tight)?;
        }
        Ok(())
    }

    /// Parses `(a, name=b)`.
    pub fn arguments(&mut self) -> Res {
        self.take(Lead::Tight);
        self.open_paren()?;
        let mut lead = Lead::SoftTight;
        while self.now() != Tok::RParen || lead == Lead::SoftSpace {
            if self.now() == Tok::Id && self.next() == Tok::Assign {
                self.take(lead);
                self.take(Lead::Tight);
                lead = Lead::Tight;
            }
            self.expression(lead)?;
            lead = Lead::SoftSpace;
            if self.now() != Tok::Comma {
                break;
            }
            self.take(Lead::Tight);
        }
        self.close_paren()
    }

    fn open_paren(&mut self) -> Res {
        self.parens += 1;
        self.check_depth(self.parens)
    }

    fn close_paren(&mut self) -> Res {
        self.parens -= 1;
        self.want(Tok::RParen, Lead::SoftTight)
    }
}
