//! The segment directory ("VSM"): files of shared memory in one directory, and their list for readers,
//! `_.index`.
//!
//! The index is `# pid birth`, then a line for every segment that was added (`+ file offset length class ident`)
//! or removed (`-` and the same fields). Readers follow it like a log and start over when the file is replaced,
//! which limits its length. The manager writes `_.vsm_mgt`, the worker `_.vsm_child`. Readers use the
//! worker's only if the manager's has a segment, and the first segment may not be a cluster. A directory
//! is accessed only by its descriptor, so its owner may change root and user.

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
/// The mode of the manager's directory.
pub const MGT_DIR_MODE: u32 = 0o755;
/// The mode of the worker's directory.
pub const CHILD_DIR_MODE: u32 = 0o750;

/// Offset of the first allocation in a cluster in bytes. Offset zero marks a segment with its own file.
const CLUSTER_START: usize = 16;

/// A failed operation on a segment directory, and the reason.
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

/// Removes a segment directory with its contents, if it exists. Called for the directory of a dead worker, and for both
/// directories at the end.
pub fn remove_dir(path: &Path) -> Result<(), VsmError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(VsmError::new(format!("remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

/// Creates an empty segment directory, replaces an existing one, and opens it. The manager calls it for
/// each new worker and passes the descriptor to it.
pub fn make_dir(path: &Path, mode: u32) -> Result<OwnedFd, VsmError> {
    remove_dir(path)?;
    files::make_dir(path, mode).map_err(|e| VsmError::new(format!("create {}", path.display()), e))
}

/// The writer of one segment directory; clones share it. The index is removed when the last clone and the last
/// segment are dropped.
#[derive(Clone, Debug)]
pub struct VsmDir {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fd: Arc<OwnedFd>,
    index: Mutex<Index>,
    /// The number and the description of each kind of counters, by its name.
    docs: Mutex<HashMap<&'static str, (u64, Weak<Block>)>>,
}

impl VsmDir {
    /// Creates the directory (see `make_dir`) and its index.
    pub fn create(path: &Path, mode: u32, owner: Owner) -> Result<Self, VsmError> {
        Self::adopt(make_dir(path, mode)?, owner)
    }

    /// Creates the index in an existing directory.
    pub fn adopt(dir: OwnedFd, owner: Owner) -> Result<Self, VsmError> {
        let fd = Arc::new(dir);
        let index = Index::begin(fd.clone(), owner).map_err(|e| VsmError::new("create _.index", e))?;
        let inner = Inner { fd, index: Mutex::new(index), docs: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Creates a segment with these bytes. Readers look it up by `class` and `ident`: `Arg` and `-T`.
    pub fn publish(&self, class: &str, ident: &str, bytes: &[u8]) -> Result<Block, VsmError> {
        self.alloc(class, ident, bytes.len().max(1), |mapping, offset| mapping.write(offset, bytes))
    }

    /// Creates a file for several segments. `size` is the sum of their sizes, each rounded up to 8 bytes.
    pub fn cluster(&self, size: usize, name: &str) -> Result<Cluster, VsmError> {
        let file = self.file(size + CLUSTER_START, name)?;
        let len = file.len();
        let whole = self.add_to_index(file, None, 0, len, "", "")?;
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

    /// Creates a segment, fills it with `init`, then adds it to the index.
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
            // A segment that does not fit the cluster gets its own file.
            None => (self.file(len, class)?, 0, None),
        };
        init(file.mapping(), offset);
        self.add_to_index(file, whole, offset, len, class, ident)
    }

    /// Returns the number and the description of a kind of counters. Creates it if no existing segment uses it.
    pub(crate) fn doc(
        &self,
        kind: &'static str,
        make: impl FnOnce() -> Result<(u64, Block), VsmError>,
    ) -> Result<(u64, Arc<Block>), VsmError> {
        let mut docs = lock(&self.inner.docs);
        if let Some((number, doc)) = docs.get(kind)
            && let Some(doc) = doc.upgrade()
        {
            return Ok((*number, doc));
        }
        let (number, doc) = make()?;
        let doc = Arc::new(doc);
        docs.insert(kind, (number, Arc::downgrade(&doc)));
        Ok((number, doc))
    }

    fn file(&self, len: usize, class: &str) -> Result<Arc<SegmentFile>, VsmError> {
        SegmentFile::create(&self.inner.fd, class, len)
            .map(Arc::new)
            .map_err(|e| VsmError::new(format!("create a segment of {len} bytes for {class}"), e))
    }

    fn add_to_index(
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

/// A file of shared memory that contains several segments.
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

/// A segment in the index. Dropping it removes it from the index; its file is removed with its last segment.
#[derive(Debug)]
pub struct Block {
    dir: Arc<Inner>,
    key: u64,
    file: Arc<SegmentFile>,
    offset: usize,
    // Readers require that a cluster's line outlasts those of its segments: fields drop after the block's own line.
    _cluster: Option<Arc<Block>>,
}

impl Block {
    pub(crate) fn place(&self) -> (Arc<Mapping>, usize) {
        (self.file.mapping().clone(), self.offset)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // If the line cannot be written (disk full), readers find a name that no longer opens,
        // which they tolerate.
        let _ = lock(&self.dir.index).remove(self.key);
    }
}
