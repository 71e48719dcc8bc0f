//! Manual pages and shell completions, from the tables that also parse command lines.

mod bash;
mod fish;
mod man;
mod page;
mod reference;
#[cfg(test)]
mod tests;
mod zsh;

pub use bash::bash;
pub use fish::fish;
pub use man::{man, man_of_reference};
pub use page::{page, page_of_reference};
pub use reference::{Entry, Group, Reference};
pub use zsh::zsh;

/// A program. It has commands, or options of its own.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub name: &'static str,
    /// The version and date for the footer of its page.
    pub version: String,
    pub summary: &'static str,
    pub about: &'static str,
    pub commands: Vec<Subcommand>,
    /// Titles, and the options below them.
    pub groups: Vec<(&'static str, Vec<Flag>)>,
    pub see_also: &'static [&'static str],
}

/// A command of a program. Its name may have two words.
#[derive(Clone, Debug)]
pub struct Subcommand {
    pub name: &'static str,
    /// The name of the operand and its meaning.
    pub operand: Option<(&'static str, &'static str)>,
    pub summary: &'static str,
    pub about: &'static str,
    pub options: Vec<Flag>,
    pub examples: &'static [(&'static str, &'static str)],
}

/// An option.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The name without dashes. A name of one letter has one dash, another one has two.
    pub name: &'static str,
    /// The name of its value; empty if it has none.
    pub value: &'static str,
    pub help: String,
}

impl Flag {
    /// Returns the option as it is typed.
    fn dashed(&self) -> String {
        let dashes = if self.name.len() == 1 { "-" } else { "--" };
        format!("{dashes}{}", self.name)
    }

    fn is_long(&self) -> bool {
        self.name.len() > 1
    }
}

impl Program {
    /// Returns the first words of all commands, each once.
    fn first_words(&self) -> Vec<&'static str> {
        let mut words: Vec<&str> = self.commands.iter().map(|command| command.words().0).collect();
        words.dedup();
        words
    }

    /// Returns the commands whose name has two words, of which this is the first one.
    fn below(&self, first: &str) -> Vec<&Subcommand> {
        let is_below = |command: &&Subcommand| command.words().0 == first && command.words().1.is_some();
        self.commands.iter().filter(is_below).collect()
    }

    /// Returns the first words of commands with two.
    fn families(&self) -> Vec<&'static str> {
        let is_family = |first: &&str| !self.below(first).is_empty();
        self.first_words().into_iter().filter(is_family).collect()
    }

    /// Returns all options that are not those of a command.
    fn own_options(&self) -> impl Iterator<Item = &Flag> {
        self.groups.iter().flat_map(|(_, options)| options)
    }
}

impl Subcommand {
    fn words(&self) -> (&'static str, Option<&'static str>) {
        match self.name.split_once(' ') {
            Some((first, second)) => (first, Some(second)),
            None => (self.name, None),
        }
    }
}

/// Returns the first line of a text.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
