//! Threads on which modules run asynchronous work: servers within this process, and connections to others. VCL waits for
//! it while its reactor serves other requests.

use std::convert::Infallible;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

/// A thread with a runtime, which starts at the first use.
pub(crate) struct AsyncThread {
    /// The names of the thread, and of those that run its blocking work.
    names: [&'static str; 2],
    purpose: &'static str,
    /// The maximum number of threads for blocking work.
    most_threads: usize,
    started: OnceLock<Result<Handle, String>>,
}

impl AsyncThread {
    pub(crate) const fn new(
        names: [&'static str; 2],
        purpose: &'static str,
        most_threads: usize,
    ) -> AsyncThread {
        AsyncThread { names, purpose, most_threads, started: OnceLock::new() }
    }

    pub(crate) fn runtime(&self) -> Result<&Handle, String> {
        self.started.get_or_init(|| self.start()).as_ref().map_err(Clone::clone)
    }

    fn start(&self) -> Result<Handle, String> {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().max_blocking_threads(self.most_threads).thread_name(self.names[1]);
        let runtime = builder.build().map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let serve = move || runtime.block_on(std::future::pending::<Infallible>());
        let thread = std::thread::Builder::new().name(self.names[0].to_owned()).spawn(serve);
        thread.map(|_| handle).map_err(|error| format!("no thread for {}: {error}", self.purpose))
    }
}
