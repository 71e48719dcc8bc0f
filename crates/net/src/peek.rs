//! The state of a connection as a look at it tells.

/// The largest number of surplus bytes that are examined.
pub const SAMPLE: usize = 512;

/// The state of a peer, as far as the sending half knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    Open,
    /// The peer has shut down its sending side, or closed.
    ShutDown,
    Broken,
}

/// The result of a check of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peeked {
    /// The connection is open, and no unread bytes wait.
    Quiet,
    /// The peer has closed.
    Closed,
    /// The connection is broken. A peer that closes before it has read everything breaks it.
    Broken,
    /// These bytes wait, and maybe more.
    Bytes(Vec<u8>),
}

impl Peeked {
    /// Judges surplus bytes. A server may send status 408 before it closes an idle connection (RFC 9110, 15.5.9); that
    /// is no fault.
    pub(crate) fn of(bytes: &[u8]) -> Peeked {
        let says_timeout =
            bytes.starts_with(b"HTTP/1.") && bytes.get(8..).is_some_and(|rest| rest.starts_with(b" 408"));
        if says_timeout { Peeked::Closed } else { Peeked::Bytes(bytes.to_vec()) }
    }
}
