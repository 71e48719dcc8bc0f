//! Bodies of objects: whether there is more of one that grows, letting go of one, copying one.

use lacquer_cache::{BodyState, Object};

/// Whether the body is longer than `offset` or has ended.
pub fn has_more_than(object: &Object, offset: u64) -> bool {
    object.body_len() > offset || object.state() != BodyState::Fetching
}

/// Reports how far delivery has come, if the object has one reader only. That lets go of what was delivered, and lets a
/// fetch go on that waits for it. To be called before waiting for the bytes at `offset`, too: a fetch that waits for
/// those before would never bring them.
pub fn delivered(object: &Object, offset: u64) {
    if object.has_one_reader() {
        object.stored().delivered(offset, true);
    }
}

/// The only reader of an object that others do not read is done: its body is not needed any more.
pub fn let_go(object: &Object) {
    if !object.has_one_reader() {
        return;
    }
    object.cancel();
    if object.state() == BodyState::Fetching {
        // The fetch may be waiting for us to take what it has.
        object.stored().delivered(u64::MAX, false);
    } else {
        object.stored().slim();
    }
}

/// A copy of the whole body.
pub fn body_of(object: &Object) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(chunk) = object.chunk_at(all.len() as u64).filter(|c| !c.is_empty()) {
        all.extend_from_slice(chunk.bytes());
    }
    all
}
