//! Gathers the bytes that a client sends into commands: a line each, or a line that ends in
//! `<< TOKEN` and all that follows up to the token on a line's end (a here-document).

use lacquer_params::tokenize::{Rules, split_bytes};

use crate::command_table::{Home, find};

/// Longest line of a client that has not authenticated itself.
const STRANGERS_LINE: usize = 80;

/// Longest command, its here-document included: VCL of 64 MB in quotes, each byte of it escaped. The caller ends a
/// client that goes beyond it.
pub const LONGEST_COMMAND: usize = 130 << 20;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The line as it was sent, without a here-document.
    pub line: String,
    /// Its words, or what is wrong with them.
    pub words: Result<Vec<String>, &'static str>,
    /// The words byte for byte, if one of them is no UTF-8.
    raw: Vec<Vec<u8>>,
}

impl Command {
    fn new(line: String, words: Vec<Vec<u8>>) -> Command {
        let odd = words.iter().any(|word| std::str::from_utf8(word).is_err());
        let raw = if odd { words.clone() } else { Vec::new() };
        Command { line, words: Ok(spread(words.into_iter().map(text).collect())), raw }
    }

    /// A word as it was sent.
    pub fn bytes(&self, word: usize) -> &[u8] {
        let known = self.words.as_ref().ok().and_then(|words| words.get(word));
        self.raw.get(word).map_or_else(|| known.map_or(&[], |w| w.as_bytes()), Vec::as_slice)
    }
}

/// Words for the worker come apart at blanks, quoted or not, so that `ban "req.url ~ x"` is the ban it looks
/// like. Only what a ban compares with stays whole.
fn spread(words: Vec<String>) -> Vec<String> {
    let blank = |word: &String| word.contains(|c: char| c.is_ascii_whitespace());
    let name = words.first().and_then(|word| word.split_ascii_whitespace().next());
    let Some(spec) = name.and_then(find).filter(|spec| spec.home == Home::Worker) else { return words };
    if !words.iter().any(blank) {
        return words;
    }
    let mut apart: Vec<String> = Vec::new();
    for word in words {
        let compared = spec.name == "ban" && apart.len() % 4 == 3;
        if compared || word.is_empty() {
            apart.push(word);
        } else {
            apart.extend(word.split_ascii_whitespace().map(str::to_owned));
        }
    }
    apart
}

struct HereDocument {
    line: String,
    words: Vec<Vec<u8>>,
    token: Vec<u8>,
    matched: usize,
    text: Vec<u8>,
}

/// Bytes in, commands out.
#[derive(Default)]
pub struct Collector {
    line: Vec<u8>,
    here: Option<HereDocument>,
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|fault| String::from_utf8_lossy(fault.as_bytes()).into_owned())
}

impl Collector {
    /// Takes one byte; returns a command when it is complete.
    pub fn feed(&mut self, byte: u8, authenticated: bool) -> Option<Command> {
        if self.here.is_some() {
            return self.feed_here(byte);
        }
        if self.line.is_empty() && byte.is_ascii_whitespace() {
            return None;
        }
        let room = authenticated || self.line.len() < STRANGERS_LINE;
        if !matches!(byte, b'\n' | b'\r') && room {
            self.line.push(byte);
            return None;
        }
        let line = std::mem::take(&mut self.line);
        let body = line.strip_prefix(b"-").unwrap_or(&line);
        let words = split_bytes(body, Rules { comment: false, ..Rules::COMMAND });
        let mut words = match words {
            Ok(words) => words,
            Err(fault) => return Some(Command { line: text(line), words: Err(fault), raw: Vec::new() }),
        };
        if authenticated
            && let [.., arrows, token] = words.as_slice()
            && arrows == b"<<"
            && !token.is_empty()
        {
            let token = token.clone();
            words.truncate(words.len() - 2);
            self.here = Some(HereDocument { line: text(line), words, token, matched: 0, text: Vec::new() });
            return None;
        }
        Some(Command::new(text(line), words))
    }

    fn feed_here(&mut self, byte: u8) -> Option<Command> {
        let here = self.here.as_mut()?;
        if here.matched == here.token.len() && matches!(byte, b'\n' | b'\r') {
            let HereDocument { line, mut words, text: body, .. } = self.here.take()?;
            words.push(body);
            return Some(Command::new(line, words));
        }
        if here.token.get(here.matched) == Some(&byte) {
            here.matched += 1;
            return None;
        }
        here.text.extend_from_slice(&here.token[..here.matched]);
        here.matched = 0;
        here.text.push(byte);
        None
    }

    /// Returns how many bytes of an unfinished command are held.
    pub fn held(&self) -> usize {
        let here = self.here.as_ref().map_or(0, |here| here.line.len() + here.text.len());
        self.line.len() + here
    }

    /// The line of a command that was begun and not ended.
    pub fn unfinished(&self) -> Option<String> {
        match &self.here {
            Some(here) => Some(here.line.clone()),
            None if self.line.is_empty() => None,
            None => Some(text(self.line.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(input: &str, authenticated: bool) -> Vec<Result<Vec<String>, &'static str>> {
        let mut collector = Collector::default();
        input.bytes().filter_map(|byte| collector.feed(byte, authenticated)).map(|c| c.words).collect()
    }

    fn words(words: &[&str]) -> Result<Vec<String>, &'static str> {
        Ok(words.iter().map(|w| (*w).to_owned()).collect())
    }

    #[test]
    fn lines() {
        assert_eq!(
            commands("\n  ping\r\n-help a \"b c\"\n\"\n", true),
            [words(&["ping"]), words(&["help", "a", "b c"]), Err("Missing '\"'")]
        );
        assert_eq!(commands("-\n", true), [words(&[])]);
    }

    #[test]
    fn here_documents() {
        assert_eq!(
            commands("vcl.inline x << %XX\nvcl 4.1; %X\n%XX y\n%XX\nping\n", true),
            [words(&["vcl.inline", "x", "vcl 4.1; %X\n%XX y\n"]), words(&["ping"])]
        );
        assert_eq!(commands("a << b\n", false), [words(&["a", "<<", "b"])]);
    }

    #[test]
    fn quoted_words_for_the_worker_come_apart() {
        for (line, seen) in [
            (r#"ban "req.url ~ x && obj.status == 200""#, "ban|req.url|~|x|&&|obj.status|==|200"),
            (r#"ban "req.url ~ x" && "obj.http.a == b""#, "ban|req.url|~|x|&&|obj.http.a|==|b"),
            (r#""ban req.url ~ x""#, "ban|req.url|~|x"),
            (r#"ban obj.http.a == "b c" "&& req.url" ~ "d e""#, "ban|obj.http.a|==|b c|&&|req.url|~|d e"),
            (r#"ban req.url == """#, "ban|req.url|==|"),
            (r#"backend.set_health "b1 sick""#, "backend.set_health|b1|sick"),
            (r#"param.set "a b" c"#, "param.set|a b|c"),
        ] {
            assert_eq!(commands(&format!("{line}\n"), true)[0].as_ref().unwrap().join("|"), seen);
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_are_not_lost() {
        let mut collector = Collector::default();
        let command = b"vcl.inline x \"\xe9\"\n".iter().find_map(|b| collector.feed(*b, true)).unwrap();
        assert_eq!((command.bytes(0), command.bytes(2)), (&b"vcl.inline"[..], &b"\xe9"[..]));
        assert_eq!(command.words.unwrap()[2], "\u{fffd}");
    }

    #[test]
    fn strangers_are_cut_short() {
        assert_eq!(commands(&"x".repeat(200), false).len(), 2);
        let mut collector = Collector::default();
        b"foobar << x\nabc".iter().for_each(|b| assert!(collector.feed(*b, true).is_none()));
        assert_eq!(collector.unfinished().as_deref(), Some("foobar << x"));
        assert_eq!(collector.held(), "foobar << x".len() + "abc".len());
    }
}
