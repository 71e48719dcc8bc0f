//! The files of segments: created with reserved space, mapped, and unlinked with their last user.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::mapping::{Mapping, PAGE};

/// Readers are in the writer's group.
pub(super) const FILE_MODE: Mode = Mode::from_raw_mode(0o640);

pub(super) fn make_dir(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    rustix::fs::mkdir(path, Mode::from_raw_mode(mode))?;
    // Root gives the directory to other users: it must not be another one, to which a link leads.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// One file of shared memory.
#[derive(Debug)]
pub(super) struct SegmentFile {
    dir: Arc<OwnedFd>,
    name: String,
    len: usize,
    mapping: Arc<Mapping>,
}

impl SegmentFile {
    pub(super) fn create(dir: &Arc<OwnedFd>, prefix: &str, len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(PAGE);
        let (fd, name) = create_unique(dir, prefix)?;
        let mapping = reserve(&fd, len).and_then(|()| Mapping::shared(&fd, len));
        match mapping {
            Ok(mapping) => Ok(Self { dir: dir.clone(), name, len, mapping: Arc::new(mapping) }),
            Err(e) => {
                let _ = rustix::fs::unlinkat(dir, &name, AtFlags::empty());
                Err(e)
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

/// Creates a file whose name is `_.prefix.` and a random number.
pub(super) fn create_unique(dir: &Arc<OwnedFd>, prefix: &str) -> io::Result<(OwnedFd, String)> {
    loop {
        let name = format!("_.{prefix}.{:016x}", RandomState::new().build_hasher().finish());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, &name, flags, FILE_MODE) {
            Err(Errno::EXIST) => {}
            other => return Ok((other?, name)),
        }
    }
}

/// Reserves the space now, so that a full disk is an error here and not a signal at a later store.
fn reserve(fd: impl AsFd, len: usize) -> io::Result<()> {
    match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(rustix::fs::ftruncate(&fd, len as u64)?),
        other => Ok(other?),
    }
}
