//! Where a request sends its response: the client's connection, or one stream of it. With the stream that its
//! body may come from ([`crate::req_body`]) this is all that a request knows of the protocol it came by.

use std::os::fd::BorrowedFd;
use std::rc::Rc;

use crate::client_socket::ClientSocket;
use crate::h2::Stream;

/// Where a response goes.
#[derive(Clone)]
pub enum ClientTransport {
    Socket(Rc<ClientSocket>),
    Stream(Rc<Stream>),
}

impl ClientTransport {
    /// The client's connection.
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

    /// As `req.transport` names it.
    pub fn name(&self) -> &'static str {
        match self {
            ClientTransport::Socket(_) => "HTTP/1",
            ClientTransport::Stream(_) => "HTTP/2",
        }
    }
}
