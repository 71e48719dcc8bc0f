//! The properties of listening sockets that sessions use, and the addresses of a connection's ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lacquer_tls::Frontend;

/// A step between the acceptance of a connection and its first request.
#[derive(Clone, Debug)]
pub enum Stage {
    /// The client sends a PROXY header.
    ProxyHeader,
    /// The client and this end do the handshake of TLS, with one of these certificates.
    Tls(Frontend),
}

impl Stage {
    /// Returns the name of what the client has to send, for the log.
    pub fn name(&self) -> &'static str {
        match self {
            Stage::ProxyHeader => "PROXY header",
            Stage::Tls(_) => "TLS handshake",
        }
    }
}

/// The properties of a listening socket that its sessions use.
#[derive(Debug)]
pub struct Listener {
    name: String,
    endpoint: String,
    path: Option<String>,
    stages: Box<[Stage]>,
    /// The value of `Alt-Svc` for its clients, if the same service is available by another protocol.
    alternative: Option<String>,
}

impl Listener {
    /// `endpoint` is the address as given with `-a`; `path` is the path of a UNIX socket.
    pub fn new(
        name: String,
        endpoint: String,
        path: Option<String>,
        stages: impl Into<Box<[Stage]>>,
    ) -> Listener {
        Listener { name, endpoint, path, stages: stages.into(), alternative: None }
    }

    /// Sets the value of `Alt-Svc` (RFC 7838) for its clients.
    #[must_use]
    pub fn with_alternative(self, alternative: Option<String>) -> Listener {
        Listener { alternative, ..self }
    }

    /// Returns the value of `Alt-Svc` for its clients.
    #[inline]
    pub fn alternative(&self) -> Option<&str> {
        self.alternative.as_deref()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address as given with `-a`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn is_unix(&self) -> bool {
        self.path.is_some()
    }

    /// Returns the stages of its connections, in their order.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Returns the name of the protocol with which its connections begin, for the log.
    pub fn protocol(&self) -> &'static str {
        match self.stages.first() {
            Some(Stage::ProxyHeader) => "PROXY",
            Some(Stage::Tls(_)) => "TLS",
            None => "HTTP/1",
        }
    }
}

/// The address of one side of a connection, with the texts that the log records for every request.
#[derive(Clone, Debug)]
pub struct Side {
    pub addr: SocketAddr,
    pub ip: String,
    pub port: String,
}

impl Side {
    pub fn of(addr: SocketAddr) -> Side {
        let addr = canonical(addr);
        Side { addr, ip: addr.ip().to_string(), port: addr.port().to_string() }
    }

    /// Returns the substitute for the address that a UNIX socket does not have: `0.0.0.0:0`.
    pub fn none() -> Side {
        Side::of(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
    }
}

/// Converts the mapped address of an IPv4 client on a dual-stack socket to its IPv4 form.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
