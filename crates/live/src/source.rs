//! Reads the counters and the log of a daemon, and follows it when it ends and comes back.

use std::time::{Duration, Instant};

use lacquer_inspect::Fault;
use lacquer_inspect::counters;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::ring::LogReader;

use crate::event::{Collector, Event};
use crate::figures::Figures;
use crate::snapshot::Status;
use crate::state::State;

/// Time between two looks at the daemon and its counters.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes of the log that are read before keys are looked at again.
const PIECE: u64 = 1 << 20;
/// How long a call reads.
const BUDGET: Duration = Duration::from_millis(50);
/// Maximum number of calls before a snapshot. A log may be written as fast as it is read.
const LAST_CALLS: usize = 20;

/// The log of a worker.
#[derive(Debug)]
struct Log {
    reader: LogReader,
    collector: Collector,
    /// How many of its overruns were reported.
    missed: u64,
}

#[derive(Debug)]
pub struct Source {
    directory: Directory,
    log: Option<Log>,
    began: Instant,
    last_look: Option<Instant>,
}

impl Source {
    /// Opens the log of a daemon at its end.
    pub fn open(directory: Directory) -> Result<Source, Fault> {
        let log = Some(Log::open(&directory)?);
        Ok(Source { directory, log, began: Instant::now(), last_look: None })
    }

    /// Returns a source for a daemon whose log may not exist yet.
    pub fn waiting(directory: Directory) -> Source {
        Source { directory, log: None, began: Instant::now(), last_look: None }
    }

    /// Returns what the daemon is called: its working directory.
    pub fn name(&self) -> String {
        self.directory.path().display().to_string()
    }

    /// Returns the seconds since the source was opened.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Adds what is new. Returns whether more of the log can be read at once.
    pub fn poll(&mut self, state: &mut State) -> bool {
        self.poll_with(state, &mut |_| {})
    }

    /// Adds what is new, like [`Source::poll`], and calls `each` for each event.
    pub fn poll_with(&mut self, state: &mut State, each: &mut dyn FnMut(&Event)) -> bool {
        if self.last_look.is_none_or(|last| last.elapsed() >= LOOK) {
            self.last_look = Some(Instant::now());
            let status = match self.look(state) {
                Ok(()) => Status::Running,
                Err(why) => Status::Waiting(why),
            };
            state.set_status(status);
        }
        let now = self.now();
        let Some(log) = &mut self.log else { return false };
        match log.read(state, now, each) {
            Ok(more) => more,
            Err(why) => {
                self.log = None;
                state.set_status(Status::Waiting(why));
                false
            }
        }
    }

    /// Reads the counters and what is left of the log, so that a snapshot is up to date.
    pub fn finish(&mut self, state: &mut State) {
        self.last_look = None;
        let mut calls = 0;
        while self.poll(state) && calls < LAST_CALLS {
            calls += 1;
        }
    }

    fn look(&mut self, state: &mut State) -> Result<(), String> {
        let found = Directory::find(self.directory.path().to_str());
        let directory = found.map_err(|fault| {
            self.log = None;
            fault.what
        })?;
        match &mut self.log {
            Some(log) => log.follow(&directory),
            None => self.log = Some(Log::open(&directory).map_err(|fault| fault.what)?),
        }
        let counters = counters::read(&directory).map_err(|fault| fault.what)?;
        let figures = Figures::of(counters.iter().map(|counter| (counter.name.as_str(), counter.value)));
        let runs = figures.uptime.is_some();
        state.counters(self.now(), figures);
        if runs { Ok(()) } else { Err(format!("the worker of {} does not run", directory.path().display())) }
    }
}

impl Log {
    fn open(directory: &Directory) -> Result<Log, Fault> {
        let reader = LogReader::at_end(directory)?;
        let missed = reader.missed;
        Ok(Log { reader, collector: Collector::default(), missed })
    }

    /// Follows a worker that was started again.
    fn follow(&mut self, directory: &Directory) {
        if self.reader.reopen(directory) {
            self.collector = Collector::default();
        }
    }

    fn read(&mut self, state: &mut State, now: f64, each: &mut dyn FnMut(&Event)) -> Result<bool, String> {
        let end = Instant::now() + BUDGET;
        loop {
            let collector = &mut self.collector;
            let read = self.reader.read_some(PIECE, &mut |record| {
                if let Some(event) = collector.add(record) {
                    each(&event);
                    state.event(now, event);
                }
            });
            if self.reader.missed > self.missed {
                state.lost(self.reader.missed - self.missed);
                self.missed = self.reader.missed;
                // The ends of transactions in progress may be among what was overwritten.
                self.collector = Collector::default();
            }
            match read {
                Err(error) => return Err(format!("the log cannot be read: {error}")),
                Ok(false) => return Ok(false),
                Ok(true) if Instant::now() >= end => return Ok(true),
                Ok(true) => {}
            }
        }
    }
}
