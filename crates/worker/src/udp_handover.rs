//! The handover of the UDP sockets to the next worker. This one stops to receive before the next one begins, so that no
//! client reaches a worker that is about to end. It keeps its connections: the next worker passes on their datagrams.

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use lacquer_cli::link::DatagramPeers;
use lacquer_quic::{Forwarder, Group, GroupName, Predecessor, Workers, receive_relayed};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The maximum time to wait for the reactors.
const PATIENCE: Duration = Duration::from_secs(1);

/// An order to an endpoint.
pub enum Order {
    /// Receive no more; another worker has this number of the listener's sockets. `done` is dropped afterwards.
    Stop { sockets: usize, done: mpsc::Sender<()> },
    /// Receive again.
    Continue,
}

/// The receivers of the datagrams of each group.
type Groups = Vec<(GroupName, Forwarder)>;

/// The UDP sockets of the worker, while its listeners are prepared.
pub struct UdpSockets {
    peers: DatagramPeers,
    pub workers: Workers,
    groups: Groups,
    endpoints: Vec<UnboundedSender<Order>>,
}

/// The UDP sockets of the worker.
pub struct UdpHandover {
    endpoints: Vec<UnboundedSender<Order>>,
    /// The socket of the next worker and the receivers of its datagrams, until a thread takes them.
    incoming: Mutex<Option<(OwnedFd, Groups)>>,
}

impl UdpSockets {
    pub fn new(peers: DatagramPeers) -> UdpSockets {
        let predecessor =
            peers.predecessor.map(|(worker, fd)| Predecessor::new(worker, lacquer_system::inherit(fd)));
        let workers = Workers { own: peers.worker, predecessor };
        UdpSockets { peers, workers, groups: Vec::new(), endpoints: Vec::new() }
    }

    pub fn add_group(&mut self, group: &Group) {
        self.groups.push((group.name(), group.forwarder()));
    }

    /// Returns the orders for another endpoint.
    pub fn add_endpoint(&mut self) -> UnboundedReceiver<Order> {
        let (sender, orders) = unbounded_channel();
        self.endpoints.push(sender);
        orders
    }

    pub fn finish(self) -> UdpHandover {
        let incoming = self.peers.incoming.map(|fd| (lacquer_system::inherit(fd), self.groups));
        UdpHandover { endpoints: self.endpoints, incoming: Mutex::new(incoming) }
    }
}

impl UdpHandover {
    /// Stops the reception. When it returns, no endpoint receives, unless its reactor is stuck.
    pub fn stop(&self, sockets: usize) -> Result<(), String> {
        if self.endpoints.is_empty() {
            return Ok(());
        }
        self.listen()?;
        let (done, all_done) = mpsc::channel();
        for endpoint in &self.endpoints {
            let _ = endpoint.send(Order::Stop { sockets, done: done.clone() });
        }
        drop(done);
        // Nothing is sent: the end of all senders is awaited.
        let _ = all_done.recv_timeout(PATIENCE);
        Ok(())
    }

    /// Continues the reception, because the other worker has failed.
    pub fn resume(&self) {
        for endpoint in &self.endpoints {
            let _ = endpoint.send(Order::Continue);
        }
    }

    /// Starts the thread that receives datagrams of the next worker.
    fn listen(&self) -> Result<(), String> {
        let Some((socket, groups)) = self.incoming.lock().take() else { return Ok(()) };
        let receive = move || {
            lacquer_system::prepare_thread();
            receive_relayed(&socket, &groups);
        };
        let thread = std::thread::Builder::new().name("relayed".to_owned()).spawn(receive);
        thread.map(drop).map_err(|e| format!("cannot receive datagrams of the next worker: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_until_all_endpoints_have_stopped() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| unbounded_channel()).unzip();
        let handover = UdpHandover { endpoints: senders, incoming: Mutex::new(None) };
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(at, mut orders)| {
                std::thread::spawn(move || {
                    let Some(Order::Stop { sockets, done }) = orders.blocking_recv() else {
                        panic!("no order")
                    };
                    std::thread::sleep(Duration::from_millis(20 * at as u64));
                    drop(done);
                    assert!(matches!(orders.blocking_recv(), Some(Order::Continue)));
                    sockets
                })
            })
            .collect();
        handover.stop(2).unwrap();
        handover.resume();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), 2);
        }
    }
}
