//! Runs that can wait. VCL is called on a separate stack. A module that waits lends its future to the driver, the
//! reactor polls it, and the stack is resumed when it is done.
//!
//! A run that is dropped while it waits cannot be unwound (compiled code has no unwind tables), and its stack must not
//! be freed while references to it exist. So it is resumed with the information that the task has ended: the call that
//! waits fails, every later wait fails at once, and the run ends like any failed one.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use lacquer_vcl::types::Action;
use lacquer_vcl_runtime::{Ctx, LocalFuture, Suspend};

/// Least number of bytes of a stack.
const STACK: usize = 256 * 1024;
/// Least number of bytes of a stack beside the frames of compiled code, for functions of modules.
const BESIDE: usize = 128 * 1024;
/// Number of stacks that each thread keeps for reuse.
const KEPT_STACKS: usize = 32;

thread_local! {
    /// Stacks and their sizes, those that were used last at the end.
    static STACKS: RefCell<Vec<(usize, DefaultStack)>> = const { RefCell::new(Vec::new()) };
}

fn take_stack(size: usize) -> Option<DefaultStack> {
    let kept = STACKS.with_borrow_mut(|kept| {
        let at = kept.iter().rposition(|(kept, _)| *kept == size)?;
        Some(kept.remove(at).1)
    });
    kept.or_else(|| DefaultStack::new(size).ok())
}

fn keep_stack(size: usize, stack: DefaultStack) {
    STACKS.with_borrow_mut(|kept| {
        if kept.len() == KEPT_STACKS {
            // That of another program may have no more use.
            kept.remove(0);
        }
        kept.push((size, stack));
    });
}

/// A future on the coroutine's stack, lent to the driver until the coroutine is resumed.
type Lent = *mut (dyn Future<Output = ()> + 'static);
/// Input: whether the lent future is done (otherwise the run is given up). Output: the next future to wait for.
type Stack = Coroutine<bool, Lent, Action, DefaultStack>;

struct Waiter {
    /// Null unless the coroutine is running: a context may outlive the run that it was lent to.
    yielder: Cell<*const Yielder<bool, Lent>>,
    given_up: Cell<bool>,
}

impl Suspend for Waiter {
    fn wait(&self, work: LocalFuture<'_, ()>) {
        if self.given_up.get() {
            return;
        }
        let yielder = self.yielder.replace(std::ptr::null());
        assert!(!yielder.is_null(), "the run has ended or is waiting already");
        // SAFETY: only the lifetime changes. `work` stays alive and untouched here until the coroutine is
        // resumed, and the driver drops its pointer before it resumes the coroutine.
        let mut work = unsafe { std::mem::transmute::<LocalFuture<'_, ()>, LocalFuture<'static, ()>>(work) };
        // SAFETY: the future is polled through this pointer but not moved.
        let lent: Lent = unsafe { work.as_mut().get_unchecked_mut() };
        // SAFETY: the coroutine is running and owns its yielder, and this is its thread, which `Waiter` cannot leave.
        if !unsafe { &*yielder }.suspend(lent) {
            self.given_up.set(true);
        }
        self.yielder.set(yielder);
    }
}

/// Guard that marks the end of a coroutine's run, including a panic.
struct Running(Rc<Waiter>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.yielder.set(std::ptr::null());
    }
}

/// Calls `body` with the context on a coroutine. `need` is the number of bytes of stack that compiled code needs.
pub async fn run<'a>(need: usize, ctx: &mut Ctx<'a>, body: impl FnOnce(&mut Ctx<'a>) -> Action) -> Action {
    let size = STACK.max(need + BESIDE);
    let Some(stack) = take_stack(size) else {
        ctx.fail("No memory for a stack");
        return Action::Fail;
    };
    let on_stack = |yielder: &Yielder<bool, Lent>, _: bool| {
        let yielder = Cell::new(std::ptr::from_ref(yielder));
        let running = Running(Rc::new(Waiter { yielder, given_up: Cell::new(false) }));
        ctx.with_suspend(running.0.clone(), body)
    };
    // SAFETY: the coroutine finishes before this function's locals and arguments are dropped: it runs to its end
    // below, or in `Driver::drop`.
    let coroutine = unsafe { Stack::with_stack_unchecked(stack, on_stack) };
    Driver { coroutine: Some(coroutine), size, lent: None }.await
}

struct Driver {
    coroutine: Option<Stack>,
    /// The size of its stack.
    size: usize,
    lent: Option<Lent>,
}

impl Driver {
    /// Runs until the next wait. Returns the action at the end.
    fn resume(&mut self, done: bool) -> Option<Action> {
        self.lent = None;
        match self.coroutine.as_mut()?.resume(done) {
            CoroutineResult::Yield(lent) => {
                self.lent = Some(lent);
                None
            }
            CoroutineResult::Return(action) => {
                if let Some(coroutine) = self.coroutine.take() {
                    keep_stack(self.size, coroutine.into_stack());
                }
                Some(action)
            }
        }
    }
}

impl Future for Driver {
    type Output = Action;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Action> {
        loop {
            if let Some(lent) = self.lent {
                // SAFETY: the future is on the suspended coroutine's stack and does not move there.
                let work = unsafe { Pin::new_unchecked(&mut *lent) };
                if work.poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            if let Some(action) = self.resume(true) {
                return Poll::Ready(action);
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A coroutine that a panic has ended is done, but is still stored here.
        while self.coroutine.as_ref().is_some_and(|c| c.started() && !c.done()) {
            self.resume(false);
        }
    }
}
