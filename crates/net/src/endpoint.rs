//! The addresses of an origin, and connecting to them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use lacquer_flow::breaker::Rules;
use lacquer_params::Params;
use lacquer_sources::clock::Instant;
use lacquer_tls::origin::OriginTls;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::circuit::Circuit;
use crate::connect_error::{ConnectError, ConnectStage};
#[cfg(any(test, feature = "memory"))]
use crate::memory;
use crate::opening::Opening;
use crate::race::race;
use crate::stream::Stream;
use crate::time_limit::by_time;
use crate::trust::Trust;

/// The maximum number of other addresses of a name that one attempt to connect tries.
const MOST_FALLBACKS: usize = 4;

pub use crate::address_parts::{LocalServer, SharedName};

/// The addresses of an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addresses {
    pub v4: Option<SocketAddr>,
    pub v6: Option<SocketAddr>,
    /// The name that the address belongs to. Its other addresses are tried if this one does not accept.
    pub name: Option<SharedName>,
    /// A server within this process, instead of an address.
    pub local: Option<LocalServer>,
    /// The path of a UNIX socket; an abstract one begins with `@`.
    pub path: Option<String>,
    /// Bytes that are sent first on every new connection.
    pub preamble: Option<Vec<u8>>,
}

/// The addresses of one origin with its settings for TLS. Backends of any VCL with equal ones share connections.
#[derive(Debug)]
pub struct Endpoint {
    id: u64,
    pub(crate) addresses: Addresses,
    tls: Option<OriginTls>,
    trust: Trust,
    circuit: Circuit,
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

/// Known endpoints, so that equal ones share an id. Those with equal addresses differ in their settings for TLS.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Known {
    by_addresses: HashMap<Addresses, Vec<Weak<Endpoint>>>,
    /// The number of entries at which dropped endpoints are removed.
    cleaned_at: usize,
}

impl Known {
    fn remove_dropped(&mut self) {
        if self.by_addresses.len() <= self.cleaned_at {
            return;
        }
        self.by_addresses.retain(|_, endpoints| {
            endpoints.retain(|endpoint| endpoint.strong_count() > 0);
            !endpoints.is_empty()
        });
        self.cleaned_at = 2 * self.by_addresses.len() + 16;
    }
}

/// When an endpoint is held down: no attempt to connect is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holddown {
    /// Seconds after a failure with a local cause.
    local: f64,
    /// Seconds after a failure that the network or the remote end caused.
    remote: f64,
    breaker: Rules,
}

impl Holddown {
    pub fn of(p: &Params) -> Holddown {
        Holddown {
            local: p.backend_local_error_holddown,
            remote: p.backend_remote_error_holddown,
            breaker: Rules {
                failures: p.backend_breaker_failures,
                period: p.backend_breaker_period,
                pause: p.backend_breaker_pause,
            },
        }
    }

    /// Returns the seconds after a failure with this error.
    fn after(self, errno: Errno) -> f64 {
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ADDRNOTAVAIL => self.local,
            Errno::CONNREFUSED | Errno::NETUNREACH => self.remote,
            _ => 0.0,
        }
    }
}

impl Endpoint {
    /// Returns the endpoint with these addresses and settings.
    pub fn new(addresses: Addresses, tls: Option<OriginTls>) -> Arc<Endpoint> {
        let mut known = KNOWN.lock();
        known.remove_dropped();
        let same = |e: &Arc<Endpoint>| match (&e.tls, &tls) {
            (Some(one), Some(other)) => one.is_same(other),
            (None, None) => true,
            _ => false,
        };
        let alike = known.by_addresses.entry(addresses.clone()).or_default();
        alike.retain(|endpoint| endpoint.strong_count() > 0);
        if let Some(found) = alike.iter().filter_map(Weak::upgrade).find(same) {
            return found;
        }
        let endpoint = Arc::new(Endpoint {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            addresses,
            tls,
            trust: Trust::new(Instant::now()),
            circuit: Circuit::new(),
        });
        alike.push(Arc::downgrade(&endpoint));
        endpoint
    }

    /// Returns the number of the endpoint. Equal endpoints share it.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether connections use TLS.
    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether connections lead to a server within this process.
    pub fn is_local(&self) -> bool {
        self.addresses.local.is_some()
    }

    /// Returns the experience with the origin, which decides how its connections are reused.
    #[inline]
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Connects within `timeout` seconds (0: no limit), trying the preferred family first. The rest of the opening has
    /// to end by the same time.
    pub async fn connect(
        &self,
        timeout: f64,
        prefer_ipv6: bool,
        holddown: Holddown,
    ) -> Result<Opening<'_>, ConnectError> {
        // An attempt that an open breaker allows has this time, unless its end is known before.
        let alone = holddown.breaker.pause.max(timeout);
        self.circuit.admit(alone)?;
        let by = (timeout > 0.0).then(|| Instant::now() + Duration::from_secs_f64(timeout.min(1e9)));
        match self.reach(prefer_ipv6, by).await {
            Ok(opening) => {
                self.circuit.connected();
                Ok(opening)
            }
            Err((stage, e)) => {
                let errno = Errno::from_io_error(&e).unwrap_or(Errno::TIMEDOUT);
                let (number, pause) = (errno.raw_os_error(), holddown.after(errno));
                let opens = self.circuit.failed(number, pause, holddown.breaker);
                Err(ConnectError::new(stage, number).of_breaker(opens))
            }
        }
    }

    /// Connects, and sends the preamble.
    async fn reach(
        &self,
        prefer_ipv6: bool,
        by: Option<Instant>,
    ) -> Result<Opening<'_>, (ConnectStage, io::Error)> {
        let connected = by_time(by, self.connect_bare(prefer_ipv6)).await;
        let mut stream = connected.map_err(|e| (ConnectStage::Connect, e))?;
        if let Some(preamble) = self.addresses.preamble.as_deref() {
            let sent = by_time(by, stream.write_all(preamble)).await;
            sent.map_err(|e| (ConnectStage::Preamble, e))?;
        }
        Ok(Opening::new(stream, self.tls.as_ref(), by))
    }

    async fn connect_bare(&self, prefer_ipv6: bool) -> io::Result<Stream> {
        #[cfg(any(test, feature = "memory"))]
        if self.addresses.local.is_none()
            && let Addresses { path, v4, v6, .. } = &self.addresses
            && let Some(outcome) = memory::connect(path.as_deref(), [*v4, *v6]).await
        {
            return outcome.map(Stream::Memory);
        }
        if let Some(path) = &self.addresses.path {
            // Abstract names begin with NUL in the kernel, and with `@` in text.
            let address = match path.strip_prefix('@') {
                Some(name) => format!("\0{name}").into(),
                None => Cow::Borrowed(path.as_str()),
            };
            return UnixStream::connect(&*address).await.map(Stream::Unix);
        }
        if let Some(local) = &self.addresses.local {
            let near = (local.0)()?;
            near.set_nonblocking(true)?;
            return UnixStream::from_std(near).map(Stream::Unix);
        }
        let Addresses { v4, v6, name, .. } = &self.addresses;
        let pair = if prefer_ipv6 { [*v6, *v4] } else { [*v4, *v6] };
        let mut order: Vec<SocketAddr> = pair.into_iter().flatten().collect();
        if let (Some(name), Some(first)) =
            (name.as_ref().and_then(|name| name.0.upgrade()), order.first().copied())
        {
            let others = name.answer().addresses.into_iter().map(|ip| SocketAddr::new(ip, first.port()));
            order.extend(others.filter(|other| *other != first).take(MOST_FALLBACKS));
        }
        let stream = match order[..] {
            [only] => connect_tcp(only).await,
            _ => race(order, connect_tcp).await,
        };
        stream.map(Stream::Tcp)
    }

    /// Returns whether a recent attempt to connect failed, so that another one would fail at once.
    pub fn is_held_down(&self) -> bool {
        self.circuit.is_held_down()
    }

    /// Returns whether the circuit breaker is open, so that attempts to connect fail at once. It is false when the next
    /// attempt is allowed, until that one is made.
    #[inline]
    pub fn is_breaker_open(&self) -> bool {
        self.circuit.is_open()
    }

    /// Returns the error number of the last failure to connect, if the circuit breaker is open.
    pub fn breaker_error(&self) -> Option<i32> {
        self.circuit.open_error()
    }

    /// Returns the time when the circuit breaker last opened or closed; 0 if it never did.
    pub fn breaker_changed(&self) -> f64 {
        self.circuit.changed()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Dialed, Ends, Limits, Peer, connection, serve_at};

    const NO_HOLDDOWN: Holddown =
        Holddown { local: 0.0, remote: 0.0, breaker: Rules { failures: 0, period: 0.0, pause: 0.0 } };

    /// Registers an origin with a window of ten bytes. Its connections are given to `accept`.
    fn listen(path: &'static str, accept: impl Fn(Peer) + 'static) {
        serve_at(path, move || {
            let address = SocketAddr::from(([127, 0, 0, 1], 80));
            let limits = Limits { window: 10, step: 10, buffer: 100, sends_files: false };
            let (near, peer) = connection(limits, Ends { engine: address, peer: address });
            accept(peer);
            Dialed { after: Duration::ZERO, outcome: Ok(near) }
        });
    }

    async fn failure(path: &str, preamble: &[u8]) -> ConnectError {
        let (path, preamble) = (Some(path.to_owned()), Some(preamble.to_vec()));
        let endpoint = Endpoint::new(Addresses { path, preamble, ..Addresses::default() }, None);
        endpoint.connect(2.0, false, NO_HOLDDOWN).await.err().expect("the origin does not read")
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_names_its_stage_and_cause() {
        let kept = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        listen("/deaf", move |peer| kept.borrow_mut().push(peer));
        let timed_out = Errno::TIMEDOUT.raw_os_error();
        let expected = ConnectError::new(ConnectStage::Preamble, timed_out);
        assert_eq!(failure("/deaf", &[b'x'; 11]).await, expected, "one byte stays in the transport");
        listen("/closing", drop);
        let expected = ConnectError::new(ConnectStage::Preamble, Errno::CONNRESET.raw_os_error());
        assert_eq!(failure("/closing", b"x").await, expected);
        let refused = Errno::CONNREFUSED;
        serve_at("/refusing", move || Dialed { after: Duration::ZERO, outcome: Err(refused.into()) });
        let expected = ConnectError::new(ConnectStage::Connect, refused.raw_os_error());
        assert_eq!(failure("/refusing", b"x").await, expected);
    }
}
