//! An attacker who has recorded the first flight of a client, with early data (0-RTT), and sends it again. Each flight is
//! executed as early data once at most, whichever reactor or worker receives the copies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lacquer_testing::slots::shared_slot;
use quinn::ClientConfig;
use tokio::net::UdpSocket;

use super::client::{self, Client, run};
use super::start;
use super::upgrades::Upgradable;

/// The time for which the daemon's replies are held back, so that the client's first flight is complete.
const HELD: Duration = Duration::from_millis(250);
/// The number of copies. Their addresses select the reactors.
const COPIES: usize = 12;
/// The time in which a copy would be executed.
const PATIENCE: Duration = Duration::from_millis(300);

/// The paths of requests to origins that were marked as early.
static EARLY: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records a request to an origin, if it was early data.
pub fn record(path: &str) {
    if path.ends_with("/early") {
        EARLY.lock().expect("no panic").push(path.to_owned());
    }
}

/// Returns how often a path was executed as early data.
fn executions(path: &str) -> usize {
    let early = format!("{path}/early");
    EARLY.lock().expect("no panic").iter().filter(|found| **found == early).count()
}

/// A place between a client and the daemon, which records the first flight.
struct Tap {
    address: SocketAddr,
    flight: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Tap {
    /// Starts a tap. Each datagram of the first flight is followed by copies from `copies` other addresses.
    async fn start(daemon: SocketAddr, copies: usize) -> Tap {
        let front = Arc::new(socket().await);
        let back = Arc::new(socket().await);
        let tap = Tap { address: front.local_addr().expect("it is bound"), flight: Arc::default() };
        let (flight, is_over) = (tap.flight.clone(), Arc::new(AtomicBool::new(false)));
        let mut others = Vec::new();
        for _ in 0..copies {
            others.push(socket().await);
        }
        let client = Arc::<Mutex<Option<SocketAddr>>>::default();
        let (up, down) =
            ((front.clone(), back.clone(), client.clone(), is_over.clone()), (front, back, client, is_over));
        tokio::spawn(async move {
            let (front, back, client, is_over) = up;
            let mut buffer = [0; 2048];
            while let Ok((n, from)) = front.recv_from(&mut buffer).await {
                *client.lock().expect("no panic") = Some(from);
                if !is_over.load(Ordering::SeqCst) {
                    flight.lock().expect("no panic").push(buffer[..n].to_vec());
                    for other in &others {
                        let _ = other.send_to(&buffer[..n], daemon).await;
                    }
                }
                let _ = back.send_to(&buffer[..n], daemon).await;
            }
        });
        tokio::spawn(async move {
            let (front, back, client, is_over) = down;
            let mut buffer = [0; 2048];
            while let Ok(n) = back.recv(&mut buffer).await {
                if !is_over.load(Ordering::SeqCst) {
                    tokio::time::sleep(HELD).await;
                    is_over.store(true, Ordering::SeqCst);
                }
                let client = *client.lock().expect("no panic");
                if let Some(client) = client {
                    let _ = front.send_to(&buffer[..n], client).await;
                }
            }
        });
        tap
    }

    fn flight(&self) -> Vec<Vec<u8>> {
        self.flight.lock().expect("no panic").clone()
    }
}

async fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.expect("a socket")
}

/// Sends a flight again, from several addresses, and waits until it would have been executed.
async fn replay(daemon: SocketAddr, flight: &[Vec<u8>]) {
    let mut sockets = Vec::new();
    for _ in 0..COPIES {
        let socket = socket().await;
        for datagram in flight {
            socket.send_to(datagram, daemon).await.expect("it is sent");
        }
        sockets.push(socket);
    }
    tokio::time::sleep(PATIENCE).await;
}

/// Returns a client with a session.
async fn with_session(daemon: SocketAddr) -> ClientConfig {
    let config = client::early_config();
    let (client, _) = Client::connect_early(&config, daemon).await;
    assert_eq!(client.get("/100").await.status(), "200");
    client.close().await;
    config
}

/// Asks for a path with the first flight, through the tap. Returns whether the daemon has accepted it as early data.
async fn ask_early(config: &ClientConfig, tap: &Tap, path: &str) -> bool {
    let (client, accepted) = Client::connect_early(config, tap.address).await;
    let page = client.get(path).await;
    let is_accepted = accepted.expect("a session").await;
    // A client whose early data was refused repeats its request, on the same connection or another.
    assert!(!is_accepted || page.status() == "200", "{path}");
    drop(client);
    is_accepted
}

/// Copies of a flight that was served are not executed, on any reactor.
#[test]
fn a_flight_is_executed_once() {
    let _slot = shared_slot();
    let served = start(&["-p", "tls_early_data=on"]);
    run(async {
        let config = with_session(served.address).await;
        let tap = Tap::start(served.address, 0).await;
        let path = "/7/private/once";
        assert!(ask_early(&config, &tap, path).await);
        assert_eq!(executions(path), 1);
        let (flight, before) = (tap.flight(), served.origin.requests());
        assert!(!flight.is_empty());
        replay(served.address, &flight).await;
        assert_eq!((executions(path), served.origin.requests()), (1, before));
    });
    served.serves();
}

/// Copies that arrive at the same time as the flight, on several reactors: one of them is executed.
#[test]
fn of_copies_at_once_one_is_executed() {
    let _slot = shared_slot();
    let served = start(&["-p", "tls_early_data=on"]);
    run(async {
        let mut total = 0;
        for round in 0..3 {
            let config = with_session(served.address).await;
            let path = format!("/7/private/race-{round}");
            let tap = Tap::start(served.address, COPIES).await;
            let (client, accepted) = Client::connect_early(&config, tap.address).await;
            let ask = tokio::time::timeout(PATIENCE * 4, client.open("GET", &path, &[]));
            let (mut send, _receive) = ask.await.expect("it reads");
            let _ = send.finish();
            let _ = tokio::time::timeout(PATIENCE * 4, accepted.expect("a session")).await;
            tokio::time::sleep(PATIENCE).await;
            assert!(executions(&path) <= 1, "{path}: {} times", executions(&path));
            total += executions(&path);
        }
        assert!(total > 0, "no flight was early data");
    });
    served.serves();
}

/// The next worker after an upgrade executes no flight that the one before has.
#[test]
fn the_next_worker_executes_no_flight_again() {
    let _slot = shared_slot();
    let mut daemon = Upgradable::start("replays", &["-p", "tls_early_data=on", "-p", "reactors=4"]);
    run(async {
        let config = with_session(daemon.address()).await;
        let tap = Tap::start(daemon.address(), 0).await;
        let path = "/7/private/upgraded";
        assert!(ask_early(&config, &tap, path).await);
        let (flight, address) = (tap.flight(), daemon.address());
        daemon.begin_upgrade();
        // Both workers have the address meanwhile.
        tokio::join!(daemon.upgraded(), replay(address, &flight));
        replay(address, &flight).await;
        assert_eq!(executions(path), 1);
    });
}
