//! Rewrites VCL of versions 2, 3 and 4.0 to 4.1.
//!
//! The text is rewritten from its tokens, so comments and white space remain. Where the old text has no exact
//! counterpart, a comment that begins with [`MARK`] says what a human must decide.

mod actions;
mod context;
mod declarations;
mod director;
mod directors;
mod expressions;
mod fetch_end;
mod part;
mod reading;
mod request;
mod rewriter;
mod statements;
#[cfg(test)]
mod tests;
mod usage;
mod variables;

pub use part::SUBROUTINES;
pub use rewriter::{MARK, Upgraded};

use std::collections::BTreeMap;

use lacquer_vcl::Diagnostic;
use lacquer_vcl::tokens::{Tok, Token, error_at, tokens};
use rewriter::{Fault, Res, Rewriter};

/// Maximum depth of blocks and parentheses.
const MAX_DEPTH: usize = 200;

/// Rewrites a text. Fails if it has no structure: if a brace or parenthesis is not closed, or a token is unknown.
///
/// A text of statements is a part of a subroutine, which an `include` there reads. `sub` names that subroutine; without
/// it, the statements tell, and the function fails if they do not.
pub fn upgrade(name: &str, text: &[u8], sub: Option<&str>) -> Result<Upgraded, Box<Diagnostic>> {
    let list = tokens(name, text)?;
    let fail = |fault: Fault| error_at(name, text, list[fault.token].span, &fault.message);
    let ends = matching_ends(&list).map_err(fail)?;
    let mut rewriter = Rewriter::new(text, &list, &ends);
    let part_of = match sub {
        Some(_) => sub,
        None => rewriter.sub_of_part().map_err(fail)?,
    };
    if let Some(sub) = part_of {
        return rewriter.run_part(sub).map_err(fail);
    }
    rewriter.find_directors();
    rewriter.find_usage();
    rewriter.run().map_err(fail)
}

/// Returns for each opening brace and parenthesis the token that closes it.
fn matching_ends(tokens: &[Token]) -> Res<BTreeMap<usize, usize>> {
    let mut open: Vec<usize> = Vec::new();
    let mut ends = BTreeMap::new();
    for (at, token) in tokens.iter().enumerate() {
        let opener = match token.kind {
            Tok::LBrace | Tok::LParen => {
                if open.len() == MAX_DEPTH {
                    return Err(Fault {
                        token: at,
                        message: format!("the text nests deeper than {MAX_DEPTH} levels"),
                    });
                }
                open.push(at);
                continue;
            }
            Tok::RBrace => Tok::LBrace,
            Tok::RParen => Tok::LParen,
            _ => continue,
        };
        match open.pop() {
            Some(start) if tokens[start].kind == opener => {
                ends.insert(start, at);
            }
            _ => return Err(Fault { token: at, message: "this closes nothing".to_owned() }),
        }
    }
    match open.pop() {
        Some(start) => Err(Fault { token: start, message: "this is never closed".to_owned() }),
        None => Ok(ends),
    }
}
