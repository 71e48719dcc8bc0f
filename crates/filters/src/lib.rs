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

/// Filters in a row, each with its output buffer.
#[derive(Default)]
pub struct Chain {
    filters: Vec<(Box<dyn Filter>, Vec<u8>)>,
}

impl Chain {
    pub fn new(filters: Vec<Box<dyn Filter>>) -> Chain {
        Chain { filters: filters.into_iter().map(|f| (f, Vec::new())).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.filters.last().is_some_and(|(f, _)| f.is_done())
    }

    /// What all filters have to tell, the last one first.
    pub fn report(&mut self) -> Report {
        let mut report = Report::default();
        for (filter, _) in self.filters.iter_mut().rev() {
            filter.report(&mut report);
        }
        report
    }

    /// Pushes a piece through all filters; what comes out is valid until the next call.
    pub fn push<'c>(&'c mut self, input: &'c [u8], end: bool) -> Result<&'c [u8], String> {
        for i in 0..self.filters.len() {
            let (before, rest) = self.filters.split_at_mut(i);
            let piece = before.last().map_or(input, |(_, out)| out.as_slice());
            let (filter, out) = &mut rest[0];
            out.clear();
            filter.push(piece, end, out)?;
        }
        Ok(self.filters.last().map_or(input, |(_, out)| out.as_slice()))
    }
}
