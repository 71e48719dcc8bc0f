//! A client of the management port (`-T`).

use std::fs;
use std::io::{self, BufRead, BufReader, Error, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::wait::SOCKET_TIMEOUT;

/// One connection to the management port.
pub struct Management {
    stream: BufReader<TcpStream>,
    challenge: String,
}

/// The management port of a daemon, and its secret.
#[derive(Clone, Debug)]
pub struct ManagementPort {
    pub address: SocketAddr,
    pub secret: Vec<u8>,
}

/// Reads an argument (`-T`, `-S`) that the daemon publishes in its working directory, as its tools do.
pub fn published(directory: &Path, name: &str) -> Option<String> {
    let shared = directory.join("_.vsm_mgt");
    let index = fs::read_to_string(shared.join("_.index")).ok()?;
    let ending = format!(" Arg {name}");
    let line = index.lines().rfind(|line| line.starts_with('+') && line.ends_with(&ending))?;
    let text = fs::read(shared.join(line.split_whitespace().nth(1)?)).ok()?;
    let text: Vec<u8> = text.into_iter().take_while(|byte| *byte != 0).collect();
    String::from_utf8(text).ok()
}

/// Reads the status and the text of one reply.
pub fn read_answer(from: &mut impl BufRead) -> io::Result<(u16, String)> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let mut words = line.split_whitespace().map(str::parse::<usize>);
    let (Some(Ok(status)), Some(Ok(length))) = (words.next(), words.next()) else {
        return Err(Error::other(format!("not a reply: {line:?}")));
    };
    let mut text = vec![0; length + 1];
    from.read_exact(&mut text)?;
    text.pop();
    Ok((status as u16, String::from_utf8_lossy(&text).into_owned()))
}

impl ManagementPort {
    /// Finds the port of the daemon with this working directory.
    pub fn of(directory: &Path) -> Option<ManagementPort> {
        let (ip, port) = published(directory, "-T")?
            .lines()
            .next()?
            .split_once(' ')
            .map(|(ip, port)| (ip.to_owned(), port.to_owned()))?;
        let secret = fs::read(published(directory, "-S")?).ok()?;
        Some(ManagementPort { address: SocketAddr::new(ip.parse().ok()?, port.parse().ok()?), secret })
    }

    /// Connects and logs in.
    pub fn login(&self) -> io::Result<Management> {
        let mut management = Management::connect(self.address)?;
        let (status, text) = management.offer(&self.secret)?;
        if status == 200 {
            Ok(management)
        } else {
            Err(Error::other(format!("login refused: {status} {text}")))
        }
    }
}

impl Management {
    /// Connects and reads the challenge.
    pub fn connect(address: SocketAddr) -> io::Result<Management> {
        let stream = TcpStream::connect_timeout(&address, SOCKET_TIMEOUT)?;
        stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut management = Management { stream: BufReader::new(stream), challenge: String::new() };
        let (_, text) = management.answer()?;
        text.lines().next().unwrap_or_default().clone_into(&mut management.challenge);
        Ok(management)
    }

    /// Authenticates with a secret. Returns status and text of the reply.
    pub fn offer(&mut self, secret: &[u8]) -> io::Result<(u16, String)> {
        let response = lacquer_cli::auth::response(&self.challenge, secret);
        self.cli(&format!("auth {response}"))
    }

    /// Reads one reply.
    pub fn answer(&mut self) -> io::Result<(u16, String)> {
        read_answer(&mut self.stream)
    }

    /// Sends a command. Returns status and text of the reply.
    pub fn cli(&mut self, command: &str) -> io::Result<(u16, String)> {
        self.stream().write_all(format!("{command}\n").as_bytes())?;
        self.answer()
    }

    /// Returns the connection itself, for input that a regular client does not send.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }
}
