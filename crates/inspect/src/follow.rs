//! Follows the log of a daemon, each of whose workers has its own.

use std::time::{Duration, Instant};

use crate::directory::Directory;
use crate::fault::Fault;
use crate::ring::{LogReader, Record};

/// Time between two checks of the daemon and its worker.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes that are read between two looks at the clock.
const PIECE: u64 = 1 << 20;

/// A consumer of records.
pub trait Sink {
    fn record(&mut self, record: Record<'_>);

    /// Reports that records are missing before the next one. `overruns` counts how often they were overwritten unread; 0 is
    /// that another log begins.
    fn gap(&mut self, overruns: u64);

    /// Reports whether the daemon runs, after each check.
    fn looked(&mut self, _directory: &Directory, _found: &Result<(), Fault>) {}
}

/// A reader of the log that waits for the daemon and goes over to the log of its next worker.
#[derive(Debug)]
pub struct Follower {
    directory: Directory,
    reader: Option<LogReader>,
    /// The overruns that were reported.
    overruns: u64,
    last_look: Option<Instant>,
    /// The daemon has ended. Its last records may not have been read yet.
    is_over: bool,
    /// There was no log at the last look, so all records of the next one are new.
    is_awaited: bool,
}

impl Follower {
    /// Begins at the end of the log of a daemon that runs.
    pub fn at_end(directory: Directory) -> Result<Follower, Fault> {
        LogReader::at_end(&directory).map(|reader| Follower::of(reader, directory))
    }

    /// Begins at the oldest record of the log of a daemon that runs.
    pub fn at_start(directory: Directory) -> Result<Follower, Fault> {
        LogReader::at_start(&directory).map(|reader| Follower::of(reader, directory))
    }

    fn of(reader: LogReader, directory: Directory) -> Follower {
        let (overruns, last_look) = (reader.missed, Some(Instant::now()));
        Follower { overruns, last_look, reader: Some(reader), ..Follower::waiting(directory) }
    }

    /// Begins at the end of the log, or at the beginning of one that does not exist yet.
    pub fn waiting(directory: Directory) -> Follower {
        Follower { directory, reader: None, overruns: 0, last_look: None, is_over: false, is_awaited: false }
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Lets the next read check the daemon, however long ago that was done.
    pub fn look_again(&mut self) {
        self.last_look = None;
    }

    fn look(&mut self, sink: &mut impl Sink) -> Result<(), Fault> {
        self.last_look = Some(Instant::now());
        let found = self.find_log(sink);
        sink.looked(&self.directory, &found);
        found
    }

    /// Opens the log of the daemon's present worker, if it runs.
    fn find_log(&mut self, sink: &mut impl Sink) -> Result<(), Fault> {
        let found = self.directory.check_is_alive();
        self.is_over = found.is_err();
        self.is_awaited |= self.is_over;
        found?;
        let directory = &self.directory;
        match &mut self.reader {
            Some(reader) => {
                if reader.reopen(directory) {
                    sink.gap(0);
                }
            }
            None => {
                let open = if self.is_awaited { LogReader::at_start } else { LogReader::at_end };
                let reader = open(directory).inspect_err(|_| self.is_awaited = true)?;
                self.is_awaited = false;
                sink.gap(0);
                self.overruns = reader.missed;
                self.reader = Some(reader);
            }
        }
        Ok(())
    }

    /// Reads new records until `end`, or at most as much as the log holds. Returns whether more may follow at once. The last
    /// records of a daemon that has ended are read before its end is the error.
    pub fn read(&mut self, end: Option<Instant>, sink: &mut impl Sink) -> Result<bool, Fault> {
        let is_due = self.last_look.is_none_or(|last| last.elapsed() >= LOOK);
        let looked = if is_due {
            // A worker may have been replaced, and its last records are read first. A failure shows again below.
            let _ = self.read_present(end, sink);
            self.look(sink)
        } else {
            Ok(())
        };
        let read = self.read_present(end, sink);
        if self.is_over || read.is_err() {
            self.reader = None;
        }
        looked.and(read)
    }

    fn read_present(&mut self, end: Option<Instant>, sink: &mut impl Sink) -> Result<bool, Fault> {
        let Some(reader) = &mut self.reader else { return Ok(false) };
        let mut left = reader.length();
        let read = loop {
            let read = reader.read_some(PIECE.min(left), &mut |record| sink.record(record));
            if reader.missed > self.overruns {
                sink.gap(reader.missed - self.overruns);
                self.overruns = reader.missed;
            }
            left = left.saturating_sub(PIECE);
            match read {
                Ok(true) if left > 0 && end.is_none_or(|end| Instant::now() < end) => {}
                read => break read,
            }
        };
        read.map_err(|error| {
            Fault::new(
                format_args!("the log cannot be read: {error}"),
                "the daemon may have ended; repeat the command",
            )
        })
    }
}
