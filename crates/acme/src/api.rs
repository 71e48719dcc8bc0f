//! Calls of the ACME library, whose futures never wait: the transport below them blocks.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use instant_acme::Error;

/// The number of times that a request is repeated because the server refuses its nonce. The library repeats each three
/// times itself.
pub const NONCE_TRIES: u32 = 12;
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// Runs a future to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn is_bad_nonce(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if problem.r#type.as_deref() == Some(BAD_NONCE))
}

/// Repeats a request as long as the server refuses its nonce (RFC 8555, section 6.5), with a limit.
pub fn with_nonces<T>(mut request: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..NONCE_TRIES {
        match request() {
            Err(error) if is_bad_nonce(&error) => {}
            done => return done,
        }
    }
    request()
}
