//! The segment directory ("VSM"): files of shared memory in one directory, and the `_.index` that lists
//! them for readers.
//!
//! The index is `# pid birth`, then a line for every segment that came (`+ file offset length class ident`)
//! and went (`-` and the same again). Readers follow it like a log and start over when the file is replaced,
//! which is how it is kept short. The manager writes `_.vsm_mgt`, the worker `_.vsm_child`; readers look at
//! the worker's only when the manager's has a segment, the first of which may not be a cluster. A directory
//! is reached by its descriptor only, so its owner may have changed root and user since.

mod files;
mod index;

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::mapping::Mapping;
use files::SegmentFile;
use index::Index;

pub use index::Owner;

/// Directory of the manager's segments, inside the working directory.
pub const MGT_DIRNAME: &str = "_.vsm_mgt";
/// Directory of the worker's segments, inside the working directory.
pub const CHILD_DIRNAME: &str = "_.vsm_child";
/// The mode the manager's directory has.
pub const MGT_DIR_MODE: u32 = 0o755;
/// The mode the worker's directory has.
pub const CHILD_DIR_MODE: u32 = 0o750;

/// Allocations in a cluster begin behind this many bytes: offset zero marks what stands alone.
const CLUSTER_START: usize = 16;

/// An operation that failed in a segment directory, and the reason.
#[derive(Debug)]
pub struct VsmError {
    what: String,
    source: io::Error,
}

impl VsmError {
    fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}

impl fmt::Display for VsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared memory: cannot {}: {}", self.what, self.source)
    }
}

impl std::error::Error for VsmError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Removes a segment directory with all in it; one that is not there is fine. For the directory of a dead
/// worker, and for both at the end.
pub fn remove_dir(path: &Path) -> Result<(), VsmError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(VsmError::new(format!("remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

/// Makes an empty segment directory in place of whatever was there, and opens it. The manager does this for
/// each new worker and hands it the descriptor.
pub fn make_dir(path: &Path, mode: u32) -> Result<OwnedFd, VsmError> {
    remove_dir(path)?;
    files::make_dir(path, mode).map_err(|e| VsmError::new(format!("create {}", path.display()), e))
}

/// The writer of one segment directory; clones share it. The index goes when the last clone and the last
/// segment are dropped.
#[derive(Clone, Debug)]
pub struct VsmDir {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fd: Arc<OwnedFd>,
    index: Mutex<Index>,
    docs: Mutex<HashMap<u64, Weak<Block>>>,
}

impl VsmDir {
    /// Makes the directory anew (see `make_dir`) and begins its index.
    pub fn create(path: &Path, mode: u32, owner: Owner) -> Result<Self, VsmError> {
        Self::adopt(make_dir(path, mode)?, owner)
    }

    /// Begins the index of a directory that someone else made.
    pub fn adopt(dir: OwnedFd, owner: Owner) -> Result<Self, VsmError> {
        let fd = Arc::new(dir);
        let index = Index::begin(fd.clone(), owner).map_err(|e| VsmError::new("begin _.index", e))?;
        let inner = Inner { fd, index: Mutex::new(index), docs: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A segment holding these bytes. `class` and `ident` as readers look for them: `Arg` and `-T`.
    pub fn publish(&self, class: &str, ident: &str, bytes: &[u8]) -> Result<Block, VsmError> {
        self.alloc(class, ident, bytes.len().max(1), |mapping, offset| mapping.write(offset, bytes))
    }

    /// Room for segments that share a file. `size` is the sum of theirs, each rounded up to 8 bytes.
    pub fn cluster(&self, size: usize, name: &str) -> Result<Cluster, VsmError> {
        let file = self.file(size + CLUSTER_START, name)?;
        let len = file.len();
        let whole = self.enlist(file, None, 0, len, "", "")?;
        Ok(Cluster { whole: Arc::new(whole), next: Mutex::new(CLUSTER_START) })
    }

    pub(crate) fn alloc(
        &self,
        class: &str,
        ident: &str,
        len: usize,
        init: impl FnOnce(&Mapping, usize),
    ) -> Result<Block, VsmError> {
        self.alloc_in(None, class, ident, len, init)
    }

    /// Makes a segment, lets `init` fill it, then shows it to readers.
    pub(crate) fn alloc_in(
        &self,
        cluster: Option<&Cluster>,
        class: &str,
        ident: &str,
        len: usize,
        init: impl FnOnce(&Mapping, usize),
    ) -> Result<Block, VsmError> {
        let len = len.next_multiple_of(8);
        let (file, offset, whole) = match cluster.and_then(|cluster| cluster.take(len)) {
            Some((whole, offset)) => (whole.file.clone(), offset, Some(whole)),
            // A full cluster is no reason to go without.
            None => (self.file(len, class)?, 0, None),
        };
        init(file.mapping(), offset);
        self.enlist(file, whole, offset, len, class, ident)
    }

    /// The description with this number, made if no living segment has it yet.
    pub(crate) fn doc(
        &self,
        number: u64,
        make: impl FnOnce() -> Result<Block, VsmError>,
    ) -> Result<Arc<Block>, VsmError> {
        let mut docs = lock(&self.inner.docs);
        if let Some(doc) = docs.get(&number).and_then(Weak::upgrade) {
            return Ok(doc);
        }
        let doc = Arc::new(make()?);
        docs.insert(number, Arc::downgrade(&doc));
        Ok(doc)
    }

    fn file(&self, len: usize, class: &str) -> Result<Arc<SegmentFile>, VsmError> {
        SegmentFile::create(&self.inner.fd, class, len)
            .map(Arc::new)
            .map_err(|e| VsmError::new(format!("make a segment of {len} bytes for {class}"), e))
    }

    fn enlist(
        &self,
        file: Arc<SegmentFile>,
        cluster: Option<Arc<Block>>,
        offset: usize,
        len: usize,
        class: &str,
        ident: &str,
    ) -> Result<Block, VsmError> {
        let key = lock(&self.inner.index)
            .add(file.name(), offset, len, class, ident)
            .map_err(|e| VsmError::new(format!("add {class} {ident} to _.index"), e))?;
        Ok(Block { dir: self.inner.clone(), key, file, offset, _cluster: cluster })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file of shared memory from which several segments are cut.
#[derive(Debug)]
pub struct Cluster {
    whole: Arc<Block>,
    next: Mutex<usize>,
}

impl Cluster {
    fn take(&self, len: usize) -> Option<(Arc<Block>, usize)> {
        let mut next = lock(&self.next);
        let offset = *next;
        let end = offset.checked_add(len).filter(|end| *end <= self.whole.file.len())?;
        *next = end;
        Some((self.whole.clone(), offset))
    }
}

/// A segment in the index; it leaves the index when dropped, and its file goes with the last that uses it.
#[derive(Debug)]
pub struct Block {
    dir: Arc<Inner>,
    key: u64,
    file: Arc<SegmentFile>,
    offset: usize,
    // Readers want a cluster's line to outlast those of its segments: fields drop after the block's own line.
    _cluster: Option<Arc<Block>>,
}

impl Block {
    pub(crate) fn place(&self) -> (Arc<Mapping>, usize) {
        (self.file.mapping().clone(), self.offset)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A line that cannot be written (disk full) leaves readers with a name that no longer opens,
        // which they tolerate.
        let _ = lock(&self.dir.index).remove(self.key);
    }
}
