//! A connected socket of either kind.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to an address. Waits for some seconds.
    pub fn connect(to: SocketAddr) -> io::Result<Socket> {
        let socket = TcpStream::connect_timeout(&to, CONNECT)?;
        socket.set_nodelay(true)?;
        Ok(Socket::Tcp(socket))
    }

    /// Connects to the socket with a path.
    pub fn connect_path(path: &Path) -> io::Result<Socket> {
        UnixStream::connect(path).map(Socket::Unix)
    }

    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(socket) => socket.try_clone().map(Socket::Tcp),
            Socket::Unix(socket) => socket.try_clone().map(Socket::Unix),
        }
    }

    pub fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_read_timeout(Some(time)),
            Socket::Unix(socket) => socket.set_read_timeout(Some(time)),
        }
    }

    /// Limits each read and each write.
    pub fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(time)?;
        match self {
            Socket::Tcp(socket) => socket.set_write_timeout(Some(time)),
            Socket::Unix(socket) => socket.set_write_timeout(Some(time)),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(to),
            Socket::Unix(socket) => socket.read(to),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(from),
            Socket::Unix(socket) => socket.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
