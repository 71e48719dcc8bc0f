//! Limits of the time that an operation on a connection may take.

use std::io;

use lacquer_sources::clock::Instant;
use rustix::io::Errno;

/// Returns the result of `work`, or a timeout if it has none by this time.
pub(crate) async fn by_time<T>(
    by: Option<Instant>,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match by {
        Some(by) => tokio::time::timeout_at(by, work).await.unwrap_or_else(|_| Err(timed_out())),
        None => work.await,
    }
}

/// Returns the error of a wait that took too long.
pub(crate) fn timed_out() -> io::Error {
    Errno::TIMEDOUT.into()
}
