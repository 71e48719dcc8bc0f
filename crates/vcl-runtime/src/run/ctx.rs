//! The context of one run of VCL: its transaction, its program, and whether it has failed. Modules also
//! use it to access the transaction; [`module`](super::module) describes this.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_shm::vsl::Tag;
use lacquer_vcl::types::{Action, HttpId, Method};

use super::{ActiveSub, Instance};
use crate::args::{Args, ModuleError};
use crate::backend::BackendId;
use crate::convert;
use crate::header_name::HeaderName;
use crate::host::{Host, HostResult, LocalFuture};
use crate::value::{NameRef, Str};

pub use super::{Ctx, Suspend};

/// Maximum number of bytes of stack between the outermost dynamic call and the innermost one. The code generator adds
/// it to the stack of programs with such calls.
pub const MAX_DYNAMIC_STACK: usize = 128 * 1024;

impl<'a> Ctx<'a> {
    /// The bit of [`Ctx::trace`] that VCL changes by `req.trace`.
    pub const LOGS_POINTS: u32 = 1;

    pub fn new(host: &'a mut dyn Host, vcl: &'a Instance) -> Self {
        Ctx { handling: 0, trace: 0, host, vcl, suspend: None, active: Vec::new() }
    }

    /// Fails the transaction and logs the text as `VCL_Error`. Later failures of the same run are not logged.
    pub fn fail(&mut self, text: &str) {
        if !self.failed() {
            self.handling = Action::Fail as u32;
            self.host.fail(text);
        }
    }

    pub fn failed(&self) -> bool {
        self.handling == Action::Fail as u32
    }

    pub fn method(&self) -> Method {
        self.host.method()
    }

    /// Writes one log record; `tag` is the number in the log's tag table.
    pub fn log(&mut self, tag: u8, text: impl AsRef<[u8]>) {
        self.host.log(tag, text.as_ref());
    }

    // Workspace.

    /// Copies bytes into the task's workspace.
    pub fn copy(&mut self, bytes: &[u8]) -> Result<&'a [u8], ModuleError> {
        if bytes.is_empty() {
            return Ok(b"");
        }
        Ok(self.try_copy(bytes).ok_or("Workspace overflow")?)
    }

    /// Joins strings; undefined ones are empty. A single string is not copied.
    pub fn join(&mut self, parts: &[Str<'a>]) -> Result<&'a [u8], ModuleError> {
        let mut full = parts.iter().map(|part| part.or_empty()).filter(|bytes| !bytes.is_empty());
        let Some(first) = full.next() else { return Ok(b"") };
        if full.next().is_none() {
            return Ok(first);
        }
        let size = parts.iter().map(|part| part.or_empty().len()).sum();
        let joined = self.host.alloc(size).ok_or("Workspace overflow")?;
        assert_eq!(joined.len(), size, "bytes that nobody writes would become text");
        let mut rest = &mut joined[..];
        for part in parts {
            let bytes = part.or_empty();
            let (place, behind) = rest.split_at_mut(bytes.len());
            place.copy_from_slice(bytes);
            rest = behind;
        }
        // SAFETY: the host returned it.
        Ok(unsafe { extend_lifetime(joined) })
    }

    // Headers.

    /// Returns a name in the program, by its index.
    #[inline]
    pub fn header_name(&self, name: u32) -> Option<&'a HeaderName> {
        self.vcl.headers.get(name as usize)
    }

    /// Returns the name of a HEADER value, prepared for lookups.
    pub fn named(&self, name: NameRef<'a>) -> Option<Cow<'a, HeaderName>> {
        match name {
            NameRef::Written(name) => self.header_name(name).map(Cow::Borrowed),
            NameRef::Made(name) => Some(Cow::Owned(HeaderName::new(&String::from_utf8_lossy(name)))),
        }
    }

    /// Returns the value of a header, by the name in a HEADER argument.
    pub fn header(&mut self, http: HttpId, name: NameRef<'a>) -> Option<&'a [u8]> {
        let name = self.named(name)?;
        let value = self.host.header(http, &name)?;
        // SAFETY: the host returned it.
        Some(unsafe { extend_lifetime(value) })
    }

    /// Copies the value into the workspace and replaces all headers with the name.
    pub fn set_header(&mut self, http: HttpId, name: &HeaderName, value: &[u8]) -> Result<(), ModuleError> {
        let value = self.copy(value)?;
        Ok(self.host.set_header(http, name, Some(value))?)
    }

    pub fn unset_header(&mut self, http: HttpId, name: &HeaderName) -> Result<(), ModuleError> {
        Ok(self.host.unset_header(http, name)?)
    }

    // Declarations of the program.

    /// Returns whether an address matches an ACL. Writes the log record if the ACL logs.
    pub fn acl_match(&mut self, acl: Option<u32>, ip: Option<&SocketAddr>) -> Result<bool, ModuleError> {
        let table = acl.and_then(|i| self.vcl.acls.get(i as usize));
        let table = table.ok_or("Cannot match a null ACL")?;
        let verdict = table.check(ip.ok_or("Cannot match a null IP address")?);
        if let Some(text) = verdict.log {
            self.host.log(Tag::VCL_acl as u8, text.as_bytes());
        }
        Ok(verdict.matches)
    }

    /// Returns the VCL name of a backend.
    pub fn backend_name(&mut self, backend: BackendId) -> Result<Option<&'a [u8]>, ModuleError> {
        if backend.is_none() {
            return Ok(None);
        }
        let vcl: &'a Instance = self.vcl;
        let declared = vcl.backends.iter().position(|&id| id == backend);
        if let Some(declared) = declared.and_then(|at| vcl.program.origins.backends.get(at)) {
            return Ok(Some(declared.name.as_bytes()));
        }
        match vcl.directors.get(backend) {
            Some(cell) => Ok(Some(self.copy(cell.director.name().as_bytes())?)),
            None => Ok(None),
        }
    }

    /// Returns the backend that a director currently selects; `NONE` if none can serve.
    pub fn resolve_backend(&mut self, backend: BackendId) -> BackendId {
        /// Limit on nested directors, which ends a cycle of directors.
        const MAX_STEPS: usize = 64;
        let mut at = backend;
        for _ in 0..MAX_STEPS {
            let Some(cell) = self.vcl.directors.get(at) else { return BackendId::NONE };
            let next = cell.director.resolve(self, at);
            if next == at || next.is_none() {
                return next;
            }
            at = next;
        }
        BackendId::NONE
    }

    /// Copies the text of a conversion into the workspace.
    pub fn text(&mut self, text: Result<convert::Text, String>) -> Result<&'a [u8], ModuleError> {
        self.copy(text?.bytes())
    }

    /// Fails with the reason if a SUB value cannot be called now.
    pub fn check_sub(&self, sub: Option<u32>) -> Result<(), SubFault> {
        let index = sub.ok_or(SubFault::Missing)?;
        let sub = self.vcl.program.subs.get(index as usize).ok_or(SubFault::Missing)?;
        if sub.allowed & (1 << self.host.method() as u32) == 0 {
            return Err(SubFault::Method);
        }
        if self.active.iter().any(|sub| sub.index == index) {
            return Err(SubFault::Recursion);
        }
        match self.active.first() {
            Some(outermost) if outermost.frame.abs_diff(frame_address()) > MAX_DYNAMIC_STACK => {
                Err(SubFault::Depth)
            }
            _ => Ok(()),
        }
    }

    /// Calls a SUB value. If it returns an action, the caller's run ends with that action too.
    pub fn call_sub(&mut self, sub: Option<u32>) -> Result<(), ModuleError> {
        let name = sub.and_then(|i| self.vcl.program.subs.get(i as usize)).map_or("", |s| s.name.as_str());
        match self.check_sub(sub) {
            Ok(()) => {}
            Err(SubFault::Missing) => return Err("Cannot call a null SUB".into()),
            Err(SubFault::Method) => {
                return Err(format!("call to \"sub {name}{{}}\" not allowed from here").into());
            }
            Err(SubFault::Recursion) => return Err(format!("Recursive call to \"sub {name}{{}}\"").into()),
            Err(SubFault::Depth) => {
                return Err(format!("Calls nest too deeply for \"sub {name}{{}}\"").into());
            }
        }
        let index = sub.unwrap_or_default();
        let code = self.vcl.sub(index);
        let code = code.ok_or("The program is not compiled yet")?;
        self.active.push(ActiveSub { index, frame: frame_address() });
        // SAFETY: the code is this instance's, and `vcl` lives for `'a`.
        let handling = unsafe { code(self) };
        self.active.pop();
        if self.handling == 0 {
            self.handling = handling;
        }
        Ok(())
    }

    // Values that modules store.

    /// Returns a PRIV_TASK value, stored for this task. It is identified by type; `key` distinguishes several of one
    /// type.
    pub fn task<T: Default + 'static>(&mut self, key: usize) -> &mut T {
        self.host.task_privates().get(key)
    }

    /// Returns a PRIV_TOP value, stored for the client's request and its ESI sub-requests.
    pub fn top<T: Default + 'static>(&mut self, key: usize) -> &mut T {
        self.host.top_privates().get(key)
    }

    /// Returns a PRIV_CALL value, stored for the call site and shared by all tasks.
    pub fn call_state<T: Default + Send + Sync + 'static>(
        &self,
        args: &Args<'a>,
    ) -> Result<&'a T, ModuleError> {
        let vcl: &'a Instance = self.vcl;
        vcl.call_state(args.call_site).ok_or_else(|| "this call site has no state of this type".into())
    }

    /// Returns a PRIV_VCL value, stored for the whole VCL and shared by all tasks.
    pub fn vcl_state<T: Default + Send + Sync + 'static>(&self, key: usize) -> Arc<T> {
        self.vcl.vcl_state(key)
    }

    // Waiting.

    /// Returns whether this run may wait.
    pub fn can_wait(&self) -> bool {
        self.suspend.is_some()
    }

    /// Runs `body` in a context that can wait.
    pub fn with_suspend<R>(&mut self, suspend: Rc<dyn Suspend>, body: impl FnOnce(&mut Ctx<'a>) -> R) -> R {
        /// Guard that removes the ability to wait from the context, also when `body` panics.
        struct Restore<'c, 'a> {
            ctx: &'c mut Ctx<'a>,
            outer: Option<Rc<dyn Suspend>>,
        }
        impl Drop for Restore<'_, '_> {
            fn drop(&mut self) {
                self.ctx.suspend = self.outer.take();
            }
        }
        let outer = self.suspend.replace(suspend);
        let restore = Restore { ctx: self, outer };
        body(restore.ctx)
    }

    /// Waits for work on the reactor without blocking its thread. Only functions that their module lists
    /// in [`suspends`](crate::Module::suspends) may call it.
    pub fn block_on<T>(&mut self, work: LocalFuture<'_, T>) -> Result<T, ModuleError> {
        let suspend = self.suspend.clone().ok_or(NO_WAIT)?;
        wait(&*suspend, work)
    }

    /// Waits for work of the host: `ctx.block_on_host(|host| host.cache_req_body(limit))`.
    pub fn block_on_host<T>(
        &mut self,
        start: impl for<'h> FnOnce(&'h mut dyn Host) -> HostResult<LocalFuture<'h, T>>,
    ) -> Result<T, ModuleError> {
        let suspend = self.suspend.clone().ok_or(NO_WAIT)?;
        let work = start(&mut *self.host)?;
        wait(&*suspend, work)
    }
}

/// Extends the lifetime of bytes that the host returned to that of the run.
///
/// # Safety
/// A method of the context's host that [`StableValues`](crate::host::StableValues) lists must have returned them,
/// and nothing may write to them afterwards.
#[inline(always)]
pub(crate) unsafe fn extend_lifetime<'a>(bytes: &[u8]) -> &'a [u8] {
    // SAFETY: `Ctx` borrows the host for `'a`, and the host promises that the bytes do not change until that ends.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}

const NO_WAIT: &str = "This call may not wait here";

fn wait<T>(suspend: &dyn Suspend, work: LocalFuture<'_, T>) -> Result<T, ModuleError> {
    let mut result = None;
    let slot = &mut result;
    suspend.wait(Box::pin(async move { *slot = Some(work.await) }));
    result.ok_or_else(|| "The task has ended".into())
}

/// Returns an address in the current frame of the stack.
fn frame_address() -> usize {
    let here = 0_u8;
    std::hint::black_box(&raw const here).addr()
}

/// The reason why a SUB value cannot be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubFault {
    Missing,
    /// The sub uses variables or actions that the current method does not have.
    Method,
    Recursion,
    /// The stack has no room for another call.
    Depth,
}
