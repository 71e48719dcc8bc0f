//! A compiled pattern: matching, groups and rewriting. The engine's time is linear in the length of the text, whatever
//! the pattern.

use regex_automata::meta::{self, BuildError};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input, MatchKind, PatternID, Span};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;

use super::options::{Flag, Options};
use super::syntax::translate;

/// Bytes for the automaton's states that a thread has built while it matched; beyond it, they are built anew.
const CACHE: usize = 1 << 20;

const TOO_LARGE: &str = "pattern too large - compile failed";

/// Parses a pattern. Fails with RE2's text for the error where there is one.
pub(super) fn parse(pattern: &[u8], options: Options) -> Result<Hir, String> {
    let translated = translate(pattern, options)?;
    let utf8 = options.is(Flag::Utf8);
    let mut parser = ParserBuilder::new();
    parser
        .unicode(utf8)
        .utf8(false)
        .case_insensitive(!options.is(Flag::CaseSensitive))
        .dot_matches_new_line(options.is(Flag::DotNl) && !options.is(Flag::NeverNl))
        .multi_line(options.is(Flag::PosixSyntax) && !options.is(Flag::OneLine));
    parser.build().parse(&translated).map_err(|error| {
        let shown = String::from_utf8_lossy(pattern);
        let text = match &error {
            regex_syntax::Error::Parse(error) => error.kind().to_string(),
            regex_syntax::Error::Translate(error) => error.kind().to_string(),
            error => error.to_string(),
        };
        match text.as_str() {
            "unclosed group" => format!("missing ): {shown}"),
            "unopened group" => format!("unexpected ): {shown}"),
            "repetition operator missing expression" => {
                format!("missing argument to repetition operator: {shown}")
            }
            _ => text,
        }
    })
}

/// Compiles the program of an expression, without groups unless `captures`.
pub(super) fn program(hir: &Hir, max_mem: usize, captures: bool) -> Result<NFA, String> {
    let which = if captures { thompson::WhichCaptures::All } else { thompson::WhichCaptures::None };
    let config = thompson::Config::new().utf8(false).nfa_size_limit(Some(max_mem)).which_captures(which);
    let compiled = thompson::Compiler::new().configure(config).build_from_hir(hir);
    compiled
        .map_err(|error| if error.size_limit().is_some() { TOO_LARGE.to_owned() } else { error.to_string() })
}

pub(super) struct Pattern {
    regex: meta::Regex,
    /// Finds the longest match at a given position, if the options ask for it.
    longest: Option<PikeVM>,
    pub options: Options,
    /// The number of states of the program, as a measure of its cost.
    pub cost: usize,
}

impl Pattern {
    pub fn new(pattern: &[u8], options: Options) -> Result<Pattern, String> {
        Pattern::of(&parse(pattern, options)?, options)
    }

    pub fn of(hir: &Hir, options: Options) -> Result<Pattern, String> {
        let longest = options.is(Flag::LongestMatch);
        let nfa = program(hir, options.max_mem, longest)?;
        let cost = nfa.states().len();
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(options.max_mem))
            .hybrid_cache_capacity(CACHE);
        let regex = meta::Builder::new().configure(config).build_from_hir(hir);
        let regex = regex.map_err(|error: BuildError| match error.size_limit() {
            Some(_) => TOO_LARGE.to_owned(),
            None => error.to_string(),
        })?;
        let longest = longest.then(|| {
            let config = PikeVM::config().match_kind(MatchKind::All);
            PikeVM::builder().configure(config).build_from_nfa(nfa).map_err(|error| error.to_string())
        });
        Ok(Pattern { regex, longest: longest.transpose()?, options, cost })
    }

    pub fn memory(&self) -> usize {
        self.regex.memory_usage()
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the highest number of a group.
    pub fn most_groups(&self) -> usize {
        self.regex.captures_len().saturating_sub(1)
    }

    /// Returns the number of a named group.
    pub fn group_of(&self, name: &str) -> Option<usize> {
        self.regex.group_info().to_index(PatternID::ZERO, name)
    }

    /// Finds the first match from `from` on.
    pub fn groups(&self, text: &[u8], from: usize) -> Option<Captures> {
        let mut groups = self.regex.create_captures();
        let input = Input::new(text).span(from..text.len());
        self.regex.search_captures(&input, &mut groups);
        let found = groups.get_match()?;
        if let Some(longest) = &self.longest {
            let at = Input::new(text).span(found.start()..text.len()).anchored(Anchored::Yes);
            let mut all = longest.create_captures();
            longest.search(&mut longest.create_cache(), &at, &mut all);
            return Some(all).filter(Captures::is_match);
        }
        Some(groups)
    }

    /// Replaces the first match, or all matches that do not overlap. Returns `None` without a match, or if the
    /// replacement refers to groups that the pattern does not have.
    pub fn replaced(&self, text: &[u8], rewrite: &[u8], all: bool) -> Option<Vec<u8>> {
        let rewrite = Rewrite::parse(rewrite, self.most_groups())?;
        let mut out = Vec::with_capacity(text.len());
        let (mut copied, mut from, mut last_end, mut found) = (0, 0, None, false);
        while from <= text.len() {
            let Some(groups) = self.groups(text, from) else { break };
            let Some(Span { start, end }) = groups.get_group(0) else { break };
            if start == end && last_end == Some(end) {
                // An empty match at the end of the previous one does not count.
                from = end + 1;
                continue;
            }
            out.extend_from_slice(&text[copied..start]);
            rewrite.expand(&groups, text, &mut out);
            (copied, from, last_end, found) = (end, end.max(from), Some(end), true);
            if !all {
                break;
            }
        }
        out.extend_from_slice(&text[copied..]);
        found.then_some(out)
    }

    /// Returns the replacement of the first match, without the rest of the text.
    pub fn extracted(&self, text: &[u8], rewrite: &[u8]) -> Option<Vec<u8>> {
        let rewrite = Rewrite::parse(rewrite, self.most_groups())?;
        let mut out = Vec::new();
        rewrite.expand(&self.groups(text, 0)?, text, &mut out);
        Some(out)
    }
}

/// A replacement: texts, each with the group that follows it.
struct Rewrite<'a> {
    text: &'a [u8],
}

impl<'a> Rewrite<'a> {
    /// Returns `None` if a backslash is followed by neither a backslash nor the number of a group.
    fn parse(text: &'a [u8], most_groups: usize) -> Option<Rewrite<'a>> {
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            if *byte == b'\\' {
                match bytes.next()? {
                    b'\\' => {}
                    digit @ b'0'..=b'9' if usize::from(digit - b'0') <= most_groups => {}
                    _ => return None,
                }
            }
        }
        Some(Rewrite { text })
    }

    fn expand(&self, groups: &Captures, text: &[u8], out: &mut Vec<u8>) {
        let mut bytes = self.text.iter();
        while let Some(byte) = bytes.next() {
            match (byte, bytes.as_slice().first()) {
                (b'\\', Some(digit @ b'0'..=b'9')) => {
                    bytes.next();
                    let span = groups.get_group(usize::from(digit - b'0'));
                    out.extend_from_slice(span.map_or(&[], |span| &text[span.range()]));
                }
                (b'\\', Some(_)) => {
                    bytes.next();
                    out.push(b'\\');
                }
                _ => out.push(*byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text.as_bytes(), Options::default()).expect(text)
    }

    fn shown(bytes: Option<Vec<u8>>) -> String {
        bytes.map_or_else(|| "none".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn matches_are_replaced_and_extracted() {
        for (text, subject, rewrite, first, all, extracted) in [
            ("b+", "www.yabba.dabba.com", "d", "www.yada.dabba.com", "www.yada.dada.com", "d"),
            (
                "(.*)@([^.]*)",
                "boris@kremvax.ru",
                r"\2!\1",
                "kremvax!boris.ru",
                "kremvax!boris.ru",
                "kremvax!boris",
            ),
            ("ana", "banana", "x", "bxna", "bxna", "x"),
            ("", "ab", "-", "-ab", "-a-b-", "-"),
            ("a*", "baac", "-", "-baac", "-b-c-", "-"),
            ("(a)|b", "b", r"<\1\\>", r"<\>", r"<\>", r"<\>"),
            ("a", "bcd", "x", "none", "none", "none"),
            ("a", "a", r"\1", "none", "none", "none"),
            ("a", "a", r"\x", "none", "none", "none"),
        ] {
            let pattern = pattern(text);
            let run = |all| shown(pattern.replaced(subject.as_bytes(), rewrite.as_bytes(), all));
            assert_eq!((run(false).as_str(), run(true).as_str()), (first, all), "{text}");
            assert_eq!(shown(pattern.extracted(subject.as_bytes(), rewrite.as_bytes())), extracted, "{text}");
        }
    }

    #[test]
    fn options_select_the_match() {
        let with = |text: &str, flag, on| {
            Pattern::new(text.as_bytes(), Options::default().with(flag, on)).expect(text)
        };
        let longest = with("a(b|bb)", Flag::LongestMatch, true);
        assert_eq!(shown(longest.extracted(b"xabb", br"\0 \1")), "abb bb");
        assert_eq!(shown(pattern("a(b|bb)").extracted(b"xabb", br"\0 \1")), "ab b");
        assert!(with("ABC", Flag::CaseSensitive, false).is_match(b"xabcx"));
        assert!(!pattern("a.b").is_match(b"a\nb") && with("a.b", Flag::DotNl, true).is_match(b"a\nb"));
        assert!(!with("a[^x]b", Flag::NeverNl, true).is_match(b"a\nb"));
        assert!(
            with("^.$", Flag::Utf8, true).is_match("é".as_bytes())
                && !pattern("^.$").is_match("é".as_bytes())
        );
        assert!(Pattern::new(b"\xe9", Options::default()).expect("Latin-1").is_match(b"caf\xe9"));
        let posix = Options::default().with(Flag::PosixSyntax, true);
        assert!(Pattern::new(b"^b$", posix).expect("POSIX").is_match(b"a\nb\nc"));
        assert!(!Pattern::new(b"^b$", posix.with(Flag::OneLine, true)).expect("POSIX").is_match(b"a\nb\nc"));
        assert!(pattern("(a{1,9}){1,9}b").cost > pattern("ab").cost);
        let named = pattern("(?P<one>a)(b)");
        assert_eq!((named.most_groups(), named.group_of("one"), named.group_of("two")), (2, Some(1), None));
    }

    #[test]
    fn hostile_patterns_cost_bounded_time_and_memory() {
        let start = Instant::now();
        for huge in
            ["((a{1000}){1000}){1000}", r"(((\x00|\w{500}){500}){500})*", "(((.{999}){999}){999}){999}"]
        {
            let error = Pattern::new(huge.as_bytes(), Options::default()).err();
            assert_eq!(error.as_deref(), Some(TOO_LARGE), "{huge}");
        }
        for deep in ["(".repeat(100_000), "[".repeat(100_000), "(a|".repeat(20_000) + &")".repeat(20_000)] {
            assert!(Pattern::new(deep.as_bytes(), Options::default()).is_err());
        }
        // A backtracking engine would need exponential time.
        assert!(!pattern("^(a+)+$").is_match(("a".repeat(50_000) + "b").as_bytes()));
        assert!(!pattern("(x+x+)+y").is_match("x".repeat(20_000).as_bytes()));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}
