//! The destinations of an access log: standard output, a socket, or the system's log. A destination that does not read
//! never blocks its writer: what does not fit into a buffer is dropped and counted.

use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that wait for a socket.
const BUFFER: usize = 4 << 20;
/// Bytes that wait for standard output, which is written to when there are more, and by [`Sink::flush`].
const BATCH: usize = 64 << 10;
/// How long [`Sink::flush`] waits for a socket that has accepted something, and the time between two attempts.
const TURN: Duration = Duration::from_millis(40);
const NAP: Duration = Duration::from_micros(500);
/// Bytes of a message to the system's log, and of what precedes the line in it.
const DATAGRAM: usize = 8 << 10;
const PREFIX: usize = "<134>lacquer[4194304]: ".len();
/// The error of a message that the system does not send.
const TOO_LONG: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();
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
        found.ok_or_else(|| "write stdout, syslog, syslog:/PATH, unix:/PATH or tcp:HOST:PORT".to_owned())
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
    /// Text that has not been accepted yet: whole lines, except that a stream may have got a part of the first one.
    buffer: Vec<u8>,
    /// The length of its beginning that was accepted meanwhile.
    sent: usize,
    next_attempt: Instant,
    dropped: u64,
}

impl Sink {
    pub fn new(target: Target) -> Sink {
        Sink {
            target,
            connection: None,
            buffer: Vec::new(),
            sent: 0,
            next_attempt: Instant::now(),
            dropped: 0,
        }
    }

    /// Returns the number of lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes a line, which has no line feed. Fails only if nobody will read standard output again.
    pub fn write(&mut self, line: &str) -> io::Result<()> {
        let is_datagram = matches!(self.target, Target::Syslog(_));
        // A line that was cut would be no JSON.
        if self.target != Target::Stdout && self.buffer.len() - self.sent + line.len() >= BUFFER
            || is_datagram && line.len() + PREFIX > DATAGRAM
        {
            self.dropped += 1;
            return Ok(());
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        if self.target == Target::Stdout && self.buffer.len() >= BATCH { self.print() } else { Ok(()) }
    }

    /// Sends what is accepted. Returns whether nothing waits, and fails like [`Sink::write`].
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.target == Target::Stdout {
            return self.print().map(|()| true);
        }
        let end = Instant::now() + TURN;
        let mut has_begun = false;
        while self.sent < self.buffer.len() {
            self.connect();
            match self.send() {
                Ok(length) => {
                    self.sent += length;
                    has_begun = true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A system's log has room for some messages only, and reads them soon.
                Err(error) if error.kind() == ErrorKind::WouldBlock && has_begun && Instant::now() < end => {
                    thread::sleep(NAP);
                }
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock && self.connection.is_some() {
                        self.disconnect();
                    }
                    break;
                }
            }
        }
        self.buffer.drain(..self.sent);
        self.sent = 0;
        Ok(self.buffer.is_empty())
    }

    fn print(&mut self) -> io::Result<()> {
        let mut output = io::stdout().lock();
        let written = output.write_all(&self.buffer).and_then(|()| output.flush());
        self.buffer.clear();
        written
    }

    /// Sends the beginning of what waits. Returns the length of what need not be sent again.
    fn send(&mut self) -> io::Result<usize> {
        let rest = &self.buffer[self.sent..];
        let sent = match &mut self.connection {
            None => Err(ErrorKind::NotConnected.into()),
            Some(Connection::Unix(stream)) => stream.write(rest),
            Some(Connection::Tcp(stream)) => stream.write(rest),
            Some(Connection::Datagrams(socket)) => {
                let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let mut message = format!("<{PRIORITY}>lacquer[{}]: ", std::process::id()).into_bytes();
                message.extend_from_slice(line);
                match socket.send(&message) {
                    Err(error) if error.raw_os_error() == Some(TOO_LONG) => self.dropped += 1,
                    sent => drop(sent?),
                }
                Ok(line.len() + 1)
            }
        };
        if matches!(sent, Ok(0)) { Err(ErrorKind::WriteZero.into()) } else { sent }
    }

    /// Drops the connection, and the rest of a line whose beginning a stream may have got.
    fn disconnect(&mut self) {
        let is_stream = !matches!(self.connection, Some(Connection::Datagrams(_)));
        self.connection = None;
        self.next_attempt = Instant::now() + RETRY;
        if is_stream {
            let rest = &self.buffer[self.sent..];
            self.sent += rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            self.dropped += 1;
        }
    }

    fn connect(&mut self) {
        if self.connection.is_some() || Instant::now() < self.next_attempt {
            return;
        }
        self.next_attempt = Instant::now() + RETRY;
        self.connection = open(&self.target).ok();
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
            assert!(sink.flush().is_ok());
        }
        assert!(begun.elapsed() < Duration::from_secs(5) && sink.dropped() > 0, "{:?}", begun.elapsed());
        let (mut reader, _) = listener.accept().expect("it has connected");
        let all = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        while !sink.flush().expect("it does not fail") {
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
        assert!(sink.flush().is_ok_and(|is_empty| !is_empty));
        let listener = UnixListener::bind(&place).expect("the path is free");
        sink.next_attempt = Instant::now();
        assert!(sink.flush().is_ok_and(|is_empty| is_empty));
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
        assert!(sink.flush().is_ok_and(|is_empty| is_empty));
        let mut bytes = [0; 100];
        let length = server.recv(&mut bytes).expect("a message");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        assert!(text.starts_with("<134>lacquer[") && text.ends_with("]: {\"a\":1}"), "{text}");
        assert_eq!(sink.dropped(), 1);
        std::fs::remove_file(place).expect("it exists");
    }

    #[test]
    fn a_burst_for_the_system_log_waits_for_its_reader() {
        const LINES: usize = 2000;
        let place = path("burst");
        let server = UnixDatagram::bind(&place).expect("the path is free");
        server.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let mut sink = Sink::new(Target::Syslog(place.clone()));
        for number in 0..LINES {
            sink.write(&number.to_string()).expect("it does not fail");
        }
        assert!(sink.flush().is_ok_and(|is_empty| !is_empty), "nobody reads yet");
        let all = std::thread::spawn(move || {
            let mut bytes = [0; 100];
            (0..LINES).all(|number| {
                let length = server.recv(&mut bytes).unwrap_or(0);
                bytes[..length].ends_with(format!("]: {number}").as_bytes())
            })
        });
        let end = Instant::now() + Duration::from_secs(10);
        while sink.flush().is_ok_and(|is_empty| !is_empty) && Instant::now() < end {}
        assert!(all.join().expect("it reads"), "every line comes, in its order");
        assert_eq!(sink.dropped(), 0);
        std::fs::remove_file(place).expect("it exists");
    }
}
