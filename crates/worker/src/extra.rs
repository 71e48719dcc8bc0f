//! What the worker keeps with an object beside head and body, and waiting for bodies.

use lacquer_cache::{BodyState, Object, flag};

/// Waits until the body is longer than `offset` or has ended.
pub async fn more_than(object: &Object, offset: u64) -> BodyState {
    if object.body_len() > offset || object.state() != BodyState::Fetching {
        return object.state();
    }
    object.more(offset).await
}

/// The only reader of an object that others do not read is done: its body is not needed any more.
pub fn let_go(object: &Object) {
    if !object.is(flag::PRIVATE | flag::HFM | flag::HFP) {
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

/// The first byte of what is kept: which of both there is, in this order.
const HAS_LENGTH: u8 = 1;
const HAS_PROGRAM: u8 = 2;

/// Length and rest.
fn parts(object: &Object) -> Option<(Option<u64>, Option<&[u8]>)> {
    let (kinds, mut rest) = object.extra().split_first()?;
    let mut length = None;
    if kinds & HAS_LENGTH != 0 {
        let (bytes, after) = rest.split_first_chunk()?;
        length = Some(u64::from_le_bytes(*bytes));
        rest = after;
    }
    Some((length, (kinds & HAS_PROGRAM != 0).then_some(rest)))
}

/// The length of a gzipped body after unpacking, if the fetch found it out.
pub fn unpacked_len(object: &Object) -> Option<u64> {
    parts(object)?.0
}

/// The ESI program of a body that has ESI in it.
pub fn esi_program(object: &Object) -> Option<&[u8]> {
    parts(object)?.1
}

/// What the other functions read.
pub fn of(unpacked: Option<u64>, program: Option<&[u8]>) -> Vec<u8> {
    if unpacked.is_none() && program.is_none() {
        return Vec::new();
    }
    let mut bytes = vec![0];
    if let Some(length) = unpacked {
        bytes[0] |= HAS_LENGTH;
        bytes.extend(length.to_le_bytes());
    }
    if let Some(program) = program {
        bytes[0] |= HAS_PROGRAM;
        bytes.extend(program);
    }
    bytes
}

/// A copy of the whole body.
pub fn body_of(object: &Object) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(chunk) = object.chunk_at(all.len() as u64).filter(|c| !c.is_empty()) {
        all.extend_from_slice(chunk.bytes());
    }
    all
}
