//! A relay of UDP datagrams that loses, repeats and delays some of them.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lacquer_testing::Random;

/// The largest datagram.
const DATAGRAM: usize = 65_535;
/// A size that requests with long fields exceed, and acknowledgments do not.
const ACKNOWLEDGMENT: usize = 200;
/// The number of the last datagrams of a client that are recorded.
const RECORDED: usize = 50;

/// The faults of a relay, in percent of the datagrams.
#[derive(Clone, Copy)]
pub struct Faults {
    pub lost: u64,
    pub repeated: u64,
    /// Datagrams that the next one overtakes.
    pub delayed: u64,
}

/// A relay for one client, until it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
    is_mute: Arc<AtomicBool>,
    recorded: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Relay {
    pub fn start(server: SocketAddr, faults: Faults, seed: u64) -> Relay {
        let towards = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let back = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        back.connect(server).expect("an address");
        let address = towards.local_addr().expect("it is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        for socket in [&towards, &back] {
            socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        }
        let (over, first) = (is_over.clone(), (towards.try_clone(), back.try_clone()));
        let is_mute = Arc::new(AtomicBool::new(false));
        let mute = is_mute.clone();
        let recorded = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let record = recorded.clone();
        let client = Arc::new(Mutex::new(None));
        let latest = client.clone();
        let (from, to) = (first.0.expect("a socket"), first.1.expect("a socket"));
        thread::spawn(move || {
            relay(&from, faults, Random(seed), &over, |bytes, sender| {
                *latest.lock().expect("a lock") = Some(sender);
                let mut record = record.lock().expect("a lock");
                if record.len() == RECORDED {
                    record.remove(0);
                }
                record.push(bytes.to_vec());
                drop(record);
                if bytes.len() > ACKNOWLEDGMENT || !mute.load(Ordering::Relaxed) {
                    let _ = to.send(bytes);
                }
            });
        });
        let over = is_over.clone();
        thread::spawn(move || {
            relay(&back, faults, Random(!seed), &over, |bytes, _| {
                if let Some(client) = *client.lock().expect("a lock") {
                    let _ = towards.send_to(bytes, client);
                }
            });
        });
        Relay { address, is_over, is_mute, recorded }
    }

    /// Returns the last datagrams of the client.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.recorded.lock().expect("a lock").clone()
    }

    /// Loses the client's acknowledgments from now on.
    pub fn mute(&self) {
        self.is_mute.store(true, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn relay(
    from: &UdpSocket,
    faults: Faults,
    mut random: Random,
    is_over: &AtomicBool,
    send: impl Fn(&[u8], SocketAddr),
) {
    let mut buffer = vec![0; DATAGRAM];
    let mut late: Option<(Vec<u8>, SocketAddr)> = None;
    while !is_over.load(Ordering::Relaxed) {
        let Ok((n, sender)) = from.recv_from(&mut buffer) else {
            if let Some((bytes, sender)) = late.take() {
                send(&bytes, sender);
            }
            continue;
        };
        let bytes = &buffer[..n];
        let mut happens = |percent: u64| random.below(100) < percent;
        if happens(faults.lost) {
            continue;
        }
        if late.is_none() && happens(faults.delayed) {
            late = Some((bytes.to_vec(), sender));
            continue;
        }
        send(bytes, sender);
        if happens(faults.repeated) {
            send(bytes, sender);
        }
        if let Some((bytes, sender)) = late.take() {
            send(&bytes, sender);
        }
    }
}
