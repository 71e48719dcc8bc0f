//! RE2's pattern syntax, rewritten into the syntax of the crate regex-syntax. Both describe the same regular languages,
//! but differ in escapes, in brackets within classes, and in what `\d`, `\s`, `\w` and `\b` mean for Unicode text.

use super::options::{Flag, Options};

/// RE2's limit on the counts of a repetition.
const REPEAT_MAX: u32 = 1000;
/// A class without members.
const NOTHING: &str = r"[a&&b]";

const POSIX_CLASSES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Rewrites a pattern, or fails with RE2's text for the error.
pub(super) fn translate(pattern: &[u8], options: Options) -> Result<String, String> {
    let chars: Vec<char> = if options.is(Flag::Utf8) {
        std::str::from_utf8(pattern).map_err(|_| "invalid UTF-8")?.chars().collect()
    } else {
        pattern.iter().map(|b| char::from(*b)).collect()
    };
    let mut out =
        Translator { chars: &chars, next: 0, options, out: String::with_capacity(chars.len() + 16) };
    if options.is(Flag::Literal) {
        for c in &chars {
            out.literal(*c);
        }
        return Ok(out.out);
    }
    let mut after_repeat = false;
    while let Some(c) = out.take() {
        after_repeat = out.item(c, after_repeat)?;
    }
    Ok(out.out)
}

struct Translator<'a> {
    chars: &'a [char],
    next: usize,
    options: Options,
    out: String,
}

/// An element of a class, or an escape.
enum Item {
    Char(char),
    /// A class in the syntax of the crate, which may stand inside brackets.
    Class(String),
    /// An assertion, or another expression that must not stand inside brackets.
    Expression(String),
    /// `\Q`: text up to `\E`.
    Quote,
}

impl Translator<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.next).copied()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.next += 1;
        Some(c)
    }

    fn takes(&mut self, text: &str) -> bool {
        let matches = text.chars().enumerate().all(|(i, c)| self.chars.get(self.next + i) == Some(&c));
        if matches {
            self.next += text.chars().count();
        }
        matches
    }

    fn text(&self, from: usize) -> String {
        self.chars[from..self.next].iter().collect()
    }

    fn is(&self, flag: Flag) -> bool {
        self.options.is(flag)
    }

    fn literal(&mut self, c: char) {
        if c == '\n' && self.is(Flag::NeverNl) {
            self.out.push_str(NOTHING);
        } else {
            self.escaped(c);
        }
    }

    /// Writes a character without any special meaning, in or outside of a class.
    fn escaped(&mut self, c: char) {
        use std::fmt::Write;
        let _ = match c {
            '0'..='9' | 'A'..='Z' | 'a'..='z' => write!(self.out, "{c}"),
            c if self.is(Flag::Utf8) => write!(self.out, "\\x{{{:x}}}", u32::from(c)),
            c => write!(self.out, "\\x{:02x}", u32::from(c)),
        };
    }

    /// Translates the item that begins with `c`. Returns whether it is a repetition, which another one must not follow.
    fn item(&mut self, c: char, after_repeat: bool) -> Result<bool, String> {
        match c {
            '\\' => self.escape_outside()?,
            '[' => self.class()?,
            '(' => self.group()?,
            '*' | '+' | '?' => {
                self.repeat(&c.to_string(), after_repeat)?;
                return Ok(true);
            }
            '{' => match self.counts()? {
                Some(counts) => {
                    self.repeat(&counts, after_repeat)?;
                    return Ok(true);
                }
                None => self.literal('{'),
            },
            '^' | '$' | '|' | '.' | ')' => self.out.push(c),
            c => self.literal(c),
        }
        Ok(false)
    }

    fn repeat(&mut self, operator: &str, after_repeat: bool) -> Result<(), String> {
        let lazy = self.takes("?");
        if after_repeat || (lazy && self.is(Flag::PosixSyntax)) {
            return Err(format!("bad repetition operator: {operator}{}", if lazy { "?" } else { "" }));
        }
        self.out.push_str(operator);
        if lazy {
            self.out.push('?');
        }
        Ok(())
    }

    /// Reads the rest of `{n}`, `{n,}` or `{n,m}`. Returns `None` and reads nothing if it is something else.
    fn counts(&mut self) -> Result<Option<String>, String> {
        let start = self.next;
        let rest = &self.chars[start..];
        let Some(length) = rest.iter().position(|c| *c == '}') else { return Ok(None) };
        let body: String = rest[..length].iter().collect();
        let (low, high) = body.split_once(',').map_or((body.as_str(), None), |(low, high)| (low, Some(high)));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(low) || high.is_some_and(|high| !high.is_empty() && !is_number(high)) {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= REPEAT_MAX);
        let valid = match (number(low), high) {
            (None, _) => false,
            (Some(_), None | Some("")) => true,
            (Some(low), Some(high)) => number(high).is_some_and(|high| low <= high),
        };
        if !valid {
            return Err(format!("invalid repetition size: {{{body}}}"));
        }
        self.next = start + length + 1;
        Ok(Some(format!("{{{body}}}")))
    }

    fn group(&mut self) -> Result<(), String> {
        let start = self.next - 1;
        if self.peek() != Some('?') {
            self.out.push_str(if self.is(Flag::NeverCapture) { "(?:" } else { "(" });
            return Ok(());
        }
        if self.is(Flag::PosixSyntax) {
            return Err("missing argument to repetition operator: ?".to_owned());
        }
        self.next += 1;
        let invalid = |t: &Self| Err(format!("invalid perl operator: {}", t.text(start)));
        if self.takes("P<") || self.takes("<") {
            let from = self.next;
            while self.peek().is_some_and(|c| c == '_' || c.is_ascii_alphanumeric()) {
                self.next += 1;
            }
            let name = self.text(from);
            if name.is_empty() || !self.takes(">") {
                self.next = (self.next + 1).min(self.chars.len());
                return Err(format!("invalid named capture group: {}", self.text(start)));
            }
            if self.is(Flag::NeverCapture) {
                self.out.push_str("(?:");
            } else {
                self.out.push_str("(?P<");
                self.out.push_str(&name);
                self.out.push('>');
            }
            return Ok(());
        }
        let from = self.next;
        while let Some(c) = self.take() {
            match c {
                'i' | 'm' | 's' | 'U' | '-' => {}
                ':' | ')' => {
                    self.out.push_str("(?");
                    let flags = self.text(from);
                    self.out.push_str(&flags);
                    return Ok(());
                }
                _ => return invalid(self),
            }
        }
        Err(format!("missing ): {}", self.text(0)))
    }

    fn escape_outside(&mut self) -> Result<(), String> {
        match self.escape()? {
            Item::Char(c) => self.literal(c),
            Item::Class(class) => {
                let at = self.out.len();
                self.nested(&class);
                self.without_newline(at);
            }
            Item::Expression(text) => self.out.push_str(&text),
            Item::Quote => {
                while !self.takes("\\E") {
                    let Some(c) = self.take() else { break };
                    self.literal(c);
                }
            }
        }
        Ok(())
    }

    /// Removes the newline from the class that begins at `at` in the output, if no newline may match.
    fn without_newline(&mut self, at: usize) {
        if self.is(Flag::NeverNl) {
            self.out.insert(at, '[');
            self.out.push_str(r"&&[^\n]]");
        }
    }

    /// Reads the escape after a backslash.
    fn escape(&mut self) -> Result<Item, String> {
        let start = self.next - 1;
        let Some(c) = self.take() else { return Err("trailing \\".to_owned()) };
        let perl = !self.is(Flag::PosixSyntax);
        let utf8 = self.is(Flag::Utf8);
        Ok(match c {
            'A' | 'z' if perl => Item::Expression(format!("\\{c}")),
            'b' | 'B' if perl || self.is(Flag::WordBoundary) => {
                Item::Expression(if utf8 { format!("(?-u:\\{c})") } else { format!("\\{c}") })
            }
            'C' if perl => Item::Expression("(?s-u:.)".to_owned()),
            'Q' if perl => Item::Quote,
            'd' | 'D' | 's' | 'S' | 'w' | 'W' if perl || self.is(Flag::PerlClasses) => {
                Item::Class(perl_class(c).to_owned())
            }
            'p' | 'P' if perl && utf8 => Item::Class(self.unicode_class(start)?),
            'a' => Item::Char('\x07'),
            'f' => Item::Char('\x0c'),
            'n' => Item::Char('\n'),
            'r' => Item::Char('\r'),
            't' => Item::Char('\t'),
            'v' => Item::Char('\x0b'),
            'x' => Item::Char(self.hexadecimal(start)?),
            '0' => Item::Char(self.octal(c)),
            '1'..='7' if self.peek().is_some_and(|next| next.is_digit(8)) => Item::Char(self.octal(c)),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Item::Char(c),
            _ => return Err(format!("invalid escape sequence: {}", self.text(start))),
        })
    }

    fn octal(&mut self, first: char) -> char {
        let mut value = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
            value = value * 8 + digit;
            self.next += 1;
        }
        char::from_u32(value).unwrap_or_default()
    }

    fn hexadecimal(&mut self, start: usize) -> Result<char, String> {
        let mut value = 0_u32;
        if self.takes("{") {
            let mut digits = 0;
            while let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) {
                self.next += 1;
                digits += 1;
                value = value.saturating_mul(16).saturating_add(digit);
            }
            if digits == 0 || !self.takes("}") {
                return Err(format!("invalid escape sequence: {}", self.text(start)));
            }
        } else {
            for _ in 0..2 {
                let digit = self.take().and_then(|c| c.to_digit(16));
                let digit = digit.ok_or_else(|| format!("invalid escape sequence: {}", self.text(start)))?;
                value = value * 16 + digit;
            }
        }
        let most = if self.is(Flag::Utf8) { 0x0010_ffff } else { 0xff };
        let found = char::from_u32(value).filter(|_| value <= most);
        found.ok_or_else(|| format!("invalid escape sequence: {}", self.text(start)))
    }

    /// Reads `\pN` or `\p{Name}`, whose names are those of the crate.
    fn unicode_class(&mut self, start: usize) -> Result<String, String> {
        match self.take() {
            Some('{') => while self.take().is_some_and(|c| c != '}') {},
            Some(_) => {}
            None => return Err(format!("invalid character class range: {}", self.text(start))),
        }
        Ok(self.text(start))
    }

    /// Reads the class after its opening bracket.
    fn class(&mut self) -> Result<(), String> {
        let start = self.next - 1;
        let at = self.out.len();
        self.out.push('[');
        if self.takes("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let missing = |t: &Self| format!("missing ]: {}", t.text(start));
            let from = self.next;
            let Some(c) = self.take() else { return Err(missing(self)) };
            if c == ']' && !first {
                break;
            }
            first = false;
            if c == '[' && self.peek() == Some(':') {
                self.posix_class(from)?;
                continue;
            }
            let low = match self.member(c)? {
                Item::Char(low) => low,
                Item::Class(class) => {
                    self.nested(&class);
                    continue;
                }
                Item::Expression(_) | Item::Quote => {
                    return Err(format!("invalid escape sequence: {}", self.text(from)));
                }
            };
            self.escaped(low);
            let is_range =
                self.peek() == Some('-') && self.chars.get(self.next + 1).is_some_and(|c| *c != ']');
            if is_range {
                self.next += 1;
                let Some(c) = self.take() else { return Err(missing(self)) };
                let high = match self.member(c)? {
                    Item::Char(high) if high >= low => high,
                    _ => return Err(format!("invalid character class range: {}", self.text(from))),
                };
                self.out.push('-');
                self.escaped(high);
            }
        }
        self.out.push(']');
        self.without_newline(at);
        Ok(())
    }

    fn member(&mut self, c: char) -> Result<Item, String> {
        if c == '\\' { self.escape() } else { Ok(Item::Char(c)) }
    }

    fn nested(&mut self, class: &str) {
        self.out.push('[');
        self.out.push_str(class);
        self.out.push(']');
    }

    /// Reads `[:name:]` or `[:^name:]`.
    fn posix_class(&mut self, from: usize) -> Result<(), String> {
        let start = self.next + 1;
        while self.peek().is_some_and(|c| c != ']') {
            self.next += 1;
        }
        self.next = (self.next + 1).min(self.chars.len());
        let text = self.text(from);
        let name: String = self.chars[start.min(self.next)..self.next].iter().collect();
        let name = name.strip_suffix(":]").unwrap_or_default();
        if !POSIX_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("invalid character class range: {text}"));
        }
        self.out.push_str(&text);
        Ok(())
    }
}

/// Returns the ASCII class of RE2, which is the same for Unicode text, without its brackets.
fn perl_class(c: char) -> &'static str {
    match c {
        'd' => "0-9",
        'D' => "^0-9",
        's' => r"\t\n\x0c\r\x20",
        'S' => r"^\t\n\x0c\r\x20",
        'w' => "0-9A-Za-z_",
        _ => "^0-9A-Za-z_",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latin1(pattern: &str) -> Result<String, String> {
        translate(pattern.as_bytes(), Options::default())
    }

    #[test]
    fn re2_syntax_is_rewritten() {
        for (pattern, expected) in [
            ("^/a.*$", r"^\x2fa.*$"),
            (r"\d+\s", r"[0-9]+[\t\n\x0c\r\x20]"),
            (r"[\d-x]", r"[[0-9]\x2dx]"),
            ("[a&&b]", r"[a\x26\x26b]"),
            ("[[x]", r"[\x5bx]"),
            ("[]a-c]", r"[\x5da-c]"),
            ("[[:alpha:]_]", r"[[:alpha:]\x5f]"),
            ("a{2,3}b{,4}c{", r"a{2,3}b\x7b\x2c4\x7dc\x7b"),
            (r"\Qa.b\Ec", r"a\x2ebc"),
            (r"\<b\>", r"\x3cb\x3e"),
            (r"(?P<n>a)(?i:b)(?s)", r"(?P<n>a)(?i:b)(?s)"),
            (r"\101\x41\x{e9}", r"AA\xe9"),
        ] {
            assert_eq!(latin1(pattern).as_deref(), Ok(expected), "{pattern}");
        }
        let with =
            |flag: Flag, pattern: &str| translate(pattern.as_bytes(), Options::default().with(flag, true));
        assert_eq!(with(Flag::Utf8, "é").as_deref(), Ok(r"\x{e9}"));
        assert_eq!(with(Flag::Utf8, r"\b").as_deref(), Ok(r"(?-u:\b)"));
        assert_eq!(with(Flag::Literal, "a.b").as_deref(), Ok(r"a\x2eb"));
        assert_eq!(with(Flag::NeverCapture, "(a)(?P<n>b)").as_deref(), Ok("(?:a)(?:b)"));
        assert_eq!(with(Flag::NeverNl, r"[^a]\n\D").as_deref(), Ok(r"[[^a]&&[^\n]][a&&b][[^0-9]&&[^\n]]"));
        assert_eq!(translate(b"\xe9", Options::default()).as_deref(), Ok(r"\xe9"));
    }

    #[test]
    fn errors_have_the_texts_of_re2() {
        for (pattern, expected) in [
            ("a**", "bad repetition operator: *"),
            ("a{2}{3}", "bad repetition operator: {3}"),
            ("a{1001}", "invalid repetition size: {1001}"),
            ("a{3,2}", "invalid repetition size: {3,2}"),
            (r"(a)\1", r"invalid escape sequence: \1"),
            (r"\", r"trailing \"),
            (r"\y", r"invalid escape sequence: \y"),
            (r"\x{100}", r"invalid escape sequence: \x{100}"),
            ("[a", "missing ]: [a"),
            ("[z-a]", "invalid character class range: z-a"),
            ("[[:foo:]]", "invalid character class range: [:foo:]"),
            ("(?=a)", "invalid perl operator: (?="),
            ("(?P<n", "invalid named capture group: (?P<n"),
        ] {
            assert_eq!(latin1(pattern), Err(expected.to_owned()), "{pattern}");
        }
        let posix = Options::default().with(Flag::PosixSyntax, true);
        assert!(translate(br"\d", posix).is_err());
        assert!(translate(b"(?i)a", posix).is_err());
        assert!(translate(br"\d", posix.with(Flag::PerlClasses, true)).is_ok());
        assert!(translate(b"\xff", Options::default().with(Flag::Utf8, true)).is_err());
    }
}
