//! The cache above the store of a world.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::record::Key;
use crate::store::Owner;

/// Returns the tags in a head.
pub(super) fn tags(head: &[u8]) -> &[u8] {
    head.split_first().and_then(|(&count, rest)| rest.get(..usize::from(count))).unwrap_or_default()
}

/// Sets a flag when dropped.
pub(super) struct Flag(pub(super) Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Uses;

impl Owner for Uses {
    fn is_used(&self, key: &Key) -> bool {
        !key[0].is_multiple_of(4)
    }

    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
        tags(head).chunks(1).for_each(each);
        true
    }

    fn forget(&self, _: &Key) {}

    fn failed(&self, _: bool) {}
}
