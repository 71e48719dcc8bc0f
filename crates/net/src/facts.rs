//! Facts about a connection to an origin that stay valid until it is closed. The next request on the connection need not
//! query the kernel again.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::tls::TlsFacts;

/// Facts that are read from the kernel once, after the connection is established.
#[derive(Clone, Debug)]
pub struct Facts {
    pub(crate) fd: RawFd,
    pub(crate) remote: Option<SocketAddr>,
    /// Address and port of the remote end, then of the local one, in the format of the log.
    pub(crate) ends: Box<str>,
    /// The time at which it was opened, in seconds.
    pub(crate) opened: f64,
    pub(crate) tls: Option<Arc<TlsFacts>>,
}

impl Facts {
    /// Returns the age of the connection in seconds.
    #[inline]
    pub fn age(&self, now: f64) -> f64 {
        (now - self.opened).max(0.0)
    }

    #[inline]
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Returns the address of the remote end. A UNIX socket has none.
    #[inline]
    pub fn remote(&self) -> Option<&SocketAddr> {
        self.remote.as_ref()
    }

    /// Returns the facts about TLS, if the connection uses it.
    pub fn tls(&self) -> Option<&TlsFacts> {
        self.tls.as_deref()
    }

    /// Returns address and port of the remote end, then of the local one, in the format of the log.
    #[inline]
    pub fn ends(&self) -> &str {
        &self.ends
    }
}
