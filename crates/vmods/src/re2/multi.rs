//! Matches a text against all patterns of a set. One search for the literals that the patterns require selects
//! the patterns that can match; only these are tried. Patterns without a literal of their own form one
//! automaton, which each text passes through.

use std::cell::RefCell;
use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use regex_automata::nfa::thompson::NFA;
use regex_automata::nfa::thompson::backtrack::{self, BoundedBacktracker};
use regex_automata::nfa::thompson::pikevm::{self, PikeVM};
use regex_automata::{Input, PatternSet, meta};
use regex_syntax::hir::{Hir, Look};

use super::literals::{Alternatives, required, shortest};
use super::pattern::program;

/// Number of patterns with the same literal above which that literal does not select any more.
const SHARED_MOST: usize = 32;
/// Number of patterns without a literal above which they form an automaton.
const TRIED_MOST: usize = 8;
/// The programs of a set may use this many times the limit for one pattern.
const SET_MEMORY: usize = 8;
/// Bytes for the states of the automaton of each thread.
const CACHE: usize = 4 << 20;

/// Where the patterns of a set have to match.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    None,
    Start,
    Both,
}

impl Anchor {
    pub fn apply(self, hir: Hir) -> Hir {
        match self {
            Anchor::None => hir,
            Anchor::Start => Hir::concat(vec![Hir::look(Look::Start), hir]),
            Anchor::Both => Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]),
        }
    }
}

pub(super) struct Matcher {
    programs: Vec<Program>,
    literals: Option<AhoCorasick>,
    /// The patterns that each literal selects.
    selected: Vec<Vec<u32>>,
    /// Patterns that are always tried.
    always: Vec<u32>,
    rest: Option<Automaton>,
}

/// The automaton of several patterns, and their numbers in the set.
struct Automaton {
    regex: meta::Regex,
    patterns: Vec<u32>,
}

#[derive(Default)]
struct Scratch {
    backtrack: Option<backtrack::Cache>,
    pike: Option<pikevm::Cache>,
    candidates: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Matcher {
    /// Compiles the patterns. Fails with the text "possibly insufficient memory" if they exceed the limit.
    pub fn new(patterns: &[Hir], max_mem: usize) -> Result<Matcher, String> {
        let memory = max_mem.saturating_mul(SET_MEMORY);
        let too_large = || "possibly insufficient memory".to_owned();
        let mut used = 0_usize;
        let mut programs = Vec::with_capacity(patterns.len());
        for hir in patterns {
            let program = Program::new(hir, max_mem)?;
            used = used.saturating_add(program.memory());
            if used > memory {
                return Err(too_large());
            }
            programs.push(program);
        }
        let chosen = choose(patterns);
        let mut numbers: HashMap<&[u8], usize> = HashMap::new();
        let mut texts: Vec<&[u8]> = Vec::new();
        let mut selected: Vec<Vec<u32>> = Vec::new();
        let mut rest = Vec::new();
        for (at, alternatives) in chosen.iter().enumerate() {
            if alternatives.is_empty() {
                rest.push(at as u32);
            }
            for literal in alternatives {
                let number = *numbers.entry(literal).or_insert_with(|| {
                    texts.push(literal);
                    selected.push(Vec::new());
                    texts.len() - 1
                });
                selected[number].push(at as u32);
            }
        }
        let search = || {
            let mut builder = AhoCorasickBuilder::new();
            builder.match_kind(MatchKind::Standard).ascii_case_insensitive(true);
            builder.build(&texts).map_err(|error| error.to_string())
        };
        let literals = if texts.is_empty() { None } else { Some(search()?) };
        let mut matcher = Matcher { programs, literals, selected, always: Vec::new(), rest: None };
        if rest.len() <= TRIED_MOST {
            matcher.always = rest;
        } else {
            matcher.rest = Some(Automaton::new(patterns, rest, memory).ok_or_else(too_large)?);
        }
        Ok(matcher)
    }

    /// Returns the numbers of all matching patterns, from 0, in ascending order.
    pub fn matches(&self, text: &[u8]) -> Vec<u32> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut candidates = std::mem::take(&mut scratch.candidates);
            candidates.clear();
            candidates.extend_from_slice(&self.always);
            if let Some(literals) = &self.literals {
                for found in literals.find_overlapping_iter(text) {
                    candidates.extend_from_slice(&self.selected[found.pattern().as_usize()]);
                }
            }
            candidates.sort_unstable();
            candidates.dedup();
            let matching = |at: &&u32| self.programs[**at as usize].is_match(text, scratch);
            let mut matched: Vec<u32> = candidates.iter().filter(matching).copied().collect();
            scratch.candidates = candidates;
            if let Some(rest) = &self.rest {
                rest.add_matches(text, &mut matched);
                matched.sort_unstable();
            }
            matched
        })
    }
}

/// Chooses the literals that select each pattern: those that the fewest other patterns require. A pattern gets none if
/// none selects.
fn choose(patterns: &[Hir]) -> Vec<Alternatives> {
    let required: Vec<Vec<Alternatives>> = patterns.iter().map(required).collect();
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    for literal in required.iter().flatten().flatten() {
        *counts.entry(literal).or_default() += 1;
    }
    let shared = |alternatives: &Alternatives| alternatives.iter().map(|l| counts[l.as_slice()]).max();
    let cost = |alternatives: &&Alternatives| {
        // A short literal occurs in many texts.
        let often = match shortest(alternatives) {
            1 => 64,
            2 => 8,
            3 => 2,
            _ => 1,
        };
        (shared(alternatives).unwrap_or_default() * often, usize::MAX - shortest(alternatives))
    };
    let choice = |all: &Vec<Alternatives>| {
        let best = all.iter().min_by_key(cost)?;
        (shared(best)? <= SHARED_MOST).then(|| best.clone())
    };
    required.iter().map(|all| choice(all).unwrap_or_default()).collect()
}

impl Automaton {
    /// Returns `None` if the automaton exceeds its memory.
    fn new(patterns: &[Hir], members: Vec<u32>, memory: usize) -> Option<Automaton> {
        let config = meta::Config::new()
            .match_kind(regex_automata::MatchKind::All)
            .utf8_empty(false)
            .which_captures(regex_automata::nfa::thompson::WhichCaptures::None)
            .nfa_size_limit(Some(memory))
            .hybrid_cache_capacity(CACHE);
        let expressions: Vec<&Hir> = members.iter().map(|at| &patterns[*at as usize]).collect();
        let regex = meta::Builder::new().configure(config).build_many_from_hir(&expressions).ok()?;
        Some(Automaton { regex, patterns: members })
    }

    fn add_matches(&self, text: &[u8], matched: &mut Vec<u32>) {
        let mut found = PatternSet::new(self.regex.pattern_len());
        self.regex.which_overlapping_matches(&Input::new(text), &mut found);
        matched.extend(found.iter().filter_map(|id| self.patterns.get(id.as_usize())));
    }
}

/// One pattern of a set. All patterns use the scratch memory of their thread.
struct Program {
    backtracker: BoundedBacktracker,
    pike: PikeVM,
}

impl Program {
    fn new(hir: &Hir, max_mem: usize) -> Result<Program, String> {
        let nfa = program(hir, max_mem, false)?;
        let backtracker = BoundedBacktracker::new_from_nfa(nfa.clone()).map_err(|error| error.to_string())?;
        Ok(Program { backtracker, pike: PikeVM::new_from_nfa(nfa).map_err(|error| error.to_string())? })
    }

    fn nfa(&self) -> &NFA {
        self.pike.get_nfa()
    }

    fn memory(&self) -> usize {
        self.nfa().memory_usage()
    }

    fn is_match(&self, text: &[u8], scratch: &mut Scratch) -> bool {
        let input = Input::new(text).earliest(true);
        if text.len() <= self.backtracker.max_haystack_len() {
            let cache = scratch.backtrack.get_or_insert_with(|| self.backtracker.create_cache());
            if let Ok(matches) = self.backtracker.try_is_match(cache, input.clone()) {
                return matches;
            }
        }
        let cache = scratch.pike.get_or_insert_with(|| self.pike.create_cache());
        self.pike.reset_cache(cache);
        self.pike.is_match(cache, input)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use lacquer_sources::random::Random;

    use super::super::options::Options;
    use super::super::pattern::parse;
    use super::*;

    fn set(patterns: &[String], anchor: Anchor) -> Matcher {
        let options = Options::default();
        let parsed = patterns.iter().map(|p| anchor.apply(parse(p.as_bytes(), options).expect("valid")));
        Matcher::new(&parsed.collect::<Vec<_>>(), options.max_mem).expect("within the limits")
    }

    fn matches(patterns: &[&str], anchor: Anchor, text: &str) -> Vec<u32> {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        set(&patterns, anchor).matches(text.as_bytes())
    }

    #[test]
    fn all_matching_patterns_are_found() {
        assert_eq!(matches(&["foo", "bar", "baz"], Anchor::None, "foobar"), [0, 1]);
        assert_eq!(matches(&["foo", "bar", "oob"], Anchor::Start, "foobar"), [0]);
        assert_eq!(matches(&["foo", "foo.*", "f|foobar"], Anchor::Both, "foobar"), [1, 2]);
        assert_eq!(matches(&["(?i)FOO", "", "x*"], Anchor::None, "xFoO"), [0, 1, 2]);
        assert_eq!(matches(&["a"], Anchor::None, ""), Vec::<u32>::new());
    }

    /// Each pattern alone is the model of the set.
    #[test]
    fn a_set_matches_like_its_patterns_one_by_one() {
        let pieces = ["a", "b+", "[ab]", "(ab|ba)", ".", "c?", "abc", "^", "$", "[^a]*", "(?i)A", r"\bb"];
        let mut random = Random::new(1);
        let mut next = |end: usize| random.below(end as u64) as usize;
        for _ in 0..60 {
            let count = 1 + next(40);
            let mut pattern = || (0..=next(4)).map(|_| pieces[next(pieces.len())]).collect::<String>();
            let patterns: Vec<String> = (0..count).map(|_| pattern()).collect();
            let anchor = [Anchor::None, Anchor::Start, Anchor::Both][next(3)];
            let matcher = set(&patterns, anchor);
            for _ in 0..20 {
                let text: String = (0..next(12)).map(|_| ['a', 'b', 'c', 'A', '\n'][next(5)]).collect();
                let alone =
                    |p: &String| !set(std::slice::from_ref(p), anchor).matches(text.as_bytes()).is_empty();
                let expected: Vec<u32> =
                    (0..count as u32).filter(|i| alone(&patterns[*i as usize])).collect();
                assert_eq!(matcher.matches(text.as_bytes()), expected, "{patterns:?} on {text:?}");
            }
        }
    }

    #[test]
    fn sets_beyond_the_limit_fail() {
        let parsed: Vec<Hir> = (0..300)
            .map(|i| parse(format!("({i}[a-z]{{900}}x)").as_bytes(), Options::default()).expect("valid"))
            .collect();
        assert_eq!(Matcher::new(&parsed, 100_000).err().as_deref(), Some("possibly insufficient memory"));
    }

    #[test]
    fn a_text_that_selects_every_pattern_takes_bounded_time() {
        let patterns: Vec<String> = (0..2000).map(|i| format!("/a.*/[0-9]+{}", i % 7)).collect();
        let matcher = set(&patterns, Anchor::None);
        let start = Instant::now();
        assert!(!matcher.matches("/a/1234".repeat(100).as_bytes()).is_empty());
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    /// Run with `cargo test --release -p lacquer-vmods --lib figures -- --ignored --nocapture`. `bench/run modules` reads
    /// the lines that begin with `figure`.
    #[test]
    #[ignore = "prints figures"]
    fn figures_of_a_large_set() {
        let patterns: Vec<String> = (0..10_000)
            .map(|i| match i % 4 {
                0 => format!("^/shop/[a-z]+/item-{i}/"),
                1 => format!("/category-{i}/.*\\.html$"),
                2 => format!("^/u/{i}(/|$)"),
                _ => format!("(old|legacy)/page{i}\\.(php|asp)"),
            })
            .collect();
        let start = Instant::now();
        let matcher = set(&patterns, Anchor::None);
        println!("compiled in {:?}", start.elapsed());
        let texts =
            ["/shop/shoes/item-4712/", "/category-4713/index.html", "/u/4714", "/x/old/page4715.php?a=b"];
        let misses = ["/static/js/main.3f2a1c.js?v=12", "/u/none/of/these", "/shop/shoes/item-x/"];
        let parsed: Vec<Hir> =
            patterns.iter().map(|p| parse(p.as_bytes(), Options::default()).expect("valid")).collect();
        let plain = Automaton::new(&parsed, (0..10_000).collect(), usize::MAX).expect("valid");
        let found = texts.iter().map(|text| (text, "match"));
        for (text, kind) in found.chain(misses.iter().map(|text| (text, "miss"))) {
            const ROUNDS: u32 = 20_000;
            let start = Instant::now();
            for _ in 0..ROUNDS {
                std::hint::black_box(matcher.matches(std::hint::black_box(text.as_bytes())));
            }
            let each = start.elapsed() / ROUNDS;
            let start = Instant::now();
            for _ in 0..20 {
                plain.add_matches(text.as_bytes(), &mut Vec::new());
            }
            println!("{text}: {each:?}; without literals {:?}", start.elapsed() / 20);
            println!("figure\tre2 {kind}\t{}", each.as_nanos());
        }
    }
}
