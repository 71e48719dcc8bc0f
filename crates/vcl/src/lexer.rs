//! Splits text into tokens. A token is a kind and a span; its contents are read from the text when needed.

use crate::source::Span;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tok {
    /// End of input.
    Eoi,
    Id,
    /// A number without a point.
    Cnum,
    /// A number with a point.
    Fnum,
    Cstr,
    /// Inline C.
    Csrc,
    /// A binary value: base64 between colons.
    Cblob,
    LBrace,
    RBrace,
    LParen,
    RParen,
    Star,
    Plus,
    Minus,
    Slash,
    Percent,
    Greater,
    Less,
    Assign,
    Semi,
    Bang,
    Amp,
    Dot,
    Pipe,
    Tilde,
    Comma,
    Inc,
    Dec,
    Cand,
    Cor,
    Leq,
    Eq,
    Neq,
    Geq,
    Shr,
    Shl,
    Incr,
    Decr,
    Mul,
    Div,
    NoMatch,
}

impl Tok {
    /// Returns the name in error texts.
    pub fn name(self) -> &'static str {
        match self {
            Tok::Eoi => "EOI",
            Tok::Id => "ID",
            Tok::Cnum => "CNUM",
            Tok::Fnum => "FNUM",
            Tok::Cstr => "CSTR",
            Tok::Csrc => "CSRC",
            Tok::Cblob => "CBLOB",
            Tok::LBrace => "'{'",
            Tok::RBrace => "'}'",
            Tok::LParen => "'('",
            Tok::RParen => "')'",
            Tok::Star => "'*'",
            Tok::Plus => "'+'",
            Tok::Minus => "'-'",
            Tok::Slash => "'/'",
            Tok::Percent => "'%'",
            Tok::Greater => "'>'",
            Tok::Less => "'<'",
            Tok::Assign => "'='",
            Tok::Semi => "';'",
            Tok::Bang => "'!'",
            Tok::Amp => "'&'",
            Tok::Dot => "'.'",
            Tok::Pipe => "'|'",
            Tok::Tilde => "'~'",
            Tok::Comma => "','",
            Tok::Inc => "++",
            Tok::Dec => "--",
            Tok::Cand => "&&",
            Tok::Cor => "||",
            Tok::Leq => "<=",
            Tok::Eq => "==",
            Tok::Neq => "!=",
            Tok::Geq => ">=",
            Tok::Shr => ">>",
            Tok::Shl => "<<",
            Tok::Incr => "+=",
            Tok::Decr => "-=",
            Tok::Mul => "*=",
            Tok::Div => "/=",
            Tok::NoMatch => "!~",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Tok,
    pub span: Span,
}

/// A lexical error: a message and the ranges of text that it concerns.
#[derive(Debug)]
pub(crate) struct LexError {
    pub message: String,
    pub spans: Vec<Span>,
}

const DELIMITED: [(&str, &[u8], &[u8], Tok); 4] = [
    ("long-string", b"\"\"\"", b"\"\"\"", Tok::Cstr),
    ("long-string", b"{\"", b"\"}", Tok::Cstr),
    ("string", b"\"", b"\"", Tok::Cstr),
    ("inline C source", b"C{", b"}C", Tok::Csrc),
];

/// Returns the text of a string token between its delimiters.
pub(crate) fn string_content(token: &[u8]) -> &[u8] {
    for (_, open, close, _) in DELIMITED {
        if let Some(rest) = token.strip_prefix(open) {
            return rest.strip_suffix(close).unwrap_or(rest);
        }
    }
    token
}

/// Returns the index of the first occurrence of some bytes.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut at = 0;
    loop {
        at += text[at..].iter().position(|b| *b == first)?;
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
}

pub(crate) fn is_ident_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic()
}

pub(crate) fn is_ident(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Returns whether this is a character of a header name (`tchar` of RFC 9110, section 5.6.2).
pub(crate) fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub(crate) struct Lexer<'a> {
    source: u32,
    bytes: &'a [u8],
    at: usize,
    tokens: Vec<Token>,
}

/// Lexes a whole text. The last token is the end of input.
pub(crate) fn lex(source: u32, text: &[u8]) -> Result<Vec<Token>, LexError> {
    let mut lexer = Lexer { source, bytes: text, at: 0, tokens: Vec::new() };
    while lexer.at < text.len() {
        lexer.next()?;
    }
    lexer.push(Tok::Eoi, text.len());
    Ok(lexer.tokens)
}

impl Lexer<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        Span { source: self.source, start: start as u32, end: end as u32 }
    }

    fn push(&mut self, kind: Tok, end: usize) {
        let span = self.span(self.at, end);
        self.tokens.push(Token { kind, span });
        self.at = end;
    }

    fn fail<T>(&self, message: impl Into<String>, start: usize, end: usize) -> Result<T, LexError> {
        Err(LexError { message: message.into(), spans: vec![self.span(start, end)] })
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<(), LexError> {
        let byte = self.byte(self.at);
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | 0x0b => self.at += 1,
            b'#' => self.skip_line(),
            b'/' if self.byte(self.at + 1) == b'*' => self.skip_comment()?,
            b'/' if self.byte(self.at + 1) == b'/' => self.skip_line(),
            b':' => {
                let (_, end) = scan_blob(self, self.at)?;
                self.push(Tok::Cblob, end);
            }
            _ if self.delimited()? => {}
            _ => {
                if let Some((kind, len)) = self.punctuation() {
                    self.push(kind, self.at + len);
                } else if is_ident_start(byte) {
                    let len = self.bytes[self.at..].iter().take_while(|b| is_ident(**b)).count();
                    self.push(Tok::Id, self.at + len);
                } else if byte.is_ascii_digit() {
                    self.number()?;
                } else {
                    let chunk = self.bytes[self.at..].utf8_chunks().next();
                    let len = chunk.and_then(|c| c.valid().chars().next()).map_or(1, char::len_utf8);
                    return self.fail("Syntax error at\n", self.at, self.at + len);
                }
            }
        }
        Ok(())
    }

    fn skip_line(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    }

    fn skip_comment(&mut self) -> Result<(), LexError> {
        let start = self.at;
        let mut at = start + 2;
        while at < self.bytes.len() {
            match (self.byte(at), self.byte(at + 1)) {
                (b'/', b'*') => {
                    return Err(LexError {
                        message: "/* ... */ comment contains /*\n".to_owned(),
                        spans: vec![self.span(start, start + 2), self.span(at, at + 2)],
                    });
                }
                (b'*', b'/') => {
                    self.at = at + 2;
                    return Ok(());
                }
                _ => at += 1,
            }
        }
        self.fail("Unterminated /* ... */ comment, starting at\n", start, start + 2)
    }

    fn delimited(&mut self) -> Result<bool, LexError> {
        let rest = &self.bytes[self.at..];
        let Some((name, open, close, kind)) = DELIMITED.iter().find(|d| rest.starts_with(d.1)) else {
            return Ok(false);
        };
        let inside = &rest[open.len()..];
        let mut end = find(inside, close);
        if *name == "string" && inside[..end.unwrap_or(0)].iter().any(|b| matches!(b, b'\r' | b'\n')) {
            end = None;
        }
        match end {
            Some(end) => self.push(*kind, self.at + open.len() + end + close.len()),
            None => {
                let message = format!("Unterminated {name}, starting at\n");
                return self.fail(message, self.at, self.at + open.len());
            }
        }
        Ok(true)
    }

    fn punctuation(&self) -> Option<(Tok, usize)> {
        let two = match (self.byte(self.at), self.byte(self.at + 1)) {
            (b'+', b'+') => Some(Tok::Inc),
            (b'-', b'-') => Some(Tok::Dec),
            (b'&', b'&') => Some(Tok::Cand),
            (b'|', b'|') => Some(Tok::Cor),
            (b'<', b'=') => Some(Tok::Leq),
            (b'=', b'=') => Some(Tok::Eq),
            (b'!', b'=') => Some(Tok::Neq),
            (b'>', b'=') => Some(Tok::Geq),
            (b'>', b'>') => Some(Tok::Shr),
            (b'<', b'<') => Some(Tok::Shl),
            (b'+', b'=') => Some(Tok::Incr),
            (b'-', b'=') => Some(Tok::Decr),
            (b'*', b'=') => Some(Tok::Mul),
            (b'/', b'=') => Some(Tok::Div),
            (b'!', b'~') => Some(Tok::NoMatch),
            _ => None,
        };
        if let Some(kind) = two {
            return Some((kind, 2));
        }
        let one = match self.byte(self.at) {
            b'{' => Tok::LBrace,
            b'}' => Tok::RBrace,
            b'(' => Tok::LParen,
            b')' => Tok::RParen,
            b'*' => Tok::Star,
            b'+' => Tok::Plus,
            b'-' => Tok::Minus,
            b'/' => Tok::Slash,
            b'%' => Tok::Percent,
            b'>' => Tok::Greater,
            b'<' => Tok::Less,
            b'=' => Tok::Assign,
            b';' => Tok::Semi,
            b'!' => Tok::Bang,
            b'&' => Tok::Amp,
            b'.' => Tok::Dot,
            b'|' => Tok::Pipe,
            b'~' => Tok::Tilde,
            b',' => Tok::Comma,
            _ => return None,
        };
        Some((one, 1))
    }

    /// Lexes a number with the limits of RFC 9651: 15 digits for integers, 12 and 3 for decimals.
    fn number(&mut self) -> Result<(), LexError> {
        let digits = |from: usize| self.bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let whole = digits(self.at);
        let end = self.at + whole;
        if self.byte(end) != b'.' {
            if whole > 15 {
                return self.fail("Too many digits for integer.\n", self.at, end);
            }
            self.refuse_exponent(end)?;
            self.push(Tok::Cnum, end);
            return Ok(());
        }
        let decimals = digits(end + 1);
        let end = end + 1 + decimals;
        if whole > 12 || decimals > 3 {
            return self.fail("Too many digits for real.\n", self.at, end);
        }
        self.refuse_exponent(end)?;
        self.push(Tok::Fnum, end);
        Ok(())
    }

    /// Fails if an exponent follows a number that ends at `end`.
    fn refuse_exponent(&mut self, end: usize) -> Result<(), LexError> {
        match self.byte(end) {
            c @ (b'e' | b'E') => {
                self.fail(format!("Unexpected character '{}'.\n", char::from(c)), self.at, end + 1)
            }
            _ => Ok(()),
        }
    }
}

fn base64_value(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        _ => return None,
    })
}

/// Decodes up to the first byte that is not allowed in base64 at its position, and returns that byte's index.
fn decode_base64(bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let (mut count, mut padding, mut word) = (0, 0, 0_u8);
    for (i, &byte) in bytes.iter().enumerate() {
        let Some(value) = base64_value(byte) else { return Some(i) };
        if byte == b'=' && count < 2 {
            return Some(i);
        } else if byte == b'=' {
            padding += 1;
        } else if padding > 0 {
            return Some(i - 1);
        }
        if padding > 0 && word != 0 {
            return Some(i - 1);
        }
        count += 1;
        match count {
            1 => word = value << 2,
            2 => {
                out.push(word | value >> 4);
                word = value << 4;
            }
            3 => {
                if padding == 0 {
                    out.push(word | value >> 2);
                }
                word = value << 6;
            }
            _ => {
                if padding == 0 {
                    out.push(word | value);
                }
                (word, count) = (0, 0);
            }
        }
    }
    None
}

/// Decodes the BLOB literal at `start`. Also returns the index after it.
fn scan_blob(lexer: &Lexer<'_>, start: usize) -> Result<(Vec<u8>, usize), LexError> {
    let body = start + 1;
    let mut out = Vec::new();
    // Only whole groups are decoded, which distinguishes a literal that is cut off by the end of the text from one with
    // a wrong character.
    let end = lexer.bytes.len() - (lexer.bytes.len() - body) % 4;
    let stop = decode_base64(&lexer.bytes[body..end], &mut out).map_or(end, |at| body + at);
    if stop == end && lexer.byte(end) != b':' {
        return lexer.fail("Missing colon at end of BLOB:\n", start, lexer.bytes.len().min(end + 1));
    }
    let stop_end = (stop + 1).min(lexer.bytes.len());
    match lexer.byte(stop) {
        b':' if (stop - start) % 4 != 1 => {
            lexer.fail("BLOB must have n*4 base64 characters\n", start, stop_end)
        }
        b':' => Ok((out, stop + 1)),
        b'=' => lexer.fail("Wrong padding ('=') in BLOB:\n", start, stop_end),
        _ => lexer.fail("Illegal BLOB character:\n", start, stop_end),
    }
}

/// Returns the value of a BLOB token.
pub(crate) fn blob_content(token: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let token = token.strip_prefix(b":").unwrap_or(token);
    decode_base64(token.strip_suffix(b":").unwrap_or(token), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Tok> {
        lex(0, text.as_bytes()).unwrap().iter().map(|t| t.kind).collect()
    }

    fn error(text: &str) -> String {
        lex(0, text.as_bytes()).unwrap_err().message
    }

    #[test]
    fn tokens_are_distinguished() {
        use Tok::*;
        assert_eq!(kinds("a-b_1 != 1.5s // x\n# y\n/* z */ !~"), [Id, Neq, Fnum, Id, NoMatch, Eoi]);
        let strings = kinds("\"a\" {\"b\"c\n\"} \"\"\"d\"e\"\"\" C{ int i; }C :AAAA:");
        assert_eq!(strings, [Cstr, Cstr, Cstr, Csrc, Cblob, Eoi]);
        assert_eq!(string_content(b"{\"b\"c\"}"), b"b\"c");
        assert_eq!(blob_content(b":aGVsbG8=:"), b"hello");
    }

    #[test]
    fn errors_are_those_of_varnish() {
        assert_eq!(error("\"a\nb\""), "Unterminated string, starting at\n");
        assert_eq!(error("{\"a"), "Unterminated long-string, starting at\n");
        assert_eq!(error("/* a"), "Unterminated /* ... */ comment, starting at\n");
        assert_eq!(error("/* a /* b */"), "/* ... */ comment contains /*\n");
        assert_eq!(error("1234567890123456"), "Too many digits for integer.\n");
        assert_eq!(error("1.2345"), "Too many digits for real.\n");
        assert_eq!(error("1.2e3"), "Unexpected character 'e'.\n");
        assert_eq!(error("sub \u{e9}"), "Syntax error at\n");
        assert_eq!(error(":aaaaa=a:"), "Wrong padding ('=') in BLOB:\n");
        assert_eq!(error(":aaa:"), "BLOB must have n*4 base64 characters\n");
        assert_eq!(error(":a*aa:"), "Illegal BLOB character:\n");
        assert_eq!(error(":aaaa"), "Missing colon at end of BLOB:\n");
        assert_eq!(error(":aaaa\n"), "Missing colon at end of BLOB:\n");
    }
}
