//! An object in memory that is being written to a store.

use std::sync::Arc;

use lacquer_disk::{Content, Meta, Parts};

use crate::bans::HeadReader;
use crate::descriptor::Descriptor;
use crate::disk::variant;
use crate::object::Object;
use crate::slab::Key;

/// An object, which stays in memory until it is written.
pub(crate) struct Resident {
    object: Arc<Object>,
    meta: Meta,
    descriptor: Vec<u8>,
}

/// Returns what the index of a store contains of an object.
pub(crate) fn meta_of(key: Key, object: &Object, heads: &dyn HeadReader) -> Meta {
    Meta {
        key,
        variant: variant::of(heads, object.vary().unwrap_or_default()),
        expires: object.expires().clamp(0.0, f64::from(u32::MAX)) as u32,
        ban: object.ban(),
    }
}

impl Resident {
    pub(crate) fn new(key: Key, object: &Arc<Object>, heads: &dyn HeadReader) -> Self {
        let (meta, descriptor) = (meta_of(key, object, heads), Descriptor::of(key, object).bytes());
        Self { object: Arc::clone(object), meta, descriptor }
    }
}

impl Content for Resident {
    fn parts(&self) -> Parts<'_> {
        Parts {
            meta: self.meta,
            descriptor: &self.descriptor,
            head: self.object.stored().head(),
            extra: self.object.extra(),
            body_len: self.object.body_len(),
        }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let Some(chunk) = self.object.chunk_at(from) else { return 0 };
        let length = chunk.len().min(window.len());
        window[..length].copy_from_slice(&chunk.bytes()[..length]);
        length
    }
}
