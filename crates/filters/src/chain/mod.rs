//! Runs filters one after the other, in bounded steps.
//!
//! The caller drives the chain: it offers input and takes output until there is none, and may wait between calls. No
//! stage holds more than one step of output, however much the input expands. So a client that does not read costs one
//! step for each filter, and the state of the filters themselves.

use crate::{Filter, Flow, Report, Work};

/// The maximum number of bytes that a filter produces before they are taken.
pub const STEP_MAX: usize = 64 * 1024;
/// The minimum length of a step. Shorter steps would cost more in calls than they save in memory.
const STEP_MIN: usize = 2 * 1024;

/// A filter, with the output that the next one has not taken yet.
struct Stage {
    filter: Box<dyn Filter>,
    out: Vec<u8>,
    /// The number of bytes of `out` that the next stage has taken.
    taken: usize,
    /// Whether the filter stopped because its step was full.
    is_full: bool,
    has_ended: bool,
    work: Work,
}

impl Stage {
    fn new(filter: Box<dyn Filter>) -> Stage {
        let work = Work { name: filter.name(), calls: 0, taken: 0, made: 0 };
        Stage { filter, out: Vec::new(), taken: 0, is_full: false, has_ended: false, work }
    }

    /// Returns the output that may be taken now.
    fn ready(&self) -> &[u8] {
        if self.filter.fills_steps() && !self.is_full && !self.has_ended {
            return &[];
        }
        &self.out[self.taken..]
    }

    /// Runs the filter on `input`. It consumes as much as its step has room for.
    fn run(&mut self, input: &mut &[u8], end: bool, step: usize) -> Result<(), String> {
        if self.taken == self.out.len() {
            self.out.clear();
            self.taken = 0;
        }
        if !self.is_full {
            self.work.calls += 1;
        }
        let (offered, held) = (input.len(), self.out.len());
        let flow = self.filter.push(input, end, &mut self.out, step)?;
        self.is_full = flow == Flow::Full;
        self.has_ended = end && !self.is_full;
        self.work.taken += (offered - input.len()) as u64;
        self.work.made += (self.out.len() - held) as u64;
        Ok(())
    }
}

/// A sequence of filters.
#[derive(Default)]
pub struct Chain {
    stages: Vec<Stage>,
    step: usize,
}

impl Chain {
    /// Creates a chain. `step` is the parameter `gzip_buffer`, in bytes.
    pub fn new(filters: Vec<Box<dyn Filter>>, step: u64) -> Chain {
        let step = usize::try_from(step).unwrap_or(STEP_MAX).clamp(STEP_MIN, STEP_MAX);
        Chain { stages: filters.into_iter().map(Stage::new).collect(), step }
    }

    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.stages.last().is_some_and(|s| s.filter.is_done())
    }

    /// Returns the reports of all filters, the last one first.
    pub fn report(&mut self) -> Report {
        let mut report = Report::default();
        for stage in self.stages.iter_mut().rev() {
            stage.filter.report(&mut report);
            report.work.push(stage.work);
        }
        report
    }

    /// Returns the next output, or `None` once all of `input` was consumed and no more output follows from it. Until
    /// then the caller offers the same input again. `end` marks the last piece of the body.
    pub fn next<'c, 'i: 'c>(
        &'c mut self,
        input: &mut &'i [u8],
        end: bool,
    ) -> Result<Option<&'c [u8]>, String> {
        if self.is_empty() {
            let all = std::mem::take(input);
            return Ok(Some(all).filter(|all| !all.is_empty()));
        }
        Ok(if self.produce(input, end)? { Some(self.take_output()) } else { None })
    }

    /// Consumes input until there is output, which [`take_output`](Self::take_output) returns. Returns false once all
    /// of `input` was consumed and no more output follows from it. The caller then offers the bytes after those that
    /// were consumed. The chain must not be empty.
    pub fn produce(&mut self, input: &mut &[u8], end: bool) -> Result<bool, String> {
        let last = self.stages.len() - 1;
        while let Some(at) = (0..=last).rev().find(|&at| self.can_run(at, input, end)) {
            self.run(at, input, end)?;
            if at == last && !self.stages[last].ready().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the output that [`produce`](Self::produce) has reported, once.
    pub fn take_output(&mut self) -> &[u8] {
        let Some(last) = self.stages.last_mut() else { return &[] };
        let from = std::mem::replace(&mut last.taken, last.out.len());
        &last.out[from..]
    }

    /// Returns whether a stage has work. The caller checks the later stages first, so that its output has been taken.
    fn can_run(&self, at: usize, input: &[u8], end: bool) -> bool {
        let stage = &self.stages[at];
        let (offered, ends) = match at.checked_sub(1).map(|before| &self.stages[before]) {
            Some(before) => (before.ready(), before.has_ended),
            None => (input, end),
        };
        stage.is_full || !offered.is_empty() || (ends && !stage.has_ended)
    }

    fn run(&mut self, at: usize, input: &mut &[u8], end: bool) -> Result<(), String> {
        let (before, rest) = self.stages.split_at_mut(at);
        let Some(before) = before.last_mut() else { return rest[0].run(input, end, self.step) };
        let mut offered = before.ready();
        let all = offered.len();
        rest[0].run(&mut offered, before.has_ended, self.step)?;
        let used = all - offered.len();
        before.taken += used;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
