//! Declarations: everything at the top level.

use super::parser::Fault;
use super::parser::{Lead, Parser, Res};
use lacquer_vcl::tokens::Tok;

/// Maximum width of a declaration on one line.
const WIDTH: usize = 100;

const EXPECTED: &str = "a declaration is expected here: vcl, import, include, backend, probe, acl or sub";

impl Parser<'_> {
    /// Parses a whole text.
    pub fn file(&mut self) -> Res {
        let mut after_block = false;
        while self.now() != Tok::Eoi {
            let start = self.at();
            let has_block = self.declaration()?;
            self.places[start].gap = start > 0 && (after_block || has_block);
            after_block = has_block;
        }
        self.take(Lead::Line);
        self.places[self.tokens.len() - 1].gap = false;
        Ok(())
    }

    /// Parses a declaration. Returns whether it has several lines.
    pub fn declaration(&mut self) -> Result<bool, Fault> {
        match self.word() {
            b"vcl" => {
                self.take(Lead::Line);
                self.want(Tok::Fnum, Lead::Space)?;
                self.semicolon()?;
            }
            b"import" => self.import()?,
            b"include" => self.include()?,
            b"acl" => return self.acl(),
            b"backend" | b"probe" => return self.fields_declaration(),
            b"sub" => {
                self.take(Lead::Line);
                self.want(Tok::Id, Lead::Space)?;
                self.block(Lead::Space)?;
                return Ok(true);
            }
            b"director" => self.fail_with_hint(
                EXPECTED,
                "directors are objects now: import directors; in vcl_init: new d = directors.round_robin();",
            )?,
            _ if self.now() == Tok::Csrc => self.expected("a declaration")?,
            _ => self.fail(EXPECTED)?,
        }
        Ok(false)
    }

    fn import(&mut self) -> Res {
        self.take(Lead::Line);
        self.want(Tok::Id, Lead::Space)?;
        if self.word() == b"as" {
            self.take(Lead::Space);
            self.want(Tok::Id, Lead::Space)?;
        }
        if self.word() == b"from" {
            self.take(Lead::Space);
            self.want(Tok::Cstr, Lead::Space)?;
        }
        self.semicolon()
    }

    fn acl(&mut self) -> Result<bool, Fault> {
        let start = self.at();
        self.take(Lead::Line);
        self.want(Tok::Id, Lead::Space)?;
        self.flags()?;
        let one_line = self.fits_on_a_line(start);
        self.open(Lead::Space)?;
        let lead = if one_line { Lead::Space } else { Lead::Line };
        let open = self.at();
        while self.now() != Tok::RBrace {
            if self.word() == b"include" {
                self.include()?;
            } else {
                self.acl_entry(lead)?;
            }
        }
        self.close(open, lead)?;
        Ok(!one_line)
    }

    /// Parses `! "host"/mask;` and `("host"/mask);`.
    fn acl_entry(&mut self, lead: Lead) -> Res {
        let mut lead = lead;
        let mut take = |this: &mut Self, kind: Tok, after: Lead| {
            let found = this.now() == kind;
            if found {
                this.take(lead);
                lead = after;
            }
            found
        };
        take(self, Tok::Bang, Lead::Space);
        let in_parens = take(self, Tok::LParen, Lead::Tight);
        take(self, Tok::Bang, Lead::Space);
        if !take(self, Tok::Cstr, Lead::Tight) {
            return self.expected("an address in quotes");
        }
        if self.now() == Tok::Slash {
            self.take(Lead::Tight);
            self.want(Tok::Cnum, Lead::Tight)?;
        }
        if in_parens {
            self.want(Tok::RParen, Lead::Tight)?;
        }
        self.semicolon()
    }

    /// Parses a backend or a probe.
    fn fields_declaration(&mut self) -> Result<bool, Fault> {
        let start = self.at();
        self.take(Lead::Line);
        self.want(Tok::Id, Lead::Space)?;
        if matches!(self.word(), b"none" | b"None") {
            self.take(Lead::Space);
            self.semicolon()?;
            return Ok(false);
        }
        self.one_line = self.fits_on_a_line(start);
        self.fields()?;
        Ok(!std::mem::take(&mut self.one_line))
    }

    /// Parses `{ .name = value; ... }`.
    fn fields(&mut self) -> Res {
        self.open(Lead::Space)?;
        let open = self.at();
        let lead = if self.one_line { Lead::Space } else { Lead::Line };
        while self.now() != Tok::RBrace {
            if self.word() == b"include" {
                self.include()?;
                continue;
            }
            self.want(Tok::Dot, lead)?;
            self.want(Tok::Id, Lead::Tight)?;
            self.want(Tok::Assign, Lead::Space)?;
            if self.now() == Tok::LBrace {
                self.inline_probe()?;
            } else {
                self.field_value()?;
            }
        }
        self.close(open, lead)
    }

    fn inline_probe(&mut self) -> Res {
        let outer = self.one_line;
        self.one_line |= self.fits_on_a_line(self.at());
        self.fields()?;
        self.one_line = outer;
        if self.now() == Tok::Semi {
            self.take(Lead::Tight);
        }
        Ok(())
    }

    /// Parses the value of a field, which may be several strings.
    fn field_value(&mut self) -> Res {
        let first = self.at();
        loop {
            let after = (self.at() > first).then(|| self.tokens[self.at() - 1].kind);
            let lead = match (after, self.now()) {
                (_, Tok::Semi) if after.is_some() => return self.semicolon(),
                (Some(Tok::Cnum | Tok::Fnum), Tok::Id)
                | (Some(Tok::Dot | Tok::Minus), Tok::Cnum | Tok::Fnum | Tok::Id) => Lead::Tight,
                (_, Tok::Dot) if after == Some(Tok::Id) => Lead::Tight,
                (_, Tok::Cstr | Tok::Cnum | Tok::Fnum | Tok::Id | Tok::Cblob | Tok::Minus | Tok::Plus) => {
                    Lead::SoftSpace
                }
                _ if after.is_none() => return self.expected("a value"),
                _ => return self.expected("`;`"),
            };
            self.take(lead);
        }
    }

    /// Returns whether the author wrote a declaration from this token to the end of its block on one line that is not
    /// too wide. The current token opens the block.
    fn fits_on_a_line(&self, start: usize) -> bool {
        let mut depth = 0_usize;
        let mut width = 4 * self.level;
        let mut end = self.tokens[start].span.start as usize;
        for (token, current) in self.tokens[start..].iter().enumerate().map(|(i, t)| (start + i, t)) {
            let bytes = self.bytes(token);
            let gap = &self.text[end..current.span.start as usize];
            let follows_blank = token > start && has_blank(self.tokens[token - 1].kind, current.kind);
            width += bytes.len() + usize::from(follows_blank);
            let breaks = bytes.contains(&b'\n') || gap.iter().any(|b| matches!(b, b'\n' | b'/' | b'#'));
            if breaks || width > WIDTH || bytes == b"include" {
                return false;
            }
            end = current.span.end as usize;
            match current.kind {
                Tok::LBrace => depth += 1,
                Tok::RBrace if depth <= 1 => return token > start,
                Tok::RBrace => depth -= 1,
                Tok::Eoi => return false,
                _ => {}
            }
        }
        false
    }
}

/// Returns whether a blank separates two tokens of a declaration on one line. This must not depend on the blanks of the
/// text: they differ when the result is formatted again.
fn has_blank(before: Tok, after: Tok) -> bool {
    let is_tight = match (before, after) {
        (Tok::Dot | Tok::LParen | Tok::Slash, _) | (_, Tok::Semi | Tok::RParen | Tok::Slash) => true,
        (before, after) => {
            before == Tok::Id && after == Tok::Dot
                || matches!(before, Tok::Cnum | Tok::Fnum) && after == Tok::Id
        }
    };
    !is_tight
}
