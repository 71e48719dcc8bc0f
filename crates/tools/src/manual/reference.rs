//! A reference: names with their meaning, from the tables that define them.

/// A page of a reference. Its texts mark code by backticks, and separate paragraphs by empty lines.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The name of the manual page.
    pub name: &'static str,
    pub title: &'static str,
    /// The version for the footer of the manual page.
    pub version: String,
    pub summary: &'static str,
    pub about: String,
    pub groups: Vec<Group>,
    pub see_also: &'static [&'static str],
}

/// Entries that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    pub title: String,
    pub about: String,
    pub entries: Vec<Entry>,
}

/// A name with its meaning.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// Short statements, such as a default.
    pub facts: Vec<String>,
    /// The meaning. Each line is one of its own.
    pub text: String,
}
