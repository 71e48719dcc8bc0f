//! Decides which tests run at the same time. A test that measures time or memory runs alone. A test that mostly waits
//! runs beside others of its kind. A test waits for its slot where it requests one, or where it starts a daemon.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::effort;

/// The number of shared slots.
const SHARED_SLOTS: usize = 6;

static RUNNING: Mutex<Occupancy> = Mutex::new(Occupancy { beside: 0, waiting: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// True if this thread belongs to a test that holds a slot.
    static HAS_SLOT: Cell<bool> = const { Cell::new(false) };
}

struct Occupancy {
    beside: usize,
    /// The tests that wait for a shared slot. They have priority, so that no exclusive test runs between them.
    waiting: usize,
    alone: bool,
}

fn running() -> MutexGuard<'static, Occupancy> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn when(
    ready: impl Fn(&Occupancy) -> bool,
    guard: MutexGuard<'static, Occupancy>,
) -> MutexGuard<'static, Occupancy> {
    CHANGED.wait_while(guard, |running| !ready(running)).unwrap_or_else(PoisonError::into_inner)
}

/// The slot of a test that runs alone.
pub(crate) struct ExclusiveSlot(());

/// Waits until no other test holds a slot. Returns `None` if the calling thread belongs to a test that holds one.
pub(crate) fn exclusive_slot() -> Option<ExclusiveSlot> {
    if HAS_SLOT.get() {
        return None;
    }
    when(|running| !running.alone && running.beside + running.waiting == 0, running()).alone = true;
    Some(ExclusiveSlot(()))
}

impl Drop for ExclusiveSlot {
    fn drop(&mut self) {
        running().alone = false;
        CHANGED.notify_all();
    }
}

/// The slot of a test that runs alone from beginning to end. It belongs to one thread, whose daemons need no slot of their
/// own, so that none of them waits for other tests while its time is measured.
pub struct WholeSlot {
    _alone: ExclusiveSlot,
    _not_send: PhantomData<*const ()>,
}

/// Waits until no other test holds a slot.
pub fn whole_slot() -> WholeSlot {
    let alone = exclusive_slot().expect("a test holds one slot at most");
    HAS_SLOT.set(true);
    WholeSlot { _alone: alone, _not_send: PhantomData }
}

impl Drop for WholeSlot {
    fn drop(&mut self) {
        HAS_SLOT.set(false);
    }
}

/// The slot of a test that runs beside others. It belongs to one thread.
pub struct SharedSlot {
    alone: Option<ExclusiveSlot>,
    _not_send: PhantomData<*const ()>,
}

/// Waits for a slot beside other tests that mostly wait. Daemons that the thread starts while it holds the slot need no
/// slot of their own. In the full form, which puts more load on the machine, the test runs alone.
pub fn shared_slot() -> SharedSlot {
    let alone = effort(false, true).then(|| exclusive_slot().expect("a test holds one slot at most"));
    if alone.is_none() {
        let mut guard = running();
        guard.waiting += 1;
        let mut guard = when(|running| !running.alone && running.beside < SHARED_SLOTS, guard);
        guard.waiting -= 1;
        guard.beside += 1;
    }
    HAS_SLOT.set(true);
    SharedSlot { alone, _not_send: PhantomData }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        HAS_SLOT.set(false);
        if self.alone.is_none() {
            running().beside -= 1;
            CHANGED.notify_all();
        }
    }
}

/// Runs the parts of a test in threads that share its slot, or one after the other in the full form.
pub fn in_parallel<T: Send>(_slot: &SharedSlot, parts: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
    if effort(false, true) {
        return parts.into_iter().for_each(work);
    }
    let work = &work;
    let part = |part| {
        move || {
            HAS_SLOT.set(true);
            work(part);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = parts.into_iter().map(|item| scope.spawn(part(item))).collect();
        let failed: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().err()).collect();
        if let Some(panic) = failed.into_iter().next() {
            resume_unwind(panic);
        }
    });
}
