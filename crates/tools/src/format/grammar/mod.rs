//! The grammar of VCL without names and types: checks a text and decides where each token stands.

mod declarations;
mod expressions;
mod parser;
mod statements;

pub use parser::{Fault, Lead, Place};

use lacquer_vcl::tokens::Token;
use parser::Parser;

/// Returns the place of each token.
pub fn places(text: &[u8], tokens: &[Token]) -> Result<Vec<Place>, Fault> {
    let places = Vec::with_capacity(tokens.len());
    let mut parser = Parser { text, tokens, places, level: 0, parens: 0, one_line: false };
    parser.file()?;
    Ok(parser.places)
}
