//! Where a request sends its response: the client's connection, or one stream of it. With the stream that its
//! body may come from ([`crate::req_body`]) this is all that a request knows of the protocol it came by.

use std::os::fd::BorrowedFd;
use std::rc::Rc;

use crate::client_socket::ClientSocket;
use crate::h2::Stream;

/// Where a response goes.
#[derive(Clone)]
pub enum Wire {
    Socket(Rc<ClientSocket>),
    Stream(Rc<Stream>),
}

impl Wire {
    /// The client's connection.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Socket(tx) => tx.as_fd(),
            Wire::Stream(stream) => stream.as_fd(),
        }
    }

    pub fn stream(&self) -> Option<&Rc<Stream>> {
        match self {
            Wire::Socket(_) => None,
            Wire::Stream(stream) => Some(stream),
        }
    }

    /// As `req.transport` names it.
    pub fn name(&self) -> &'static str {
        match self {
            Wire::Socket(_) => "HTTP/1",
            Wire::Stream(_) => "HTTP/2",
        }
    }
}
