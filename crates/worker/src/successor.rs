//! The descriptors and connections for a handover to the next worker.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::peers::Peers;
use crate::udp_handover::UdpHandover;

pub struct Handover {
    pub peers: Peers,
    /// The socket for the next worker.
    pub successor: Option<UnixStream>,
    /// The files of pins, with the numbers of the storages that are kept.
    pub pins: Vec<(usize, OwnedFd)>,
    pub udp: UdpHandover,
}
