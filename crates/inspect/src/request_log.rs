//! The requests in the log, one line for each that has ended.

use std::io;

use crate::directory::Directory;
use crate::fault::Fault;
use crate::log_line::LogLine;
use crate::ring::LogReader;
use crate::transaction::Grouping;

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

    /// Reads the requests that have ended since the last call.
    pub fn read(&mut self, each: &mut dyn FnMut(LogLine)) -> io::Result<()> {
        let grouping = &mut self.grouping;
        self.reader.read(&mut |record| {
            if let Some(line) = grouping.add(record).and_then(|ended| LogLine::of(&ended)) {
                each(line);
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
