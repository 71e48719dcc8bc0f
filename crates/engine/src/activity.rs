//! The current activity of a reactor: the poll of one task, and what the task is doing. The reactor stores it and the
//! watchdog reads it. The stores must cost a reactor almost nothing, so no clock is read here.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use lacquer_shm::Vxid;
use lacquer_vcl::types::Method;

/// Identifies a VCL program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramId(u64);

/// The number of low bits that identify the work; the bits above contain the program.
const PROGRAM_SHIFT: u32 = 8;

impl ProgramId {
    /// Returns an id that no other program has.
    pub fn next() -> ProgramId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ProgramId(NEXT.fetch_add(1, Ordering::Relaxed) << PROGRAM_SHIFT)
    }
}

/// The kinds of work that a reactor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Accepting,
    Connection,
    Housekeeping,
    Sweeping,
    Request,
    Fetch,
    Vcl(ProgramId, Method),
}

/// Numbers below this one have a name in [`NAMES`]; the numbers from here on are VCL methods.
const METHODS: u64 = 16;
const NAMES: [&str; 7] =
    ["nothing", "accepting", "a connection", "housekeeping", "deadlines", "a request", "a fetch"];

impl Work {
    fn number(self) -> u64 {
        match self {
            Work::Accepting => 1,
            Work::Connection => 2,
            Work::Housekeeping => 3,
            Work::Sweeping => 4,
            Work::Request => 5,
            Work::Fetch => 6,
            Work::Vcl(program, method) => program.0 + METHODS + u64::from(method as u8),
        }
    }
}

/// The current activity of one reactor.
#[derive(Default)]
pub struct Activity {
    /// Changes with each poll; odd during a poll.
    count: AtomicU64,
    vxid: AtomicU64,
    work: AtomicU64,
}

/// A previous activity, to be restored.
#[derive(Clone, Copy)]
pub struct Saved {
    vxid: u64,
    work: u64,
}

impl Activity {
    fn begin(&self, work: Work) {
        self.vxid.store(0, Ordering::Relaxed);
        self.work.store(work.number(), Ordering::Relaxed);
        self.count.store((self.count.load(Ordering::Relaxed) + 2) | 1, Ordering::Release);
    }

    fn end(&self) {
        self.count.store((self.count.load(Ordering::Relaxed) + 1) & !1, Ordering::Release);
    }

    /// Starts the work of a transaction within the poll. Returns the previous activity.
    fn enter(&self, vxid: Vxid, work: Work) -> Saved {
        let before = self.step(work);
        self.vxid.store(vxid.raw(), Ordering::Relaxed);
        before
    }

    /// Records another step of the same transaction. Returns the previous activity.
    pub fn step(&self, work: Work) -> Saved {
        let before =
            Saved { vxid: self.vxid.load(Ordering::Relaxed), work: self.work.load(Ordering::Relaxed) };
        self.work.store(work.number(), Ordering::Relaxed);
        before
    }

    /// Restores a previous activity.
    pub fn restore(&self, before: Saved) {
        self.vxid.store(before.vxid, Ordering::Relaxed);
        self.work.store(before.work, Ordering::Relaxed);
    }

    /// Returns the number of the current poll, if there is one.
    pub fn current(&self) -> Option<u64> {
        Some(self.count.load(Ordering::Acquire)).filter(|count| count % 2 == 1)
    }

    /// Returns the raw id of the current transaction; 0 if there is none.
    pub fn vxid(&self) -> u64 {
        self.vxid.load(Ordering::Relaxed)
    }

    /// Returns the program of the current work, if that is VCL.
    pub fn program(&self) -> Option<ProgramId> {
        let number = self.work.load(Ordering::Relaxed);
        (number >> PROGRAM_SHIFT != 0).then_some(ProgramId(number >> PROGRAM_SHIFT << PROGRAM_SHIFT))
    }

    /// Returns the name of the current work.
    pub fn work_name(&self) -> &'static str {
        let number = self.work.load(Ordering::Relaxed) % (1 << PROGRAM_SHIFT);
        match number.checked_sub(METHODS) {
            None => NAMES.get(number as usize).copied().unwrap_or_default(),
            Some(method) => {
                let of = |m: &&Method| u64::from(**m as u8) == method;
                Method::ALL.iter().find(of).map_or("VCL", |m| m.log_name())
            }
        }
    }
}

/// Runs a task of a reactor, and records the activity during each poll.
pub async fn track_polls<F: Future>(activity: &Activity, work: Work, mut future: Pin<&mut F>) -> F::Output {
    poll_fn(|cx| {
        activity.begin(work);
        let poll = future.as_mut().poll(cx);
        activity.end();
        poll
    })
    .await
}

/// Polls a transaction, and records the activity meanwhile.
pub fn poll_within<F: Future>(
    activity: &Activity,
    (vxid, work): (Vxid, Work),
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let before = activity.enter(vxid, work);
    let poll = future.poll(cx);
    activity.restore(before);
    poll
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_transactions_and_programs_are_recorded() {
        let activity = Activity::default();
        assert_eq!(activity.current(), None);
        activity.begin(Work::Connection);
        let first = activity.current().expect("a poll has started");
        let before = activity.enter(Vxid::client(7), Work::Request);
        let (program, other) = (ProgramId::next(), ProgramId::next());
        let recv = activity.step(Work::Vcl(program, Method::Recv));
        assert_eq!((activity.work_name(), activity.vxid()), ("RECV", Vxid::client(7).raw()));
        assert!(activity.program() == Some(program) && program != other);
        activity.restore(recv);
        assert_eq!((activity.work_name(), activity.program()), ("a request", None));
        activity.restore(before);
        assert_eq!((activity.work_name(), activity.vxid()), ("a connection", 0));
        // A panic may skip the end of a poll.
        activity.begin(Work::Sweeping);
        assert!(activity.current().is_some_and(|now| now != first));
        activity.end();
        assert_eq!(activity.current(), None);
    }
}
