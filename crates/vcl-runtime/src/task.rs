//! Access to what lives as long as a run: the strings of its transaction, the arguments of a call, and new values
//! in its workspace. Modules forbid `unsafe`; the little that they need of it is here.

use std::mem::MaybeUninit;
use std::net::SocketAddr;

use lacquer_vcl::variables_table::Var;

use crate::args::{Args, ModuleError};
use crate::ctx::{Ctx, lasting};
use crate::value::Blob;

impl<'a> Ctx<'a> {
    #[inline]
    pub fn get_str(&mut self, var: Var) -> Option<&'a [u8]> {
        let held = self.host.get_str(var)?;
        // SAFETY: the host returned it.
        Some(unsafe { lasting(held) })
    }

    /// The content of a BLOB variable.
    pub fn get_blob(&mut self, var: Var) -> Option<&'a [u8]> {
        self.blob_var(var).map(Blob::bytes)
    }

    pub fn blob_var(&mut self, var: Var) -> Option<Blob<'a>> {
        let held = self.host.get_blob(var)?;
        // SAFETY: the host returned it.
        Some(Blob::new(unsafe { lasting(held.bytes()) }, held.kind))
    }

    pub fn get_ip(&mut self, var: Var) -> Option<&'a SocketAddr> {
        let held = self.host.get_ip(var).map(std::ptr::from_ref)?;
        // SAFETY: the host returned it, and promises that it stays as it is until `'a` ends.
        Some(unsafe { &*held })
    }

    pub fn stevedore_name(&mut self, index: u32) -> Option<&'a [u8]> {
        let held = self.host.stevedore_name(index)?;
        // SAFETY: the host returned it.
        Some(unsafe { lasting(held) })
    }

    /// Copies bytes into the workspace, the empty string too. `None`: out of workspace.
    pub fn try_copy(&mut self, bytes: &[u8]) -> Option<&'a [u8]> {
        let held = self.host.copy(bytes)?;
        assert_eq!(held.len(), bytes.len(), "the host returned another text");
        // SAFETY: the host returned it.
        Some(unsafe { lasting(held) })
    }

    /// Copies bytes into the workspace and makes a BLOB of them. `None`: out of workspace.
    pub fn blob(&mut self, bytes: &[u8], kind: u32) -> Option<&'a Blob<'a>> {
        let held = self.try_copy(bytes)?;
        self.blob_of(held, kind)
    }

    /// A BLOB of bytes that live long enough as they are.
    pub fn blob_of(&mut self, bytes: &'a [u8], kind: u32) -> Option<&'a Blob<'a>> {
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
        let size = size_of::<T>();
        let is_aligned = |room: &[u8]| room.as_ptr().cast::<T>().is_aligned();
        // Workspaces are aligned for all that is placed in practice; room that is not is given up for more.
        let first = self.host.alloc(size).filter(|room| room.len() >= size)?;
        let room = if is_aligned(first) { first } else { self.host.alloc(size + align_of::<T>())? };
        let from = room.as_ptr().align_offset(align_of::<T>());
        let room = room.get_mut(from..)?.get_mut(..size)?;
        let at = room.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `at` is aligned for a `T` and has room for one, which is borrowed mutably until it is written;
        // from then on nobody writes to it until `'a` ends, as the host promises.
        unsafe { Some((*at).write(value)) }
    }
}

impl<'a> Args<'a> {
    /// The parts of a STRANDS argument.
    pub fn parts(&self, i: usize) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        self.strands(i).iter().map(|part| part.get())
    }

    /// The parts of a STRANDS argument in one piece.
    pub fn joined(&self, i: usize) -> Vec<u8> {
        self.parts(i).flatten().flatten().copied().collect()
    }

    /// The content of a BLOB argument.
    pub fn bytes(&self, i: usize) -> Option<&'a [u8]> {
        self.blob(i).map(|blob| blob.bytes())
    }
}
