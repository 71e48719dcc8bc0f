//! The addresses of an origin, and connecting to them.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lacquer_sources::clock::Instant;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::memory;
use crate::stream::Stream;
use crate::trust::Trust;

/// The addresses of one origin. Backends of any VCL with equal addresses share connections.
#[derive(Debug)]
pub struct Endpoint {
    pub id: u64,
    pub(crate) v4: Option<SocketAddr>,
    pub(crate) v6: Option<SocketAddr>,
    path: Option<String>,
    /// Bytes that are sent first on every new connection.
    preamble: Option<Vec<u8>>,
    pub trust: Trust,
    held_down: Mutex<Option<HeldDown>>,
}

/// A failure to connect. Until `until`, further attempts fail at once with the same error.
#[derive(Clone, Copy, Debug)]
struct HeldDown {
    until: Instant,
    errno: i32,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// The number of endpoints that were dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of endpoints that were created, and of those that were dropped.
pub fn created_and_dropped() -> (u64, u64) {
    (NEXT_ID.load(Ordering::Relaxed) - 1, DROPPED.load(Ordering::Relaxed))
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Known endpoints, so that equal ones share an id. Each call of [`Endpoint::new`] removes dropped ones.
static KNOWN: Mutex<Vec<std::sync::Weak<Endpoint>>> = Mutex::new(Vec::new());

/// The reason why connecting failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectError {
    pub errno: i32,
    pub held_down: bool,
}

impl ConnectError {
    /// Returns the error number for the log, or 0 while held down, because the cause was logged before.
    pub fn shown(self) -> i32 {
        if self.held_down { 0 } else { self.errno }
    }
}

/// Seconds for which an endpoint is held down after a failure: one with a local cause, and one that the network or
/// the remote end caused.
#[derive(Clone, Copy, Debug)]
pub struct Holddown {
    pub local: f64,
    pub remote: f64,
}

impl Endpoint {
    pub fn new(
        v4: Option<SocketAddr>,
        v6: Option<SocketAddr>,
        path: Option<String>,
        preamble: Option<Vec<u8>>,
    ) -> Arc<Endpoint> {
        let mut known = KNOWN.lock();
        known.retain(|e| e.strong_count() > 0);
        let same = |e: &Arc<Endpoint>| e.v4 == v4 && e.v6 == v6 && e.path == path && e.preamble == preamble;
        if let Some(found) = known.iter().filter_map(std::sync::Weak::upgrade).find(same) {
            return found;
        }
        let endpoint = Arc::new(Endpoint {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            v4,
            v6,
            path,
            preamble,
            trust: Trust::new(Instant::now()),
            held_down: Mutex::new(None),
        });
        known.push(Arc::downgrade(&endpoint));
        endpoint
    }

    /// Connects within `timeout` seconds (0: no limit), trying the preferred family first.
    pub async fn connect(
        &self,
        timeout: f64,
        prefer_ipv6: bool,
        holddown: Holddown,
    ) -> Result<Stream, ConnectError> {
        if let Some(errno) = self.held_down() {
            return Err(ConnectError { errno, held_down: true });
        }
        let result = if timeout > 0.0 {
            let limit = Duration::from_secs_f64(timeout.min(1e9));
            tokio::time::timeout(limit, self.connect_any(prefer_ipv6))
                .await
                .unwrap_or_else(|_| Err(timed_out()))
        } else {
            self.connect_any(prefer_ipv6).await
        };
        result.map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::TIMEDOUT);
            self.hold_down(errno, holddown);
            ConnectError { errno: errno.raw_os_error(), held_down: false }
        })
    }

    async fn connect_any(&self, prefer_ipv6: bool) -> io::Result<Stream> {
        let mut stream = self.connect_bare(prefer_ipv6).await?;
        if let Some(preamble) = self.preamble.as_deref() {
            stream.write_all(preamble).await?;
        }
        Ok(stream)
    }

    async fn connect_bare(&self, prefer_ipv6: bool) -> io::Result<Stream> {
        if let Some(path) = &self.path {
            if let Some(outcome) = memory::connect(path).await {
                return outcome.map(Stream::Memory);
            }
            // Abstract names begin with NUL in the kernel, and with `@` in text.
            let address = match path.strip_prefix('@') {
                Some(name) => format!("\0{name}").into(),
                None => Cow::Borrowed(path.as_str()),
            };
            return UnixStream::connect(&*address).await.map(Stream::Unix);
        }
        let order = if prefer_ipv6 { [self.v6, self.v4] } else { [self.v4, self.v6] };
        let mut last = io::Error::from(Errno::ADDRNOTAVAIL);
        for addr in order.into_iter().flatten() {
            match connect_tcp(addr).await {
                Ok(stream) => return Ok(Stream::Tcp(stream)),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn held_down(&self) -> Option<i32> {
        let mut held = self.held_down.lock();
        held.take_if(|held| Instant::now() >= held.until);
        held.map(|held| held.errno)
    }

    fn hold_down(&self, errno: Errno, holddown: Holddown) {
        let seconds = match errno {
            Errno::ACCESS | Errno::PERM | Errno::ADDRNOTAVAIL => holddown.local,
            Errno::CONNREFUSED | Errno::NETUNREACH => holddown.remote,
            _ => 0.0,
        };
        if seconds > 0.0 {
            let until = Instant::now() + Duration::from_secs_f64(seconds);
            *self.held_down.lock() = Some(HeldDown { until, errno: errno.raw_os_error() });
        }
    }
}

async fn connect_tcp(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A request follows at once, and its first packet also acknowledges the handshake.
    let _ = sockopt::set_tcp_quickack(&socket, false);
    let stream = socket.connect(addr).await?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Returns the error of a wait that took too long.
pub(crate) fn timed_out() -> io::Error {
    Errno::TIMEDOUT.into()
}

/// Sets the time and interval of TCP keep-alive, in seconds, and the number of probes. Failures are ignored.
pub fn set_keepalive(socket: impl AsFd, time: f64, interval: f64, probes: u32) {
    let fd = socket.as_fd();
    let sock = socket2::SockRef::from(&fd);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs_f64(time))
        .with_interval(Duration::from_secs_f64(interval))
        .with_retries(probes);
    let _ = sock.set_tcp_keepalive(&keepalive);
}
