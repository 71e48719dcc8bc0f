//! The thread on which all connections live. VCL waits for it, while its reactor serves other requests.

use std::convert::Infallible;
use std::future::Future;
use std::sync::{OnceLock, mpsc};

use lacquer_vcl_runtime::{Ctx, ModuleError};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Returns the runtime of the thread, which starts at the first call.
pub(super) fn handle() -> Result<&'static Handle, String> {
    static STARTED: OnceLock<Result<Handle, String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let serve = move || runtime.block_on(std::future::pending::<Infallible>());
        let thread = std::thread::Builder::new().name("vmod-redis".to_owned()).spawn(serve);
        thread.map(|_| handle).map_err(|error| format!("no thread for redis: {error}"))
    });
    started.as_ref().map_err(Clone::clone)
}

/// Runs the work on the thread and waits for it. The work must limit its time. If the task of VCL ends first, the work
/// is dropped, and its connection with it.
pub(super) fn run<T: Send + 'static>(
    ctx: &mut Ctx<'_>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ModuleError> {
    let failed = || ModuleError("redis: the thread for connections failed".to_owned());
    if !ctx.can_wait() {
        let (done, result) = mpsc::channel();
        handle()?.spawn(async move {
            // Without a receiver, nobody needs the value.
            let _ = done.send(work.await);
        });
        return result.recv().map_err(|_| failed());
    }
    let (mut done, result) = oneshot::channel();
    handle()?.spawn(async move {
        tokio::select! {
            value = work => {
                let _ = done.send(value);
            }
            () = done.closed() => {}
        }
    });
    ctx.block_on(Box::pin(result))?.map_err(|_| failed())
}
