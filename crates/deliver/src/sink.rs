//! The last step of a response: a protocol that sends it to the client.

use std::io;

use lacquer_cache::Object;

/// The reason for which a response was not sent to its end.
#[derive(Debug)]
pub enum SendError {
    /// The client is gone or too slow.
    Io(io::Error),
    /// The fetch that feeds the body failed.
    Source,
    /// The body is malformed for a filter.
    Filter,
    /// Nobody needs more of the body. This is no error.
    Enough,
    /// A response that must be included failed.
    Include,
}

impl SendError {
    /// The client has closed its connection.
    pub fn disconnected() -> SendError {
        io::Error::from(io::ErrorKind::ConnectionReset).into()
    }
}

impl From<io::Error> for SendError {
    fn from(e: io::Error) -> Self {
        SendError::Io(e)
    }
}

/// What follows the bytes of a stored body in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// More bytes may follow.
    More,
    /// Nothing but the end of the response. The protocol may send it with the last byte.
    End,
}

/// Sends the body of one response behind its head by one protocol.
///
/// The client gets the bytes in the order of the calls, whichever methods they come by: a sink that gathers pieces sends
/// these before anything that it sends directly. The response ends with [`end`](Sink::end) or
/// [`end_with`](Sink::end_with) alone. After an error nothing more is sent.
pub trait Sink {
    /// Sends a piece of the body, perhaps together with those that follow.
    fn write(&mut self, piece: &[u8]) -> impl Future<Output = Result<(), SendError>>;

    /// Sends bytes of a stored body from `from` on, where at least one is stored: as many as suit the protocol, and
    /// none from `to` on. Returns the position of the next byte. That is `from` if the bytes are not in memory any more:
    /// the caller waits for them again. `behind` is what follows the byte before `to`, or the last byte of the body if
    /// that comes first.
    fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> impl Future<Output = Result<u64, SendError>>;

    /// Sends all bytes so far to the client, the head included.
    fn flush(&mut self) -> impl Future<Output = Result<(), SendError>>;

    /// Waits until the byte at `at` of a body is in memory or will never be: it is being fetched, or read from a device.
    /// Fails if the client leaves before.
    fn wait_for(&mut self, object: &Object, at: u64) -> impl Future<Output = Result<(), SendError>>;

    /// Fails if the client is gone, or its time is over.
    fn check(&mut self) -> Result<(), SendError>;

    /// Sends the rest of the body in one piece, and its end.
    fn end_with(&mut self, piece: &[u8]) -> impl Future<Output = Result<(), SendError>> {
        async move {
            self.write(piece).await?;
            self.end().await
        }
    }

    /// Sends the end of the body.
    fn end(&mut self) -> impl Future<Output = Result<(), SendError>>;
}
