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

    /// Reads `director name type { { .backend = b; .weight = 1; } ... }`. Writes its comments and the backends that are
    /// declared in it.
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
        self.lines_of_comments(at + 1, open + 1);
        let mut member = open + 1;
        while member < close {
            if self.kind(member) == Tok::LBrace {
                let end = self.ends.get(&member).copied().unwrap_or(member);
                let number = director.members.len() + 1;
                self.lines_of_comments(member, member + 1);
                let found = self.member(member + 1, end, &format!("{name}_{number}"));
                self.lines_of_comments(end, end + 1);
                director.members.push(found);
                member = end + 1;
            } else if self.kind(member) == Tok::Semi {
                self.lines_of_comments(member, member + 1);
                member += 1;
            } else {
                member = self.lost_field(member, close);
            }
        }
        self.lines_of_comments(close, close + 1);
        let marks = std::mem::take(&mut self.out.marks);
        self.mark_all(&marks);
        self.directors.insert(name, director);
        // A comment must not contain the declaration that follows on the same line.
        let next = self.gap(close + 1);
        if !next[..next.len() - next.trim_ascii_start().len()].contains(&b'\n') {
            self.write("\n");
        }
        Ok(close + 1)
    }

    /// Writes the comments before tokens that are not copied, each on lines of its own.
    fn lines_of_comments(&mut self, from: usize, to: usize) {
        for at in from..to {
            let comments = self.gap(at).trim_ascii();
            if !comments.is_empty() {
                self.write("\n");
                self.out.text.extend_from_slice(comments);
            }
        }
    }

    /// Adds a mark for a field of a director that has no counterpart. Returns the index after it.
    fn lost_field(&mut self, at: usize, limit: usize) -> usize {
        let end = self.end_of_declaration(at).min(limit);
        let mut shown = String::new();
        for word in (at..end).flat_map(|token| self.word(token).split_whitespace()) {
            if !shown.is_empty() && !shown.ends_with('.') && word != ";" {
                shown.push(' ');
            }
            shown.push_str(word);
        }
        self.out.marks.push(format!("there is no replacement for this: {shown}"));
        self.lines_of_comments(at, end);
        end
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
                    own_name.clone_into(&mut backend);
                    self.lines_of_comments(at, value);
                    self.write(&format!("\nbackend {own_name}"));
                    let statement = self.out.statement;
                    at = self.fields(value);
                    // Marks of the director remain before it.
                    self.out.statement = statement;
                    continue;
                }
                ("backend", _) => self.word(value).clone_into(&mut backend),
                ("weight", _) => {
                    let number = self.word(value);
                    weight = if number.contains('.') { number.to_owned() } else { format!("{number}.0") };
                }
                _ if self.kind(at) == Tok::Semi => {}
                _ => {
                    at = self.lost_field(at, to);
                    continue;
                }
            }
            let end = self.end_of_statement(at).max(at + 1);
            self.lines_of_comments(at, end);
            at = end;
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
