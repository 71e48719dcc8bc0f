//! The requests in the log, one line for each that has ended.

use crate::directory::Directory;
use crate::fault::Fault;
use crate::follow::{Follower, Sink};
use crate::log_line::LogLine;
use crate::ring::Record;
use crate::transaction::{Grouping, Transaction};

/// A reader of requests, which follows the daemon from one worker to the next.
#[derive(Debug)]
pub struct RequestLog {
    follower: Follower,
    /// Transactions that have not ended.
    grouping: Grouping,
    missed: u64,
}

struct Requests<'a> {
    grouping: &'a mut Grouping,
    missed: &'a mut u64,
    each: &'a mut dyn FnMut(LogLine, &Transaction),
}

impl Sink for Requests<'_> {
    fn record(&mut self, record: Record<'_>) {
        let Some(ended) = self.grouping.add(&record) else { return };
        if let Some(line) = LogLine::of(ended) {
            (self.each)(line, ended);
        }
    }

    fn gap(&mut self, overruns: u64) {
        *self.missed += overruns;
        // Records of requests that have not ended are missing, or those of another worker follow.
        *self.grouping = Grouping::default();
    }
}

impl RequestLog {
    /// Opens the log at its oldest record.
    pub fn open(directory: &Directory) -> Result<RequestLog, Fault> {
        let follower = Follower::at_start(directory.clone())?;
        Ok(RequestLog { follower, grouping: Grouping::default(), missed: 0 })
    }

    /// Reads the requests that have ended since the last call.
    pub fn read(&mut self, each: &mut dyn FnMut(LogLine)) -> Result<(), Fault> {
        self.read_with(&mut |line, _| each(line))
    }

    /// Reads like [`RequestLog::read`], with all records of each request.
    pub fn read_with(&mut self, each: &mut dyn FnMut(LogLine, &Transaction)) -> Result<(), Fault> {
        let mut requests = Requests { grouping: &mut self.grouping, missed: &mut self.missed, each };
        self.follower.read(None, &mut requests).map(drop)
    }

    /// Returns how often records were overwritten before they were read.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}
