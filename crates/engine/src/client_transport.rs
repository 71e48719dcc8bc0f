//! The destination of a response: the client's connection, or a stream of it. Together with the stream that a body
//! may come from ([`crate::req_body`]), this is the only part of a request that depends on the protocol.

use std::os::fd::BorrowedFd;
use std::rc::Rc;

use lacquer_net::ClientSocket;

use crate::h2::Stream;

/// The destination of a response.
#[derive(Clone)]
pub enum ClientTransport {
    Socket(Rc<ClientSocket>),
    Stream(Rc<Stream>),
}

impl ClientTransport {
    /// Returns the client's connection.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ClientTransport::Socket(tx) => tx.as_fd(),
            ClientTransport::Stream(stream) => stream.as_fd(),
        }
    }

    pub fn stream(&self) -> Option<&Rc<Stream>> {
        match self {
            ClientTransport::Socket(_) => None,
            ClientTransport::Stream(stream) => Some(stream),
        }
    }

    /// Returns the value of `req.transport`.
    pub fn name(&self) -> &'static str {
        match self {
            ClientTransport::Socket(_) => "HTTP/1",
            ClientTransport::Stream(_) => "HTTP/2",
        }
    }
}
