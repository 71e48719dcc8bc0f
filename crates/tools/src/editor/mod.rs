//! Answers the questions of editors about VCL: which name stands at a place, what it means, and what may follow. They are
//! functions from texts to values; the caller reads files and knows the editor's protocol.
//!
//! A text may be incomplete while it is typed, so nothing here depends on its correctness: names are found among the
//! tokens of all texts of a program.

mod catalogue;
mod complete;
mod hover;
mod outline;
mod position;
#[cfg(test)]
mod tests;
mod word;

pub use catalogue::methods;
pub use complete::{Candidate, CandidateKind, complete};
pub use hover::hover;
pub use outline::{Declared, Include, Kind, Mention, Outline, is_name};
pub use position::{Encoding, Lines, Position};
pub use word::{Word, word_at};
