//! Waits until more of a stored body can be sent on a stream of HTTP/2 or HTTP/3.

use lacquer_cache::Object;
use lacquer_deliver::SendError;

use crate::send_limits::StreamLimits;

/// A stream with a response.
pub trait ResponseStream {
    /// Waits until the stream or the connection has ended.
    fn gone(&self) -> impl Future<Output = ()>;

    /// Ends a response that has exceeded the time limit of this parameter.
    fn expire(&self, limit: &'static str);
}

/// Waits until the object has the byte at `at`, for as long as its fetch takes; for a byte that a device has, within the
/// limits of the client.
pub async fn wait_for(
    stream: &impl ResponseStream,
    limits: StreamLimits,
    object: &Object,
    at: u64,
) -> Result<(), SendError> {
    if object.is_awaited(at) {
        return tokio::select! {
            () = object.fetched(at) => Ok(()),
            () = stream.gone() => Err(SendError::disconnected()),
        };
    }
    let (until, limit) = limits.longest_wait();
    let more = tokio::time::timeout_at(until, object.more(at));
    tokio::select! {
        more = Box::pin(more) => more.map(drop).map_err(|_| {
            stream.expire(limit);
            SendError::disconnected()
        }),
        () = stream.gone() => Err(SendError::disconnected()),
    }
}
