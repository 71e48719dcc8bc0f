//! Runs blocking work (files, names, slow hashes, large bodies) on separate threads while VCL waits and its reactor serves
//! others. Each pool has few threads and a bounded queue, so that a flood of one kind of work does not delay others.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lacquer_vcl_runtime::{Ctx, ModuleError};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Idle time after which a thread ends.
const IDLE: Duration = Duration::from_secs(10);
/// Stack size in bytes, sufficient for the C library's resolver.
const STACK: usize = 512 << 10;

/// Reads files.
pub(crate) static FILES: ThreadPool = ThreadPool::new("files", 4, 1024);
/// Queries the name service, which may take seconds.
pub(crate) static NAMES: ThreadPool = ThreadPool::new("names", 16, 256);
/// Computes hashes that are slow by design. One thread, because reactors need the other cores.
pub(crate) static HASHES: ThreadPool = ThreadPool::new("hashes", 1, 256);
/// Matches the bodies of requests, as many bytes as a client sends.
pub(crate) static BODIES: ThreadPool = ThreadPool::new("bodies", 2, 256);

/// A thread pool for one kind of work.
pub(crate) struct ThreadPool {
    name: &'static str,
    most_threads: usize,
    most_waiting: usize,
    state: Mutex<State>,
    arrived: Condvar,
}

struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl ThreadPool {
    const fn new(name: &'static str, most_threads: usize, most_waiting: usize) -> ThreadPool {
        let state = State { waiting: VecDeque::new(), threads: 0, idle: 0 };
        ThreadPool { name, most_threads, most_waiting, state: Mutex::new(state), arrived: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the work on a thread of the pool and waits for it. If VCL cannot wait (vcl_init), runs it at
    /// once. Fails if too much work is queued, or if the task ends.
    pub(crate) fn run<T: Send + 'static>(
        &'static self,
        ctx: &mut Ctx<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ModuleError> {
        if !ctx.can_wait() {
            return Ok(work());
        }
        let result = self.start(work)?;
        ctx.block_on(Box::pin(result))?.map_err(|_| self.failed())
    }

    /// Runs the work on a thread of the pool, for a task that is not VCL's. Fails like [`ThreadPool::run`]. Work that
    /// nobody waits for any more does not begin.
    pub(crate) async fn compute<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ModuleError> {
        self.start(work)?.await.map_err(|_| self.failed())
    }

    fn failed(&self) -> ModuleError {
        ModuleError(format!("The thread for {} failed", self.name))
    }

    fn start<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, ModuleError> {
        let (done, result) = oneshot::channel();
        self.submit(Box::new(move || {
            if !done.is_closed() {
                let _ = done.send(work());
            }
        }))?;
        Ok(result)
    }

    fn submit(&'static self, job: Job) -> Result<(), ModuleError> {
        let mut state = self.state();
        if state.waiting.len() >= self.most_waiting {
            return Err(format!("Too much work is queued for {}", self.name).into());
        }
        let needs_thread = state.idle <= state.waiting.len() && state.threads < self.most_threads;
        if needs_thread {
            let builder = std::thread::Builder::new().name(format!("vmod-{}", self.name)).stack_size(STACK);
            match builder.spawn(|| self.serve()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    return Err(format!("No thread for {}: {error}", self.name).into());
                }
                // The existing threads run it.
                Err(_) => {}
            }
        }
        state.waiting.push_back(job);
        self.arrived.notify_one();
        Ok(())
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            while let Some(job) = state.waiting.pop_front() {
                drop(state);
                // A panicking job drops its sender, which wakes its task with an error.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.state();
            }
            state.idle += 1;
            let (woken, timeout) =
                self.arrived.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_full_pool_refuses_work_and_continues() {
        static POOL: ThreadPool = ThreadPool::new("tests", 1, 2);
        let (gate, opened) = mpsc::channel::<()>();
        let (report, done) = mpsc::channel();
        let first = report.clone();
        POOL.submit(Box::new(move || {
            let _ = opened.recv();
            let _ = first.send(0);
            panic!("the thread must survive");
        }))
        .expect("there is room");
        while !POOL.state().waiting.is_empty() {
            std::thread::yield_now();
        }
        for n in 1..=2 {
            let report = report.clone();
            POOL.submit(Box::new(move || report.send(n).expect("the test listens"))).expect("there is room");
        }
        let refused = POOL.submit(Box::new(|| {})).expect_err("it is full");
        assert_eq!(refused.0, "Too much work is queued for tests");
        drop(gate);
        assert_eq!([0, 1, 2].map(|_| done.recv().expect("it runs")), [0, 1, 2]);
        assert_eq!(POOL.state().threads, 1);
    }
}
