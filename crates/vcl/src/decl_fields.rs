//! The fields `.name = value` of a declaration: each is known and set at most once.

use crate::compiler::{Compiler, Res};
use crate::lexer::Tok;
use crate::symbols::TokenId;

/// The fields that a declaration supports, and the token of each field that is set.
pub(crate) struct Fields {
    known: &'static [&'static str],
    found: Vec<Option<TokenId>>,
}

impl Fields {
    pub fn new(known: &'static [&'static str]) -> Fields {
        Fields { known, found: vec![None; known.len()] }
    }
}

impl Compiler<'_> {
    /// Parses `.name =`. Returns the name's token.
    pub fn field(&mut self, fields: &mut Fields) -> Res<TokenId> {
        self.skip(Tok::Dot)?;
        self.want(Tok::Id)?;
        let field = self.t;
        self.advance();
        self.skip(Tok::Assign)?;
        let name = self.quoted(field);
        let Some(index) = fields.known.iter().position(|k| *k == self.text(field)) else {
            if let Some(near) = lacquer_params::nearest(self.text(field), fields.known.iter().copied()) {
                self.hint(format!("did you mean '.{near}'?"));
            }
            return self.fail(format!("Unknown field: {name} at\n"), field);
        };
        if let Some(first) = fields.found[index] {
            self.add_text(format!("Field {name} redefined at:\n"));
            self.show(field);
            return self.fail("\nFirst defined at:\n", first);
        }
        fields.found[index] = Some(field);
        Ok(field)
    }

    /// Fails if another of these exclusive fields was already declared.
    pub fn only_one(&mut self, what: &str, seen: &mut Option<TokenId>, field: TokenId) -> Res<()> {
        if let Some(previous) = *seen {
            self.add_text(format!("{what} redefinition at:\n"));
            self.show(field);
            return self.fail("Previous definition:\n", previous);
        }
        *seen = Some(field);
        Ok(())
    }
}
