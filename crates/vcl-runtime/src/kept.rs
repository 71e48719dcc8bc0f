//! Bytes that a VCL keeps for its tasks.

use std::sync::{Arc, Mutex, PoisonError};

/// Shared bytes that outlive every task of a VCL. Only ever grows, each once.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Arc<[u8]>>>);

impl Kept {
    pub(crate) fn keep(&self, bytes: &Arc<[u8]>) -> &[u8] {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|held| Arc::ptr_eq(held, bytes)) {
            all.push(bytes.clone());
        }
        // SAFETY: the reference counter held above is not given up before `self` goes.
        unsafe { &*Arc::as_ptr(bytes) }
    }
}
