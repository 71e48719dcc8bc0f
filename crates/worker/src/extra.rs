//! What the worker keeps with an object beside head and body, and waiting for bodies.

use lacquer_cache::{BodyState, Object};

/// Waits until the body is longer than `offset` or has ended.
pub async fn more_than(object: &Object, offset: u64) -> BodyState {
    if object.body_len() > offset || object.state() != BodyState::Fetching {
        return object.state();
    }
    object.more(offset).await
}

/// The length of a gzipped body after unpacking, if the fetch found it out.
pub fn unpacked_len(object: &Object) -> Option<u64> {
    object.extra().get(..8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
}

/// What [`unpacked_len`] reads.
pub fn of_unpacked_len(len: u64) -> [u8; 8] {
    len.to_le_bytes()
}
