//! Assembles commands from the bytes of a client. A command is a line, or a line that ends in `<< TOKEN` and all lines
//! up to one that ends in the token (a here-document).

use lacquer_params::tokenize::{Rules, split_bytes};

use crate::command_table::{Process, find};

/// Maximum length of a line of an unauthenticated client, in bytes.
const MAX_UNAUTHENTICATED_LINE: usize = 80;

/// Maximum length of a command in bytes, including its here-document: 64 MB of VCL in quotes with every byte escaped.
/// The caller closes a connection that exceeds it.
pub const MAX_COMMAND: usize = 130 << 20;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The line as it was sent, without a here-document.
    pub line: String,
    /// Its words, or the reason why they cannot be parsed.
    pub words: Result<Vec<String>, &'static str>,
    /// The words as bytes, if one of them is not UTF-8.
    raw: Vec<Vec<u8>>,
}

impl Command {
    fn new(line: String, words: Vec<Vec<u8>>) -> Command {
        let words = split_worker_words(words);
        let odd = words.iter().any(|word| std::str::from_utf8(word).is_err());
        let raw = if odd { words.clone() } else { Vec::new() };
        Command { line, words: Ok(words.into_iter().map(text).collect()), raw }
    }

    /// Returns all words as they were sent.
    pub fn all_bytes(&self) -> Vec<Vec<u8>> {
        let count = self.words.as_ref().map_or(0, Vec::len);
        (0..count).map(|word| self.bytes(word).to_vec()).collect()
    }

    /// Returns a word as it was sent.
    pub fn bytes(&self, word: usize) -> &[u8] {
        let known = self.words.as_ref().ok().and_then(|words| words.get(word));
        self.raw.get(word).map_or_else(|| known.map_or(&[], |w| w.as_bytes()), Vec::as_slice)
    }
}

/// Splits the words of a worker's command at whitespace, even in quotes, so that `ban "req.url ~ x"` is a complete ban.
/// Only the last word of a ban's condition, the value to compare with, is not split.
fn split_worker_words(words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let blank = |word: &Vec<u8>| word.iter().any(u8::is_ascii_whitespace);
    let parts = |word: &[u8]| -> Vec<Vec<u8>> {
        let parts = word.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty());
        parts.map(<[u8]>::to_vec).collect()
    };
    let name = words.first().and_then(|word| parts(word).into_iter().next());
    let name = name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
    let Some(spec) = name.and_then(find).filter(|spec| spec.process == Process::Worker) else { return words };
    if !words.iter().any(blank) {
        return words;
    }
    let mut split: Vec<Vec<u8>> = Vec::new();
    for word in words {
        let compared = spec.name == "ban" && split.len() % 4 == 3;
        if compared || word.is_empty() {
            split.push(word);
        } else {
            split.extend(parts(&word));
        }
    }
    split
}

struct HereDocument {
    line: String,
    words: Vec<Vec<u8>>,
    token: Vec<u8>,
    matched: usize,
    text: Vec<u8>,
}

/// Collects bytes into commands.
#[derive(Default)]
pub struct Collector {
    line: Vec<u8>,
    here: Option<HereDocument>,
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|fault| String::from_utf8_lossy(fault.as_bytes()).into_owned())
}

impl Collector {
    /// Consumes one byte. Returns a command when it is complete.
    pub fn feed(&mut self, byte: u8, authenticated: bool) -> Option<Command> {
        if self.here.is_some() {
            return self.feed_here(byte);
        }
        if self.line.is_empty() && byte.is_ascii_whitespace() {
            return None;
        }
        let room = authenticated || self.line.len() < MAX_UNAUTHENTICATED_LINE;
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

    /// Returns the number of bytes of an unfinished command.
    pub fn held(&self) -> usize {
        let here = self.here.as_ref().map_or(0, |here| here.line.len() + here.text.len());
        self.line.len() + here
    }

    /// Returns the line of an unfinished command, if there is one.
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
    fn lines_become_commands() {
        assert_eq!(
            commands("\n  ping\r\n-help a \"b c\"\n\"\n", true),
            [words(&["ping"]), words(&["help", "a", "b c"]), Err("Missing '\"'")]
        );
        assert_eq!(commands("-\n", true), [words(&[])]);
    }

    #[test]
    fn here_documents_are_the_last_word() {
        assert_eq!(
            commands("vcl.inline x << %XX\nvcl 4.1; %X\n%XX y\n%XX\nping\n", true),
            [words(&["vcl.inline", "x", "vcl 4.1; %X\n%XX y\n"]), words(&["ping"])]
        );
        assert_eq!(commands("a << b\n", false), [words(&["a", "<<", "b"])]);
    }

    #[test]
    fn quoted_words_for_the_worker_are_split() {
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
    fn bytes_that_are_not_utf8_are_kept() {
        let mut collector = Collector::default();
        let command = b"vcl.inline x \"\xe9\"\n".iter().find_map(|b| collector.feed(*b, true)).unwrap();
        assert_eq!((command.bytes(0), command.bytes(2)), (&b"vcl.inline"[..], &b"\xe9"[..]));
        assert_eq!(command.words.unwrap()[2], "\u{fffd}");
        let mut collector = Collector::default();
        let line = b"ban \"obj.http.a == b\\xe9 && obj.http.b\" == \"c \xe9\"\n";
        let command = line.iter().find_map(|b| collector.feed(*b, true)).unwrap();
        let words: [&[u8]; 8] =
            [b"ban", b"obj.http.a", b"==", b"b\xe9", b"&&", b"obj.http.b", b"==", b"c \xe9"];
        assert_eq!(command.all_bytes(), words);
    }

    #[test]
    fn lines_of_unauthenticated_clients_are_limited() {
        assert_eq!(commands(&"x".repeat(200), false).len(), 2);
        let mut collector = Collector::default();
        b"foobar << x\nabc".iter().for_each(|b| assert!(collector.feed(*b, true).is_none()));
        assert_eq!(collector.unfinished().as_deref(), Some("foobar << x"));
        assert_eq!(collector.held(), "foobar << x".len() + "abc".len());
    }
}
