//! Access to values that live as long as a run: strings of its transaction, arguments of a call, and new values
//! in its workspace. Modules forbid `unsafe`; the code for which they need it is here.

use std::mem::MaybeUninit;
use std::net::SocketAddr;

use lacquer_vcl::variables_table::Var;

use crate::args::{Args, ModuleError};
use crate::ctx::{Ctx, extend_lifetime};
use crate::value::Blob;

impl<'a> Ctx<'a> {
    #[inline]
    pub fn get_str(&mut self, var: Var) -> Option<&'a [u8]> {
        let held = self.host.get_str(var)?;
        // SAFETY: the host returned it.
        Some(unsafe { extend_lifetime(held) })
    }

    /// Returns the content of a BLOB variable.
    pub fn get_blob(&mut self, var: Var) -> Option<&'a [u8]> {
        self.blob_var(var).map(Blob::bytes)
    }

    pub fn blob_var(&mut self, var: Var) -> Option<Blob<'a>> {
        let held = self.host.get_blob(var)?;
        // SAFETY: the host returned it.
        Some(Blob::new(unsafe { extend_lifetime(held.bytes()) }, held.kind))
    }

    pub fn get_ip(&mut self, var: Var) -> Option<&'a SocketAddr> {
        let held = self.host.get_ip(var).map(std::ptr::from_ref)?;
        // SAFETY: the host returned it, and promises that it does not change until `'a` ends.
        Some(unsafe { &*held })
    }

    pub fn stevedore_name(&mut self, index: u32) -> Option<&'a [u8]> {
        let held = self.host.stevedore_name(index)?;
        // SAFETY: the host returned it.
        Some(unsafe { extend_lifetime(held) })
    }

    /// Copies bytes into the workspace, even an empty string. `None`: out of workspace.
    pub fn try_copy(&mut self, bytes: &[u8]) -> Option<&'a [u8]> {
        let held = self.host.copy(bytes)?;
        assert_eq!(held.len(), bytes.len(), "the host returned another text");
        // SAFETY: the host returned it.
        Some(unsafe { extend_lifetime(held) })
    }

    /// Copies bytes into the workspace and creates a BLOB of them. `None`: out of workspace.
    pub fn blob(&mut self, bytes: &[u8], kind: u32) -> Option<&'a Blob<'a>> {
        let held = self.try_copy(bytes)?;
        self.blob_of(held, kind)
    }

    /// Creates a BLOB of bytes that live long enough, without a copy of them. `None`: out of workspace.
    pub fn blob_of(&mut self, bytes: &'a [u8], kind: u32) -> Option<&'a Blob<'a>> {
        self.copy_value(Blob::new(bytes, kind))
    }

    /// Copies an address into the workspace. `None`: out of workspace.
    pub fn ip(&mut self, address: SocketAddr) -> Option<&'a SocketAddr> {
        self.copy_value(address)
    }

    /// Reads and stores the request's body. Returns its length, negative on failure.
    pub fn cache_req_body(&mut self, limit: u64) -> Result<i64, ModuleError> {
        self.block_on_host(|host| host.cache_req_body(limit))
    }

    /// Copies a value into the workspace. `None`: out of workspace.
    pub fn copy_value<T: Copy>(&mut self, value: T) -> Option<&'a T> {
        let size = size_of::<T>();
        let is_aligned = |memory: &[u8]| memory.as_ptr().cast::<T>().is_aligned();
        // Workspaces have a sufficient alignment in practice. Otherwise the allocation is abandoned for a larger one.
        let first = self.host.alloc(size).filter(|memory| memory.len() >= size)?;
        let memory = if is_aligned(first) { first } else { self.host.alloc(size + align_of::<T>())? };
        let from = memory.as_ptr().align_offset(align_of::<T>());
        let memory = memory.get_mut(from..)?.get_mut(..size)?;
        let at = memory.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `at` is aligned for a `T` and has space for one, which is borrowed mutably until it is written;
        // afterwards nothing writes to it until `'a` ends, as the host promises.
        unsafe { Some((*at).write(value)) }
    }
}

impl<'a> Args<'a> {
    /// Returns the parts of a STRANDS argument.
    pub fn parts(&self, i: usize) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        self.strands(i).iter().map(|part| part.get())
    }

    /// Returns the joined parts of a STRANDS argument.
    pub fn joined(&self, i: usize) -> Vec<u8> {
        self.parts(i).flatten().flatten().copied().collect()
    }

    /// Returns the content of a BLOB argument.
    pub fn bytes(&self, i: usize) -> Option<&'a [u8]> {
        self.blob(i).map(|blob| blob.bytes())
    }
}
