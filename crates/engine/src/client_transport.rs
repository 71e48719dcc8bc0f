//! The client of a request as the request sees it: its connection, or one stream of it. Nothing else in a request depends
//! on the protocol, but for the reader of its body ([`crate::req_body`]) and the sink of its response ([`ClientSink`]), which is
//! opened here.

use std::os::fd::BorrowedFd;
use std::rc::Rc;

use lacquer_flow::persistence::Carrier;
use lacquer_h2::{Error, Reason};
use lacquer_net::ClientSocket;
use lacquer_net::disconnect::{DisconnectPolicy, HalfClosed};
use lacquer_vcl_runtime::H2Setting;

use crate::client_sink::ClientSink;
use crate::h1::{self, Sender};
use crate::h2::{self, Stream, StreamSender};
use crate::protocol::Protocol;
use crate::send_limits::SendLimits;

#[derive(Clone)]
pub enum ClientTransport {
    Http1(Rc<ClientSocket>),
    Http2(Rc<Stream>),
}

impl ClientTransport {
    #[inline]
    pub fn protocol(&self) -> &'static Protocol {
        match self {
            ClientTransport::Http1(_) => &h1::PROTOCOL,
            ClientTransport::Http2(_) => &h2::PROTOCOL,
        }
    }

    #[inline]
    pub fn carrier(&self) -> Carrier {
        self.protocol().carrier
    }

    /// Opens the sink of a response, which assembles the head in this buffer.
    #[inline]
    pub fn open(&self, buffer: Vec<u8>, limits: SendLimits) -> ClientSink {
        match self {
            ClientTransport::Http1(tx) => ClientSink::Http1(Sender::new(tx.clone(), buffer, limits)),
            ClientTransport::Http2(stream) => {
                ClientSink::Http2(StreamSender::new(stream.clone(), buffer, limits))
            }
        }
    }

    /// Returns whether the client has reset the stream, or its connection has ended. A client that has closed a
    /// connection of HTTP/1 is noticed by [`gone`](Self::gone) alone.
    #[inline]
    pub fn is_reset(&self) -> bool {
        match self {
            ClientTransport::Http1(_) => false,
            ClientTransport::Http2(stream) => stream.error().is_some(),
        }
    }

    /// Waits until the client is gone.
    pub async fn gone(&self, patience: DisconnectPolicy, treatment: HalfClosed) {
        match self {
            ClientTransport::Http1(tx) => patience.disconnected(tx, treatment).await,
            ClientTransport::Http2(stream) if patience.half_closed().is_some() => stream.gone().await,
            ClientTransport::Http2(_) => std::future::pending().await,
        }
    }

    /// Returns whether the client was sent the first bytes of a response, because it may have closed its connection.
    pub fn is_probed(&self) -> bool {
        match self {
            ClientTransport::Http1(tx) => tx.is_ahead(),
            ClientTransport::Http2(_) => false,
        }
    }

    /// Returns the sending side of a connection that the request has for itself, for a pipe.
    pub fn whole_connection(&self) -> Option<Rc<ClientSocket>> {
        match self {
            ClientTransport::Http1(tx) => Some(tx.clone()),
            ClientTransport::Http2(_) => None,
        }
    }

    /// Drops a request that was not processed. Over a connection its close says the same.
    pub fn refuse(&self) {
        match self {
            ClientTransport::Http1(_) => {}
            ClientTransport::Http2(stream) if stream.error().is_some() => {}
            ClientTransport::Http2(stream) => stream.reset(Error::Stream(Reason::RefusedStream)),
        }
    }

    /// Returns the socket of the client's connection, if it has one of its own.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            ClientTransport::Http1(tx) => Some(tx.as_fd()),
            ClientTransport::Http2(stream) => Some(stream.as_fd()),
        }
    }

    pub fn is_http2(&self) -> bool {
        self.http2().is_some()
    }

    /// Returns a limit of the connection, if it is one of HTTP/2.
    pub fn http2_limit(&self, which: H2Setting) -> Option<f64> {
        self.http2().map(|stream| stream.conn.limit(which))
    }

    /// Sets a limit of the connection from `now` on, if it is one of HTTP/2.
    pub fn set_http2_limit(&self, which: H2Setting, value: f64, now: f64) {
        if let Some(stream) = self.http2() {
            stream.conn.set_limit(which, value, now);
        }
    }

    fn http2(&self) -> Option<&Stream> {
        match self {
            ClientTransport::Http2(stream) => Some(stream),
            ClientTransport::Http1(_) => None,
        }
    }
}
