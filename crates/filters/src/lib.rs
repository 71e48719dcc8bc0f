//! Body processors: functions from bytes to bytes that know nothing of sockets or storage.
//!
//! A filter is pushed input and appends output; who drives it decides where both go. Pushing costs a
//! copy into the chain's buffer, which every filter here has to make anyway because it changes the bytes.
#![forbid(unsafe_code)]

mod deflate;
pub mod esi;
mod gzip;
mod range;
pub mod splice;

pub use gzip::{Gunzip, Gzip, TestGunzip};
pub use range::RangeOf;

/// The names in a list of filters, each with the list from there on.
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

/// What filters have to tell beside their output.
#[derive(Debug, Default)]
pub struct Report {
    /// Faults in ESI markup.
    pub notes: Vec<esi::EsiNote>,
    /// The ESI program, if the body had any ESI.
    pub program: Option<Vec<u8>>,
    /// Length of the body before it was packed, or after unpacking it.
    pub unpacked: Option<u64>,
    /// `Gzip` records.
    pub gzip: Vec<String>,
    pub work: Vec<Work>,
}

/// What one filter has done.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub name: &'static str,
    pub calls: u64,
    pub taken: u64,
    pub made: u64,
}

/// One body processor.
pub trait Filter {
    fn name(&self) -> &'static str;
    /// Takes a piece of the body; `end` says that it is the last. Output is appended.
    fn push(&mut self, input: &[u8], end: bool, out: &mut Vec<u8>) -> Result<(), String>;
    /// Adds what there is to tell. To be asked once, when the body has ended or will not be continued.
    fn report(&mut self, _report: &mut Report) {}
    /// Nothing more will come out, whatever goes in.
    fn is_done(&self) -> bool {
        false
    }
}

/// A filter of a chain, with its output buffer.
struct Stage {
    filter: Box<dyn Filter>,
    out: Vec<u8>,
    work: Work,
}

/// Filters in a row.
#[derive(Default)]
pub struct Chain {
    stages: Vec<Stage>,
}

impl Chain {
    pub fn new(filters: Vec<Box<dyn Filter>>) -> Chain {
        let stage = |filter: Box<dyn Filter>| {
            let work = Work { name: filter.name(), calls: 0, taken: 0, made: 0 };
            Stage { filter, out: Vec::new(), work }
        };
        Chain { stages: filters.into_iter().map(stage).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.stages.last().is_some_and(|s| s.filter.is_done())
    }

    /// What all filters have to tell, the last one first.
    pub fn report(&mut self) -> Report {
        let mut report = Report::default();
        for stage in self.stages.iter_mut().rev() {
            stage.filter.report(&mut report);
            report.work.push(stage.work);
        }
        report
    }

    /// Pushes a piece through all filters; what comes out is valid until the next call.
    pub fn push<'c>(&'c mut self, input: &'c [u8], end: bool) -> Result<&'c [u8], String> {
        for i in 0..self.stages.len() {
            let (before, rest) = self.stages.split_at_mut(i);
            let piece = before.last().map_or(input, |s| s.out.as_slice());
            let Stage { filter, out, work } = &mut rest[0];
            out.clear();
            work.calls += 1;
            work.taken += piece.len() as u64;
            filter.push(piece, end, out)?;
            work.made += out.len() as u64;
        }
        Ok(self.stages.last().map_or(input, |s| s.out.as_slice()))
    }
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
