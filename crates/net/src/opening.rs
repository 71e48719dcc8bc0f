//! The steps between connecting to an origin and the first request: the PROXY header of a client, and the handshake of
//! TLS behind it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use lacquer_sources::clock::Instant;
use lacquer_tls::origin::{self, OriginTls};
use rustix::io::Errno;
use rustls::ClientConfig;

use crate::connect_error::{ConnectError, ConnectStage};
use crate::http_version::HttpVersion;
use crate::stream::Stream;
use crate::time_limit::by_time;
use crate::tls;

/// A connection to an origin before its first request.
pub struct Opening<'e> {
    stream: Stream,
    tls: Option<&'e OriginTls>,
    /// The time by which the connection is open.
    by: Option<Instant>,
}

impl<'e> Opening<'e> {
    pub(crate) fn new(stream: Stream, tls: Option<&'e OriginTls>, by: Option<Instant>) -> Opening<'e> {
        Opening { stream, tls, by }
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr()
    }

    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.stream.peer_addr()
    }

    pub fn raw_fd(&self) -> RawFd {
        self.stream.raw_fd()
    }

    /// Sends a PROXY header. It precedes the handshake, because a proxy reads it that does not decrypt.
    pub async fn introduce(mut self, header: &[u8]) -> Result<Opening<'e>, ConnectError> {
        if header.is_empty() {
            return Ok(self);
        }
        match by_time(self.by, self.stream.write_all(header)).await {
            Ok(()) => Ok(self),
            Err(e) => {
                let errno = Errno::from_io_error(&e).unwrap_or(Errno::TIMEDOUT);
                // The kernel would keep the unsent bytes until the origin reads them.
                self.stream.split().1.reset();
                Err(ConnectError::new(ConnectStage::ProxyHeader, errno.raw_os_error()))
            }
        }
    }

    /// Does the handshake, if the endpoint uses TLS. The connection is for HTTP/1.
    pub async fn complete(self) -> Result<Stream, ConnectError> {
        match self.tls {
            None => Ok(self.stream),
            // Boxed: the future is large, and a handshake is rare.
            Some(tls) => Box::pin(handshake(self.stream, (tls, tls.config()), self.by)).await,
        }
    }

    /// Does the handshake like [`Opening::complete`], and offers HTTP/2. Returns whether the connection is for HTTP/2.
    /// Without TLS, it is: the origin is known to speak it.
    pub async fn complete_http2(self) -> Result<(Stream, bool), ConnectError> {
        let Some(tls) = self.tls else { return Ok((self.stream, true)) };
        let stream = Box::pin(handshake(self.stream, (tls, tls.http2_config()), self.by)).await?;
        let is_http2 = stream.negotiated().protocol == Some(HttpVersion::Http2);
        Ok((stream, is_http2))
    }
}

async fn handshake(
    stream: Stream,
    (tls, config): (&OriginTls, &Arc<ClientConfig>),
    by: Option<Instant>,
) -> Result<Stream, ConnectError> {
    let work = tls::connect(stream, config.clone(), tls.name().clone());
    match by_time(by, async { Ok(work.await) }).await {
        Ok(done) => done.map_err(|failure| explain(&failure, tls)),
        Err(_) => Err(ConnectError::new(ConnectStage::Handshake, Errno::TIMEDOUT.raw_os_error())),
    }
}

fn explain(failure: &tls::Failure, tls: &OriginTls) -> ConnectError {
    let text = |text: String| ConnectError::with_text(ConnectStage::Handshake, text);
    match failure {
        tls::Failure::Handshake(error) => {
            let failure = origin::explain(error, tls);
            let stage =
                if failure.is_verification { ConnectStage::Certificate } else { ConnectStage::Handshake };
            ConnectError::with_text(stage, failure.text)
        }
        tls::Failure::HttpRequest | tls::Failure::NotTls => text(origin::NOT_TLS.to_owned()),
        tls::Failure::Truncated => text(origin::CLOSED.to_owned()),
        other => text(tls_reason(other)),
    }
}

/// Returns the reason for which TLS has ended a connection to an origin.
fn tls_reason(failure: &tls::Failure) -> String {
    match failure {
        tls::Failure::Alert(alert) => origin::explain_alert(*alert),
        tls::Failure::Truncated => origin::TRUNCATED.to_owned(),
        other => other.to_string(),
    }
}

/// Returns the reason for an error of a connection to an origin, if it is one of TLS.
pub fn tls_reason_of(e: &io::Error) -> Option<String> {
    e.get_ref()?.downcast_ref().map(tls_reason)
}
