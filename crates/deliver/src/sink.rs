//! The last step of delivery: the protocol that sends a body to the client.

use std::io;

use lacquer_cache::Object;

/// The reason why a response was not sent to its end.
#[derive(Debug)]
pub enum SendError {
    /// The client is gone or too slow.
    Io(io::Error),
    /// The fetch of the body, or reading it from storage, has failed.
    Source,
    /// A filter has rejected the body.
    Filter,
    /// No more of the body is needed. This is not a failure.
    Enough,
    /// An included response has failed, and the including response must fail too.
    Include,
}

impl SendError {
    /// Returns the error for a client that has closed its connection.
    pub fn disconnected() -> SendError {
        io::Error::from(io::ErrorKind::ConnectionReset).into()
    }
}

impl From<io::Error> for SendError {
    fn from(e: io::Error) -> Self {
        SendError::Io(e)
    }
}

/// The part of the response that follows the bytes of a stored body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// More bytes may follow.
    More,
    /// Only the end of the response follows. The protocol may send it with the last byte.
    End,
}

/// Sends the body of one response by one protocol, after the head.
///
/// The client receives the bytes in the order of the calls, whichever methods are called: a sink that gathers pieces
/// sends them before anything that it sends directly. Only [`end`](Sink::end) and [`end_with`](Sink::end_with) end the
/// response. After an error, nothing more is sent.
pub trait Sink {
    /// Sends a piece of the body, or gathers it to be sent with later ones.
    fn write(&mut self, piece: &[u8]) -> impl Future<Output = Result<(), SendError>>;

    /// Sends bytes of a stored body, starting at `from`, where at least one byte is stored, and ending before `to`. The
    /// protocol decides how many bytes it sends. Returns the position of the next byte. This may be `from`: if the
    /// bytes are no longer in memory, or after the sink has waited for the client. It holds no chunk while it waits.
    /// The caller then waits for the byte at that position, if necessary, and continues there. `behind` states what
    /// follows the byte before `to`, or the last byte of the body if that comes first.
    fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> impl Future<Output = Result<u64, SendError>>;

    /// Sends all gathered bytes to the client, including the head.
    fn flush(&mut self) -> impl Future<Output = Result<(), SendError>>;

    /// Waits until the byte at `at` of a body is in memory, after it was fetched or read from a device, or will never
    /// be. Fails if the client leaves first, or if a device does not return the byte within the limits for sending.
    fn wait_for(&mut self, object: &Object, at: u64) -> impl Future<Output = Result<(), SendError>>;

    /// Fails if the client is gone, or its send timeout has expired.
    fn check(&mut self) -> Result<(), SendError>;

    /// Sends the rest of the body in one piece, and ends the response.
    fn end_with(&mut self, piece: &[u8]) -> impl Future<Output = Result<(), SendError>> {
        async move {
            self.write(piece).await?;
            self.end().await
        }
    }

    /// Ends the response after the body.
    fn end(&mut self) -> impl Future<Output = Result<(), SendError>>;
}
