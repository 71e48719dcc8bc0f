//! The network between clients of HTTP/3 and the engine: it loses, repeats, delays and reorders datagrams, as the seed
//! decides.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lacquer_quic::Wire;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::wire::{Chance, below, one_of, percent};

/// The address of the service.
pub const SERVICE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1)), 443);

/// The faults of a network, in percent of the datagrams.
#[derive(Clone, Copy)]
struct Faults {
    lost: u64,
    repeated: u64,
    delayed: u64,
    /// The time on the way, and the most that is added to it, in milliseconds.
    latency: u64,
    delay: u64,
    /// The length of the longest datagram that passes.
    longest: usize,
}

/// The datagrams that have arrived at a client.
#[derive(Default)]
pub struct Inbox {
    datagrams: RefCell<VecDeque<Vec<u8>>>,
    arrived: Notify,
}

impl Inbox {
    pub fn take(&self) -> Option<Vec<u8>> {
        self.datagrams.borrow_mut().pop_front()
    }

    /// Waits for a datagram.
    pub async fn arrived(&self) {
        if self.datagrams.borrow().is_empty() {
            self.arrived.notified().await;
        }
    }
}

pub struct Network {
    chance: Chance,
    faults: Faults,
    /// The sockets of the reactors.
    wires: Vec<Wire>,
    clients: RefCell<BTreeMap<SocketAddr, Rc<Inbox>>>,
}

impl Network {
    /// Creates a network to an engine with this number of reactors.
    pub fn new(chance: &Chance, reactors: usize) -> Rc<Network> {
        let faults = Faults {
            lost: one_of(chance, &[0, 0, 2, 10, 25]),
            repeated: one_of(chance, &[0, 3, 20]),
            delayed: one_of(chance, &[0, 5, 40]),
            latency: one_of(chance, &[0, 5, 60]),
            delay: one_of(chance, &[5, 50, 400]),
            longest: one_of(chance, &[1200, 1280, 1452, 9000]),
        };
        let wires = (0..reactors).map(|_| Wire::new(SERVICE)).collect();
        Rc::new(Network { chance: chance.clone(), faults, wires, clients: RefCell::default() })
    }

    pub fn wires(&self) -> &[Wire] {
        &self.wires
    }

    /// Carries the datagrams of the engine, without end.
    pub fn begin(self: &Rc<Network>) {
        for wire in self.wires.clone() {
            let network = self.clone();
            tokio::task::spawn_local(async move {
                loop {
                    let sent = poll_fn(|cx| wire.poll_sent(cx)).await;
                    let to = sent.to;
                    network.carry(&sent.bytes, move |network, bytes| {
                        if let Some(inbox) = network.clients.borrow().get(&to) {
                            inbox.datagrams.borrow_mut().push_back(bytes);
                            inbox.arrived.notify_one();
                        }
                    });
                }
            });
        }
    }

    /// Gives a client an address.
    pub fn join(&self, address: SocketAddr, inbox: &Rc<Inbox>) {
        self.clients.borrow_mut().insert(address, inbox.clone());
    }

    pub fn leave(&self, address: SocketAddr) {
        self.clients.borrow_mut().remove(&address);
    }

    /// Sends a datagram of a client. Its address decides which reactor receives it.
    pub fn send(self: &Rc<Network>, from: SocketAddr, bytes: &[u8]) {
        let reactor = usize::from(from.port()) % self.wires.len();
        self.carry(bytes, move |network, bytes| network.wires[reactor].deliver(from, &bytes));
    }

    fn carry(self: &Rc<Network>, bytes: &[u8], deliver: impl Fn(&Network, Vec<u8>) + Clone + 'static) {
        let (chance, faults) = (&self.chance, self.faults);
        if bytes.len() > faults.longest || percent(chance, faults.lost) {
            return;
        }
        let copies = 1 + u32::from(percent(chance, faults.repeated));
        for _ in 0..copies {
            let delay = if percent(chance, faults.delayed) { below(chance, faults.delay * 1000) } else { 0 };
            let time = Duration::from_micros(faults.latency * 1000 + delay);
            let (network, bytes, deliver) = (self.clone(), bytes.to_vec(), deliver.clone());
            tokio::task::spawn_local(async move {
                sleep(time).await;
                deliver(&network, bytes);
            });
        }
    }
}
