//! The health of a device: operations that fail or take long, events for the log, and the limits beyond which the device
//! is taken out of use.
//!
//! - Each failed read adds 100 to a score, and each that succeeds takes 1 from it. At 1000, the device is taken out: ten
//!   reads more than one in a hundred have failed.
//! - While a read takes longer than a second, the device counts as stalled, and is not asked for other objects. It is
//!   taken out after 30 seconds.
//! - A failed write takes the device out at once ([`crate::Store`]). A slow one is only counted, and takes it out after 45
//!   seconds: purges and bans wait for it.
//!
//! Time is counted in ticks, so that a change of the clock has no effect.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::blocks::Blocks;
use crate::stats::{Stats, bump};

/// The time between two calls of [`Health::tick`].
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// The number of ticks after which an operation is slow. It has then taken at least a second.
const SLOW: u64 = 5;
/// The number of ticks after which a device that reads is taken out of use, and one that writes. The second is before the
/// time after which the manager takes a worker that does not answer a ban for hung.
const STALLED: u64 = 120;
const STALLED_WRITE: u64 = 180;
/// The number of ticks within which the contents of a device that has failed must be made invalid. A write may have taken
/// almost [`STALLED_WRITE`] before.
const LONGEST_LEAVING: u64 = 20;
const FAILED_READ: u32 = 100;
const MOST_FAILED: u32 = 1000;
/// The number of events that wait for the log. More are only counted.
const MOST_EVENTS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Flush,
}

/// The reason why a device was taken out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Write,
    Reads,
    Stall,
    WriteStall,
    /// The journal does not contain what was written to it.
    Journal,
    /// The process that was to use the device from then on has failed to start.
    Successor,
}

/// An event for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Failed {
        operation: Operation,
        at: u64,
        error: String,
    },
    /// The checksum of the object at this position was wrong.
    Damaged {
        at: u64,
    },
    /// The segment at this position cannot be read.
    Lost {
        at: u64,
        reason: String,
    },
    Slow {
        operation: Operation,
        at: u64,
    },
    /// All slow reads have ended.
    Responds,
    TakenOut(Reason),
    /// The part of the journal at this position is damaged, and there is a copy of it.
    Mended {
        at: u64,
    },
    /// All objects were dropped.
    Cleared(Cause),
}

/// The reason why all objects of a store were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The journal has no room for the purges and bans that concern objects.
    JournalFull,
    /// Purges and bans are lost, because the journal is damaged at this position.
    JournalDamaged { at: u64 },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "a write failed",
            Self::Reads => "too many reads failed",
            Self::Stall => "a read did not end within 30 seconds",
            Self::WriteStall => "a write did not end within 45 seconds",
            Self::Journal => "the journal is damaged, and purges and bans are lost",
            Self::Successor => "it was left to the next worker, which failed to start",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JournalFull => f.write_str(
                "the journal has no room for the purges and bans that concern its objects; use a larger device, \
                 fewer tags for each purge, or fewer bans",
            ),
            Self::JournalDamaged { at } => write!(
                f,
                "the journal is damaged at byte {at}, and the purges and bans there are lost; check the disk"
            ),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { operation: Operation::Read, at, error } => {
                write!(f, "the read at byte {at} failed: {error}; the object is a miss; check the disk")
            }
            Self::Failed { operation, at, error } => {
                write!(f, "the {operation} at byte {at} failed: {error}; check the disk")
            }
            Self::Damaged { at } => write!(
                f,
                "the object at byte {at} has a wrong checksum and is a miss; run `lacquer storage check` when the \
                 store is not in use"
            ),
            Self::Lost { at, reason } => write!(
                f,
                "the segment at byte {at} cannot be read: {reason}; its objects are misses, and it is used again; \
                 check the disk"
            ),
            Self::Slow { operation: Operation::Read, at } => write!(
                f,
                "the read at byte {at} takes more than a second; objects on the disk are misses until it ends"
            ),
            Self::Slow { operation, at } => {
                write!(f, "the {operation} at byte {at} takes more than a second")
            }
            Self::Responds => f.write_str("the disk responds again"),
            Self::TakenOut(reason) => write!(
                f,
                "the disk is out of use: {reason}; its objects are misses; check or replace it, then run the \
                 commands `stop` and `start`: it begins empty"
            ),
            Self::Mended { at } => {
                write!(
                    f,
                    "the journal is damaged at byte {at}; a copy is used, and nothing is lost; check the disk"
                )
            }
            Self::Cleared(cause) => write!(f, "all objects on the disk were dropped: {cause}"),
        }
    }
}

/// The health of one device.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) stats: Stats,
    is_stalled: AtomicBool,
    is_out: AtomicBool,
    /// Objects were refused, because too many bytes waited to be written, and many still wait.
    pub(crate) is_crowded: AtomicBool,
    /// The index has been read, or the device is out of use.
    pub(crate) is_known: AtomicBool,
    state: Mutex<State>,
}

/// Protected by a lock that is held for short computations, and with which no other one is taken.
#[derive(Debug, Default)]
struct State {
    tick: u64,
    operations: Vec<InProgress>,
    last_id: u64,
    score: u32,
    /// The tick since which the contents of the device are being made invalid.
    leaving: Option<u64>,
    events: Vec<Event>,
    /// The number of events that had no room.
    lost: u64,
}

#[derive(Debug)]
struct InProgress {
    id: u64,
    operation: Operation,
    at: u64,
    /// The tick in which it began.
    begun: u64,
    is_slow: bool,
}

impl State {
    fn report(&mut self, event: Event) {
        // Changes of the state are few, and never lost.
        let is_rare = matches!(event, Event::Responds | Event::TakenOut(_) | Event::Cleared(_));
        if self.events.len() < MOST_EVENTS || is_rare {
            self.events.push(event);
        } else {
            self.lost += 1;
        }
    }
}

impl Health {
    /// Returns whether a read takes long, so that others would too.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }

    /// Returns whether the device was taken out of use.
    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    pub(crate) fn take_out(&self, reason: Reason) {
        {
            let mut state = self.state.lock();
            state.leaving = Some(state.tick);
            state.report(Event::TakenOut(reason));
        }
        self.is_out.store(true, Ordering::Relaxed);
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Records that the contents of the device were made invalid, or cannot be. Returns false if that was given up.
    pub(crate) fn end_leaving(&self) -> bool {
        self.state.lock().leaving.take().is_some()
    }

    /// Returns whether making the contents of the device invalid takes so long that it is given up now.
    pub(crate) fn give_up_leaving(&self) -> bool {
        let mut state = self.state.lock();
        let tick = state.tick;
        state.leaving.take_if(|since| tick - *since >= LONGEST_LEAVING).is_some()
    }

    /// Returns whether so many reads have failed that the device must be taken out of use.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().score >= MOST_FAILED
    }

    pub(crate) fn report(&self, event: Event) {
        self.state.lock().report(event);
    }

    /// Counts and reports that all objects are dropped.
    pub(crate) fn note_cleared(&self, cause: Cause) {
        bump(&self.stats.cleared);
        self.report(Event::Cleared(cause));
    }

    /// Takes the events since the last call, and the number of those that had no room.
    pub(crate) fn take_events(&self) -> (Vec<Event>, u64) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.events), std::mem::take(&mut state.lost))
    }

    /// Counts the operations that have become slow. Returns the reason if the device has not responded for so long that it
    /// must be taken out of use.
    pub(crate) fn tick(&self) -> Option<Reason> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.tick += 1;
        let (mut longest_read, mut longest_write) = (0, 0);
        let mut slow = Vec::new();
        for running in &mut state.operations {
            let age = state.tick - running.begun;
            let longest = match running.operation {
                Operation::Read => &mut longest_read,
                Operation::Write | Operation::Flush => &mut longest_write,
            };
            *longest = age.max(*longest);
            if age >= SLOW && !running.is_slow {
                running.is_slow = true;
                bump(&self.stats.slow);
                slow.push(Event::Slow { operation: running.operation, at: running.at });
            }
        }
        for event in slow {
            state.report(event);
        }
        let is_stalled = longest_read >= SLOW;
        if self.is_stalled.swap(is_stalled, Ordering::Relaxed) && !is_stalled {
            state.report(Event::Responds);
        }
        if longest_read >= STALLED {
            Some(Reason::Stall)
        } else {
            (longest_write >= STALLED_WRITE).then_some(Reason::WriteStall)
        }
    }

    /// Returns the number of calls of [`tick`](Self::tick).
    #[cfg(test)]
    pub(crate) fn ticks(&self) -> u64 {
        self.state.lock().tick
    }

    /// Returns the number of operations in progress.
    #[cfg(test)]
    pub(crate) fn operations(&self) -> usize {
        self.state.lock().operations.len()
    }

    pub(crate) fn begin(&self, operation: Operation, at: u64) -> u64 {
        let mut state = self.state.lock();
        state.last_id += 1;
        let (id, begun) = (state.last_id, state.tick);
        state.operations.push(InProgress { id, operation, at, begun, is_slow: false });
        id
    }

    pub(crate) fn end(&self, id: u64, operation: Operation, at: u64, result: &io::Result<()>) {
        let mut state = self.state.lock();
        if let Some(index) = state.operations.iter().position(|running| running.id == id) {
            state.operations.swap_remove(index);
        }
        let is_read = operation == Operation::Read;
        match result {
            Ok(()) if is_read => state.score = state.score.saturating_sub(1),
            Ok(()) => {}
            Err(error) => {
                bump(if is_read { &self.stats.read_errors } else { &self.stats.write_errors });
                if is_read {
                    state.score = state.score.saturating_add(FAILED_READ);
                }
                state.report(Event::Failed { operation, at, error: error.to_string() });
            }
        }
    }
}

/// A device whose health is observed.
pub(crate) struct Observed {
    pub(crate) blocks: Box<dyn Blocks>,
    pub(crate) health: Arc<Health>,
}

impl Observed {
    fn run(&self, operation: Operation, at: u64, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let id = self.health.begin(operation, at);
        let result = run();
        self.health.end(id, operation, at, &result);
        result
    }
}

impl Blocks for Observed {
    fn size(&self) -> u64 {
        self.blocks.size()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.run(Operation::Read, at, || self.blocks.read(at, buffer))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.run(Operation::Write, at, || self.blocks.write(at, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.run(Operation::Flush, 0, || self.blocks.sync())
    }
}
