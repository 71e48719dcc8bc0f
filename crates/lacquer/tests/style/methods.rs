//! Finds methods in source text: the types that a module implements, and the methods that it calls on `self` and on
//! parameters. Calls on other receivers are not resolved.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::source::{body_start, is_word, matching_brace, words};

/// A method and its type, by the names that the module uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Method {
    pub of: String,
    pub name: String,
}

#[derive(Debug, Default)]
pub struct Methods {
    /// The methods in `impl Type` blocks.
    pub defined: Vec<Method>,
    pub called: Vec<Method>,
}

/// An `impl Type` or `impl Trait for Type` block.
struct Block {
    body: Range<usize>,
    of: String,
    is_inherent: bool,
}

/// Returns the methods in `code`, which contains no comments and literals.
pub fn read(code: &str) -> Methods {
    let blocks: Vec<Block> = words(code, "impl").filter_map(|at| block(code, at)).collect();
    let mut methods = Methods::default();
    for at in words(code, "fn") {
        let Some(open) = body_start(code.as_bytes(), at) else { continue };
        let block = blocks.iter().find(|block| block.body.contains(&at));
        let name: String = code[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
        if let Some(block) = block.filter(|block| block.is_inherent) {
            methods.defined.push(Method { of: block.of.clone(), name });
        }
        let mut receivers = parameters(&code[at..open]);
        receivers.extend(block.map(|block| ("self", block.of.as_str())));
        calls(&code[open..matching_brace(code.as_bytes(), open)], &receivers, &mut methods.called);
    }
    methods
}

fn block(code: &str, at: usize) -> Option<Block> {
    let before = code[..at].trim_end();
    let begins = before.is_empty() || before.ends_with(['}', ';', ']', '{']) || before.ends_with("unsafe");
    let open = body_start(code.as_bytes(), at).filter(|_| begins)?;
    let header = without_generics(&code[at + "impl".len()..open]);
    let (is_inherent, of) = match header.split_once(" for ") {
        Some((_, of)) => (false, of),
        None => (true, header),
    };
    Some(Block {
        body: open..matching_brace(code.as_bytes(), open),
        of: type_name(of)?.to_owned(),
        is_inherent,
    })
}

/// Skips generic parameters such as `<'a, T: Bound>` at the beginning.
fn without_generics(header: &str) -> &str {
    let header = header.trim_start();
    if !header.starts_with('<') {
        return header;
    }
    let mut depth = 0;
    for (at, c) in header.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !header[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &header[at + 1..];
        }
    }
    header
}

/// Returns the last part of a type's path, without references and generic arguments.
fn type_name(of: &str) -> Option<&str> {
    let mut of = of.trim().trim_start_matches('&').trim_start();
    if let Some(rest) = of.strip_prefix('\'') {
        of = rest.trim_start_matches(is_word).trim_start();
    }
    let of = of.strip_prefix("mut ").unwrap_or(of).trim_start();
    let path = of.split(|c: char| !is_word(c) && c != ':').next()?;
    path.rsplit("::").next().filter(|name| name.starts_with(char::is_uppercase))
}

/// Returns the types of a function's parameters by parameter name, for types that have a name.
fn parameters(signature: &str) -> BTreeMap<&str, &str> {
    let typed = |(at, _): (usize, &str)| {
        let name = signature[..at].rsplit(|c| !is_word(c)).next()?;
        Some((name, type_name(&signature[at + 1..])?))
    };
    let colons = signature
        .match_indices(':')
        .filter(|&(at, _)| !signature[at + 1..].starts_with(':') && !signature[..at].ends_with(':'));
    colons.filter_map(typed).collect()
}

fn calls(body: &str, receivers: &BTreeMap<&str, &str>, into: &mut Vec<Method>) {
    for (at, _) in body.match_indices('.') {
        let before = body[..at].trim_end();
        let receiver = before.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let is_part = before[..before.len() - receiver.len()].trim_end().ends_with('.');
        let name: String = body[at + 1..].chars().take_while(|c| is_word(*c)).collect();
        let is_call = body[at + 1 + name.len()..].starts_with(['(', ':']);
        if let Some(of) = receivers.get(receiver).filter(|_| is_call && !is_part && !name.is_empty()) {
            into.push(Method { of: (*of).to_owned(), name });
        }
    }
}

#[test]
fn methods_of_self_and_of_parameters_are_found() {
    let code = "impl<'a, F: Fn(u8) -> u8> Thing<'a, F> { fn a(&self, other: &'a mut part::Other) {
        self.b(); self.field.c(); other\n.d(); x.e(); } }
        impl Trait for Thing { fn t(&self) { self.f::<u8>() } }
        fn free(thing: Thing, n: impl Fn() -> u8) { thing.g(1..n.len()); other.h() }";
    let named = |methods: Vec<Method>| methods.into_iter().map(|m| format!("{}.{}", m.of, m.name)).collect();
    let Methods { defined, called } = read(code);
    let (defined, called): (Vec<_>, Vec<_>) = (named(defined), named(called));
    assert_eq!(defined, ["Thing.a"]);
    assert_eq!(called, ["Thing.b", "Other.d", "Thing.f", "Thing.g"]);
}
