//! Checks of structured fields that are dictionaries (RFC 9651 section 4.2.2). A dictionary that does not match its
//! grammar is ignored as a whole, so its directives are read only after this check.

/// Returns whether the text is a dictionary with at least one member.
pub fn is_dictionary(text: &[u8]) -> bool {
    let mut cursor = Cursor(trim_spaces(text));
    loop {
        if cursor.member().is_none() {
            return false;
        }
        cursor.skip(|b| b == b' ' || b == b'\t');
        if cursor.0.is_empty() {
            return true;
        }
        if cursor.take(b',').is_none() {
            return false;
        }
        cursor.skip(|b| b == b' ' || b == b'\t');
    }
}

fn trim_spaces(text: &[u8]) -> &[u8] {
    let start = text.iter().take_while(|&&b| b == b' ').count();
    let end = text[start..].iter().rev().take_while(|&&b| b == b' ').count();
    &text[start..text.len() - end]
}

/// The rest of the text. Each function consumes one construct of the grammar, or fails.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn skip(&mut self, matches: impl Fn(u8) -> bool) -> usize {
        let count = self.0.iter().take_while(|&&b| matches(b)).count();
        self.0 = &self.0[count..];
        count
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn member(&mut self) -> Option<()> {
        self.key()?;
        if self.take(b'=').is_some() {
            if self.take(b'(').is_some() { self.inner_list()? } else { self.item()? }
        }
        self.parameters()
    }

    fn key(&mut self) -> Option<()> {
        let first = *self.0.first()?;
        let is_first = first.is_ascii_lowercase() || first == b'*';
        let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b);
        is_first.then(|| self.skip(rest)).map(drop)
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';').is_some() {
            self.skip(|b| b == b' ');
            self.key()?;
            if self.take(b'=').is_some() {
                self.item()?;
            }
        }
        Some(())
    }

    fn inner_list(&mut self) -> Option<()> {
        loop {
            self.skip(|b| b == b' ');
            if self.take(b')').is_some() {
                return Some(());
            }
            self.item()?;
            self.parameters()?;
            self.0.first().filter(|&&b| b == b' ' || b == b')')?;
        }
    }

    /// Consumes a bare item.
    fn item(&mut self) -> Option<()> {
        match *self.0.first()? {
            b'"' => self.string(),
            b'?' => {
                self.take(b'?')?;
                self.take(b'0').or_else(|| self.take(b'1'))
            }
            b':' => {
                self.take(b':')?;
                self.skip(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
                self.take(b':')
            }
            b'@' => {
                self.take(b'@')?;
                self.number().filter(|has_fraction| !has_fraction).map(drop)
            }
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.skip(|b| crate::ascii::is_tchar(b) || b == b':' || b == b'/');
                Some(())
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(()),
                b'\\' => {
                    let (&escaped, rest) = self.0.split_first()?;
                    self.0 = rest;
                    if !b"\"\\".contains(&escaped) {
                        return None;
                    }
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    /// Consumes a number of at most 15 digits, or 12 and a fraction of 3. Returns whether it has a fraction.
    fn number(&mut self) -> Option<bool> {
        let _ = self.take(b'-');
        let whole = self.skip(|b| b.is_ascii_digit());
        if !(1..=15).contains(&whole) {
            return None;
        }
        if self.take(b'.').is_none() {
            return Some(false);
        }
        let fraction = self.skip(|b| b.is_ascii_digit());
        (whole <= 12 && (1..=3).contains(&fraction)).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_dictionaries_are_accepted() {
        for text in [
            "max-age=600",
            "max-age=600, foobar",
            " a;x=1; y , b=?0,c=\"x, \\\"y\" ",
            "a=(1 2 \"x\";q=1);z, b=()",
            "*a=tok/en:x, b=-1.5, c=:aGk=:, d=@1659578233",
            "max-age=99999999999",
        ] {
            assert!(is_dictionary(text.as_bytes()), "{text:?}");
        }
        for text in [
            "",
            "  ",
            ",",
            "a,",
            "a, ,b",
            "a b",
            "a ;x",
            "Max-Age=600",
            "max-age =600",
            "max-age= 600",
            "max-age=600;",
            "a=",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{e9}\"",
            "a=?2",
            "a=:x",
            "a=1.",
            "a=1.2345",
            "a=9999999999999999",
            "a=-",
            "a=(1",
            "a=(1\"x\")",
            "a=@1.5",
            "1=2",
            "a=&",
        ] {
            assert!(!is_dictionary(text.as_bytes()), "{text:?}");
        }
        let long = "a=1,".repeat(if cfg!(miri) { 100 } else { 100_000 }) + "a";
        assert!(is_dictionary(long.as_bytes()));
    }
}
