//! A client of the management port.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::ToSocketAddrs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lacquer_cli::{auth, status};

use crate::directory::{Directory, denied};
use crate::fault::Fault;
use crate::socket::Socket;

/// Maximum length of a reply in bytes.
const MAX_REPLY: usize = 64 << 20;
/// The time that a daemon may need for a reply: a VCL may have to be compiled.
const PATIENCE: Duration = Duration::from_mins(1);
/// The time in which a daemon greets a client and checks its secret.
const GREETING: Duration = Duration::from_secs(5);

/// A connection that is logged in.
#[derive(Debug)]
pub struct Management {
    stream: BufReader<Socket>,
    address: String,
    is_truncated: bool,
}

/// A reply of the daemon.
#[derive(Debug, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub text: String,
}

impl Management {
    /// Connects to the port that the daemon of a working directory publishes.
    pub fn of(directory: &Directory) -> Result<Management, Fault> {
        let addresses = directory.argument("-T").ok_or_else(|| {
            Fault::new(
                "the daemon publishes no management port, or you may not read its address",
                "run the command as root, or use --address HOST:PORT --secret FILE",
            )
        })?;
        let secret = directory.argument("-S");
        let mut last = None;
        for address in published(&addresses) {
            // The daemon itself has published it, and may be busy.
            match Management::connect_within(PATIENCE, &address, secret.as_deref()) {
                Ok(connected) => return Ok(connected),
                Err(fault) => last = Some(fault),
            }
        }
        Err(last
            .unwrap_or_else(|| Fault::new("the daemon's management port has no address", "start it with -T")))
    }

    /// Connects to an address, and logs in with the secret of a file if the daemon requires it.
    pub fn connect(address: &str, secret: Option<&str>) -> Result<Management, Fault> {
        Management::connect_within(GREETING, address, secret)
    }

    fn connect_within(greeting: Duration, address: &str, secret: Option<&str>) -> Result<Management, Fault> {
        let cannot = |error: &dyn std::fmt::Display| {
            Fault::new(
                format_args!(
                    "cannot reach the management port {}: {error}",
                    crate::page::plain(address.as_bytes())
                ),
                "check the address; the daemon's option -T sets it",
            )
        };
        let addresses: Vec<_> = address.to_socket_addrs().map_err(|error| cannot(&error))?.collect();
        let mut last = io::Error::other("the name has no address");
        for socket in addresses {
            match Socket::connect(socket) {
                Ok(stream) => {
                    // A port that is not a daemon's may never send anything.
                    stream.set_timeouts(greeting).map_err(|error| cannot(&error))?;
                    let mut new = Management::new(stream, address);
                    new.log_in(secret)?;
                    new.set_patience(PATIENCE)?;
                    return Ok(new);
                }
                Err(error) => last = error,
            }
        }
        Err(cannot(&last))
    }

    /// Uses a connection that the manager has made and that needs no login.
    pub fn inherited(stream: UnixStream) -> Result<Management, Fault> {
        let mut new = Management::new(Socket::Unix(stream), "of the manager");
        new.set_patience(PATIENCE)?;
        new.log_in(None)?;
        Ok(new)
    }

    fn new(stream: Socket, address: &str) -> Management {
        Management { stream: BufReader::new(stream), address: address.to_owned(), is_truncated: false }
    }

    /// Returns whether the last reply to [`words`](Self::words) lacks its end, because it was longer than the daemon's parameter
    /// `cli_limit`.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Sets the time to wait for a reply.
    pub fn set_patience(&self, time: Duration) -> Result<(), Fault> {
        self.stream.get_ref().set_timeouts(time).map_err(|error| self.gone(&error))
    }

    fn log_in(&mut self, secret: Option<&str>) -> Result<(), Fault> {
        let greeting = self.reply()?;
        if greeting.status != status::AUTH {
            return Ok(());
        }
        let Some(path) = secret else {
            return Err(Fault::new(
                format_args!("the management port {} requires a secret", self.address),
                "name the daemon's file with --secret FILE; its option -S sets it",
            ));
        };
        let shown = crate::page::plain(path.as_bytes());
        let secret = fs::read(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                denied(&format!("the daemon's secret {shown}"), Path::new(path))
            }
            _ => Fault::new(
                format_args!("cannot read the secret {shown}: {error}"),
                "name the daemon's file with --secret FILE; its option -S sets it",
            ),
        })?;
        let challenge = greeting.text.lines().next().unwrap_or_default().to_owned();
        let reply = self.command(&format!("auth {}", auth::response(&challenge, &secret)))?;
        if reply.status == status::OK {
            return Ok(());
        }
        Err(Fault::new(
            format_args!("the management port {} refuses the secret", self.address),
            "name the daemon's file with --secret FILE; its option -S sets it",
        ))
    }

    /// Sends a command and returns the reply.
    pub fn command(&mut self, line: &str) -> Result<Reply, Fault> {
        let sent = self.stream.get_mut().write_all(format!("{line}\n").as_bytes());
        sent.map_err(|error| self.gone(&error))?;
        self.reply()
    }

    /// Returns the addresses and ports of the daemon's listeners. The port of a UNIX socket is `-`.
    pub fn listeners(&mut self) -> Result<Vec<(String, String)>, Fault> {
        let list = self.words(&["debug.listen_address"])?;
        let place = |line: &str| {
            let mut words = line.split_whitespace().skip(1).map(str::to_owned);
            Some((words.next()?, words.next()?))
        };
        Ok(list.lines().filter_map(place).collect())
    }

    /// Sends a command that consists of words, each of which is quoted. Fails if the daemon refuses it. The
    /// reply may be [truncated](Self::is_truncated).
    pub fn words(&mut self, words: &[&str]) -> Result<String, Fault> {
        let cannot =
            |why| Fault::new(format_args!("cannot send `{}`: {why}", words[0]), "choose other words");
        let reply = self.command(&line(words).map_err(cannot)?)?;
        if matches!(reply.status, status::OK | status::TRUNCATED) {
            self.is_truncated = reply.status == status::TRUNCATED;
            return Ok(reply.text);
        }
        let why = crate::page::lines(reply.text.trim_end());
        Err(Fault::new(
            format_args!("the daemon refuses `{}`:\n{why}", words[0]),
            "correct the mistake and repeat it",
        ))
    }

    fn reply(&mut self) -> Result<Reply, Fault> {
        read_reply(&mut self.stream).map_err(|error| self.gone(&error))
    }

    fn gone(&self, error: &io::Error) -> Fault {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "nothing came in time".to_owned(),
            _ => error.to_string(),
        };
        Fault::new(
            format_args!("the management port {} does not reply: {why}", self.address),
            "check that the daemon runs and that the port is a daemon's (option -T)",
        )
    }
}

/// Returns the addresses that a daemon publishes, each on a line with host and port.
fn published(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter_map(|line| line.split_once(' ')).map(|(host, port)| {
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    })
}

/// Reads one reply: a line with status and length, the text, a newline.
fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut head = Vec::new();
    Read::by_ref(from).take(64).read_until(b'\n', &mut head)?;
    if head.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.split_whitespace();
    let status = words.next().and_then(|word| word.parse().ok());
    let length = words.next().and_then(|word| word.parse::<usize>().ok());
    let (Some(status), Some(length)) = (status, length.filter(|length| *length <= MAX_REPLY)) else {
        return Err(io::Error::other("its greeting is not a management port's"));
    };
    let mut text = Vec::new();
    Read::by_ref(from).take(length as u64 + 1).read_to_end(&mut text)?;
    if text.len() <= length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    text.pop();
    Ok(Reply { status, text: String::from_utf8_lossy(&text).into_owned() })
}

/// Returns a command as a line of the protocol, with each word quoted. Fails with the reason if the manager would take the
/// last word, quoted or not, for the end of a text that follows the command, and would wait for that text.
pub fn line(words: &[&str]) -> Result<String, &'static str> {
    if matches!(words, [.., "<<", end] if !end.is_empty()) {
        return Err(
            "the word before the last one is `<<`, which the management protocol takes for the beginning of a text",
        );
    }
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    Ok(quoted.join(" "))
}

/// Returns a word as the protocol's quoted string.
fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '{' | '#');
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for byte in word.bytes() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(byte.into()),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_quotes_and_control_characters_are_one_word() {
        for (word, quoted) in [
            ("a.b", "a.b"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("/a \"b\".vcl", "\"/a \\\"b\\\".vcl\""),
            ("a\"\\\n", "\"a\\\"\\\\\\n\""),
            ("\u{1}é", "\"\\x01\\xc3\\xa9\""),
        ] {
            assert_eq!(quote(word), quoted);
        }
    }

    #[test]
    fn no_command_waits_for_a_text() {
        for (words, expected) in [
            (&["ban", "<<", "x"][..], true),
            (&["ban", "<<", ""], false),
            (&["ban", "<<"], false),
            (&["ban", "<<", "x", "y"], false),
            (&["ban", "<<x", "y"], false),
        ] {
            assert_eq!(line(words).is_err(), expected, "{words:?}");
        }
    }

    #[test]
    fn replies_of_other_services_are_refused() {
        let read = |bytes: &[u8]| read_reply(&mut &bytes[..]).map_err(|error| error.kind());
        assert_eq!(read(b"200 2       \nok\n"), Ok(Reply { status: 200, text: "ok".into() }));
        for bytes in [
            &b""[..],
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"200 99999999999999999999\n",
            b"200 5       \nok\n",
            b"200 2       \no",
            b"200 99999999\n",
            b"200 -1      \n",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"SSH-2.0-OpenSSH_9.2p1 with a line that is longer than a reply's head may be\r\n",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_silent_port_is_not_waited_for() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = silent.local_addr().expect("it is bound").to_string();
        let start = std::time::Instant::now();
        let fault = Management::connect(&address, None).expect_err("nobody replies");
        assert!(fault.what.ends_with("does not reply: nothing came in time"), "{}", fault.what);
        assert!(start.elapsed() < 2 * GREETING);
    }

    #[test]
    fn published_addresses_are_read_or_cannot_be_reached() {
        let all = |text| published(text).collect::<Vec<_>>();
        assert_eq!(all("127.0.0.1 80\n::1 80\n"), ["127.0.0.1:80", "[::1]:80"]);
        assert_eq!(all("::1 80"), ["[::1]:80"]);
        assert!(all("").is_empty());
        for wrong in all("a b\n1.2.3.4 70000\n") {
            assert!(Management::connect(&wrong, None).is_err(), "{wrong}");
        }
    }
}
