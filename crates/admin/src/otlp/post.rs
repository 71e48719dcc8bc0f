//! Requests to the collector: one connection for each, with limits on time and size.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use lacquer_cli::admin::Collector;
use lacquer_tls::origin::{Authorities, Checks, OriginTls};
use rustls::{CertificateError, ClientConnection, StreamOwned};

use crate::guard::name_of;

/// The maximum time of a request, and of an attempt to connect.
const LIMIT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(2);
/// The maximum number of addresses to try.
const ADDRESSES: usize = 4;
/// The maximum length of a response.
const RESPONSE: usize = 64 << 10;

/// The collector's reaction to the data.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It has taken all but this number of spans or points.
    Taken { refused: u64 },
    /// It will never take the data, for this reason.
    Refused(String),
    /// It may take the data later: after the time that it has named, if it has.
    Later(String, Option<Duration>),
}

/// A collector, and the TLS settings of connections to it.
#[derive(Debug)]
pub struct Target {
    collector: Collector,
    addresses: RwLock<Vec<SocketAddr>>,
    tls: Option<OriginTls>,
}

impl Target {
    pub fn new(mut collector: Collector) -> io::Result<Target> {
        let trusted = collector.trusted.take();
        let settings = |pem: Vec<u8>| {
            let checks = Checks::Authorities { trusted: Authorities::shared(&pem)?, name: true };
            OriginTls::new(name_of(&collector.host), true, checks, None)
        };
        let tls = trusted.map(settings).transpose();
        let tls = tls.map_err(|why| io::Error::other(format!("the collector {}: {why}", collector.host)))?;
        let addresses = RwLock::new(std::mem::take(&mut collector.addresses));
        Ok(Target { collector, addresses, tls })
    }

    /// Replaces the addresses for the requests that begin later.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Returns whether an address is known.
    pub fn has_address(&self) -> bool {
        !self.addresses.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Sends data to a path of the collector.
    pub fn post(&self, path: &str, body: &[u8]) -> Outcome {
        match self.exchange(path, body) {
            Ok(response) => interpret(&response),
            Err(error) => Outcome::Later(plain(&error), None),
        }
    }

    fn exchange(&self, path: &str, body: &[u8]) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + LIMIT;
        let collector = &self.collector;
        let addresses = self.addresses.read().unwrap_or_else(PoisonError::into_inner).clone();
        let socket = connect(&addresses, deadline)?;
        let mut stream = Timed { socket, deadline };
        let head = format!(
            "POST {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: lacquer/{}\r\nContent-Type: application/x-protobuf\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            collector.path,
            collector.host,
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        match &self.tls {
            None => ask(&mut stream, &request),
            Some(tls) => {
                let connection = ClientConnection::new(tls.config().clone(), tls.name().clone());
                ask(&mut StreamOwned::new(connection.map_err(io::Error::other)?, stream), &request)
            }
        }
    }
}

/// Returns the text of an error, without the words of the system call. The text of a TLS error names the remedy.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no response in time".to_owned(),
        _ => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => of_tls(error),
            None => error.to_string(),
        },
    }
}

fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no trusted authority has signed its certificate; name the authority's file with ca=".to_owned()
        }
        rustls::Error::InvalidCertificate(error) => {
            format!("its certificate is refused: {error}; correct it, or the name in otlp=https://")
        }
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS on this port; write http://, or another port".to_owned()
        }
        error => format!("TLS: {error}"),
    }
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::other("its host has no address yet");
    for address in addresses.iter().take(ADDRESSES) {
        match TcpStream::connect_timeout(address, left(deadline)?.min(CONNECT)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A socket whose reads and writes end at a moment.
struct Timed {
    socket: TcpStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(left(self.deadline)?))?;
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(left(self.deadline)?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Sends a request, and reads its response to the end, or as far as its length or its chunks say.
fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut response = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let head = head_length(&response);
        if response.len() > RESPONSE || head.is_some_and(|head| is_complete(&response, head)) {
            return Ok(response);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(response),
            Ok(length) => response.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The status suffices.
            Err(_) if head.is_some() => return Ok(response),
            Err(error) => return Err(error),
        }
    }
}

fn is_complete(response: &[u8], head: usize) -> bool {
    let (head, body) = response.split_at(head);
    if is_chunked(head) {
        return chunks(body).1;
    }
    content_length(head).is_some_and(|length| body.len() >= length)
}

fn is_chunked(head: &[u8]) -> bool {
    field(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

/// Returns the content of the chunks that have arrived, and whether the last one is among them.
fn chunks(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    loop {
        let Some(end) = body.windows(2).position(|two| two == b"\r\n") else { return (content, false) };
        let size = std::str::from_utf8(&body[..end]).ok().and_then(|line| {
            let digits = line.split(';').next().unwrap_or_default().trim();
            usize::from_str_radix(digits, 16).ok().filter(|size| *size <= RESPONSE)
        });
        // A line without a length ends the content.
        let Some(size) = size.filter(|size| *size > 0) else { return (content, true) };
        let data = &body[end + 2..];
        content.extend_from_slice(&data[..size.min(data.len())]);
        let Some(rest) = data.get(size + 2..) else { return (content, false) };
        body = rest;
    }
}

fn head_length(response: &[u8]) -> Option<usize> {
    response.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn field<'r>(head: &'r [u8], name: &str) -> Option<&'r str> {
    let lines = std::str::from_utf8(head).ok()?.lines();
    let mut fields = lines.skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn content_length(head: &[u8]) -> Option<usize> {
    field(head, "content-length")?.parse::<usize>().ok().map(|length| length.min(RESPONSE))
}

fn status(response: &[u8]) -> Option<u16> {
    let rest = response.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5).filter(|_| rest.get(1) == Some(&b' '))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Decides by the status as OTLP requires it: which failures may be repeated.
fn interpret(response: &[u8]) -> Outcome {
    let head = head_length(response).unwrap_or(0);
    let Some(status) = status(response).filter(|_| head > 0) else {
        return Outcome::Later("no valid response".to_owned(), None);
    };
    match status {
        200..=299 => {
            let (head, body) = response.split_at(head);
            let refused = if is_chunked(head) { refused(&chunks(body).0) } else { refused(body) };
            Outcome::Taken { refused: refused.unwrap_or(0) }
        }
        429 | 502 | 503 | 504 => {
            let wait = field(&response[..head], "retry-after").and_then(|value| value.parse().ok());
            Outcome::Later(format!("status {status}"), wait.map(Duration::from_secs))
        }
        _ => Outcome::Refused(format!("status {status}")),
    }
}

/// Returns the number of refused spans or points that the body of a response contains: the first field of
/// `partial_success`, which is its first field. The rest of the body may be missing.
fn refused(body: &[u8]) -> Option<u64> {
    let mut rest = body;
    if rest.split_off_first()? != &0x0a {
        return None;
    }
    let length = varint(&mut rest)?;
    let mut partial = &rest[..rest.len().min(usize::try_from(length).ok()?)];
    if partial.split_off_first()? != &0x08 {
        return None;
    }
    varint(&mut partial)
}

/// Removes a number from the beginning of bytes.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..9 {
        let byte = bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_names() {
        for (host, name) in
            [("a.example", "a.example"), ("a:4318", "a"), ("[::1]:4318", "::1"), ("[::1]", "::1")]
        {
            assert_eq!(name_of(host), name);
        }
    }

    #[test]
    fn responses_decide_about_repetitions() {
        let later = |why: &str, wait| Outcome::Later(why.to_owned(), wait);
        for (response, outcome) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..], Outcome::Taken { refused: 0 }),
            (b"HTTP/1.1 202 Accepted\r\n\r\n", Outcome::Taken { refused: 0 }),
            (b"HTTP/1.1 200 OK\r\n\r\n\x0a\x03\x08\xac\x02", Outcome::Taken { refused: 300 }),
            (
                b"HTTP/1.1 200 OK\r\n\r\n\x0a\x03\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                Outcome::Taken { refused: 0 },
            ),
            // A message of 300 bytes follows the number.
            (
                b"HTTP/1.1 200 OK\r\n\r\n\x0a\xb2\x02\x08\xac\x02\x12\xac\x02xxx",
                Outcome::Taken { refused: 300 },
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n\x0a\x03\x08\r\n2\r\n\xac\x02\r\n0\r\n\r\n",
                Outcome::Taken { refused: 300 },
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n\x0a\x03\x08",
                Outcome::Taken { refused: 0 },
            ),
            (b"HTTP/1.1 200 OK\r\n\r\n\x0a\xff\xff\xff", Outcome::Taken { refused: 0 }),
            (b"HTTP/1.1 400 Bad\r\n\r\n", Outcome::Refused("status 400".to_owned())),
            (b"HTTP/1.0 500 x\r\n\r\n", Outcome::Refused("status 500".to_owned())),
            (b"HTTP/1.1 503 x\r\n\r\n", later("status 503", None)),
            (b"HTTP/1.1 429 x\r\nretry-after: 7\r\n\r\n", later("status 429", Some(Duration::from_secs(7)))),
            (b"HTTP/1.1 429 x\r\nRetry-After: -1\r\n\r\n", later("status 429", None)),
            (b"", later("no valid response", None)),
            (b"SSH-2.0-OpenSSH\r\n\r\n", later("no valid response", None)),
            (b"HTTP/1.1 2\r\n\r\n", later("no valid response", None)),
            (b"HTTP/1.1 200 OK\r\n", later("no valid response", None)),
        ] {
            assert_eq!(interpret(response), outcome, "{:?}", String::from_utf8_lossy(response));
        }
    }

    #[test]
    fn chunks_end_with_the_last_one() {
        let whole = b"3\r\nabc\r\n1\r\nd\r\n0\r\n";
        for length in 0..whole.len() {
            let (content, is_whole) = chunks(&whole[..length]);
            assert!(!is_whole && b"abcd".starts_with(&content), "{length}");
        }
        assert_eq!(chunks(whole), (b"abcd".to_vec(), true));
    }
}
