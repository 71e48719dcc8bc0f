//! The HTTPS client of the ACME client: one connection for each request, with limits on time and size. It blocks, since
//! it has a thread of its own, and follows no redirect.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, Uri};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use lacquer_http::date;
use lacquer_tls::origin::{Authorities, Checks, OriginTls};
use rustls::{ClientConnection, StreamOwned};

use crate::api::block_on;
use crate::response;

/// The maximum time of a request, after the name of the server was resolved.
const LIMIT: Duration = Duration::from_secs(30);
/// The maximum time to connect to one address.
const CONNECT: Duration = Duration::from_secs(10);
/// The maximum number of addresses to try.
const ADDRESSES: usize = 4;
const DEFAULT_PORT: u16 = 443;
/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_hours(24 * 7);

/// The maximum time of all requests of an attempt.
const ATTEMPT: Duration = Duration::from_mins(20);

/// The end of the attempt in progress, and the time for which the server asked us to wait, with its last response that
/// was an error.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    last: Arc<Mutex<Option<Duration>>>,
    end: Arc<Mutex<Option<Instant>>>,
}

impl Waits {
    /// Begins an attempt.
    pub fn begin(&self) {
        self.take();
        if let Ok(mut end) = self.end.lock() {
            *end = Some(Instant::now() + ATTEMPT);
        }
    }

    /// Removes and returns the time for which to wait.
    pub fn take(&self) -> Option<Duration> {
        self.last.lock().ok().and_then(|mut last| last.take())
    }

    /// Returns the end of a request that begins now.
    fn deadline(&self) -> Instant {
        let limit = Instant::now() + LIMIT;
        self.end.lock().ok().and_then(|end| *end).map_or(limit, |end| end.min(limit))
    }

    fn note(&self, response: &Response<Vec<u8>>) {
        let is_error = response.status().is_client_error() || response.status().is_server_error();
        let value = response.headers().get(RETRY_AFTER).filter(|_| is_error);
        if let Some(wait) = value.and_then(|value| wait(value.as_bytes(), SystemTime::now()))
            && let Ok(mut last) = self.last.lock()
        {
            *last = Some(wait.min(LONGEST_WAIT));
        }
    }
}

/// Parses the value of Retry-After (RFC 9110, section 10.2.3): seconds or a date.
fn wait(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = str::from_utf8(value).ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64();
    let until = date::parse(text.as_bytes())?;
    Some(Duration::try_from_secs_f64(until - now).unwrap_or_default())
}

/// The client.
pub struct Transport {
    trusted: Arc<Authorities>,
    waits: Waits,
}

impl Transport {
    /// Creates a client that trusts these authorities, in PEM.
    pub fn new(trusted: &[u8], waits: Waits) -> Result<Transport, String> {
        Ok(Transport { trusted: Authorities::shared(trusted)?, waits })
    }

    fn exchange(&self, request: &Request<()>, body: &[u8]) -> Result<Response<Vec<u8>>, String> {
        let uri = request.uri();
        let (host, port) = place(uri)?;
        let failed = |what: &str, error: io::Error| format!("{host}:{port}: {what}: {}", plain(&error));
        let deadline = self.waits.deadline();
        let checks = Checks::Authorities { trusted: self.trusted.clone(), name: true };
        let tls = OriginTls::new(&host, true, checks, None)?;
        let socket = connect(&host, port, deadline).map_err(|error| failed("cannot connect", error))?;
        let connection = ClientConnection::new(tls.config().clone(), tls.name().clone());
        let connection = connection.map_err(|error| format!("{host}: {error}"))?;
        let mut stream = StreamOwned::new(connection, Timed { socket, deadline });
        let sent = stream.write_all(&head(request, &host, port, body.len()));
        let sent = sent.and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        sent.map_err(|error| failed("cannot send the request", error))?;
        let response = response::read(&mut stream, request.method() != Method::HEAD)
            .map_err(|error| failed("no valid response", error))?;
        if response.status().is_redirection() {
            return Err(format!("{uri}: the server redirects to another address, which is not followed"));
        }
        self.waits.note(&response);
        Ok(response)
    }
}

/// Returns the text of an error, without the words of the system call.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the time is over".to_owned(),
        _ => error.to_string(),
    }
}

fn place(uri: &Uri) -> Result<(String, u16), String> {
    let host = uri.host().filter(|host| !host.is_empty());
    match (uri.scheme_str(), host) {
        (Some("https"), Some(host)) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Ok((host.to_owned(), uri.port_u16().unwrap_or(DEFAULT_PORT)))
        }
        _ => Err(format!("{uri}: the address does not begin with https://")),
    }
}

fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for address in (host, port).to_socket_addrs()?.take(ADDRESSES) {
        let left = deadline.saturating_duration_since(Instant::now()).min(CONNECT);
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the head of a request.
fn head(request: &Request<()>, host: &str, port: u16, length: usize) -> Vec<u8> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let host = if port == DEFAULT_PORT { host } else { format!("{host}:{port}") };
    let mut lines = vec![
        format!("{} {target} HTTP/1.1", request.method()),
        format!("Host: {host}"),
        concat!("User-Agent: lacquer/", env!("CARGO_PKG_VERSION"), " instant-acme").to_owned(),
        "Connection: close".to_owned(),
    ];
    if let Some(kind) = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) {
        lines.push(format!("Content-Type: {kind}"));
    }
    if request.method() == Method::POST {
        lines.push(format!("Content-Length: {length}"));
    }
    (lines.join("\r\n") + "\r\n\r\n").into_bytes()
}

/// A socket whose reads and writes end at a moment.
struct Timed {
    socket: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

type Exchange = Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>>;

impl HttpClient for Transport {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> Exchange {
        let (parts, body) = request.into_parts();
        let mut body = BytesResponse::from(Response::new(body)).body;
        let done = block_on(body.into_bytes()).map_err(Error::Other).and_then(|body| {
            let done = self.exchange(&Request::from_parts(parts, ()), &body);
            done.map_err(|why| Error::Other(why.into()))
        });
        Box::pin(std::future::ready(done.map(|response| {
            let (parts, body) = response.into_parts();
            BytesResponse { parts, body: Box::new(Bytes::from(body)) }
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_parsed() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(wait(b"120", now), Some(Duration::from_mins(2)));
        assert_eq!(wait(b"Sun, 06 Nov 1994 08:50:37 GMT", now), Some(Duration::from_mins(1)));
        assert_eq!(wait(b"Sun, 06 Nov 1994 08:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(wait(b"soon", now), None);
        assert_eq!(wait(b"-1", now), None);
    }

    #[test]
    fn servers_that_send_nothing_end_a_request() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut timed = Timed { socket, deadline: Instant::now() + Duration::from_millis(50) };
        let error = timed.read(&mut [0]).unwrap_err();
        assert_eq!(plain(&error), "the time is over");
        assert_eq!(timed.write(&[0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(connect("127.0.0.1", 1, Instant::now()).is_err());
    }

    #[test]
    fn places() {
        let of = |text: &str| place(&text.parse().unwrap());
        assert_eq!(of("https://a.example/x"), Ok(("a.example".to_owned(), 443)));
        assert_eq!(of("https://[::1]:14000/x"), Ok(("::1".to_owned(), 14000)));
        assert!(of("http://a.example/x").is_err());
        assert!(of("/x").is_err());
    }
}
