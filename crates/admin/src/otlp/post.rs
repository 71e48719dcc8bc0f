//! Requests to the collector: one connection for each, with limits on time and size.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lacquer_cli::admin::Collector;

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
    /// It has taken all but this number of spans.
    Taken { refused: u64 },
    /// It will never take the data, for this reason.
    Refused(String),
    /// It may take the data later: after the time that it has named, if it has.
    Later(String, Option<Duration>),
}

/// Sends data to a path of the collector.
pub fn post(collector: &Collector, path: &str, body: &[u8]) -> Outcome {
    match exchange(collector, path, body) {
        Ok(response) => interpret(&response),
        Err(error) => Outcome::Later(plain(&error), None),
    }
}

/// Returns the text of an error, without the words of the system call.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no response in time".to_owned(),
        _ => error.to_string(),
    }
}

fn exchange(collector: &Collector, path: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + LIMIT;
    let mut socket = connect(&collector.addresses, deadline)?;
    let head = format!(
        "POST {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: lacquer/{}\r\nContent-Type: application/x-protobuf\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        collector.path,
        collector.host,
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    send(&mut socket, head.as_bytes(), deadline)?;
    send(&mut socket, body, deadline)?;
    receive(&mut socket, deadline)
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
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

fn send(socket: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.set_write_timeout(Some(left(deadline)?))?;
        match socket.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a response to its end, or as far as its length says.
fn receive(socket: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut response = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let end = head_length(&response)
            .map(|head| head + content_length(&response[..head]).unwrap_or(usize::MAX / 2));
        if response.len() > RESPONSE || end.is_some_and(|end| response.len() >= end) {
            return Ok(response);
        }
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(&mut piece) {
            Ok(0) => return Ok(response),
            Ok(length) => response.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The status suffices.
            Err(_) if end.is_some() => return Ok(response),
            Err(error) => return Err(error),
        }
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
        200..=299 => Outcome::Taken { refused: refused(&response[head..]) },
        429 | 502 | 503 | 504 => {
            let wait = field(&response[..head], "retry-after").and_then(|value| value.parse().ok());
            Outcome::Later(format!("status {status}"), wait.map(Duration::from_secs))
        }
        _ => Outcome::Refused(format!("status {status}")),
    }
}

/// Returns the number of refused spans or points that the body of a response contains: the first field of
/// `partial_success`, which is its first field.
fn refused(body: &[u8]) -> u64 {
    let [0x0a, _, 0x08, rest @ ..] = body else { return 0 };
    let mut value = 0;
    for (at, byte) in rest.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return value;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
