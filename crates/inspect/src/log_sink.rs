//! The destinations of an access log: standard output, a socket, or the system's log. A destination that does not read
//! never blocks its writer: what does not fit into a buffer is dropped and counted. Standard output alone may block, if it is
//! a pipe.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Maximum number of bytes that wait.
const BUFFER: usize = 4 << 20;
/// Bytes that wait for standard output, which is written to when there are more, and by [`Sink::flush`].
const BATCH: usize = 64 << 10;
/// How long [`Sink::flush`] waits for a socket that has accepted something, and the time between two attempts.
const TURN: Duration = Duration::from_millis(40);
const NAP: Duration = Duration::from_micros(500);
/// How long a socket may accept nothing until [`Sink::make_room`] and [`Sink::finish`] give up, and the time between two attempts.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);
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
    Output(File),
    Unix(UnixStream),
    Tcp(TcpStream),
    Datagrams(UnixDatagram),
}

/// A destination.
#[derive(Debug)]
pub struct Sink {
    target: Target,
    connection: Option<Connection>,
    /// A thread that resolves a name and connects, which may take long.
    attempt: Option<Receiver<Connection>>,
    /// Text that has not been accepted yet: whole lines, except that a stream may have got a part of the first one.
    buffer: Vec<u8>,
    /// The length of its beginning that was accepted meanwhile.
    sent: usize,
    /// Whether the beginning of the first line that waits was accepted.
    is_cut: bool,
    next_attempt: Instant,
    /// Lines that were taken, and those of them that were accepted and dropped. The others wait.
    taken: u64,
    written: u64,
    dropped: u64,
}

impl Sink {
    pub fn new(target: Target) -> Sink {
        Sink {
            target,
            connection: None,
            attempt: None,
            buffer: Vec::new(),
            sent: 0,
            is_cut: false,
            next_attempt: Instant::now(),
            taken: 0,
            written: 0,
            dropped: 0,
        }
    }

    /// Returns the number of lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the number of lines that were accepted as a whole.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of lines that wait.
    pub fn waiting(&self) -> u64 {
        self.taken.saturating_sub(self.written).saturating_sub(self.dropped)
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Takes a line, which has no line feed. Fails if standard output cannot be written, as if a disk is full. The lines that
    /// this costs are dropped, and later calls try again; after [`ErrorKind::BrokenPipe`], nobody will read it again.
    pub fn write(&mut self, line: &str) -> io::Result<()> {
        self.taken += 1;
        let is_datagram = matches!(self.target, Target::Syslog(_));
        // A line that was cut would be no JSON.
        if self.buffer.len() - self.sent + line.len() >= BUFFER
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
            return self.print().map(|()| self.buffer.is_empty());
        }
        let end = Instant::now() + TURN;
        let mut has_begun = false;
        while self.sent < self.buffer.len() {
            self.connect();
            match self.send() {
                Ok(()) => has_begun = true,
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
        self.forget_sent();
        Ok(self.buffer.is_empty())
    }

    /// Waits until there is room for more lines. Returns false if a socket accepts nothing for long, and fails like
    /// [`Sink::write`].
    pub fn make_room(&mut self) -> io::Result<bool> {
        self.flush_until(BUFFER / 2)
    }

    /// Waits until nothing waits. Returns and fails like [`Sink::make_room`].
    pub fn finish(&mut self) -> io::Result<bool> {
        self.flush_until(0)
    }

    fn flush_until(&mut self, most: usize) -> io::Result<bool> {
        let (mut least, mut end) = (self.buffer.len(), Instant::now() + PATIENCE);
        while self.buffer.len() > most {
            self.flush()?;
            if self.buffer.len() < least {
                (least, end) = (self.buffer.len(), Instant::now() + PATIENCE);
            } else if self.target != Target::Stdout && Instant::now() >= end {
                return Ok(false);
            } else {
                thread::sleep(PAUSE);
            }
        }
        Ok(true)
    }

    /// Writes to standard output until nothing waits, or until it accepts no more now: another process may have made it
    /// non-blocking.
    fn print(&mut self) -> io::Result<()> {
        let mut printed = Ok(());
        while self.sent < self.buffer.len() {
            self.connect();
            match self.send() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.drop_lines();
                    printed = Err(error);
                    break;
                }
            }
        }
        self.forget_sent();
        printed
    }

    fn forget_sent(&mut self) {
        self.buffer.drain(..self.sent);
        self.sent = 0;
    }

    /// Sends the beginning of what waits.
    fn send(&mut self) -> io::Result<()> {
        let rest = &self.buffer[self.sent..];
        let length = match &mut self.connection {
            None => return Err(ErrorKind::NotConnected.into()),
            Some(Connection::Output(file)) => file.write(rest)?,
            Some(Connection::Unix(stream)) => stream.write(rest)?,
            Some(Connection::Tcp(stream)) => stream.write(rest)?,
            Some(Connection::Datagrams(socket)) => {
                let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let mut message = format!("<{PRIORITY}>lacquer[{}]: ", std::process::id()).into_bytes();
                message.extend_from_slice(line);
                match socket.send(&message) {
                    Err(error) if error.raw_os_error() == Some(TOO_LONG) => {
                        self.dropped += 1;
                        self.sent += line.len() + 1;
                        return Ok(());
                    }
                    sent => drop(sent?),
                }
                line.len() + 1
            }
        };
        if length == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        let sent = &rest[..length.min(rest.len())];
        self.written += lines(sent);
        self.is_cut = !sent.ends_with(b"\n");
        self.sent += sent.len();
        Ok(())
    }

    /// Drops the lines that wait, except for the rest of one whose beginning was accepted, which would be no line for its
    /// reader.
    fn drop_lines(&mut self) {
        let end = if self.is_cut { self.end_of_line() } else { self.sent };
        self.dropped += lines(&self.buffer[end..]);
        self.buffer.truncate(end);
    }

    /// Returns the end of the first line that waits.
    fn end_of_line(&self) -> usize {
        let at = self.buffer[self.sent..].iter().position(|byte| *byte == b'\n');
        at.map_or(self.buffer.len(), |at| self.sent + at + 1)
    }

    /// Drops the connection, and the rest of a line whose beginning it has got.
    fn disconnect(&mut self) {
        self.connection = None;
        self.next_attempt = Instant::now() + RETRY;
        if std::mem::take(&mut self.is_cut) {
            self.sent = self.end_of_line();
            self.dropped += 1;
        }
    }

    fn connect(&mut self) {
        if self.connection.is_some() {
            return;
        }
        if let Some(attempt) = &self.attempt {
            match attempt.try_recv() {
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.next_attempt = Instant::now() + RETRY,
                Ok(connection) => self.connection = Some(connection),
            }
            self.attempt = None;
            return;
        }
        if Instant::now() < self.next_attempt {
            return;
        }
        self.next_attempt = Instant::now() + RETRY;
        match &self.target {
            Target::Tcp(address) => self.attempt = connect_aside(address.clone()),
            target => self.connection = open(target).ok(),
        }
    }
}

fn lines(text: &[u8]) -> u64 {
    text.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// Connects on a thread. It sends the connection, or ends without one.
fn connect_aside(address: String) -> Option<Receiver<Connection>> {
    let (sender, receiver) = sync_channel(1);
    let run = move || {
        if let Ok(connection) = connect_tcp(&address) {
            // The sink may have ended meanwhile.
            let _ = sender.send(connection);
        }
    };
    thread::Builder::new().name("log-connect".to_owned()).spawn(run).ok().map(|_| receiver)
}

/// Connects to the first address of a host. The look-up has no limit.
fn connect_tcp(address: &str) -> io::Result<Connection> {
    let address = address.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_nonblocking(true)?;
    Ok(Connection::Tcp(stream))
}

/// Connects to a socket. It fails at once if too many others wait to be accepted.
fn connect_unix(path: &Path) -> io::Result<Connection> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(Connection::Unix(socket.into()))
}

/// Opens a destination that does not take long.
fn open(target: &Target) -> io::Result<Connection> {
    match target {
        Target::Tcp(_) => Err(ErrorKind::Unsupported.into()),
        Target::Stdout => Ok(Connection::Output(io::stdout().as_fd().try_clone_to_owned()?.into())),
        Target::Syslog(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Ok(Connection::Datagrams(socket))
        }
        Target::Unix(path) => connect_unix(path),
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

    /// Returns a sink whose standard output is a file.
    fn output(file: impl Into<std::os::fd::OwnedFd>) -> Sink {
        let connection = Some(Connection::Output(file.into().into()));
        Sink { connection, ..Sink::new(Target::Stdout) }
    }

    fn full() -> File {
        File::options().write(true).open("/dev/full").expect("it exists")
    }

    #[test]
    fn lines_for_a_full_disk_are_dropped_until_there_is_room() {
        let mut sink = output(full());
        for _ in 0..3 {
            sink.write("lost").expect("it is buffered");
        }
        assert!(sink.flush().is_err_and(|error| error.kind() == ErrorKind::StorageFull));
        assert_eq!((sink.written(), sink.dropped(), sink.waiting()), (0, 3, 0));
        let (mut reader, writer) = io::pipe().expect("a pipe");
        sink.connection = Some(Connection::Output(std::os::fd::OwnedFd::from(writer).into()));
        sink.write("kept").expect("it is buffered");
        assert_eq!((sink.flush().ok(), sink.written(), sink.dropped()), (Some(true), 1, 3));
        drop(sink);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "kept\n");
    }

    #[test]
    fn a_line_that_was_cut_is_completed() {
        let (mut reader, writer) = UnixStream::pair().expect("sockets");
        writer.set_nonblocking(true).expect("a socket");
        let again = writer.try_clone().expect("a socket");
        let mut sink = output(writer);
        let line = "x".repeat(100_000);
        for _ in 0..20 {
            sink.write(&line).expect("it is buffered, as nobody reads");
        }
        assert!(sink.flush().is_ok_and(|is_empty| !is_empty) && sink.is_cut);
        sink.connection = Some(Connection::Output(full()));
        assert!(sink.flush().is_err());
        assert_eq!((sink.waiting(), sink.written() + sink.dropped()), (1, 19));
        sink.connection = Some(Connection::Output(std::os::fd::OwnedFd::from(again).into()));
        sink.write("next").expect("it is buffered");
        let all = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        while !sink.flush().expect("it does not fail") {
            thread::sleep(Duration::from_millis(1));
        }
        let written = sink.written();
        drop(sink);
        let text = all.join().expect("it reads").expect("text");
        assert!(text.ends_with("\nnext\n") && text.lines().rev().skip(1).all(|read| read == line));
        assert_eq!(text.lines().count() as u64, written);
    }

    #[test]
    fn more_lines_than_have_room_wait_for_their_reader() {
        let (mut reader, writer) = UnixStream::pair().expect("sockets");
        writer.set_nonblocking(true).expect("a socket");
        let all = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            io::copy(&mut reader, &mut io::sink()).expect("it reads")
        });
        let mut sink = output(writer);
        let line = "x".repeat(9_999);
        for _ in 0..2 * BUFFER / line.len() {
            sink.write(&line).expect("it is buffered");
            assert_eq!(sink.make_room().ok(), Some(true));
        }
        assert_eq!((sink.finish().ok(), sink.dropped(), sink.waiting()), (Some(true), 0, 0));
        let written = sink.written();
        drop(sink);
        assert_eq!(all.join().expect("it ends"), written * 10_000);
    }

    #[test]
    fn the_end_of_a_reader_is_told_apart() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut sink = output(writer);
        sink.write("lost").expect("it is buffered");
        assert!(sink.flush().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
        assert_eq!((sink.written(), sink.dropped()), (0, 1));
    }

    #[test]
    fn a_socket_that_does_not_accept_blocks_nobody() {
        let place = path("backlog");
        let listener = UnixListener::bind(&place).expect("the path is free");
        rustix::net::listen(&listener, 0).expect("a socket");
        let others: Vec<Connection> = std::iter::from_fn(|| connect_unix(&place).ok()).take(1000).collect();
        assert!(others.len() < 1000, "there is a limit");
        let (sender, receiver) = sync_channel(1);
        let target = Target::Unix(place.clone());
        thread::spawn(move || {
            let mut sink = Sink::new(target);
            sink.write("a").expect("it does not fail");
            let flushed = sink.flush().ok();
            let _ = sender.send((sink, flushed));
        });
        let patience = Duration::from_secs(30);
        let (mut sink, flushed) = receiver.recv_timeout(patience).expect("it does not wait");
        assert_eq!((flushed, sink.waiting()), (Some(false), 1));
        for _ in &others {
            listener.accept().expect("it has connected");
        }
        sink.next_attempt = Instant::now();
        assert_eq!((sink.flush().ok(), sink.written()), (Some(true), 1));
        std::fs::remove_file(place).expect("it exists");
    }

    #[test]
    fn hosts_are_connected_to_beside_the_writing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut sink = Sink::new(Target::Tcp(address.to_string()));
        sink.write("a").expect("it does not fail");
        let end = Instant::now() + Duration::from_secs(30);
        while !sink.flush().expect("it does not fail") && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(sink.written(), 1);
        let (mut reader, _) = listener.accept().expect("it has connected");
        drop(sink);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "a\n");
        // While an attempt takes its time, nothing waits for it.
        let (_sender, attempt) = sync_channel(1);
        let mut sink = Sink::new(Target::Tcp(address.to_string()));
        sink.attempt = Some(attempt);
        sink.write("a").expect("it does not fail");
        assert_eq!((sink.flush().ok(), sink.waiting(), sink.connection.is_none()), (Some(false), 1, true));
    }
}
