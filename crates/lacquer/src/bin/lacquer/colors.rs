//! Whether output has colors.

/// Returns whether a text for an output has colors: on a terminal, unless the user does not want them (`NO_COLOR`) or
/// the terminal has none.
pub fn wanted(is_terminal: bool) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
