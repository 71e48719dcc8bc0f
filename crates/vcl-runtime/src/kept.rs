//! Bytes that a VCL stores for its tasks.

use std::sync::{Arc, Mutex, PoisonError};

/// Shared bytes that live as long as the VCL. The list only grows, and contains each value once.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Arc<[u8]>>>);

impl Kept {
    pub(crate) fn keep(&self, bytes: &Arc<[u8]>) -> &[u8] {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|held| Arc::ptr_eq(held, bytes)) {
            all.push(bytes.clone());
        }
        // SAFETY: the reference counter in the list is not released before `self` is dropped.
        unsafe { &*Arc::as_ptr(bytes) }
    }
}
