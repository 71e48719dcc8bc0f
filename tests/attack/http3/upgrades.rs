//! The worker is replaced or stopped while clients of HTTP/3 use it. No request is lost: those in progress end, and those
//! that are rejected may be repeated. Others cannot use the path between the workers.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_testing::admin::AdminPort;
use lacquer_testing::daemon::{Daemon, signal, vcl};
use lacquer_testing::origin::Origin;
use lacquer_testing::{effort, until};
use quinn::{Connection, ConnectionError, ReadError, ReadToEndError, RecvStream, SendStream, WriteError};
use tokio::task::{LocalSet, spawn_local};

use super::client::{self, Client, response, run, try_response};
use super::relay::{Faults, Relay};
use super::{SUBS, Served, body, serve, trusted};

const REJECTED: u64 = 0x10b;
const NO_ERROR: u64 = 0x100;
/// The length of the download that spans an upgrade.
const LONG: usize = 6_000_000;
/// The time after which the connection of a client that has vanished ends, and some more.
const IDLE: Duration = Duration::from_secs(45);
/// The least number of requests of a test.
const LEAST: u64 = 50;
const SIZES: [usize; 4] = [100, 1000, 30_000, 200_000];
const NO_FAULTS: Faults = Faults { lost: 0, repeated: 0, delayed: 0 };

/// A daemon whose certificate is in a file, so that it survives an upgrade.
pub struct Upgradable {
    served: Served,
    folder: PathBuf,
}

impl Drop for Upgradable {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Writes the file with the listeners. Returns its path.
fn write_listeners(folder: &Path, names: &[&str]) -> PathBuf {
    let path = folder.join("tls.conf");
    let mut text = format!("h3 = on\npem-file = \"{}\"\n", folder.join("pair.pem").display());
    for name in names {
        let _ = writeln!(text, "frontend = {{ host = \"127.0.0.1\" port = \"0\" name = \"{name}\" }}");
    }
    std::fs::write(&path, text).expect("a file");
    path
}

impl Upgradable {
    pub fn start(name: &str, options: &[&str]) -> Upgradable {
        Upgradable::start_with(name, &["secure"], options)
    }

    /// Starts a daemon with these listeners.
    fn start_with(name: &str, listeners: &[&str], options: &[&str]) -> Upgradable {
        let folder = std::env::temp_dir().join(format!("lacquer-h3-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        std::fs::write(folder.join("pair.pem"), &trusted().pem).expect("a file");
        let conf = write_listeners(&folder, listeners);
        let origin = Origin::by_method(serve);
        let conf = conf.display().to_string();
        let mut daemon = Daemon::start(
            &vcl(origin.address, SUBS),
            &[&["-A", conf.as_str(), "-w", "127.0.0.1:0"][..], options].concat(),
        );
        let address = SocketAddr::from(([127, 0, 0, 1], daemon.port_of("secure")));
        Upgradable { served: Served { daemon, address, origin }, folder }
    }

    pub fn address(&self) -> SocketAddr {
        self.served.address
    }

    /// Begins an upgrade. [`Self::upgraded`] waits for its end.
    pub fn begin_upgrade(&self) {
        signal(self.served.daemon.manager(), "-USR2");
    }

    pub async fn upgraded(&mut self) {
        let upgrades = self.upgrades() + 1;
        let begun = Instant::now();
        while self.upgrades() < upgrades {
            assert!(begun.elapsed() < Duration::from_mins(1), "{}", self.served.daemon.stderr());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.served.daemon.banner();
    }

    fn upgrades(&self) -> usize {
        self.served.daemon.stderr().matches("Upgraded from").count()
    }

    /// Returns how many replaced workers have ended.
    fn ended(&self) -> usize {
        self.served.daemon.stderr().matches(") ended").count()
    }

    /// Returns the value of a counter, as the admin listener of the new daemon shows it.
    fn counter(&self, name: &str) -> u64 {
        let directory = self.served.daemon.directory();
        let read = || {
            let metrics = AdminPort::of(&directory)?.ask("GET", "/metrics", "").ok()?;
            let text = String::from_utf8(metrics.body).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.parse::<f64>().ok()
        };
        assert!(until(|| read().is_some()), "{name}: {}", self.served.daemon.stderr());
        read().expect("it was there") as u64
    }
}

/// The outcome of a request.
enum Outcome {
    Complete,
    /// The daemon has not begun it. It may be repeated on another connection.
    Repeatable,
    Failed(String),
}

/// Returns whether a connection ended because the daemon has closed it in order. A reset may answer a packet that the client
/// sends before it reads that, and its library then names the reset.
fn is_end(connection: &Connection, error: &ConnectionError) -> bool {
    match error {
        ConnectionError::ApplicationClosed(close) => close.error_code.into_inner() == NO_ERROR,
        ConnectionError::Reset => connection.stats().frame_rx.connection_close > 0,
        _ => false,
    }
}

/// Waits until the daemon closes the connection in order.
async fn closed(client: &Client) {
    let reason = tokio::time::timeout(Duration::from_secs(10), client.connection.closed()).await;
    let reason = reason.expect("the connection ends");
    assert!(is_end(&client.connection, &reason), "{reason:?}");
}

fn refused(client: &Client, error: &WriteError) -> bool {
    match error {
        WriteError::Stopped(code) => code.into_inner() == REJECTED,
        WriteError::ConnectionLost(error) => is_end(&client.connection, error),
        _ => false,
    }
}

async fn request(client: &Client, len: usize) -> Outcome {
    let (mut send, mut receive) = match client.try_open("GET", &format!("/{len}"), &[]).await {
        Ok(streams) => streams,
        Err(error) if refused(client, &error) => return Outcome::Repeatable,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let _ = send.finish();
    match try_response(&mut receive).await {
        Ok(page) if page.status() == "200" && page.body == body(len) => Outcome::Complete,
        Ok(page) => Outcome::Failed(format!("{len}: {} with {} bytes", page.status(), page.body.len())),
        Err(ReadToEndError::Read(ReadError::Reset(code))) if code.into_inner() == REJECTED => {
            Outcome::Repeatable
        }
        // The connection ends in order only when no request is in progress that was begun.
        Err(ReadToEndError::Read(ReadError::ConnectionLost(error))) if is_end(&client.connection, &error) => {
            Outcome::Repeatable
        }
        Err(error) => Outcome::Failed(format!("{len}: {error:?}")),
    }
}

#[derive(Default)]
struct Load {
    is_over: Cell<bool>,
    complete: Cell<u64>,
    repeated: Cell<u64>,
    connections: Cell<u64>,
    errors: RefCell<Vec<String>>,
    times: RefCell<Vec<Duration>>,
}

fn add(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Load {
    fn fail(&self, error: String) {
        self.errors.borrow_mut().push(error);
    }

    /// Requests pages until the end. A connection is used until its worker leaves, or for `most` requests.
    async fn run(self: Rc<Load>, address: SocketAddr, seed: u64, most: u64) {
        let mut random = Random(seed);
        while !self.is_over.get() {
            let client = match Client::try_connect(address).await {
                Ok(client) => client,
                Err(error) => {
                    self.fail(format!("no connection: {error}"));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            add(&self.connections);
            let leaves = Rc::new(Cell::new(false));
            let (noticed, connection) = (leaves.clone(), client.connection.clone());
            let watch = spawn_local(Client::watch(connection, move || noticed.set(true)));
            for _ in 0..most {
                if self.is_over.get() || leaves.get() {
                    break;
                }
                let len = SIZES[random.below(SIZES.len() as u64) as usize];
                let begun = Instant::now();
                match request(&client, len).await {
                    Outcome::Complete => {
                        add(&self.complete);
                        self.times.borrow_mut().push(begun.elapsed());
                    }
                    Outcome::Repeatable => {
                        add(&self.repeated);
                        break;
                    }
                    Outcome::Failed(error) => self.fail(error),
                }
            }
            client.close().await;
            watch.abort();
        }
    }

    /// Waits for the least number of requests.
    async fn is_enough(&self) {
        let begun = Instant::now();
        while self.complete.get() <= LEAST && begun.elapsed() < Duration::from_secs(20) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn check(&self) {
        let mut times = self.times.take();
        times.sort();
        let errors = self.errors.take();
        let at = |part: f64| times.get((times.len() as f64 * part) as usize);
        println!(
            "{} requests on {} connections, {} repeated, p50 {:?}, p99 {:?}, most {:?}",
            self.complete.get(),
            self.connections.get(),
            self.repeated.get(),
            at(0.5),
            at(0.99),
            times.last()
        );
        assert!(errors.is_empty(), "{} errors: {:?}", errors.len(), &errors[..errors.len().min(3)]);
        assert!(self.complete.get() > LEAST, "{} requests", self.complete.get());
    }
}

/// Runs a test with tasks on its thread.
fn run_local<R>(work: impl Future<Output = R>) -> R {
    run(LocalSet::new().run_until(work))
}

/// Begins a download, and reads some of it.
async fn begin_download(client: &Client) -> (RecvStream, Vec<u8>) {
    let (mut send, mut receive) = client.open("GET", &format!("/{LONG}/private"), &[]).await;
    let _ = send.finish();
    let mut bytes = vec![0; 1000];
    receive.read_exact(&mut bytes).await.expect("the response begins");
    (receive, bytes)
}

/// Begins a download on a new connection to each address.
async fn begin_downloads(addresses: &[SocketAddr]) -> Vec<(Client, (RecvStream, Vec<u8>))> {
    let mut clients = Vec::new();
    for &address in addresses {
        let client = Client::connect(address).await;
        let download = begin_download(&client).await;
        clients.push((client, download));
    }
    clients
}

/// Reads the rest of the downloads, after which their connections end.
async fn finish_downloads(clients: Vec<(Client, (RecvStream, Vec<u8>))>) {
    for (client, download) in clients {
        finish_download(download).await;
        closed(&client).await;
    }
}

/// Reads the rest of a download, and checks it.
async fn finish_download((mut receive, mut bytes): (RecvStream, Vec<u8>)) {
    let rest = tokio::time::timeout(Duration::from_mins(1), receive.read_to_end(2 * LONG)).await;
    bytes.extend(rest.expect("in time").expect("the download is complete"));
    let page = client::parse(&bytes);
    assert!(page.body == body(LONG), "{} bytes", page.body.len());
}

async fn finish_upload(mut send: SendStream, mut receive: RecvStream) {
    send.write_all(lacquer_h3::frame::data_header(100_000).as_slice()).await.expect("it reads");
    send.write_all(&body(100_000)).await.expect("it reads");
    send.finish().expect("it is open");
    assert_eq!(response(&mut receive).await.status(), "200");
}

/// Clients that keep their connections and clients with many connections see no error while the worker is replaced.
/// Downloads and uploads in progress end with the right bytes, also of a client that changes its address.
#[test]
fn an_upgrade_loses_no_request() {
    let mut it = Upgradable::start("load", &["-p", "reactors=2"]);
    let address = it.address();
    run_local(async {
        let still = Client::connect(address).await;
        let moves = Client::connect(address).await;
        for len in SIZES {
            still.get(&format!("/{len}")).await;
        }
        let downloads = [begin_download(&still).await, begin_download(&moves).await];
        let (send, receive) = still.open("POST", "/upload", &[("content-length", "100000")]).await;
        // Requests of a connection begin in their order, so that the upload has begun.
        still.get("/100").await;
        let load = Rc::new(Load::default());
        let tasks: Vec<_> = (0..8)
            .map(|seed| spawn_local(load.clone().run(address, seed, if seed < 4 { u64::MAX } else { 1 })))
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        it.begin_upgrade();
        it.upgraded().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        moves.endpoint.rebind(UdpSocket::bind("127.0.0.1:0").expect("a socket")).expect("the socket works");
        load.is_enough().await;
        load.is_over.set(true);
        for task in tasks {
            task.await.expect("a client ends");
        }
        load.check();
        assert_eq!(it.ended(), 0, "the old worker still serves");
        let [first, second] = downloads;
        tokio::join!(finish_download(first), finish_download(second), finish_upload(send, receive));
        for client in [still, moves] {
            closed(&client).await;
        }
    });
    assert!(until(|| it.counter("lacquer_main_h3_relayed_total") > 20));
    assert!(until(|| it.ended() == 1), "{}", it.served.daemon.stderr());
    it.served.serves();
    // Once more, without load.
    run_local(async {
        it.begin_upgrade();
        it.upgraded().await;
    });
    it.served.serves();
    assert!(until(|| it.ended() == 2));
    assert_eq!(it.served.origin.requests(), SIZES.len() + 2);
}

/// Sends the first packets of clients that go on no further.
pub fn begin_handshakes(address: SocketAddr, number: usize) -> Vec<UdpSocket> {
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sink.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    run(async {
        let endpoint = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
        let to = sink.local_addr().expect("it is bound");
        let mut sockets = Vec::new();
        for _ in 0..number {
            let connecting = endpoint.connect_with(client::config(), to, "example.test").expect("a name");
            let mut first = [0; 2000];
            tokio::time::sleep(Duration::from_millis(1)).await;
            let n = sink.recv(&mut first).expect("the first packet");
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.send_to(&first[..n], address).expect("it is sent");
            sockets.push(socket);
            drop(connecting);
        }
        sockets
    })
}

/// Clients that have to prove their address, because the worker is busy with handshakes, may begin at one worker and go
/// on at the next.
#[test]
fn clients_that_prove_their_address_reach_the_next_worker() {
    let mut it = Upgradable::start("retry", &["-p", "reactors=1", "-p", "tls_handshake_timeout=3"]);
    let address = it.address();
    let sockets = begin_handshakes(address, 60);
    run_local(async {
        let load = Rc::new(Load::default());
        let tasks: Vec<_> = (0..6).map(|seed| spawn_local(load.clone().run(address, seed, 1))).collect();
        tokio::time::sleep(Duration::from_millis(200)).await;
        it.begin_upgrade();
        it.upgraded().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        load.is_enough().await;
        load.is_over.set(true);
        for task in tasks {
            task.await.expect("a client ends");
        }
        load.check();
    });
    drop(sockets);
}

/// The number of sockets changes with the number of reactors.
#[test]
fn the_next_worker_may_have_another_number_of_reactors() {
    let mut it = Upgradable::start("reactors", &["-p", "reactors=3"]);
    let address = it.address();
    for reactors in [1, 4] {
        it.served.daemon.ok(&format!("param.set reactors {reactors}"));
        run_local(async {
            let clients = begin_downloads(&[address; 6]).await;
            it.begin_upgrade();
            it.upgraded().await;
            finish_downloads(clients).await;
        });
        it.served.serves();
        let upgrades = it.upgrades();
        assert!(until(|| it.ended() == upgrades), "{}", it.served.daemon.stderr());
    }
}

/// The next worker may have the listeners in another order. It passes on the packets of each to the right one.
#[test]
fn the_next_worker_may_have_its_listeners_in_another_order() {
    let mut it = Upgradable::start_with("order", &["secure", "other"], &["-p", "reactors=2"]);
    let other = SocketAddr::from(([127, 0, 0, 1], it.served.daemon.port_of("other")));
    run_local(async {
        let clients = begin_downloads(&[it.address(), other]).await;
        write_listeners(&it.folder, &["other", "secure"]);
        it.begin_upgrade();
        it.upgraded().await;
        finish_downloads(clients).await;
    });
    it.served.serves();
}

/// When the old worker dies, its clients learn it at once. When the new one dies, the one after it passes on the packets.
#[test]
fn either_worker_may_die_during_an_upgrade() {
    let mut it = Upgradable::start("dies", &["-p", "reactors=2"]);
    let address = it.address();
    run_local(async {
        let client = Client::connect(address).await;
        let download = begin_download(&client).await;
        let oldest = it.served.daemon.worker();
        it.begin_upgrade();
        it.upgraded().await;
        let second = it.served.daemon.worker();
        signal(second, "-KILL");
        let daemon = &mut it.served.daemon;
        assert!(until(|| daemon.ok("status").contains("running") && daemon.worker() != second));
        finish_download(download).await;

        drop(client);
        let lost = Client::connect(address).await;
        let _download = begin_download(&lost).await;
        assert!(until(|| it.ended() >= 1), "{}", it.served.daemon.stderr());
        let old = it.served.daemon.worker();
        assert_ne!(old, oldest);
        it.begin_upgrade();
        it.upgraded().await;
        signal(old, "-KILL");
        let begun = Instant::now();
        let _ = request(&lost, 100).await;
        let reason = tokio::time::timeout(Duration::from_secs(10), lost.connection.closed()).await;
        let reason = reason.expect("the connection ends");
        assert!(matches!(reason, ConnectionError::Reset), "{reason:?} after {:?}", begun.elapsed());
    });
    it.served.serves();
}

/// Packets with forged or repeated marks of the old worker disturb neither its connections nor the new worker.
#[test]
fn forged_marks_disturb_no_connection() {
    let mut it = Upgradable::start("forged", &["-p", "reactors=2"]);
    let address = it.address();
    let relay = Relay::start(address, NO_FAULTS, 1);
    run_local(async {
        let client = Client::connect(relay.address).await;
        client.get("/1000").await;
        let download = begin_download(&client).await;
        it.begin_upgrade();
        it.upgraded().await;
        let recorded = relay.recorded();
        let before = it.served.daemon.resident().memory;
        let mut random = Random(5);
        let flood = |random: &mut Random| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            for at in 0..effort(30_000, 300_000) as usize {
                let mut bytes = recorded[at % recorded.len()].clone();
                match at % 4 {
                    // Repeated from another address.
                    0 | 1 => {}
                    2 => {
                        let bit = random.below(8 * bytes.len().min(16) as u64) as usize;
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                    _ => bytes = [&[0x40][..], &random.bytes(40)].concat(),
                }
                let _ = socket.send_to(&bytes, address);
            }
        };
        flood(&mut random);
        let other = Client::connect(address).await;
        assert_eq!(other.get("/1000").await.body, body(1000));
        let grown = it.served.daemon.resident().memory.saturating_sub(before);
        assert!(grown < 20 << 20, "{} kB", grown >> 10);
        finish_download(download).await;
        drop(client);
        // The flood may have displaced the client's last packet. The old worker then ends when the connection is idle.
        let left = Instant::now();
        while it.ended() == 0 && left.elapsed() < IDLE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(it.ended(), 1, "{}", it.served.daemon.stderr());
        // The marks of a worker that has ended.
        flood(&mut random);
        assert_eq!(other.get("/1000").await.body, body(1000));
    });
    assert!(until(|| it.counter("lacquer_main_h3_relayed_total") > 100));
}

/// A client that ignores GOAWAY does not keep the old worker alive: its later requests are rejected.
#[test]
fn a_client_that_stays_is_rejected() {
    let mut it = Upgradable::start("stays", &["-p", "reactors=1"]);
    let address = it.address();
    run_local(async {
        let client = Client::connect(address).await;
        let download = begin_download(&client).await;
        it.begin_upgrade();
        it.upgraded().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        for _ in 0..3 {
            let outcome = request(&client, 100).await;
            assert!(matches!(outcome, Outcome::Repeatable), "it is rejected");
        }
        finish_download(download).await;
        closed(&client).await;
    });
    assert!(until(|| it.ended() == 1), "{}", it.served.daemon.stderr());
}

/// A daemon that stops under load answers what it has begun, and rejects the rest.
#[test]
fn a_daemon_that_stops_loses_no_request() {
    let mut it = Upgradable::start("stop", &["-p", "reactors=2"]);
    let address = it.address();
    run_local(async {
        let client = Client::connect(address).await;
        let download = begin_download(&client).await;
        let load = Rc::new(Load::default());
        let tasks: Vec<_> =
            (0..4).map(|seed| spawn_local(load.clone().run(address, seed, u64::MAX))).collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        load.is_enough().await;
        signal(it.served.daemon.manager(), "-TERM");
        // New connections are refused as soon as the worker stops.
        load.is_over.set(true);
        for task in tasks {
            task.await.expect("a client ends");
        }
        load.check();
        let begun = Instant::now();
        let refused = loop {
            assert!(begun.elapsed() < Duration::from_secs(5), "new connections are accepted");
            if let Err(error) = Client::try_connect(address).await {
                break error;
            }
        };
        assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused:?}");
        finish_download(download).await;
        closed(&client).await;
    });
    assert_eq!(it.served.daemon.end(), Some(0));
}
