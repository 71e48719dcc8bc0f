//! Datagrams for the connections of the worker before this one. This worker receives them, because it has the sockets, and
//! passes them on until the other one has ended. That one sends from its own descriptors of the sockets.
//!
//! ```text
//! 0  u8 version   1  u8 reactor   2  u8 ECN   3  u8 flags
//! 4  16 bytes remote address   20  u16 port   22  u32 flow   26  u32 scope   30  16 bytes local address
//! 46 22 bytes name of the group
//! 68 the datagram
//! ```
//!
//! IPv4 addresses have the form of mapped IPv6 addresses. After an upgrade, the workers may be of different programs. A
//! message of another version is discarded, so that its datagram is lost. The first programs had the number of a group in
//! the place of the version, and discard messages for a group that they do not have.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use crate::forward::{Datagram, Forwarder};
use crate::group_name::{GroupName, octets};

const VERSION: u8 = 255;
/// The place of the group's name.
const NAME: usize = 46;
const HEAD: usize = NAME + GroupName::LENGTH;
/// The largest datagram.
const DATAGRAM: usize = 64 * 1024;
/// The flag of a datagram whose local address is known.
const HAS_LOCAL: u8 = 1;
/// The queue of the socket in bytes, as far as the kernel permits it. What finds no place is lost.
const QUEUE: usize = 1024 * 1024;

/// The worker before this one, as long as it lives.
#[derive(Clone)]
pub struct Predecessor(Arc<State>);

struct State {
    worker: u8,
    socket: OwnedFd,
    has_ended: AtomicBool,
}

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relayed {
    Passed,
    /// The other worker has too many.
    Lost,
    /// The other worker has ended.
    Gone,
}

impl Predecessor {
    /// The socket leads to the worker with this number, and keeps the limits of messages.
    pub fn new(worker: u8, socket: OwnedFd) -> Predecessor {
        // A smaller queue than asked for only loses more datagrams.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, QUEUE);
        Predecessor(Arc::new(State { worker, socket, has_ended: AtomicBool::new(false) }))
    }

    /// Returns whether this is the number of the worker, and it lives.
    pub fn is(&self, worker: u8) -> bool {
        self.0.worker == worker && !self.0.has_ended.load(Ordering::Relaxed)
    }

    /// Passes a datagram to a reactor of the worker.
    pub fn pass(&self, group: &GroupName, reactor: u8, datagram: &Datagram) -> Relayed {
        let head = head(group, reactor, datagram);
        let parts = [IoSlice::new(&head), IoSlice::new(&datagram.bytes)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.0.socket, &parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => Relayed::Passed,
            Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN) => {
                self.0.has_ended.store(true, Ordering::Relaxed);
                Relayed::Gone
            }
            Err(_) => Relayed::Lost,
        }
    }
}

/// Passes datagrams of the next worker to the reactors of the groups, until no such worker can follow. Those for a group
/// that this worker does not have are lost.
pub fn receive(socket: &OwnedFd, groups: &[(GroupName, Forwarder)]) {
    let mut buffer = vec![0; HEAD + DATAGRAM];
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return,
            Ok((n, _)) => {
                let decoded = decode(&buffer[..n]);
                if let Some((group, reactor, datagram)) = decoded
                    && let Some((_, forwarder)) = groups.iter().find(|(name, _)| *name == group)
                {
                    forwarder.pass(reactor, datagram);
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn head(group: &GroupName, reactor: u8, datagram: &Datagram) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = VERSION;
    head[1] = reactor;
    head[2] = datagram.ecn.map_or(0, |ecn| ecn as u8);
    head[4..20].copy_from_slice(&octets(datagram.remote.ip()));
    head[20..22].copy_from_slice(&datagram.remote.port().to_le_bytes());
    if let SocketAddr::V6(remote) = datagram.remote {
        head[22..26].copy_from_slice(&remote.flowinfo().to_le_bytes());
        head[26..30].copy_from_slice(&remote.scope_id().to_le_bytes());
    }
    if let Some(local) = datagram.local {
        head[3] = HAS_LOCAL;
        head[30..NAME].copy_from_slice(&octets(local));
    }
    head[NAME..].copy_from_slice(group.as_bytes());
    head
}

/// Returns the group, the reactor and the datagram; `None` if the message is too short, or of another version.
fn decode(message: &[u8]) -> Option<(GroupName, u8, Datagram)> {
    let (head, bytes) = message.split_first_chunk::<HEAD>()?;
    if head[0] != VERSION {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = head[at..at + 16].try_into().ok()?;
        Some(Ipv6Addr::from(octets))
    };
    let number = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?));
    let port = u16::from_le_bytes([head[20], head[21]]);
    let ip = address(4)?;
    let remote = match ip.to_canonical() {
        IpAddr::V4(v4) => SocketAddr::from((v4, port)),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, number(22)?, number(26)?).into(),
    };
    let local = if head[3] & HAS_LOCAL == 0 { None } else { Some(address(30)?.to_canonical()) };
    let ecn = EcnCodepoint::from_bits(head[2]);
    let group = GroupName::from_bytes(head[NAME..].try_into().ok()?);
    Some((group, head[1], Datagram { remote, local, ecn, bytes: BytesMut::from(bytes) }))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// Returns the name of a group by its port.
    fn group(port: u8) -> GroupName {
        GroupName::of(SocketAddr::from(([192, 0, 2, 1], port.into())))
    }

    fn datagram(remote: &str, local: Option<&str>, ecn: u8, bytes: &[u8]) -> Datagram {
        Datagram {
            remote: remote.parse().unwrap(),
            local: local.map(|local| local.parse().unwrap()),
            ecn: EcnCodepoint::from_bits(ecn),
            bytes: BytesMut::from(bytes),
        }
    }

    #[test]
    fn datagrams_are_decoded_as_passed() {
        for (remote, local, ecn) in [
            ("192.0.2.1:443", None, 0),
            ("192.0.2.1:1", Some("192.0.2.9"), 2),
            ("[2001:db8::1]:65535", Some("2001:db8::2"), 1),
            ("[fe80::1%7]:5", Some("fe80::2"), 3),
        ] {
            let given = datagram(remote, local, ecn, b"payload");
            let mut message = [&head(&group(5), 9, &given)[..], &given.bytes].concat();
            let (name, reactor, found) = decode(&message).unwrap();
            assert_eq!((name, reactor, &found.bytes[..]), (group(5), 9, &b"payload"[..]));
            assert_eq!((found.remote, found.local, found.ecn), (given.remote, given.local, given.ecn));
            for length in 0..HEAD {
                assert!(decode(&message[..length]).is_none());
            }
            // The number of a group, in the messages of older programs.
            message[0] = 0;
            assert!(decode(&message).is_none());
        }
    }

    #[test]
    fn a_full_queue_loses_datagrams_and_an_ended_worker_is_noticed() {
        let (ours, theirs) = pair();
        let predecessor = Predecessor::new(3, ours);
        assert!(predecessor.is(3) && !predecessor.is(4));
        let sent = datagram("192.0.2.1:443", None, 0, &[7; 1200]);
        let results: Vec<Relayed> = (0..20_000).map(|_| predecessor.pass(&group(0), 0, &sent)).collect();
        assert_eq!((results[0], results[19_999]), (Relayed::Passed, Relayed::Lost));
        drop(theirs);
        assert_eq!(predecessor.pass(&group(0), 0, &sent), Relayed::Gone);
        assert!(!predecessor.is(3));
    }

    #[test]
    fn datagrams_reach_the_group_and_the_reactor_that_they_name() {
        let (ours, theirs) = pair();
        let predecessor = Predecessor::new(1, ours);
        let ((first, mut of_first), (second, mut of_second)) = (Forwarder::new(2), Forwarder::new(1));
        for (port, reactor) in [(1, 1), (9, 0), (1, 9), (2, 0)] {
            let sent = datagram("192.0.2.1:443", None, 0, &[port, reactor]);
            assert_eq!(predecessor.pass(&group(port), reactor, &sent), Relayed::Passed);
        }
        drop(predecessor);
        // The other worker has the groups in another order.
        receive(&theirs, &[(group(2), second), (group(1), first)]);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(of_first[0].poll(&mut cx).is_none());
        for (queue, sent) in [(&mut of_first[1], [1, 1]), (&mut of_second[0], [2, 0])] {
            assert_eq!(queue.poll(&mut cx).unwrap().bytes, sent[..]);
            assert!(queue.poll(&mut cx).is_none());
        }
    }
}
