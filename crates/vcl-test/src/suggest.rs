//! Hints for words that are not known.

use lacquer_params::nearest;

/// Returns a question for the most similar known word.
pub fn suggest(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known.iter().copied()).map(|known| format!("did you mean {known}?"))
}
