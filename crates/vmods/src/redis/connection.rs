//! One connection to a server.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use lacquer_sources::clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::location::Location;
use super::parser::Parser;
use super::reply::Reply;
use super::tls::ServerTls;
use crate::blocking::NAMES;

/// The bytes that are read at once.
const PART: usize = 16 << 10;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection. After a failed call it must be dropped: the next bytes could belong to an earlier command.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    parser: Parser,
    /// The time at which it was opened.
    pub born: f64,
}

/// The state of a connection that was idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Idle {
    Usable,
    Closed,
}

/// Returns the addresses of a host. The name service is called on threads of its own.
async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let name = host.to_owned();
    let found = NAMES.compute(move || (name, port).to_socket_addrs()).await.map_err(|fault| fault.0)?;
    Ok(found.map_err(|error| format!("{host}: {error}"))?.collect())
}

async fn connect_host(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = addresses(host, port).await?;
    let mut failure = format!("{host} has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // A failure of these only makes the connection less efficient.
                let _ = stream.set_nodelay(true);
                let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
                return Ok(stream);
            }
            Err(error) => failure = format!("{address}: {error}"),
        }
    }
    Err(failure)
}

async fn with_tls<S: Stream + 'static>(
    stream: S,
    tls: Option<&ServerTls>,
) -> Result<Box<dyn Stream>, String> {
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    match tls.connector.connect(tls.name.clone(), stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(format!("TLS: {error}")),
    }
}

impl Connection {
    /// Connects to a server. The caller limits the time.
    pub(super) async fn open(location: &Location, tls: Option<&ServerTls>) -> Result<Connection, String> {
        let stream = match location {
            Location::Host(host, port) => with_tls(connect_host(host, *port).await?, tls).await?,
            Location::Path(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| format!("{path}: {error}"))?;
                with_tls(stream, tls).await?
            }
        };
        Ok(Connection { stream, parser: Parser::default(), born: clock::monotonic() })
    }

    /// Sends a command and returns its reply. The caller limits the time.
    pub(super) async fn call(&mut self, request: &[u8]) -> Result<Reply, String> {
        let failed = |error: io::Error| format!("the connection failed: {error}");
        self.stream.write_all(request).await.map_err(failed)?;
        self.stream.flush().await.map_err(failed)?;
        let mut part = vec![0; PART];
        loop {
            let length = self.stream.read(&mut part).await.map_err(failed)?;
            if length == 0 {
                return Err("the server closed the connection before its reply was complete".to_owned());
            }
            self.parser.push(&part[..length])?;
            if let Some(reply) = self.parser.next()? {
                if self.parser.is_empty() {
                    return Ok(reply);
                }
                return Err("the server sent more than one reply".to_owned());
            }
        }
    }

    /// Returns whether the connection is open and no bytes came in while it was idle.
    pub(super) fn check(&mut self) -> Idle {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer) {
            Poll::Pending => Idle::Usable,
            Poll::Ready(_) => Idle::Closed,
        }
    }
}
