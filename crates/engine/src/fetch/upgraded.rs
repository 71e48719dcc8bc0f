//! The values of an upgrade: what the origin is asked for, the connection that it grants, and the end of the tunnel.

use lacquer_http::SessClose;

use super::connection::OriginConnection;

/// The protocol that a pass asks its origin for.
pub struct Wanted {
    pub protocol: Box<[u8]>,
    /// The value of `Sec-WebSocket-Key`, if the client's protocol has none.
    pub key: Option<String>,
}

/// A connection on which the origin speaks the other protocol.
pub struct Upgraded {
    pub connection: OriginConnection,
    /// The bytes after the head of the 101 that were received with it.
    pub early: Vec<u8>,
    /// The packed head of the 101.
    pub head: Vec<u8>,
}

/// A tunnel that has ended.
pub struct Ended {
    pub connection: OriginConnection,
    pub reason: SessClose,
    pub from_client: u64,
    pub from_origin: u64,
}
