//! Compiles VCL on a thread outside the manager's loop. The compiler reads files and resolves host names, which may
//! take long; meanwhile the manager serves other connections and replaces a worker that died.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use lacquer_cli::link::VclState;

use super::compile::{CompileContext, Compiled, Input, compile};

/// Stack size in bytes. Deeply nested VCL must not be able to crash the manager.
const STACK: usize = 64 << 20;
/// Maximum number of concurrent compilations; further ones wait. A large one takes 300 MB.
const AT_ONCE: usize = 4;

static RUNNING: Permits = Permits { free: Mutex::new(AT_ONCE), freed: Condvar::new() };

struct Permits {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A permit to compile, which is returned when it is dropped.
struct Permit(&'static Permits);

impl Permits {
    fn take(&'static self) -> Permit {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// A VCL program that is being compiled on its own thread, so that a panic of the compiler is only a failed
/// compilation.
#[derive(Debug)]
pub struct Compilation {
    pub(super) name: String,
    pub(super) state: VclState,
    pub(super) is_saved: bool,
    thread: JoinHandle<Result<Compiled, String>>,
    /// The thread holds the other end, which closes when the compilation has ended.
    ended: UnixStream,
}

impl Compilation {
    pub(super) fn begin(
        name: &str,
        state: VclState,
        text: Input,
        context: CompileContext,
    ) -> Result<Compilation, String> {
        let is_saved = text.is_saved();
        let begin = || -> io::Result<Compilation> {
            let (ended, ends) = UnixStream::pair()?;
            let work = move || {
                let _hangs_up = ends;
                let _permit = RUNNING.take();
                compile(text, &context)
            };
            let thread = Builder::new().name("vcl".to_owned()).stack_size(STACK).spawn(work)?;
            Ok(Compilation { name: name.to_owned(), state, is_saved, thread, ended })
        };
        begin().map_err(|error| format!("VCL compilation failed: {error}"))
    }

    /// Returns the descriptor that hangs up when the compilation has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Waits for the end. The error is the text for the user.
    pub(super) fn outcome(self) -> Result<Compiled, String> {
        self.thread.join().unwrap_or_else(|_| Err("VCL compilation failed: internal error".to_owned()))
    }
}
