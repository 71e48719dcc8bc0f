//! Directors, which are objects of the module `directors` now.

use std::fmt::Write as _;

use super::director::{Director, EARLY_CHOICE};
use super::rewriter::{Fault, MARK, Res, Rewriter};
use lacquer_vcl::tokens::Tok;

impl Rewriter<'_> {
    /// Records the names of all directors, which subroutines before them may use, and the default: the first backend or
    /// director, or that with the name `default`.
    pub fn find_directors(&mut self) {
        let mut at = 0;
        while self.kind(at) != Tok::Eoi {
            if let (word @ ("backend" | "director"), Tok::Id) = (self.word(at), self.kind(at + 1)) {
                let name = self.word(at + 1);
                if self.default_origin.is_empty() || name == "default" {
                    name.clone_into(&mut self.default_origin);
                }
                if word == "director" && self.kind(at + 2) == Tok::Id {
                    let (kind, object) = (self.word(at + 2).to_owned(), self.object_name(name));
                    self.directors.insert(name.to_owned(), Director { kind, object, members: Vec::new() });
                }
            }
            at = if self.kind(at) == Tok::Csrc { at + 1 } else { self.end_of_declaration(at).max(at + 1) };
        }
    }

    /// Returns the name of a director's object: its own, or another one if that is a reserved word.
    fn object_name(&self, name: &str) -> String {
        let mut object = name.to_owned();
        while object == "default" || object != name && self.tokens_contain(&object) {
            object.push_str("_director");
        }
        object
    }

    fn tokens_contain(&self, word: &str) -> bool {
        (0..self.tokens.len()).any(|at| self.word(at) == word)
    }

    /// Returns a `vcl_recv` that selects the director that had been the default, and whether a human must look at it. A
    /// default can only be a backend now. It runs before all others, also before those of included files.
    pub fn default_director(&self) -> (String, bool) {
        let director = self.directors.get(&self.default_origin);
        let Some(director) = director.filter(|director| director.module_type().is_some()) else {
            return (String::new(), false);
        };
        let choice = director.choice(false);
        let is_marked = !director.selectors().is_empty();
        let mark = if is_marked { format!("    {MARK} {EARLY_CHOICE}\n") } else { String::new() };
        let text = format!(
            "\n# The director {} was the default: the first one, or that with the name default.\n\
             sub vcl_recv {{\n{mark}    set req.backend_hint = {choice};\n}}\n",
            self.default_origin
        );
        (text, is_marked)
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
        let object = self.object_name(&name);
        let mut director = Director { kind, object, members: Vec::new() };
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
        for director in self.directors.values() {
            let Some(kind) = director.module_type() else { continue };
            let name = &director.object;
            let _ = writeln!(text, "    new {name} = directors.{kind}();");
            for (backend, weight) in &director.members {
                let weight = if director.is_weighted() { format!(", {weight}") } else { String::new() };
                let _ = writeln!(text, "    {name}.add_backend({backend}{weight});");
            }
        }
        text
    }
}
