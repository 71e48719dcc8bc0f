//! A reader for tests. It follows a body to its end.

use std::task::{Context, Poll, Waker};

use crate::{BodyState, Stored};

/// Reads until the body ends. Calls `sleep` whenever there is nothing to read; the waker must end the sleep.
pub fn read_all(stored: &Stored, waker: &Waker, mut sleep: impl FnMut()) -> (Vec<u8>, BodyState) {
    let cx = Context::from_waker(waker);
    let mut got = Vec::new();
    loop {
        while let Some(chunk) = stored.chunk_at(got.len() as u64) {
            got.extend_from_slice(chunk.bytes());
        }
        let mut wait = stored.wait(got.len() as u64);
        let polled = loop {
            match wait.poll(&cx) {
                Poll::Pending => sleep(),
                Poll::Ready(state) => break state,
            }
        };
        match polled {
            BodyState::Fetching => {}
            state if stored.body_len() <= got.len() as u64 => return (got, state),
            BodyState::Failed if stored.chunk_at(got.len() as u64).is_none() => {
                return (got, BodyState::Failed);
            }
            BodyState::Complete | BodyState::Failed => {}
        }
    }
}
