//! The thread on which all connections live. VCL waits for it, while its reactor serves other requests.

use std::future::Future;
use std::sync::mpsc;

use lacquer_vcl_runtime::{Ctx, ModuleError};
use tokio::sync::oneshot;

use crate::async_thread::AsyncThread;

/// All names are looked up elsewhere, so that nothing blocks here.
static THREAD: AsyncThread = AsyncThread::new(["vmod-redis", "vmod-redis"], "redis", 1);

/// Runs the work on the thread and waits for it. The work must limit its time. If the task of VCL ends first, the work
/// is dropped, and its connection with it.
pub(super) fn run<T: Send + 'static>(
    ctx: &mut Ctx<'_>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ModuleError> {
    let failed = || ModuleError("redis: the thread for connections failed".to_owned());
    if !ctx.can_wait() {
        let (done, result) = mpsc::channel();
        THREAD.runtime()?.spawn(async move {
            // Without a receiver, nobody needs the value.
            let _ = done.send(work.await);
        });
        return result.recv().map_err(|_| failed());
    }
    let (mut done, result) = oneshot::channel();
    THREAD.runtime()?.spawn(async move {
        tokio::select! {
            value = work => {
                let _ = done.send(value);
            }
            () = done.closed() => {}
        }
    });
    ctx.block_on(Box::pin(result))?.map_err(|_| failed())
}
