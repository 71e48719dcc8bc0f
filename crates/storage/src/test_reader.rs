//! A reader for tests. It follows a body to its end.

use std::task::{Context, Poll, Waker};

use crate::{BodyState, Stored};

/// Reads until the body ends. Calls `sleep` whenever there is nothing to read; the waker must end the sleep.
pub fn read_all(stored: &Stored, waker: &Waker, mut sleep: impl FnMut()) -> (Vec<u8>, BodyState) {
    let mut cx = Context::from_waker(waker);
    let mut got = Vec::new();
    loop {
        while let Some(chunk) = stored.chunk_at(got.len() as u64) {
            got.extend_from_slice(chunk.bytes());
        }
        match stored.poll_more(got.len() as u64, &mut cx) {
            Poll::Ready(BodyState::Fetching) => {}
            Poll::Ready(state) if stored.body_len() <= got.len() as u64 => return (got, state),
            Poll::Ready(BodyState::Failed) if stored.chunk_at(got.len() as u64).is_none() => {
                return (got, BodyState::Failed);
            }
            Poll::Ready(_) => {}
            Poll::Pending => sleep(),
        }
    }
}
