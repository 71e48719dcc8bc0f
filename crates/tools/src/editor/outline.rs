//! The names that a text declares and mentions, found among its tokens.

use std::ops::Range;

use lacquer_vcl::tokens::{Tok, Token, tokens};

/// Maximum number of damaged lines that are left out to read the rest of a text.
const MAX_DAMAGED: usize = 8;

/// The kind of a declared name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Backend,
    Probe,
    Acl,
    Sub,
    /// A module, by the name that it has in this program.
    Module,
    /// An object of a module.
    Object,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Backend => "backend",
            Kind::Probe => "probe",
            Kind::Acl => "acl",
            Kind::Sub => "subroutine",
            Kind::Module => "module",
            Kind::Object => "object",
        }
    }
}

/// A name where it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub kind: Kind,
    pub span: Range<usize>,
    /// The whole declaration; its name alone if it has no end.
    pub whole: Range<usize>,
    /// The module's own name; for an object, module and type.
    pub of: String,
}

/// A name that may be that of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub name: String,
    pub span: Range<usize>,
}

/// The name of an included file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    pub path: String,
    pub span: Range<usize>,
}

/// The names of one text.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    pub declared: Vec<Declared>,
    /// All names that may refer to a declaration, the declarations included.
    pub mentions: Vec<Mention>,
    pub includes: Vec<Include>,
    /// The subroutine and the one that it calls.
    pub calls: Vec<(String, String)>,
    /// The text begins with its version: it is not a part of another.
    pub has_version: bool,
}

/// Returns whether a word may be the name of a declaration.
pub fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Returns the tokens of a text. Lines with an error are left out.
fn some_tokens(text: &str) -> Vec<Token> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..MAX_DAMAGED {
        let error = match tokens("", &bytes) {
            Ok(found) => return found,
            Err(error) => error,
        };
        let Some(line) = error.place().map(|place| place.line as usize) else { break };
        let mut lines = bytes.split_mut(|byte| *byte == b'\n');
        match lines.nth(line.saturating_sub(1)) {
            Some(line) => line.fill(b' '),
            None => break,
        }
    }
    Vec::new()
}

impl Outline {
    pub fn of(text: &str) -> Outline {
        let tokens = some_tokens(text);
        let mut reader =
            Reader { text, tokens: &tokens, outline: Outline::default(), open: Vec::new(), parens: 0 };
        reader.read();
        reader.outline
    }

    /// Returns the subroutine that contains an offset.
    pub fn sub_at(&self, offset: usize) -> Option<&Declared> {
        self.declared.iter().rfind(|d| d.kind == Kind::Sub && d.span.end < offset && offset <= d.whole.end)
    }
}

struct Reader<'t> {
    text: &'t str,
    tokens: &'t [Token],
    outline: Outline,
    /// For each open brace, the declaration that it belongs to.
    open: Vec<Option<usize>>,
    parens: usize,
}

impl<'t> Reader<'t> {
    fn kind(&self, at: usize) -> Tok {
        self.tokens.get(at).map_or(Tok::Eoi, |token| token.kind)
    }

    fn span(&self, at: usize) -> Range<usize> {
        self.tokens.get(at).map_or(0..0, |token| token.span.start as usize..token.span.end as usize)
    }

    fn word(&self, at: usize) -> &'t str {
        if self.kind(at) == Tok::Id { self.text.get(self.span(at)).unwrap_or_default() } else { "" }
    }

    /// Returns whether two tokens stand side by side.
    fn are_joined(&self, at: usize) -> bool {
        self.span(at).end == self.span(at + 1).start
    }

    fn read(&mut self) {
        self.outline.has_version = self.word(0) == "vcl" && matches!(self.kind(1), Tok::Fnum | Tok::Cnum);
        // The declaration whose brace comes next.
        let mut next = None;
        let mut at = 0;
        while at < self.tokens.len() {
            match self.kind(at) {
                Tok::LBrace => self.open.push(next.take()),
                Tok::RBrace => {
                    if let Some(Some(declared)) = self.open.pop() {
                        self.outline.declared[declared].whole.end = self.span(at).end;
                    }
                    self.parens = 0;
                }
                Tok::LParen => self.parens += 1,
                Tok::RParen => self.parens = self.parens.saturating_sub(1),
                Tok::Semi => self.parens = 0,
                Tok::Id if at == 0 || self.kind(at - 1) != Tok::Dot || !self.are_joined(at - 1) => {
                    next = self.name(at).or(next);
                }
                _ => {}
            }
            at += 1;
        }
        // A brace that is missing belongs to the text that is being typed.
        let end = self.text.len();
        for declared in std::mem::take(&mut self.open).into_iter().flatten() {
            self.outline.declared[declared].whole.end = end;
        }
    }

    /// Reads a name that begins a path. Returns the declaration that it begins.
    fn name(&mut self, at: usize) -> Option<usize> {
        let word = self.word(at);
        let is_top = self.open.is_empty();
        match word {
            "include" if is_top => self.include(at),
            "import" if is_top => self.import(at),
            "backend" | "probe" | "acl" | "sub" if is_top && self.kind(at + 1) == Tok::Id => {
                let kind = match word {
                    "backend" => Kind::Backend,
                    "probe" => Kind::Probe,
                    "acl" => Kind::Acl,
                    _ => Kind::Sub,
                };
                return Some(self.declare(kind, at + 1, at, String::new()));
            }
            "new" if !is_top && self.kind(at + 1) == Tok::Id => self.object(at),
            "call" if !is_top && self.kind(at + 1) == Tok::Id => self.call(at),
            // The name of an argument.
            _ if self.parens > 0 && self.kind(at + 1) == Tok::Assign => {}
            // An action, or a module's own name behind which the program's name for it follows.
            _ if self.is_after("return", at)
                || self.word(at + 1) == "as" && self.previous(at) == "import" => {}
            _ => self.mention(at),
        }
        None
    }

    fn previous(&self, at: usize) -> &'t str {
        at.checked_sub(1).map_or("", |at| self.word(at))
    }

    /// Returns whether a word and an opening parenthesis precede a token.
    fn is_after(&self, word: &str, at: usize) -> bool {
        at >= 2 && self.kind(at - 1) == Tok::LParen && self.word(at - 2) == word
    }

    fn mention(&mut self, at: usize) {
        let mention = Mention { name: self.word(at).to_owned(), span: self.span(at) };
        if self.outline.mentions.last() != Some(&mention) {
            self.outline.mentions.push(mention);
        }
    }

    fn declare(&mut self, kind: Kind, at: usize, from: usize, of: String) -> usize {
        let span = self.span(at);
        let whole = self.span(from).start..span.end;
        self.outline.declared.push(Declared { name: self.word(at).to_owned(), kind, span, whole, of });
        self.outline.declared.len() - 1
    }

    fn include(&mut self, at: usize) {
        // A flag may stand before the name.
        let name = (at + 1..at + 4).find(|at| self.kind(*at) == Tok::Cstr);
        if let Some(name) = name {
            let span = self.span(name);
            let path = self.text.get(span.clone()).unwrap_or_default().trim_matches(['"', '{', '}']);
            self.outline.includes.push(Include { path: path.to_owned(), span });
        }
    }

    fn import(&mut self, at: usize) {
        if self.kind(at + 1) != Tok::Id {
            return;
        }
        let module = self.word(at + 1).to_owned();
        let name = if self.word(at + 2) == "as" && self.kind(at + 3) == Tok::Id { at + 3 } else { at + 1 };
        self.declare(Kind::Module, name, at, module);
    }

    /// Reads `new NAME = MODULE.TYPE(`.
    fn object(&mut self, at: usize) {
        let of = match self.kind(at + 4) {
            Tok::Dot => format!("{}.{}", self.word(at + 3), self.word(at + 5)),
            _ => String::new(),
        };
        self.declare(Kind::Object, at + 1, at, of);
    }

    fn call(&mut self, at: usize) {
        let inside = self.open.iter().flatten().next();
        if let Some(declared) = inside {
            let caller = self.outline.declared[*declared].name.clone();
            self.outline.calls.push((caller, self.word(at + 1).to_owned()));
        }
    }
}
