//! The memory of a body that is written while it is fetched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::stream::PartSource;

/// The memory of a fetch, in which the bytes are that were not written yet.
pub(super) struct FetchedMemory {
    body: Vec<u8>,
    written: AtomicU64,
    is_stopped: AtomicBool,
}

impl FetchedMemory {
    pub(super) fn new(body: Vec<u8>) -> Self {
        Self { body, written: AtomicU64::new(0), is_stopped: AtomicBool::new(false) }
    }

    /// Returns the number of bytes that were written.
    pub(super) fn count(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

impl PartSource for Arc<FetchedMemory> {
    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        if from < self.written.load(Ordering::Relaxed) {
            return 0;
        }
        let rest = &self.body[from as usize..];
        let n = rest.len().min(window.len()).min(7000);
        window[..n].copy_from_slice(&rest[..n]);
        n
    }

    fn written(&self, to: u64) {
        assert!(self.written.swap(to, Ordering::Relaxed) < to && to <= self.body.len() as u64);
    }

    fn stopped(&self) {
        assert!(!self.is_stopped.swap(true, Ordering::Relaxed), "it learns that once");
    }
}
