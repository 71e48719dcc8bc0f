//! The destinations of an access log: standard output, a socket, or the system's log. A destination that does not read
//! never blocks its writer: what does not fit into a buffer is dropped and counted.

use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes that wait for a socket.
const BUFFER: usize = 4 << 20;
/// Bytes of a message to the system's log.
const DATAGRAM: usize = 8 << 10;
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(1);
const SYSLOG: &str = "/dev/log";
/// The facility `local0` and the severity `info` (RFC 5424, section 6.2.1).
const PRIORITY: u32 = 16 * 8 + 6;

/// Where lines go.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Stdout,
    /// The socket of the system's log.
    Syslog(PathBuf),
    /// A stream socket.
    Unix(PathBuf),
    Tcp(String),
}

impl Target {
    /// Parses `stdout`, `syslog`, `syslog:PATH`, `unix:PATH` or `tcp:HOST:PORT`. The error says what is allowed.
    pub fn parse(text: &str) -> Result<Target, String> {
        let path = |path: &str| path.starts_with('/').then(|| PathBuf::from(path));
        let found = match text.split_once(':') {
            None if text == "stdout" => Some(Target::Stdout),
            None if text == "syslog" => Some(Target::Syslog(SYSLOG.into())),
            Some(("syslog", rest)) => path(rest).map(Target::Syslog),
            Some(("unix", rest)) => path(rest).map(Target::Unix),
            Some(("tcp", rest)) if rest.contains(':') => Some(Target::Tcp(rest.to_owned())),
            _ => None,
        };
        found.ok_or_else(|| "write stdout, syslog, unix:/PATH or tcp:HOST:PORT".to_owned())
    }
}

#[derive(Debug)]
enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
    Datagrams(UnixDatagram),
}

/// A destination.
#[derive(Debug)]
pub struct Sink {
    target: Target,
    connection: Option<Connection>,
    /// Text that the socket has not accepted yet: whole lines, except that the first one may be sent in part.
    buffer: Vec<u8>,
    next_attempt: Instant,
    dropped: u64,
}

impl Sink {
    pub fn new(target: Target) -> Sink {
        Sink { target, connection: None, buffer: Vec::new(), next_attempt: Instant::now(), dropped: 0 }
    }

    /// Returns the number of lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes a line, which has no line feed. Fails only if nobody will read standard output again.
    pub fn write(&mut self, line: &str) -> io::Result<()> {
        match self.target {
            Target::Stdout => return writeln!(io::stdout().lock(), "{line}"),
            Target::Syslog(_) => self.datagram(line),
            Target::Unix(_) | Target::Tcp(_) => {
                if self.buffer.len() + line.len() >= BUFFER {
                    self.dropped += 1;
                } else {
                    self.buffer.extend_from_slice(line.as_bytes());
                    self.buffer.push(b'\n');
                }
            }
        }
        Ok(())
    }

    /// Sends what the socket accepts. Returns whether nothing waits.
    pub fn flush(&mut self) -> bool {
        while !self.buffer.is_empty() {
            self.connect();
            let written = match &mut self.connection {
                Some(Connection::Unix(stream)) => stream.write(&self.buffer),
                Some(Connection::Tcp(stream)) => stream.write(&self.buffer),
                _ => return false,
            };
            match written {
                Ok(length) if length > 0 => drop(self.buffer.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                _ => {
                    self.disconnect();
                    return false;
                }
            }
        }
        true
    }

    /// Drops the connection, and the rest of a line whose beginning may have been sent.
    fn disconnect(&mut self) {
        self.connection = None;
        self.next_attempt = Instant::now() + RETRY;
        let end = self.buffer.iter().position(|byte| *byte == b'\n').map_or(self.buffer.len(), |at| at + 1);
        self.buffer.drain(..end);
        self.dropped += 1;
    }

    fn connect(&mut self) {
        if self.connection.is_some() || Instant::now() < self.next_attempt {
            return;
        }
        self.next_attempt = Instant::now() + RETRY;
        self.connection = open(&self.target).ok();
    }

    fn datagram(&mut self, line: &str) {
        self.connect();
        let message = format!("<{PRIORITY}>lacquer[{}]: {line}", std::process::id());
        let sent = match &self.connection {
            Some(Connection::Datagrams(socket)) if message.len() <= DATAGRAM => {
                socket.send(message.as_bytes()).map(drop)
            }
            // A line that was cut would be no JSON.
            Some(_) => Err(ErrorKind::WouldBlock.into()),
            None => Err(ErrorKind::NotConnected.into()),
        };
        if let Err(error) = sent {
            self.dropped += 1;
            if error.kind() != ErrorKind::WouldBlock {
                self.connection = None;
            }
        }
    }
}

fn open(target: &Target) -> io::Result<Connection> {
    match target {
        Target::Stdout => Err(ErrorKind::Unsupported.into()),
        Target::Syslog(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Ok(Connection::Datagrams(socket))
        }
        Target::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(Connection::Unix(stream))
        }
        Target::Tcp(address) => {
            let address = address.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
            let stream = TcpStream::connect_timeout(&address, CONNECT)?;
            stream.set_nonblocking(true)?;
            Ok(Connection::Tcp(stream))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lacquer-sink-{}-{name}", std::process::id()))
    }

    #[test]
    fn targets_are_named() {
        assert_eq!(Target::parse("unix:/run/x"), Ok(Target::Unix("/run/x".into())));
        assert_eq!(Target::parse("tcp:h:1"), Ok(Target::Tcp("h:1".to_owned())));
        assert_eq!(Target::parse("syslog"), Ok(Target::Syslog("/dev/log".into())));
        for wrong in ["", "unix:x", "tcp:h", "file:/x", "udp:h:1", "stdout:"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_socket_that_does_not_read_blocks_nobody() {
        let place = path("blocked");
        let listener = UnixListener::bind(&place).expect("the path is free");
        let mut sink = Sink::new(Target::Unix(place.clone()));
        let line = "x".repeat(10_000);
        let begun = Instant::now();
        for _ in 0..1000 {
            sink.write(&line).expect("it does not fail");
            sink.flush();
        }
        assert!(begun.elapsed() < Duration::from_secs(5) && sink.dropped() > 0, "{:?}", begun.elapsed());
        let (mut reader, _) = listener.accept().expect("it has connected");
        let all = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        while !sink.flush() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let dropped = sink.dropped();
        drop(sink);
        let text = all.join().expect("it reads").expect("text");
        assert!(text.lines().all(|read| read == line), "a line is whole");
        assert_eq!(text.lines().count() as u64 + dropped, 1000);
        std::fs::remove_file(place).expect("it exists");
    }

    #[test]
    fn a_socket_that_comes_later_is_used() {
        let place = path("later");
        let mut sink = Sink::new(Target::Unix(place.clone()));
        sink.write("a").expect("it does not fail");
        assert!(!sink.flush());
        let listener = UnixListener::bind(&place).expect("the path is free");
        sink.next_attempt = Instant::now();
        assert!(sink.flush());
        let (mut reader, _) = listener.accept().expect("it has connected");
        drop(sink);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "a\n");
        std::fs::remove_file(place).expect("it exists");
    }

    #[test]
    fn messages_for_the_system_log_are_whole_or_dropped() {
        let place = path("syslog");
        let server = UnixDatagram::bind(&place).expect("the path is free");
        let mut sink = Sink::new(Target::Syslog(place.clone()));
        for line in ["{\"a\":1}", &"x".repeat(10_000)] {
            sink.write(line).expect("it does not fail");
        }
        let mut bytes = [0; 100];
        let length = server.recv(&mut bytes).expect("a message");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        assert!(text.starts_with("<134>lacquer[") && text.ends_with("]: {\"a\":1}"), "{text}");
        assert_eq!(sink.dropped(), 1);
        std::fs::remove_file(place).expect("it exists");
    }
}
