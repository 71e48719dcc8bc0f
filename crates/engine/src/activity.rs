//! The current turn of a reactor: the poll of one task, and what it does at the moment. The reactor stores, the
//! watchdog reads. A store costs a reactor nothing, so no clock is read here.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use lacquer_shm::Vxid;
use lacquer_vcl::types::Method;

/// Tells the places of one VCL program from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramMark(u64);

/// Bits of a place that its program does not use.
const PROGRAM_SHIFT: u32 = 8;

impl ProgramMark {
    /// Returns a mark that no program had before.
    pub fn next() -> ProgramMark {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ProgramMark(NEXT.fetch_add(1, Ordering::Relaxed) << PROGRAM_SHIFT)
    }
}

/// The work that a reactor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Accepting,
    Connection,
    Housekeeping,
    Sweeping,
    Request,
    Fetch,
    Vcl(ProgramMark, Method),
}

/// Places below this number have a name in [`NAMES`], the others are methods; 0 is no place.
const METHODS: u64 = 16;
const NAMES: [&str; 7] =
    ["nothing", "accepting", "a connection", "housekeeping", "deadlines", "a request", "a fetch"];

impl Place {
    fn number(self) -> u64 {
        match self {
            Place::Accepting => 1,
            Place::Connection => 2,
            Place::Housekeeping => 3,
            Place::Sweeping => 4,
            Place::Request => 5,
            Place::Fetch => 6,
            Place::Vcl(program, method) => program.0 + METHODS + u64::from(method as u8),
        }
    }
}

/// See the module's documentation. One per reactor.
#[derive(Default)]
pub struct Turn {
    /// Changes with each turn; odd while one lasts.
    count: AtomicU64,
    vxid: AtomicU64,
    place: AtomicU64,
}

/// A place to return to.
#[derive(Clone, Copy)]
pub struct Before {
    vxid: u64,
    place: u64,
}

impl Turn {
    fn begin(&self, place: Place) {
        self.vxid.store(0, Ordering::Relaxed);
        self.place.store(place.number(), Ordering::Relaxed);
        self.count.store((self.count.load(Ordering::Relaxed) + 2) | 1, Ordering::Release);
    }

    fn end(&self) {
        self.count.store((self.count.load(Ordering::Relaxed) + 1) & !1, Ordering::Release);
    }

    /// Begins the work of a transaction within the turn.
    fn enter(&self, vxid: Vxid, place: Place) -> Before {
        let before = self.step(place);
        self.vxid.store(vxid.raw(), Ordering::Relaxed);
        before
    }

    /// Notes another step of the same transaction.
    pub fn step(&self, place: Place) -> Before {
        let before =
            Before { vxid: self.vxid.load(Ordering::Relaxed), place: self.place.load(Ordering::Relaxed) };
        self.place.store(place.number(), Ordering::Relaxed);
        before
    }

    pub fn back(&self, before: Before) {
        self.vxid.store(before.vxid, Ordering::Relaxed);
        self.place.store(before.place, Ordering::Relaxed);
    }

    /// The turn that lasts, if one does.
    pub fn current(&self) -> Option<u64> {
        Some(self.count.load(Ordering::Acquire)).filter(|count| count % 2 == 1)
    }

    /// The transaction that has the turn (or none), as the log numbers it.
    pub fn vxid(&self) -> u64 {
        self.vxid.load(Ordering::Relaxed)
    }

    /// Returns the program of the current place, if that is in VCL.
    pub fn program(&self) -> Option<ProgramMark> {
        let number = self.place.load(Ordering::Relaxed);
        (number >> PROGRAM_SHIFT != 0).then_some(ProgramMark(number >> PROGRAM_SHIFT << PROGRAM_SHIFT))
    }

    /// The name of the current place.
    pub fn place(&self) -> &'static str {
        let number = self.place.load(Ordering::Relaxed) % (1 << PROGRAM_SHIFT);
        match number.checked_sub(METHODS) {
            None => NAMES.get(number as usize).copied().unwrap_or_default(),
            Some(method) => {
                let of = |m: &&Method| u64::from(**m as u8) == method;
                Method::ALL.iter().find(of).map_or("VCL", |m| m.log_name())
            }
        }
    }
}

/// Runs a task of a reactor; each poll is a turn.
pub async fn track_polls<F: Future>(turn: &Turn, place: Place, mut work: Pin<&mut F>) -> F::Output {
    poll_fn(|cx| {
        turn.begin(place);
        let poll = work.as_mut().poll(cx);
        turn.end();
        poll
    })
    .await
}

/// Polls the work of one transaction.
pub fn poll_within<F: Future>(
    turn: &Turn,
    (vxid, place): (Vxid, Place),
    work: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let before = turn.enter(vxid, place);
    let poll = work.poll(cx);
    turn.back(before);
    poll
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_places_are_told_apart() {
        let turn = Turn::default();
        assert_eq!(turn.current(), None);
        turn.begin(Place::Connection);
        let first = turn.current().expect("it lasts");
        let before = turn.enter(Vxid::client(7), Place::Request);
        let (program, other) = (ProgramMark::next(), ProgramMark::next());
        let recv = turn.step(Place::Vcl(program, Method::Recv));
        assert_eq!((turn.place(), turn.vxid()), ("RECV", Vxid::client(7).raw()));
        assert!(turn.program() == Some(program) && program != other);
        turn.back(recv);
        assert_eq!((turn.place(), turn.program()), ("a request", None));
        turn.back(before);
        assert_eq!((turn.place(), turn.vxid()), ("a connection", 0));
        // A panic may skip the end.
        turn.begin(Place::Sweeping);
        assert!(turn.current().is_some_and(|now| now != first));
        turn.end();
        assert_eq!(turn.current(), None);
    }
}
