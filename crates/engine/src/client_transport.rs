//! The client of a request: its connection, or a stream of it. Together with the reader of the request's body
//! ([`crate::req_body`]) and the sink of the response ([`ClientSink`]), which is opened here, this is the only part of
//! a request that depends on the protocol.

use std::io;
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
use crate::h3;
use crate::protocol::Protocol;
use crate::req_body::BodyStream;
use crate::send_limits::SendLimits;

#[derive(Clone)]
pub enum ClientTransport {
    Http1(Rc<ClientSocket>),
    Http2(Rc<Stream>),
    Http3(Rc<h3::Stream>),
}

impl ClientTransport {
    #[inline]
    pub fn protocol(&self) -> &'static Protocol {
        match self {
            ClientTransport::Http1(_) => &h1::PROTOCOL,
            ClientTransport::Http2(_) => &h2::PROTOCOL,
            ClientTransport::Http3(_) => &h3::PROTOCOL,
        }
    }

    #[inline]
    pub fn carrier(&self) -> Carrier {
        self.protocol().carrier
    }

    /// Opens the sink of a response. The sink assembles the head in `buffer`.
    #[inline]
    pub fn open(&self, buffer: Vec<u8>, limits: SendLimits) -> ClientSink {
        match self {
            ClientTransport::Http1(tx) => ClientSink::Http1(Sender::new(tx.clone(), buffer, limits)),
            ClientTransport::Http2(stream) => {
                ClientSink::Http2(StreamSender::new(stream.clone(), buffer, limits))
            }
            ClientTransport::Http3(stream) => {
                ClientSink::Http3(h3::StreamSender::new(stream.clone(), buffer, limits))
            }
        }
    }

    /// Returns whether the handshake of a client that has sent early data is not complete.
    pub fn is_handshaking(&self) -> bool {
        match self {
            ClientTransport::Http1(tx) => tx.is_handshaking(),
            ClientTransport::Http2(stream) => stream.conn().tx().is_handshaking(),
            ClientTransport::Http3(stream) => stream.conn.quic.is_handshaking(),
        }
    }

    /// Returns whether the client has reset the stream, or the stream's connection has ended. Always false for HTTP/1;
    /// only [`gone`](Self::gone) detects a closed HTTP/1 connection.
    #[inline]
    pub fn is_reset(&self) -> bool {
        match self {
            ClientTransport::Http1(_) => false,
            ClientTransport::Http2(stream) => stream.error().is_some(),
            ClientTransport::Http3(stream) => stream.error().is_some(),
        }
    }

    /// Waits until the client is gone.
    pub async fn gone(&self, disconnect: DisconnectPolicy, treatment: HalfClosed) {
        match self {
            ClientTransport::Http1(tx) => disconnect.disconnected(tx, treatment).await,
            ClientTransport::Http2(stream) if disconnect.half_closed().is_some() => stream.gone().await,
            ClientTransport::Http3(stream) if disconnect.half_closed().is_some() => stream.gone().await,
            ClientTransport::Http2(_) | ClientTransport::Http3(_) => std::future::pending().await,
        }
    }

    /// Returns whether the first bytes of a response were already sent, to test whether the client has closed its
    /// connection.
    pub fn is_probed(&self) -> bool {
        match self {
            ClientTransport::Http1(tx) => tx.is_ahead(),
            ClientTransport::Http2(_) | ClientTransport::Http3(_) => false,
        }
    }

    /// Returns the sending side of a connection that serves only this request, for a pipe. `None` for a stream.
    pub fn whole_connection(&self) -> Option<Rc<ClientSocket>> {
        match self {
            ClientTransport::Http1(tx) => Some(tx.clone()),
            ClientTransport::Http2(_) | ClientTransport::Http3(_) => None,
        }
    }

    /// Reads bytes that the client sends on its stream. Returns 0 at their end. Fails if the stream was reset, and for
    /// HTTP/1.
    pub async fn read_stream(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientTransport::Http1(_) => Err(io::ErrorKind::Unsupported.into()),
            ClientTransport::Http2(stream) => stream.read_body(buffer).await,
            ClientTransport::Http3(stream) => stream.read_body(buffer).await,
        }
    }

    /// Lifts the limits of responses from a stream that becomes a tunnel, which has its own.
    pub fn begin_tunnel(&self) {
        if let ClientTransport::Http2(stream) = self {
            stream.begin_tunnel();
        }
    }

    /// Resets a stream that ends out of order. Does nothing for HTTP/1.
    pub fn cancel(&self) {
        match self {
            ClientTransport::Http2(stream) if stream.error().is_none() => {
                stream.reset(Error::Stream(Reason::Cancel));
            }
            ClientTransport::Http3(stream) if stream.error().is_none() => stream.cancel(),
            ClientTransport::Http1(_) | ClientTransport::Http2(_) | ClientTransport::Http3(_) => {}
        }
    }

    /// Records that the response ended too early, so that its connection does not end in order. Does nothing for a
    /// stream, which the caller resets.
    pub fn cut(&self) {
        match self {
            ClientTransport::Http1(tx) => tx.cut(),
            ClientTransport::Http2(_) | ClientTransport::Http3(_) => {}
        }
    }

    /// Records the same about a response whose end is the end of the connection.
    pub fn cut_unframed(&self) {
        match self {
            ClientTransport::Http1(tx) => tx.cut_unframed(),
            ClientTransport::Http2(_) | ClientTransport::Http3(_) => {}
        }
    }

    /// Rejects a request that was not processed. Resets a stream; does nothing for HTTP/1, where the caller closes the
    /// connection.
    pub fn refuse(&self) {
        match self {
            ClientTransport::Http1(_) => {}
            ClientTransport::Http2(stream) => stream.refuse(),
            ClientTransport::Http3(stream) => stream.refuse(),
        }
    }

    /// Returns the socket of the client's connection, if the transport has one.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            ClientTransport::Http1(tx) => Some(tx.as_fd()),
            ClientTransport::Http2(stream) => Some(stream.as_fd()),
            ClientTransport::Http3(_) => None,
        }
    }

    pub fn is_http2(&self) -> bool {
        self.http2().is_some()
    }

    /// Returns a limit of the HTTP/2 connection; `None` for HTTP/1.
    pub fn http2_limit(&self, which: H2Setting) -> Option<f64> {
        self.http2().map(|stream| stream.conn().conduct().limit(which))
    }

    /// Sets a limit of the HTTP/2 connection from `now` on. Does nothing for HTTP/1.
    pub fn set_http2_limit(&self, which: H2Setting, value: f64, now: f64) {
        if let Some(stream) = self.http2() {
            stream.conn().conduct().set_limit(which, value, now);
        }
    }

    fn http2(&self) -> Option<&Stream> {
        match self {
            ClientTransport::Http2(stream) => Some(stream),
            ClientTransport::Http1(_) | ClientTransport::Http3(_) => None,
        }
    }
}
