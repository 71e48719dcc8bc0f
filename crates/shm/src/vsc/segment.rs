//! A counter set in shared memory: head, body, and the description that readers look up by its number.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::CounterSet;
use crate::mapping::{Mapping, View};
use crate::vsm::{Block, Cluster, VsmDir, VsmError};

// The head: `ready` (int, padded), body offset (u64), description number (u64).
const READY: usize = 0;
const BODY_OFFSET: usize = 8;
const DOC_ID: usize = 16;
pub(crate) const HEAD: usize = 24;

// Values of `ready`. A new segment has zero, which makes readers wait.
const SHOWN: u32 = 1;
const HIDDEN: u32 = 2;

const CLASS: &str = "Stat";
const DOC_CLASS: &str = "StatDoc";

/// A set of counters that readers see until it is dropped. Derefs to the set.
#[derive(Debug)]
pub struct Segment<T> {
    view: View<T>,
    mapping: Arc<Mapping>,
    offset: usize,
    // Fields drop in this order: the counters leave the index before their description.
    _block: Option<Block>,
    _doc: Option<Arc<Block>>,
}

impl<T: CounterSet> Segment<T> {
    /// Creates a set in its own file. `instance` is empty if there is only one of its kind.
    pub fn create(dir: &VsmDir, instance: &str) -> Result<Self, VsmError> {
        Self::create_in(dir, None, instance)
    }

    /// Creates a set in a cluster, for sets with the same lifetime (a VCL's backends).
    pub fn create_in(dir: &VsmDir, cluster: Option<&Cluster>, instance: &str) -> Result<Self, VsmError> {
        let desc = T::DESC;
        let (doc_id, doc) = dir.doc(desc.name, || {
            let json = desc.json();
            let doc_id = doc_number(&json);
            let made =
                dir.alloc(DOC_CLASS, &format!("{doc_id:x}"), HEAD + json.len() + 1, |mapping, offset| {
                    mapping.write(offset + HEAD, json.as_bytes());
                    head(mapping, offset, doc_id);
                });
            Ok((doc_id, made?))
        })?;
        let block =
            dir.alloc_in(cluster, CLASS, &desc.ident(instance), Self::size(), |mapping, offset| {
                head(mapping, offset, doc_id);
            })?;
        let (mapping, offset) = block.place();
        Ok(Self {
            view: View::new(&mapping, offset + HEAD),
            mapping,
            offset,
            _block: Some(block),
            _doc: Some(doc),
        })
    }

    /// Creates counters that no reader sees, for tests and tools without a working directory.
    pub(crate) fn detached() -> io::Result<Self> {
        let mapping = Arc::new(Mapping::anonymous(Self::size())?);
        Ok(Self { view: View::new(&mapping, HEAD), mapping, offset: 0, _block: None, _doc: None })
    }

    /// Returns the bytes of one segment of this kind, for the size of a cluster.
    pub fn size() -> usize {
        HEAD + size_of::<T>()
    }

    /// Hides the counters from readers and keeps their values (for a cold VCL's backends).
    pub fn hide(&self) {
        self.mapping.u32_at(self.offset + READY).store(HIDDEN, Release);
    }

    /// Shows hidden counters again.
    pub fn reveal(&self) {
        self.mapping.u32_at(self.offset + READY).store(SHOWN, Release);
    }
}

impl<T: CounterSet> Deref for Segment<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.view
    }
}

fn head(mapping: &Mapping, offset: usize, doc_id: u64) {
    mapping.u64_at(offset + BODY_OFFSET).store(HEAD as u64, Relaxed);
    mapping.u64_at(offset + DOC_ID).store(doc_id, Relaxed);
    mapping.u32_at(offset + READY).store(SHOWN, Release);
}

/// Returns a description's number, which its counters refer to: FNV-1a of its text.
fn doc_number(json: &str) -> u64 {
    json.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
