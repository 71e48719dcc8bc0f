//! The results of checking a connection without reading from it.

/// The maximum number of surplus bytes that are examined.
pub const SAMPLE: usize = 512;

/// The state of the peer that the kernel reports to the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    Open,
    /// The peer has shut down its sending side, or closed the connection.
    ShutDown,
    Broken,
}

/// The state of a connection's receiving side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peeked {
    /// The connection is open, and there are no unread bytes.
    Quiet,
    /// The peer has closed.
    Closed,
    /// The connection was reset or failed. A peer that closes before it has read everything causes a reset.
    Broken,
    /// There are unread bytes: at least these, at most [`SAMPLE`] of them.
    Bytes(Vec<u8>),
}

impl Peeked {
    /// Classifies surplus bytes. A server may send status 408 before it closes an idle connection (RFC 9110, 15.5.9);
    /// that counts as closed.
    pub(crate) fn of(bytes: &[u8]) -> Peeked {
        let is_timeout =
            bytes.starts_with(b"HTTP/1.") && bytes.get(8..).is_some_and(|rest| rest.starts_with(b" 408"));
        if is_timeout { Peeked::Closed } else { Peeked::Bytes(bytes.to_vec()) }
    }
}
