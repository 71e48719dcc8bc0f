//! The errors of streams.

/// The reason why nothing can be written to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The client's windows or the connection's buffer are full. [`Event::Writable`](crate::Event::Writable) follows.
    Blocked,
    /// The client does not want the rest, or the stream or connection has ended.
    Closed,
}

/// The reason why nothing can be read from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// All received bytes were read. [`Event::Readable`](crate::Event::Readable) follows.
    Blocked,
    /// The client has reset the stream with this code.
    Reset(u64),
    /// The stream or connection has ended.
    Closed,
}
