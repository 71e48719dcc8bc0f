//! Reads the counters and the log of a daemon, and follows it when it ends and comes back.

use std::time::{Duration, Instant};

use lacquer_inspect::Fault;
use lacquer_inspect::counters;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::follow::{Follower, Sink};
use lacquer_inspect::ring::Record;

use crate::event::Collector;
use crate::figures::Figures;
use crate::snapshot::Status;
use crate::state::State;

/// How long a call reads.
pub const BUDGET: Duration = Duration::from_millis(50);
/// Maximum number of calls before a snapshot. A log may be written as fast as it is read.
const LAST_CALLS: usize = 20;

#[derive(Debug)]
pub struct Source {
    follower: Follower,
    collector: Collector,
    began: Instant,
}

/// Adds what the log reports to the state.
struct Reports<'a> {
    collector: &'a mut Collector,
    state: &'a mut State,
    now: f64,
}

impl Sink for Reports<'_> {
    fn record(&mut self, record: Record<'_>) {
        if let Some(event) = self.collector.add(&record) {
            self.state.event(self.now, event);
        }
    }

    fn gap(&mut self, overruns: u64) {
        self.state.lost(overruns);
        // The ends of transactions in progress may be among what was overwritten.
        *self.collector = Collector::default();
    }

    fn looked(&mut self, directory: &Directory, found: &Result<(), Fault>) {
        look(found, directory, self.now, self.state);
    }
}

impl Source {
    /// Opens the log of a daemon at its end.
    pub fn open(directory: Directory) -> Result<Source, Fault> {
        let follower = Follower::at_end(directory)?;
        Ok(Source { follower, collector: Collector::default(), began: Instant::now() })
    }

    /// Returns what the daemon is called: its working directory.
    pub fn name(&self) -> String {
        self.follower.directory().path().display().to_string()
    }

    /// Returns the seconds since the source was opened.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Adds what is new. Returns whether more of the log can be read at once.
    pub fn poll(&mut self, state: &mut State) -> bool {
        let now = self.now();
        let mut reports = Reports { collector: &mut self.collector, state, now };
        let read = self.follower.read(Some(Instant::now() + BUDGET), &mut reports);
        read.unwrap_or_else(|fault| {
            reports.state.set_status(Status::Waiting(fault.what));
            false
        })
    }

    /// Reads the counters and what is left of the log, so that a snapshot is up to date.
    pub fn finish(&mut self, state: &mut State) {
        self.follower.look_again();
        let mut calls = 0;
        while self.poll(state) && calls < LAST_CALLS {
            calls += 1;
        }
    }
}

/// Adds the counters, or the reason why there are none. `found` is whether the daemon runs.
pub fn look(found: &Result<(), Fault>, directory: &Directory, now: f64, state: &mut State) {
    let why = |fault: &Fault| fault.what.clone();
    let counters =
        found.as_ref().map_err(why).and_then(|()| counters::read_sets(directory).map_err(|fault| fault.what));
    let status = match counters {
        Ok(sets) => {
            let figures = Figures::of_sets(sets);
            let runs = figures.uptime.is_some();
            state.counters(now, figures);
            let stopped = || format!("the worker of {} does not run", directory.path().display());
            if runs { Status::Running } else { Status::Waiting(stopped()) }
        }
        Err(why) => Status::Waiting(why),
    };
    state.set_status(status);
}
