//! Safe access to what lives as long as a task: the strings of its transaction, the arguments of a call,
//! and new values in its workspace. Modules forbid `unsafe`; what they need of it is here.

use std::net::SocketAddr;

use lacquer_vcl::variables_table::Var;

use crate::ctx::Ctx;
use crate::module::{Args, ModuleError};
use crate::value::{Blob, Str};

impl<'a> Ctx<'a> {
    /// The bytes of a string that the host or compiled code handed out in this task.
    pub fn read(&self, held: Str) -> Option<&'a [u8]> {
        // SAFETY: strings handed out in a task live until it ends.
        unsafe { held.bytes() }
    }

    pub fn get_str(&mut self, var: Var) -> Option<&'a [u8]> {
        let held = self.host.get_str(var);
        self.read(held)
    }

    pub fn get_blob(&mut self, var: Var) -> Option<&'a [u8]> {
        let held = self.host.get_blob(var)?;
        // SAFETY: blobs handed out in a task live until it ends.
        unsafe { held.bytes() }
    }

    /// Copies bytes into the workspace and makes a BLOB of them. `None`: out of workspace.
    pub fn blob(&mut self, bytes: &[u8], kind: u32) -> Option<&'a Blob> {
        let held = self.host.copy(bytes)?;
        let held = self.read(held)?;
        self.place(Blob::new(held, kind))
    }

    /// A BLOB of bytes that live long enough as they are.
    pub fn blob_of(&mut self, bytes: &'a [u8], kind: u32) -> Option<&'a Blob> {
        self.place(Blob::new(bytes, kind))
    }

    /// Puts an address into the workspace. `None`: out of workspace.
    pub fn ip(&mut self, address: SocketAddr) -> Option<&'a SocketAddr> {
        self.place(address)
    }

    /// Reads and keeps the request's body; the result is its length, negative on failure.
    pub fn cache_req_body(&mut self, limit: u64) -> Result<i64, ModuleError> {
        self.block_on_host(|host| host.cache_req_body(limit))
    }

    /// Puts a value into the workspace. `None`: out of workspace.
    pub fn place<T: Copy>(&mut self, value: T) -> Option<&'a T> {
        let (size, align) = (size_of::<T>(), align_of::<T>());
        let mut at = self.host.alloc(size)?;
        if !at.addr().is_multiple_of(align) {
            at = self.host.alloc(size + align)?;
            at = at.wrapping_add(at.align_offset(align));
        }
        let at = at.cast::<T>();
        // SAFETY: the host gave at least `size` bytes from `at` on, aligned above, that stay until the task ends.
        unsafe {
            at.write(value);
            Some(&*at)
        }
    }
}

impl<'a> Args<'a> {
    /// The parts of a STRANDS argument.
    pub fn parts(&self, i: usize) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        // SAFETY: arguments live until the task ends.
        self.strands(i).iter().map(|part| unsafe { part.bytes() })
    }

    /// The parts of a STRANDS argument in one piece.
    pub fn joined(&self, i: usize) -> Vec<u8> {
        self.parts(i).flatten().flatten().copied().collect()
    }

    /// The content of a BLOB argument.
    pub fn bytes(&self, i: usize) -> Option<&'a [u8]> {
        // SAFETY: arguments live until the task ends.
        self.blob(i).and_then(|blob| unsafe { blob.bytes() })
    }
}
