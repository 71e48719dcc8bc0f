//! The context of one run of VCL: who runs it, which program, and whether it has failed.

use crate::host::{Host, LocalFuture};
use crate::instance::Instance;
use crate::module::ModuleError;
use crate::value::Str;

/// Where VCL can be suspended: the coroutine it runs on. Made by the code generator's crate.
pub trait Suspend {
    /// Gives the future to the reactor and comes back when it is done.
    fn wait(&self, work: LocalFuture<'_, ()>);
}

/// `'a` is the task: values handed to VCL live that long. Compiled code reads `failed` at offset 0.
#[repr(C)]
pub struct Ctx<'a> {
    /// Not zero once the run has failed; compiled code looks after every call that can fail.
    pub failed: u32,
    /// Depth of calls between subroutines, bounded against runaway recursion.
    pub depth: u32,
    pub host: &'a mut dyn Host,
    pub vcl: &'a Instance,
    pub suspend: Option<&'a dyn Suspend>,
}

impl<'a> Ctx<'a> {
    pub fn new(host: &'a mut dyn Host, vcl: &'a Instance) -> Self {
        Ctx { failed: 0, depth: 0, host, vcl, suspend: None }
    }

    /// Fails the transaction; the text is logged as `VCL_Error`.
    pub fn fail(&mut self, text: &str) {
        self.failed = 1;
        self.host.fail(text);
    }

    /// Copies bytes into the task's workspace.
    pub fn copy(&mut self, bytes: &[u8]) -> Result<&'a [u8], ModuleError> {
        let held: Str = self.host.copy(bytes).ok_or("workspace overflow")?;
        // SAFETY: the host's workspace neither moves nor is reused while the task `'a` lives.
        unsafe { held.bytes() }.ok_or_else(|| "workspace overflow".into())
    }

    /// Waits for work on the reactor without blocking its thread. Only functions that their module names
    /// in `suspends` may call it.
    pub fn block_on<T>(&mut self, work: LocalFuture<'_, T>) -> Result<T, ModuleError> {
        let suspend = self.suspend.ok_or("this call may not wait here")?;
        let mut result = None;
        let slot = &mut result;
        suspend.wait(Box::pin(async move { *slot = Some(work.await) }));
        result.ok_or_else(|| "the wait was given up".into())
    }
}
