//! The position in the tokens, and the places that were decided.

use lacquer_vcl::tokens::{Tok, Token};

/// Maximum depth of blocks and parentheses, as in the compiler of most programs.
const MAX_DEPTH: usize = 200;

/// How a token is separated from the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// Begins a line.
    Line,
    Space,
    Tight,
    /// As `Space`, but a line break of the author remains.
    SoftSpace,
    /// As `Tight`, but a line break of the author remains.
    SoftTight,
}

#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub lead: Lead,
    /// The depth of the block.
    pub level: usize,
    /// The further indentation if the token begins a line within a statement.
    pub hang: usize,
    /// Whether an empty line separates the token from the one before it.
    pub gap: bool,
}

/// The token that cannot stand at its position, and the reason.
#[derive(Debug)]
pub struct Fault {
    pub token: usize,
    pub message: String,
    pub hint: Option<&'static str>,
}

pub type Res = Result<(), Fault>;

/// Walks the tokens. The grammar of declarations, statements and expressions is in the files of these names.
pub struct Parser<'t> {
    pub text: &'t [u8],
    pub tokens: &'t [Token],
    pub places: Vec<Place>,
    pub level: usize,
    /// The number of open parentheses.
    pub parens: usize,
    /// Whether the current declaration stays on one line.
    pub one_line: bool,
}

impl Parser<'_> {
    pub fn at(&self) -> usize {
        self.places.len().min(self.tokens.len() - 1)
    }

    pub fn now(&self) -> Tok {
        self.tokens[self.at()].kind
    }

    pub fn next(&self) -> Tok {
        self.tokens.get(self.at() + 1).map_or(Tok::Eoi, |token| token.kind)
    }

    pub fn bytes(&self, token: usize) -> &[u8] {
        let span = self.tokens[token].span;
        &self.text[span.start as usize..span.end as usize]
    }

    /// Returns the current token if it is a word.
    pub fn word(&self) -> &[u8] {
        if self.now() == Tok::Id { self.bytes(self.at()) } else { b"" }
    }

    /// Returns whether nothing separates the current token from the one before it.
    pub fn is_attached(&self) -> bool {
        let at = self.at();
        at > 0 && self.tokens[at - 1].span.end == self.tokens[at].span.start
    }

    pub fn fail(&self, message: impl Into<String>) -> Res {
        Err(Fault { token: self.at(), message: message.into(), hint: None })
    }

    pub fn fail_with_hint(&self, message: impl Into<String>, hint: &'static str) -> Res {
        Err(Fault { hint: Some(hint), ..Fault { token: self.at(), message: message.into(), hint: None } })
    }

    pub fn expected(&self, what: &str) -> Res {
        match self.now() {
            Tok::Eoi => self.fail(format!("{what} is expected, not the end of the text")),
            Tok::Csrc => self.fail_with_hint(
                "inline C cannot be formatted",
                "Lacquer compiles VCL without a C compiler; use a module for what the C code does",
            ),
            _ => {
                let found = String::from_utf8_lossy(self.bytes(self.at())).into_owned();
                let found: String = found.lines().next().unwrap_or_default().chars().take(40).collect();
                self.fail(format!("{what} is expected, not `{found}`"))
            }
        }
    }

    /// Places the current token.
    pub fn take(&mut self, lead: Lead) {
        let hang = match lead {
            Lead::Line | Lead::Space => 0,
            // A parenthesis that begins a line stands below the beginning of its line.
            _ if self.now() == Tok::RParen => self.parens,
            _ => self.parens.max(1),
        };
        self.places.push(Place { lead, level: self.level, hang, gap: false });
    }

    pub fn want(&mut self, kind: Tok, lead: Lead) -> Res {
        if self.now() != kind {
            let what = match kind {
                Tok::Id => "a name".to_owned(),
                Tok::Cstr => "a string".to_owned(),
                Tok::Fnum => "a version such as 4.1".to_owned(),
                kind => kind.name().replace('\'', "`"),
            };
            return self.expected(&what);
        }
        self.take(lead);
        Ok(())
    }

    pub fn semicolon(&mut self) -> Res {
        if self.now() == Tok::Cstr {
            return self.fail_with_hint("`;` is expected, not a string", "join strings with +");
        }
        self.want(Tok::Semi, Lead::Tight)
    }

    pub fn check_depth(&self, depth: usize) -> Res {
        if depth > MAX_DEPTH {
            return self.fail(format!("the text nests deeper than {MAX_DEPTH} levels"));
        }
        Ok(())
    }

    /// Parses `include +glob "file";`.
    pub fn include(&mut self) -> Res {
        self.take(Lead::Line);
        self.flags()?;
        self.want(Tok::Cstr, Lead::Space)?;
        self.semicolon()
    }

    /// Parses `+flag -flag`.
    pub fn flags(&mut self) -> Res {
        while matches!(self.now(), Tok::Plus | Tok::Minus) {
            self.take(Lead::Space);
            if !self.is_attached() {
                return self.expected("a flag right behind its sign");
            }
            self.want(Tok::Id, Lead::Tight)?;
        }
        Ok(())
    }
}
