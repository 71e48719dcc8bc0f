//! The connection over which a command sends its request to a listener: plain or with TLS, for HTTP/1 or HTTP/2.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lacquer_tls::origin::{Authorities, Checks, OriginTls};
use rustls::{ClientConnection, StreamOwned};

use crate::fault::Fault;
use crate::page::plain;
use crate::socket::Socket;

/// The address of a listener.
#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(to),
            Address::Unix(path) => plain(path.as_os_str().as_encoded_bytes()).fmt(to),
        }
    }
}

/// The protocols for a listener, and the trust in it.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// The name of the server, if the connection uses TLS.
    pub tls: Option<String>,
    /// The trusted authorities in PEM's format; `None` to accept every certificate.
    pub trusted: Option<Vec<u8>>,
    pub version: Version,
    /// The connection begins with a PROXY header.
    pub has_proxy_header: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/2 if TLS negotiates it, else HTTP/1.
    #[default]
    Any,
    Http1,
    Http2,
}

/// An open connection.
pub struct Wire {
    socket: Socket,
    stream: Stream,
    pub is_http2: bool,
    /// `None` over a UNIX socket.
    pub local_port: Option<u16>,
}

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

/// Returns the header of PROXY, version 1, with a connection's addresses. A UNIX socket has none; its header contains
/// 127.0.0.1.
fn proxy_header(socket: &Socket) -> io::Result<String> {
    let Socket::Tcp(socket) = socket else {
        return Ok("PROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\n".to_owned());
    };
    let (from, to) = (socket.local_addr()?, socket.peer_addr()?);
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    Ok(format!("PROXY {family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port()))
}

fn local_port(socket: &Socket) -> io::Result<Option<u16>> {
    match socket {
        Socket::Tcp(socket) => socket.local_addr().map(|address| Some(address.port())),
        Socket::Unix(_) => Ok(None),
    }
}

impl Wire {
    /// Connects to a listener. `patience` limits each read and write.
    pub fn open(to: &Address, means: &Means, patience: Duration) -> Result<Wire, Fault> {
        let failed = |error: io::Error| {
            Fault::new(
                format_args!("the request to {to} failed: {error}"),
                "name the address of a listener: --to HOST:PORT, or --to /PATH of a UNIX socket",
            )
        };
        let socket = match to {
            Address::Tcp(to) => Socket::connect(*to),
            Address::Unix(path) => Socket::connect_path(path),
        };
        let socket = socket.map_err(failed)?;
        socket.set_timeouts(patience).map_err(failed)?;
        let local_port = local_port(&socket).map_err(failed)?;
        let mut plain = socket.try_clone().map_err(failed)?;
        if means.has_proxy_header {
            let header = proxy_header(&plain).map_err(failed)?;
            plain.write_all(header.as_bytes()).map_err(failed)?;
        }
        let (stream, is_http2) = match &means.tls {
            None => (Stream::Plain(plain), means.version == Version::Http2),
            Some(name) => handshake(plain, name, means, to)?,
        };
        Ok(Wire { socket, stream, is_http2, local_port })
    }

    /// Limits the next reads.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(patience)
    }
}

fn handshake(mut socket: Socket, name: &str, means: &Means, to: &Address) -> Result<(Stream, bool), Fault> {
    let hint = "--cacert FILE trusts a local authority, --insecure skips the check of the certificate";
    let fault = |what: String| Fault::new(format_args!("{to}: {}", plain(what.as_bytes())), hint);
    let checks = match &means.trusted {
        Some(pem) => Checks::Authorities { trusted: Authorities::shared(pem).map_err(fault)?, name: true },
        None => Checks::None,
    };
    let tls = OriginTls::new(name, true, checks, None).map_err(fault)?.offering_http2();
    let mut config = rustls::ClientConfig::clone(tls.http2_config());
    match means.version {
        Version::Any => {}
        Version::Http1 => config.alpn_protocols.retain(|protocol| protocol == b"http/1.1"),
        Version::Http2 => config.alpn_protocols.retain(|protocol| protocol == b"h2"),
    }
    let mut connection =
        ClientConnection::new(config.into(), tls.name().clone()).map_err(|error| fault(error.to_string()))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).map_err(|error| fault(reason(&error, name)))?;
    }
    let is_http2 = connection.alpn_protocol() == Some(b"h2");
    if means.version == Version::Http2 && !is_http2 {
        let what = format_args!("the listener {to} does not offer HTTP/2");
        return Err(Fault::new(what, "the daemon offers it with feature=+http2"));
    }
    Ok((Stream::Tls(Box::new(StreamOwned::new(connection, socket))), is_http2))
}

/// Returns why a handshake has failed.
fn reason(error: &io::Error, name: &str) -> String {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match of_tls {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("the certificate of the listener is not valid for {name}: {why}")
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            "the listener does not speak TLS; it may not be the one to use".to_owned()
        }
        Some(other) => format!("the TLS handshake failed: {other}"),
        None if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            "the listener closed the connection during the handshake; it may not speak TLS".to_owned()
        }
        None => format!("the TLS handshake failed: {error}"),
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
