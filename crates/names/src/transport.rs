//! Connections to name servers: queries over UDP on sockets that are used more than once, and TCP as hickory does it.
//!
//! A query has a socket of its own while it waits, so a forger must guess both its port and its number. A socket is closed
//! after a few queries. Its port is one of those that the system chooses at random.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use hickory_resolver::config::{ConnectionConfig, ProtocolConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::{DnsExchange, DnsHandle};
use hickory_resolver::proto::op::{DnsRequest, DnsResponse};
use hickory_resolver::{ConnectionProvider, PoolContext};
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// The number of queries of one socket.
const MOST_QUERIES: u8 = 32;
/// The maximum number of sockets without a query.
const MOST_IDLE: usize = 64;
/// The largest message, which servers are told (RFC 6891).
const LARGEST: usize = 4096;
/// The number of times that a query is sent within its time limit.
const SENDS: u32 = 4;
/// The shortest time until a query is sent again.
const SHORTEST_WAIT: Duration = Duration::from_millis(333);

type Outcome = Result<DnsResponse, NetError>;

/// Creates connections.
#[derive(Clone, Default)]
pub struct Transport(TokioRuntimeProvider);

impl ConnectionProvider for Transport {
    type Conn = Connection;
    type FutureConn = Pin<Box<dyn Future<Output = Result<Connection, NetError>> + Send>>;
    type RuntimeProvider = TokioRuntimeProvider;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        context: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        if matches!(config.protocol, ProtocolConfig::Udp) {
            let server = SocketAddr::new(ip, config.port);
            let limit = context.options.timeout;
            let sockets = Sockets { server, limit, idle: Mutex::default() };
            return Ok(Box::pin(async { Ok(Connection::Udp(Arc::new(sockets))) }));
        }
        let tcp = self.0.new_connection(ip, config, context)?;
        Ok(Box::pin(async { tcp.await.map(Connection::Tcp) }))
    }

    fn runtime_provider(&self) -> &TokioRuntimeProvider {
        &self.0
    }
}

/// A connection to one server.
#[derive(Clone)]
pub enum Connection {
    Udp(Arc<Sockets>),
    Tcp(DnsExchange<TokioRuntimeProvider>),
}

impl DnsHandle for Connection {
    type Response = Pin<Box<dyn Stream<Item = Outcome> + Send>>;
    type Runtime = TokioRuntimeProvider;

    fn send(&self, request: DnsRequest) -> Self::Response {
        match self {
            Connection::Udp(sockets) => {
                let sockets = sockets.clone();
                Box::pin(Once(Some(Box::pin(async move { sockets.ask(&request).await }))))
            }
            Connection::Tcp(tcp) => Box::pin(tcp.send(request)),
        }
    }
}

/// The one outcome of a query.
struct Once(Option<Pin<Box<dyn Future<Output = Outcome> + Send>>>);

impl Stream for Once {
    type Item = Outcome;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Outcome>> {
        let Some(outcome) = &mut self.0 else { return Poll::Ready(None) };
        let outcome = std::task::ready!(outcome.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(Some(outcome))
    }
}

/// The sockets for queries to one server.
pub struct Sockets {
    server: SocketAddr,
    /// Time limit of a query.
    limit: Duration,
    idle: Mutex<Vec<Socket>>,
}

/// A socket that is connected to the server: it receives from nobody else.
struct Socket {
    udp: UdpSocket,
    queries: u8,
    buffer: Box<[u8]>,
}

impl Sockets {
    async fn take(&self) -> io::Result<Socket> {
        if let Some(socket) = self.idle.lock().pop() {
            return Ok(socket);
        }
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let udp = UdpSocket::bind((any, 0)).await?;
        udp.connect(self.server).await?;
        Ok(Socket { udp, queries: 0, buffer: vec![0; LARGEST].into() })
    }

    /// Keeps a socket whose query has its answer.
    fn put(&self, mut socket: Socket) {
        socket.queries += 1;
        let mut idle = self.idle.lock();
        if socket.queries < MOST_QUERIES && idle.len() < MOST_IDLE {
            idle.push(socket);
        }
    }

    /// Returns the answer to a query, which is sent again until then.
    async fn ask(&self, request: &DnsRequest) -> Outcome {
        let query = request.to_vec()?;
        let mut socket = self.take().await?;
        let end = Instant::now() + self.limit;
        let wait = request.options().retry_interval.max(SHORTEST_WAIT);
        for sent in 1..=SENDS {
            socket.udp.send(&query).await?;
            let until = if sent == SENDS { end } else { end.min(Instant::now() + wait) };
            match timeout_at(until, socket.receive(request)).await {
                Ok(outcome) => {
                    if outcome.is_ok() {
                        self.put(socket);
                    }
                    return outcome;
                }
                Err(_) if until == end => break,
                Err(_) => {}
            }
        }
        Err(NetError::Timeout)
    }
}

impl Socket {
    /// Receives the answer to a query. Skips messages with another number or question: they are late, or forged.
    async fn receive(&mut self, request: &DnsRequest) -> Outcome {
        loop {
            let length = self.udp.recv(&mut self.buffer).await?;
            let message = &self.buffer[..length];
            if message.first_chunk() != Some(&request.id.to_be_bytes()) {
                continue;
            }
            let response = DnsResponse::from_buffer(message.to_vec())?;
            if response.queries == request.queries {
                return Ok(response);
            }
        }
    }
}
