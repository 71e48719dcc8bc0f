//! Directors, which are objects of the module `directors` now.

use std::fmt::Write as _;

use super::director::Director;
use super::rewriter::{Fault, Res, Rewriter};
use lacquer_vcl::tokens::Tok;

impl Rewriter<'_> {
    /// Records the names of all directors, which subroutines before them may use.
    pub fn find_directors(&mut self) {
        for at in 0..self.tokens.len() {
            if self.word(at) == "director" && self.kind(at + 1) == Tok::Id && self.kind(at + 2) == Tok::Id {
                let kind = self.word(at + 2).to_owned();
                self.directors.insert(self.word(at + 1).to_owned(), Director { kind, ..Director::default() });
            }
        }
    }

    /// Reads `director name type { { .backend = b; .weight = 1; } ... }`. Writes the backends that are declared in it.
    pub fn director(&mut self, at: usize) -> Res<usize> {
        let (name, kind) = (self.word(at + 1).to_owned(), self.word(at + 2).to_owned());
        let open = at + 3;
        let Some(&close) = self.ends.get(&open).filter(|_| self.kind(open) == Tok::LBrace) else {
            return Err(Fault {
                token: at,
                message: "a director needs a name, a type and a block".to_owned(),
            });
        };
        self.import("directors");
        self.begin(at);
        self.write(&format!("# The director {name} is made in vcl_init."));
        let mut director = Director { kind, members: Vec::new() };
        if director.module_type().is_none() {
            self.mark(&format!("there is no director of type {}", director.kind));
        } else if director.kind == "dns" {
            self.mark("list the servers: there is no dns director");
        }
        let mut member = open + 1;
        while member < close {
            if self.kind(member) == Tok::LBrace {
                let end = self.ends.get(&member).copied().unwrap_or(member);
                let number = director.members.len() + 1;
                let found = self.member(member + 1, end, &format!("{name}_{number}"));
                director.members.push(found);
                member = end + 1;
            } else {
                member = self.end_of_statement(member).max(member + 1);
            }
        }
        self.directors.insert(name, director);
        Ok(close + 1)
    }

    /// Reads a member of a director: the name of its backend, and its weight.
    fn member(&mut self, from: usize, to: usize, own_name: &str) -> (String, String) {
        let (mut backend, mut weight) = (String::new(), "1.0".to_owned());
        let mut at = from;
        while at < to {
            let field = self.word(at + 1);
            let value = at + 3;
            match (field, self.kind(value)) {
                ("backend", Tok::LBrace) => {
                    let end = self.ends.get(&value).copied().unwrap_or(value);
                    own_name.clone_into(&mut backend);
                    self.write(&format!("\nbackend {own_name} "));
                    self.write("{");
                    (value + 1..=end).for_each(|token| self.copy(token));
                    at = end + 1;
                    continue;
                }
                ("backend", _) => self.word(value).clone_into(&mut backend),
                ("weight", _) => {
                    let number = self.word(value);
                    weight = if number.contains('.') { number.to_owned() } else { format!("{number}.0") };
                }
                _ => {}
            }
            at = self.end_of_statement(at).max(at + 1);
        }
        (backend, weight)
    }

    /// Returns the statements of `vcl_init` that make the directors.
    pub fn director_statements(&self) -> String {
        let mut text = String::new();
        for (name, director) in &self.directors {
            let Some(kind) = director.module_type() else { continue };
            let _ = writeln!(text, "    new {name} = directors.{kind}();");
            for (backend, weight) in &director.members {
                let weight = if director.is_weighted() { format!(", {weight}") } else { String::new() };
                let _ = writeln!(text, "    {name}.add_backend({backend}{weight});");
            }
        }
        text
    }
}
