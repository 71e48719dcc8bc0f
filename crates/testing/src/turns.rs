//! Decides which tests run at the same time. A test that measures time or memory runs alone, and one that mostly waits
//! runs beside others of its kind. A test waits for its turn where it asks for one, or where it starts a daemon.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::effort;

/// The most tests that run beside each other.
const MOST: usize = 6;

static RUNNING: Mutex<Running> = Mutex::new(Running { beside: 0, waiting: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// True if this thread belongs to a test that has a turn.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

struct Running {
    beside: usize,
    /// The tests that wait to run beside others. They go first, so that no test that runs alone parts them.
    waiting: usize,
    alone: bool,
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn when(
    ready: impl Fn(&Running) -> bool,
    guard: MutexGuard<'static, Running>,
) -> MutexGuard<'static, Running> {
    CHANGED.wait_while(guard, |running| !ready(running)).unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a test that runs alone.
pub(crate) struct Alone(());

/// Waits until no other test has a turn. Returns nothing if the calling thread belongs to a test that has one.
pub(crate) fn alone() -> Option<Alone> {
    if HAS_TURN.get() {
        return None;
    }
    when(|running| !running.alone && running.beside + running.waiting == 0, running()).alone = true;
    Some(Alone(()))
}

impl Drop for Alone {
    fn drop(&mut self) {
        running().alone = false;
        CHANGED.notify_all();
    }
}

/// The turn of a test that runs beside others. It belongs to one thread.
pub struct Beside {
    alone: Option<Alone>,
    _stays: PhantomData<*const ()>,
}

/// Waits for a turn beside other tests that mostly wait. The daemons that the thread starts meanwhile run at once.
/// In the whole form, which puts more load on the machine, the test runs alone.
pub fn beside_others() -> Beside {
    let alone = effort(false, true).then(|| alone().expect("a test has one turn"));
    if alone.is_none() {
        let mut guard = running();
        guard.waiting += 1;
        let mut guard = when(|running| !running.alone && running.beside < MOST, guard);
        guard.waiting -= 1;
        guard.beside += 1;
    }
    HAS_TURN.set(true);
    Beside { alone, _stays: PhantomData }
}

impl Drop for Beside {
    fn drop(&mut self) {
        HAS_TURN.set(false);
        if self.alone.is_none() {
            running().beside -= 1;
            CHANGED.notify_all();
        }
    }
}

/// Does the parts of a test in threads that share its turn, or one after the other in the whole form.
pub fn at_once<T: Send>(_turn: &Beside, parts: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
    if effort(false, true) {
        return parts.into_iter().for_each(work);
    }
    let work = &work;
    let part = |part| {
        move || {
            HAS_TURN.set(true);
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
