//! Finds a brace that is never closed. The compiler reports it where the text cannot continue, which is often in the
//! built-in VCL behind it.

use lacquer_vcl::Diagnostic;
use lacquer_vcl::places::is_builtin;
use lacquer_vcl::tokens::{Tok, Token, error_at, tokens};

/// Words that begin declarations, and no statement.
const DECLARATIONS: [&[u8]; 6] = [b"sub", b"backend", b"acl", b"probe", b"import", b"vcl"];

/// Returns the error of a brace that is never closed, if the compiler's errors can be its consequences.
pub(crate) fn unclosed_brace(name: &str, text: &[u8], errors: &[Diagnostic]) -> Option<Diagnostic> {
    if !errors.iter().any(is_at_declaration) {
        return None;
    }
    let list = tokens(name, text).ok()?;
    let brace = unclosed(text, &list)?;
    let mut error = error_at(name, text, list[brace].span, "This brace is never closed.");
    error.hint = Some("write the missing } at the end of its block".to_owned());
    Some(*error)
}

/// Returns whether an error is in the built-in VCL, or at the first words of a declaration.
fn is_at_declaration(error: &Diagnostic) -> bool {
    error.place().is_some_and(|place| {
        let before = place.text.get(..place.start).unwrap_or_default().trim_ascii();
        let at = place.text.get(place.start..place.end).unwrap_or_default();
        is_builtin(&place.file)
            || before.is_empty() && DECLARATIONS.contains(&at)
            || DECLARATIONS.contains(&before)
    })
}

/// Returns the innermost open brace at the end of the text, or before a declaration within a block.
fn unclosed(text: &[u8], tokens: &[Token]) -> Option<usize> {
    let mut open = Vec::new();
    let mut before = Tok::Eoi;
    for (at, token) in tokens.iter().enumerate() {
        let word = &text[token.span.start as usize..token.span.end as usize];
        let begins = matches!(before, Tok::LBrace | Tok::RBrace | Tok::Semi);
        match token.kind {
            Tok::LBrace => open.push(at),
            Tok::RBrace => drop(open.pop()),
            Tok::Id if begins && !open.is_empty() && DECLARATIONS.contains(&word) => break,
            _ => {}
        }
        before = token.kind;
    }
    open.pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_vcl::{NoFiles, NoModules, NumericResolver, Options, compile};

    fn found(text: &str) -> Option<(u32, u32)> {
        let text = format!("vcl 4.1;\nbackend b none;\n{text}");
        let options = Options { max_errors: 10, ..Options::new(&NoModules, &NoFiles, &NumericResolver) };
        let errors = compile("a.vcl", text.as_bytes(), &options).expect_err("it is wrong");
        let error = unclosed_brace("a.vcl", text.as_bytes(), &errors)?;
        assert!(error.pretty().contains("never closed"), "{error}");
        Some((error.line()?, error.column()?))
    }

    #[test]
    fn a_brace_that_is_never_closed_is_found() {
        for (text, place) in [
            ("sub vcl_recv {", (3, 14)),
            ("sub vcl_recv {\n  if (true) {\n    return (pass);\n}\n\nsub vcl_deliver {\n}\n", (3, 14)),
            ("sub vcl_recv {\n  if (true) {\n    return (pass);\n  }\n", (3, 14)),
            ("sub vcl_recv {\n  if (true) {\n    return (pass);\n", (4, 13)),
            ("backend c {\n  .host = \"127.0.0.1\";\nsub vcl_recv {\n}\n", (3, 11)),
            ("sub vcl_recv {\n  if (true) {\nsub vcl_deliver {\n}\n}\n}\n", (4, 13)),
        ] {
            assert_eq!(found(text), Some(place), "{text}");
        }
        for text in ["sub vcl_recv { set req.nothing = 1; }", "sub vcl_recv { } }"] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
