//! The format of test files: lines of text, in which the details of a statement are indented below it. docs/vcl-test.md
//! describes it.

mod condition;
mod details;
mod lines;
mod model;
mod quantity;
mod statements;
#[cfg(test)]
mod tests;
mod words;

pub use condition::Condition;
pub use lines::Fault;
pub use model::{
    Action, Answer, Check, ClientRequest, Count, ExpectedFetch, ExpectedResponse, Field, Health, OriginRule,
    Page, Step, Subject, Suite, Test,
};

/// Parses a test file.
pub fn parse(text: &[u8]) -> Result<Suite, Fault> {
    statements::parse(lines::split(text)?)
}
