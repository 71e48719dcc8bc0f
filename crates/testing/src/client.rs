//! An HTTP/1 client: sequential requests on one connection, each response read to its end.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wait::SOCKET_TIMEOUT;

/// One connection to the daemon.
pub struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends one GET on a new connection.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    Client::connect(address)?.get(path)
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
        Ok(Client { stream: BufReader::with_capacity(64 << 10, stream) })
    }

    pub fn get(&mut self, path: &str) -> io::Result<Response> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: robust\r\n\r\n"))
    }

    pub fn ask(&mut self, request: &str) -> io::Result<Response> {
        self.send(request)?;
        self.response()
    }

    pub fn send(&mut self, request: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    /// Reads the head of a response that has no body.
    pub fn head(&mut self) -> io::Result<Response> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.trim().parse().ok());
        let mut answer =
            Response { status: status.ok_or(ErrorKind::InvalidData)?, head: first, body: Vec::new() };
        loop {
            let line = self.line()?;
            if line == "\r\n" {
                return Ok(answer);
            }
            answer.head.push_str(&line);
        }
    }

    /// Reads the response to a request that is not HEAD.
    pub fn response(&mut self) -> io::Result<Response> {
        self.response_to("GET")
    }

    /// Reads the response to a request with this method.
    pub fn response_to(&mut self, method: &str) -> io::Result<Response> {
        let mut answer = self.head()?;
        if method == "HEAD" || matches!(answer.status, 204 | 304) {
            return Ok(answer);
        }
        if answer.header("Transfer-Encoding") == Some("chunked") {
            self.chunks(&mut answer.body)?;
        } else if let Some(length) = answer.header("Content-Length") {
            let length = length.parse().map_err(Error::other)?;
            answer.body.resize(length, 0);
            self.stream.read_exact(&mut answer.body)?;
        } else {
            self.stream.read_to_end(&mut answer.body)?;
        }
        Ok(answer)
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(Error::other)?;
            let start = body.len();
            body.resize(start + length, 0);
            self.stream.read_exact(&mut body[start..])?;
            if self.line()? != "\r\n" {
                return Err(ErrorKind::InvalidData.into());
            }
            if length == 0 {
                return Ok(());
            }
        }
    }
}
