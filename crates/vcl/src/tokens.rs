//! The tokens of a text, for tools that work on the text and not on the program.

pub use crate::lexer::{Tok, Token};
pub use crate::source::Span;

use crate::diagnostics::{Diagnostic, Piece};
use crate::lexer::{LexError, lex};
use crate::source::{SourceText, place};
use crate::text::Text;

/// Returns the tokens of a text. The last one is the end of input. Fails at a character that begins no token.
pub fn tokens(name: &str, text: &[u8]) -> Result<Vec<Token>, Box<Diagnostic>> {
    if u32::try_from(text.len()).is_err() {
        return Err(Box::new(Diagnostic::plain_error(format!("File \"{name}\" is too large.\n"))));
    }
    lex(0, text).map_err(|LexError { message, spans }| {
        let mut diagnostic = Diagnostic::plain_error(message);
        diagnostic.hint =
            spans.first().and_then(|span| crate::hints::for_lexical_error(text, span.start as usize));
        let source = [SourceText::new(name, Text::from(text), None)];
        diagnostic.pieces.extend(spans.iter().map(|span| Piece::Place(place(&source, *span))));
        crate::hints::improve(&mut diagnostic);
        Box::new(diagnostic)
    })
}

/// Returns an error at a token of a text.
pub fn error_at(name: &str, text: &[u8], span: Span, message: &str) -> Box<Diagnostic> {
    let mut diagnostic = Diagnostic::plain_error(message);
    let source = [SourceText::new(name, Text::from(text), None)];
    diagnostic.pieces.push(Piece::Place(place(&source, span)));
    Box::new(diagnostic)
}
