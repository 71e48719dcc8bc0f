//! The UDP sockets of a listener with HTTP/3. The reactors of the worker have one each, and the kernel distributes the
//! clients among them. The manager keeps them while a worker restarts, so that no packet is refused.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Socket, Type};

/// The sockets, which share their address.
#[derive(Debug, Default)]
pub struct Datagrams {
    address: Option<SocketAddr>,
    sockets: Vec<Socket>,
    /// The number of the first sockets that are bound.
    bound: usize,
}

/// Creates a socket for an address. An IPv6 address does not stand for IPv4 addresses too.
pub fn new_socket(address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let socket = new_socket(address, Type::DGRAM)?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// Fails if another process has the address. With the option to share it, binding does not notice that.
fn check_free(address: SocketAddr) -> io::Result<()> {
    new_socket(address, Type::DGRAM)?.bind(&address.into())
}

impl Datagrams {
    /// Binds the first socket.
    pub fn bind(address: SocketAddr) -> io::Result<Datagrams> {
        check_free(address)?;
        let mut datagrams = Datagrams { address: Some(address), ..Datagrams::default() };
        datagrams.resize(1)?;
        datagrams.bind_all()?;
        Ok(datagrams)
    }

    /// Continues with sockets that are bound to an address.
    pub fn adopt(address: SocketAddr, sockets: Vec<OwnedFd>) -> Datagrams {
        let bound = sockets.len();
        Datagrams { address: Some(address), sockets: sockets.into_iter().map(Socket::from).collect(), bound }
    }

    /// Opens or closes sockets until there is one for each reactor. A socket that no reactor reads would lose packets.
    pub fn resize(&mut self, reactors: usize) -> io::Result<()> {
        let Some(address) = self.address else { return Ok(()) };
        self.sockets.truncate(reactors);
        self.bound = self.bound.min(reactors);
        while self.sockets.len() < reactors {
            self.sockets.push(unbound(address)?);
        }
        Ok(())
    }

    /// Binds the sockets that are not, because their reactors are about to read them. Their worker may have them already.
    pub fn bind_all(&mut self) -> io::Result<()> {
        let Some(address) = self.address else { return Ok(()) };
        for socket in &self.sockets[self.bound..] {
            socket.bind(&address.into())?;
            self.bound += 1;
        }
        Ok(())
    }

    /// Closes the sockets that are not bound, because their worker has failed to start.
    pub fn drop_unbound(&mut self) {
        self.sockets.truncate(self.bound);
    }

    /// Closes all sockets, until [`resize`](Self::resize) opens them again.
    pub fn close(&mut self) {
        self.sockets.clear();
        self.bound = 0;
    }

    /// Returns the numbers of the descriptors.
    pub fn numbers(&self) -> Vec<i32> {
        self.sockets.iter().map(AsRawFd::as_raw_fd).collect()
    }

    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_is_refused() {
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        assert_eq!(Datagrams::bind(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(other);
        let mut ours = Datagrams::bind(address).unwrap();
        ours.resize(4).unwrap();
        assert_eq!(ours.numbers().len(), 4);
        assert_eq!(Datagrams::bind(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn sockets_are_bound_when_they_are_to_be_read() {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut ours = Datagrams::bind(free).unwrap();
        let ports = |ours: &Datagrams| -> Vec<u16> {
            let port = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap().port();
            ours.sockets.iter().map(port).collect()
        };
        ours.resize(3).unwrap();
        assert_eq!(ports(&ours), [free.port(), 0, 0]);
        ours.bind_all().unwrap();
        assert_eq!(ports(&ours), [free.port(); 3]);
        ours.resize(1).unwrap();
        ours.resize(2).unwrap();
        assert_eq!(ports(&ours), [free.port(), 0]);
        ours.drop_unbound();
        assert_eq!(ports(&ours), [free.port()]);
    }
}
