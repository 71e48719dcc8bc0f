//! Body filters: functions from bytes to bytes that are independent of sockets and storage.
//!
//! A filter takes input and appends output, one bounded step at a time. The driver decides where both go and when the
//! next step runs ([`Chain`]). A step costs a copy into the chain's buffer, which every filter here has to make
//! anyway because it changes the bytes.
#![forbid(unsafe_code)]

mod chain;
mod deflate;
pub mod esi;
mod gzip;
mod range;
pub mod splice;

pub use chain::{Chain, STEP_MAX};
pub use gzip::{Gunzip, Gzip, TestGunzip};
pub use range::RangeOf;

/// Returns the names in a list of filters, each with the rest of the list from that name on.
pub fn names(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let is_space = |b: u8| b.is_ascii_whitespace() || b == 0x0b;
    let mut rest = list;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|&b| !is_space(b))?;
        let from_here = &rest[start..];
        let end = from_here.iter().position(|&b| is_space(b)).unwrap_or(from_here.len());
        rest = &from_here[end..];
        Some((&from_here[..end], from_here))
    })
}

/// The results of filters in addition to their output.
#[derive(Debug, Default)]
pub struct Report {
    /// Errors in ESI markup.
    pub notes: Vec<esi::EsiNote>,
    /// The ESI program, if the body has ESI markup.
    pub program: Option<Vec<u8>>,
    /// The length of the uncompressed body, if it was compressed or decompressed completely.
    pub unpacked: Option<u64>,
    /// The texts of `Gzip` records.
    pub gzip: Vec<String>,
    pub work: Vec<Work>,
}

/// The statistics of one filter.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub name: &'static str,
    pub calls: u64,
    pub taken: u64,
    pub made: u64,
}

/// The reason why a filter stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// All input was consumed. Only more input yields more output.
    Taken,
    /// The output has the length of a step. The filter continues after it was taken.
    Full,
}

/// A body filter.
pub trait Filter {
    fn name(&self) -> &'static str;
    /// Consumes bytes from the front of `input` and appends output, until there is no more input or `out` has `step`
    /// bytes. `end` marks `input` as the last piece.
    fn push(&mut self, input: &mut &[u8], end: bool, out: &mut Vec<u8>, step: usize) -> Result<Flow, String>;
    /// Returns whether output is passed on only in whole steps and at the end.
    fn fills_steps(&self) -> bool {
        false
    }
    /// Adds the filter's results to the report. Called once, when the body has ended or will not be continued.
    fn report(&mut self, _report: &mut Report) {}
    /// Returns whether no input can yield more output.
    fn is_done(&self) -> bool {
        false
    }
}

/// Removes at most `most` bytes from the front of `input` and returns them.
fn take_front<'i>(input: &mut &'i [u8], most: usize) -> &'i [u8] {
    let (front, rest) = input.split_at(input.len().min(most));
    *input = rest;
    front
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_list_is_split_at_any_blank() {
        let list: Vec<_> = names(b" gunzip\tesi\n nope  ").collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"gunzip", b"gunzip\tesi\n nope  "), (b"esi", b"esi\n nope  "), (b"nope", b"nope  ")];
        assert_eq!(list, expected);
        assert_eq!(names(b" \x0b ").count(), 0);
    }
}
