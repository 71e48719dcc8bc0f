//! Decides whether a new worker takes over the memory of the last one. Memory is kept when a worker dies. It is discarded
//! when an operator stops the worker, and when workers die early with it: it may contain what kills them.

use std::time::{Duration, Instant};

/// A worker that dies earlier than this after it has taken over memory may have died of it.
const EARLY: Duration = Duration::from_mins(1);
/// The number of early deaths in a row after which memory is discarded.
const MOST_DEATHS: u32 = 2;

/// The memory of a new worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Empty, and not kept when the worker dies (parameter `keep_memory`).
    NotKept,
    /// Empty, and kept.
    Empty,
    /// The memory of the last worker.
    TakeOver,
    /// The memory of a worker that still lives.
    Shared,
}

/// The state of the workers' memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Whether the storages contain the objects of a worker that has died.
    is_left: bool,
    /// Whether the objects of the current worker are kept.
    is_kept: bool,
    /// The time at which the current worker took over memory.
    taken_at: Option<Instant>,
    early_deaths: u32,
}

impl Inheritance {
    /// Returns the memory of a new worker.
    pub fn begin(&mut self, now: Instant, keep: bool) -> Memory {
        let takes_over = self.is_left && keep && self.early_deaths < MOST_DEATHS;
        if !takes_over {
            self.early_deaths = 0;
        }
        *self = Self { is_left: false, is_kept: keep, taken_at: takes_over.then_some(now), ..*self };
        match (takes_over, keep) {
            (true, _) => Memory::TakeOver,
            (false, true) => Memory::Empty,
            (false, false) => Memory::NotKept,
        }
    }

    /// Returns whether the objects of the current worker are kept.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Records that the storages contain objects of an earlier daemon or program, and the early deaths of its workers.
    pub fn found(&mut self, early_deaths: u32) {
        *self = Self { is_left: true, early_deaths, ..Self::default() };
    }

    /// Returns the early deaths of workers with the memory that a worker has left, if there is such memory.
    pub fn left(&self) -> Option<u32> {
        self.is_left.then_some(self.early_deaths)
    }

    /// Returns the number of workers in a row that have died early with the memory.
    pub fn early_deaths(&self) -> u32 {
        self.early_deaths
    }

    /// Continues with a worker that was started by another program.
    pub fn adopt(&mut self, is_kept: bool) {
        *self = Self { is_kept, ..Self::default() };
    }

    /// Records that a worker takes over the memory of one that lives.
    pub fn share(&mut self, now: Instant) {
        self.taken_at = Some(now);
    }

    /// Records that the worker died. Returns whether the next one will therefore start with empty memory.
    pub fn died(&mut self, now: Instant) -> bool {
        let is_early = self.taken_at.is_some_and(|taken| now.duration_since(taken) < EARLY);
        self.early_deaths = if is_early { self.early_deaths + 1 } else { 0 };
        (self.is_left, self.taken_at) = (self.is_kept, None);
        self.early_deaths >= MOST_DEATHS
    }

    /// Records that the worker was not started. Memory that it was to take over is still left.
    pub fn not_started(&mut self) {
        self.is_left |= self.taken_at.take().is_some();
    }

    /// Records that the worker died because a file with its memory could not be read or written: the next one begins without
    /// the memory, because it would die of it, too.
    pub fn lost(&mut self) {
        *self = Self::default();
    }

    /// Records that the worker was stopped.
    pub fn stopped(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_until_two_workers_die_early() {
        let (mut memory, mut now) = (Inheritance::default(), Instant::now());
        let mut later = |seconds| {
            now += Duration::from_secs(seconds);
            now
        };
        assert_eq!(memory.begin(later(0), true), Memory::Empty);
        assert!(!memory.died(later(1)));
        for _ in 0..2 {
            for _ in 0..5 {
                // A worker that lives long is not suspicious.
                assert_eq!(memory.begin(later(0), true), Memory::TakeOver);
                assert!(!memory.died(later(61)));
            }
            assert_eq!(memory.begin(later(0), true), Memory::TakeOver);
            assert!(!memory.died(later(59)));
            assert_eq!(memory.begin(later(100), true), Memory::TakeOver);
            assert!(memory.died(later(2)));
            assert_eq!(memory.begin(later(0), true), Memory::Empty);
            assert!(!memory.died(later(1)));
        }
        assert_eq!(memory.begin(later(0), true), Memory::TakeOver);
    }

    #[test]
    fn memory_in_a_file_that_cannot_be_read_is_discarded_at_once() {
        let (mut memory, now) = (Inheritance::default(), Instant::now());
        memory.found(1);
        assert_eq!(memory.begin(now, true), Memory::TakeOver);
        memory.lost();
        assert_eq!((memory.begin(now, true), memory.early_deaths()), (Memory::Empty, 0));
        memory.died(now);
        assert_eq!(memory.begin(now, true), Memory::TakeOver);
    }

    #[test]
    fn early_deaths_are_counted_from_one_daemon_to_the_next() {
        let now = Instant::now();
        for deaths in 0..3 {
            let mut memory = Inheritance::default();
            memory.found(deaths);
            assert_eq!(memory.early_deaths(), deaths);
            let mut off = memory;
            assert_eq!(off.begin(now, false), Memory::NotKept);
            let expected = if deaths < MOST_DEATHS { Memory::TakeOver } else { Memory::Empty };
            assert_eq!(memory.begin(now, true), expected);
            assert_eq!(memory.died(now), deaths == 1, "{deaths}");
        }
    }

    #[test]
    fn memory_stays_left_while_no_worker_can_be_started() {
        let (mut memory, now) = (Inheritance::default(), Instant::now());
        assert_eq!(memory.begin(now, true), Memory::Empty);
        memory.not_started();
        assert_eq!(memory.begin(now, true), Memory::Empty, "nothing was left before");
        memory.died(now);
        for _ in 0..5 {
            assert_eq!(memory.begin(now, true), Memory::TakeOver);
            assert_eq!(memory.left(), None);
            memory.not_started();
            assert_eq!(memory.left(), Some(0));
        }
        assert_eq!(memory.begin(now, true), Memory::TakeOver);
        assert!(!memory.died(now), "only workers that ran have died early");
        assert_eq!(memory.begin(now, false), Memory::NotKept);
        memory.not_started();
        assert_eq!(memory.begin(now, true), Memory::Empty, "it was cleared");
    }

    #[test]
    fn memory_is_discarded_when_the_worker_is_stopped_or_the_parameter_is_off() {
        let (mut memory, now) = (Inheritance::default(), Instant::now());
        assert_eq!(memory.begin(now, true), Memory::Empty);
        memory.stopped();
        assert_eq!(memory.begin(now, true), Memory::Empty);
        memory.died(now);
        assert_eq!(memory.begin(now, false), Memory::NotKept);
        memory.died(now);
        assert_eq!(memory.begin(now, true), Memory::Empty, "the last worker kept nothing");
        memory.died(now);
        memory.stopped();
        assert_eq!(memory.begin(now, true), Memory::Empty, "the operator stopped the next launch");
    }
}
