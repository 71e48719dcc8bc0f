//! `lacquer why`: sends a request and explains what became of it.
//!
//! The request is found in the log by the address of its connection, which no VCL can change. The explanation is a
//! function of its records ([`explain`]); [`ask`] collects them.

mod decide;
mod explanation;
mod history;
mod lifetime;
mod sentences;
mod steps;
mod story;
#[cfg(test)]
mod tests;
mod ttl;
mod watch;

pub use decide::{Absence, Decision, Outcome, Reason, decide};
pub use explanation::{Explanation, explain};
pub use history::{Change, Historian, Past, PastFetch, PastPurge, Removal};
pub use lifetime::{Obstacle, Source, Storing};
pub use steps::Step;
pub use story::{Ban, Place, SourceText, Story, WRITTEN, parse_bans, parse_sources};
pub use ttl::Lifetime;
pub use watch::{Answer, Question, ask, ask_with};
