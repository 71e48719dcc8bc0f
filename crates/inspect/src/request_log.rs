//! The requests in the log, one line for each that has ended.

use std::io;

use crate::directory::Directory;
use crate::fault::Fault;
use crate::log_line::LogLine;
use crate::ring::LogReader;
use crate::transaction::{Grouping, Transaction};

/// A reader of requests.
#[derive(Debug)]
pub struct RequestLog {
    reader: LogReader,
    /// Transactions that have not ended.
    grouping: Grouping,
}

impl RequestLog {
    /// Opens the log at its oldest record.
    pub fn open(directory: &Directory) -> Result<RequestLog, Fault> {
        Ok(RequestLog { reader: LogReader::at_start(directory)?, grouping: Grouping::default() })
    }

    /// Opens the log at its end: requests that have begun are not read.
    pub fn open_at_end(directory: &Directory) -> Result<RequestLog, Fault> {
        Ok(RequestLog { reader: LogReader::at_end(directory)?, grouping: Grouping::default() })
    }

    /// Reads the requests that have ended since the last call.
    pub fn read(&mut self, each: &mut dyn FnMut(LogLine)) -> io::Result<()> {
        self.read_with(&mut |line, _| each(line))
    }

    /// Reads like [`RequestLog::read`], with all records of each request.
    pub fn read_with(&mut self, each: &mut dyn FnMut(LogLine, &Transaction)) -> io::Result<()> {
        let grouping = &mut self.grouping;
        self.reader.read(&mut |record| {
            let Some(ended) = grouping.add(record) else { return };
            if let Some(line) = LogLine::of(&ended) {
                each(line, &ended);
            }
        })
    }

    /// Follows a worker that was started again. Requests of the old one that had not ended are forgotten.
    pub fn reopen(&mut self, directory: &Directory) {
        if self.reader.reopen(directory) {
            self.grouping = Grouping::default();
        }
    }

    /// Returns how often records were overwritten before they were read.
    pub fn missed(&self) -> u64 {
        self.reader.missed
    }
}
