//! One world, from its seed to its end.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lacquer_cache::disk::OpenDisks;
use lacquer_cache::invalidation::InvalidationListener;
use lacquer_cli::link::Request;
use lacquer_net::memory;
use lacquer_params::{ParamSet, Params};
use lacquer_sources::clock;
use lacquer_sources::random::{self, Random};
use lacquer_storage::{Arena, Kind, Stevedore, UnusedFiles};
use lacquer_testing::slow_store::{Faults, SlowStore};
use lacquer_worker::simulated::{self, Engine, Holdings};
use tokio::runtime::LocalOptions;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::certificate::Sides;
use crate::client::Client;
use crate::disk::{self, MemoryDevice};
use crate::h2_client::H2Client;
use crate::h3_client::H3Client;
use crate::journal::Journal;
use crate::ledger::{Ledger, Rules};
use crate::log_reader::LogReader;
use crate::network::Network;
use crate::operator::Operator;
use crate::origin::Origin;
use crate::panics;
use crate::proxy::{self, ProxyHeader};
use crate::requester::Requester;
use crate::vcl::{self, Program};
use crate::wire::{self, Chance, Incoming, below, one_of, percent};

/// The start time of every world, in seconds since the epoch.
const BEGINNING: f64 = 1_800_000_000.0;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub seed: u64,
    pub requests: u64,
    /// The number of complete responses that clients received.
    pub complete: u64,
    /// The number of responses that origins sent.
    pub sent: usize,
    /// The duration in simulated seconds.
    pub seconds: f64,
    /// Violations of the rules.
    pub faults: Vec<String>,
    /// A hash of all events.
    pub trace: u64,
}

/// Runs the world of a seed. `prints_events` prints its events.
pub fn run(seed: u64, prints_events: bool) -> io::Result<Report> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Files on tmpfs are faster.
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let place = parent.join(format!("lacquer-world-{}-{number}", std::process::id()));
    random::seed(seed);
    panics::forget();
    let chance: Chance = Rc::new(RefCell::new(Random::new(seed)));
    let nature = Nature::choose(&chance);
    // The numbers of the worlds without a disk do not depend on it.
    let other: Chance = Rc::new(RefCell::new(Random::new(seed ^ 0x6469_736b)));
    let nature = if percent(&other, 35) { nature.with_a_disk(&other) } else { nature };
    let datagrams: Chance = Rc::new(RefCell::new(Random::new(seed ^ 0x7175_6963)));
    let datagrams = percent(&datagrams, 30).then_some(datagrams);
    let ledger = Rc::new(RefCell::new(Ledger::new(prints_events, nature.rules())));
    clock::simulate(BEGINNING);
    let disk = nature.has_disk.then(|| MemoryDevice::new(&other, nature.store_errors())).transpose()?;
    let mut life = Life { nature, chance, datagrams, ledger, place, begins: BEGINNING, disk };
    let lived = life.all();
    std::fs::remove_dir_all(&life.place)?;
    let seconds = lived?;
    let mut ledger = life.ledger.borrow_mut();
    for text in panics::found() {
        ledger.fault(&text);
    }
    let (requests, complete, sent) = ledger.counts();
    let faults = ledger.faults().to_vec();
    Ok(Report { seed, requests, complete, sent, seconds, faults, trace: ledger.trace() })
}

/// The life of a worker in a world.
struct Life {
    nature: Nature,
    chance: Chance,
    /// The random numbers of the clients of HTTP/3 and their network, if there are any.
    datagrams: Option<Chance>,
    ledger: Rc<RefCell<Ledger>>,
    /// The directory of its shared memory.
    place: PathBuf,
    /// The time of its start.
    begins: f64,
    disk: Option<MemoryDevice>,
}

impl Life {
    /// Runs the worker and, if it is killed, the next one, which takes over its memory, or has only its disk, as after a cut
    /// of power. Returns the duration in simulated seconds.
    fn all(&mut self) -> io::Result<f64> {
        let first = if self.nature.dies.is_some() {
            UnusedFiles::new()?.open(self.nature.storage)?
        } else {
            Arena::anonymous(Some(self.nature.storage))?
        };
        if let Some(left) = self.run(first)? {
            self.nature.dies = None;
            self.begins += RESTART;
            let size = self.nature.storage;
            if self.nature.loses_memory {
                self.disk = self.disk.take().map(MemoryDevice::cut_power);
                drop(left);
                self.run(Arena::anonymous(Some(size))?)?;
            } else {
                self.run(left.open(size)?)?;
            }
        }
        Ok(self.begins - BEGINNING)
    }

    /// Runs a worker over this arena to its end. Returns its memory if it was killed.
    fn run(&mut self, first: Arc<Arena>) -> io::Result<Option<UnusedFiles>> {
        let arenas = [first, Arena::anonymous(Some(8 << 20))?];
        if self.place.exists() {
            std::fs::remove_dir_all(&self.place)?;
        }
        std::fs::create_dir_all(&self.place)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build_local(LocalOptions::default())?;
        let lived = runtime.block_on(async {
            let world = World::begin(self, &arenas)?;
            let left = world.live().await?;
            Ok::<_, io::Error>((left, clock::real()))
        });
        memory::serve_nothing();
        // All tasks end here, in whatever state.
        drop(runtime);
        let (left, end) = lived?;
        self.begins = end;
        let used: u64 = arenas.iter().map(|arena| arena.used()).sum();
        if used > 0 {
            self.ledger.borrow_mut().fault(&format!("{used} bytes are in use after the end of the engine"));
        }
        Ok(left)
    }
}

/// The time at which a worker is killed.
#[derive(Clone, Copy)]
struct Death {
    /// In milliseconds.
    after: u64,
    /// Then the worker is killed only at the next purge, if there is one within `PURGE_WITHIN`.
    at_purge: bool,
}

/// The properties of a world.
#[derive(Clone)]
struct Nature {
    /// Bytes.
    storage: u64,
    /// The number of pages of each kind.
    pages: u64,
    clients: u64,
    most_requests: u64,
    /// The share of responses that are faulty, in percent.
    faulty: u64,
    /// The length of the longest page.
    longest: usize,
    /// The time in milliseconds after which the engine ends, in whatever state.
    ends_after: Option<u64>,
    /// The time in milliseconds after which the worker is drained.
    drains_after: Option<u64>,
    /// The worker is killed. The next one takes over its memory.
    dies: Option<Death>,
    reactors: usize,
    /// See [`Requester::is_patient`].
    is_patient: bool,
    /// Whether the VCL is changed while clients are served.
    changes_vcl: bool,
    has_probes: bool,
    /// Whether a failed include ends the response.
    onerror: bool,
    /// The storage keeps bodies on a device.
    has_device: bool,
    /// The storage writes its objects to a disk.
    has_disk: bool,
    /// The next worker does not take over the memory, and what was not durable on the disk may be lost.
    loses_memory: bool,
    /// The percentage of the reads of the device or the disk that fail.
    read_errors: u64,
    /// The number of other variants that a lookup tests against the bans.
    ban_any_variant: u64,
    /// The engine caches by RFC 9111 to the letter, and keeps parts of responses.
    follows_rfc9111: bool,
    /// See [`Requester::has_favourite`].
    has_favourite: bool,
    /// See [`Origin::cuts`].
    cuts: bool,
}

const CRAMPED: u64 = 1 << 20;
const ROOMY: u64 = 64 << 20;
/// The limit of the second origin, as in the VCL.
const MOST_AT_ONCE: usize = 4;
/// The time between two rounds of the helper threads, and the time after the end of all clients.
const HELP_EVERY: Duration = Duration::from_millis(100);
/// The time between the death of a worker and the start of the next one, in seconds.
const RESTART: f64 = 0.1;
const PURGE_WITHIN: Duration = Duration::from_secs(5);
const HELP_SELDOM: Duration = Duration::from_secs(2);

impl Nature {
    fn choose(chance: &Chance) -> Nature {
        let nature = Nature::choose_any(chance);
        match below(chance, 10) {
            0 => nature.with_a_faulty_device_only(),
            1 => nature.with_a_killed_worker(below(chance, 25_000)),
            2 => nature.with_a_favourite_purged_at_death(below(chance, 5000)),
            3 | 4 => nature.with_parts(),
            _ => nature,
        }
    }

    /// Objects on a device do not outlive the worker in memory.
    fn with_a_killed_worker(self, milliseconds: u64) -> Nature {
        let dies = Some(Death { after: milliseconds, at_purge: false });
        Nature { dies, ends_after: None, drains_after: None, has_device: false, ..self }
    }

    /// Makes it probable that the page is in the memory when it is purged, and is requested from the next worker.
    fn with_a_favourite_purged_at_death(self, milliseconds: u64) -> Nature {
        let nature = self.with_a_killed_worker(milliseconds);
        let faulty = nature.faulty.min(5);
        let nature = Nature { most_requests: 40, faulty, longest: 10_000, storage: ROOMY, ..nature };
        let dies = Some(Death { after: milliseconds, at_purge: true });
        Nature { dies, has_favourite: true, pages: 1, ..nature }
    }

    /// Makes parts of bodies frequent.
    fn with_parts(self) -> Nature {
        Nature { faulty: 50, pages: 1, follows_rfc9111: true, has_favourite: true, cuts: true, ..self }
    }

    /// Leaves no other reason for a refused request than a bad decision after a failed read.
    fn with_a_faulty_device_only(self) -> Nature {
        Nature { storage: ROOMY, faulty: 0, has_probes: false, has_device: true, read_errors: 30, ..self }
    }

    fn choose_any(chance: &Chance) -> Nature {
        Nature {
            storage: if percent(chance, 30) { CRAMPED } else { ROOMY },
            pages: one_of(chance, &[1, 2, 8]),
            clients: 2 + below(chance, 30),
            most_requests: one_of(chance, &[3, 10, 40]),
            faulty: one_of(chance, &[0, 5, 20, 50]),
            longest: one_of(chance, &[10_000, 100_000, 400_000]),
            ends_after: percent(chance, 10).then(|| below(chance, 20_000)),
            drains_after: percent(chance, 20).then(|| below(chance, 20_000)),
            dies: None,
            reactors: one_of(chance, &[1, 2]),
            is_patient: percent(chance, 40),
            changes_vcl: percent(chance, 60),
            has_probes: percent(chance, 30),
            onerror: percent(chance, 40),
            has_device: percent(chance, 40),
            has_disk: false,
            loses_memory: false,
            read_errors: one_of(chance, &[0, 2, 30]),
            ban_any_variant: one_of(chance, &[0, 2, 10_000]),
            follows_rfc9111: percent(chance, 20),
            has_favourite: false,
            cuts: false,
        }
    }

    /// Objects are read from the disk when they have left the memory, or when it is lost with the worker.
    fn with_a_disk(self, chance: &Chance) -> Nature {
        let storage = if percent(chance, 70) { CRAMPED } else { self.storage };
        let loses_memory = percent(chance, 50);
        let read_errors = if percent(chance, 70) { 0 } else { self.read_errors };
        Nature { storage, has_disk: true, has_device: false, loses_memory, read_errors, ..self }
    }

    /// The share of the reads of the device or the disk that fail, in percent.
    fn store_errors(&self) -> u64 {
        if self.has_device || self.has_disk { self.read_errors } else { 0 }
    }

    fn programs(&self) -> [Program; 2] {
        [true, false].map(|is_lenient| Program { is_lenient, has_probes: self.has_probes })
    }

    /// The time for which a stale object may replace an error of the origin, in seconds.
    fn stale_for_errors(&self) -> f64 {
        if self.follows_rfc9111 { 30.0 } else { 0.0 }
    }

    fn rules(&self) -> Rules {
        Rules {
            grace: self.programs().map(Program::grace).into_iter().fold(self.stale_for_errors(), f64::max),
            onerror: self.onerror,
            loses_bodies: self.storage <= CRAMPED || self.store_errors() > 0,
            has_excuse: !self.fetches_all(),
        }
    }

    /// Chooses the periods in which an origin fails its probes.
    fn sick_periods(&self, chance: &Chance) -> Rc<[(f64, f64)]> {
        if !self.has_probes || percent(chance, 40) {
            return Rc::new([]);
        }
        let from = BEGINNING + below(chance, 20) as f64;
        Rc::new([(from, from + one_of(chance, &[1.0, 5.0, 30.0]))])
    }

    /// Returns whether every cacheable response stays in the cache for its lifetime. It may not: a fault on a
    /// connection, or its end within a response, drops the objects that came over it; a full storage evicts any object;
    /// and an object is dropped if the device cannot read it.
    fn keeps_all(&self) -> bool {
        let loses_none = self.storage > CRAMPED && !self.loses_memory && self.store_errors() == 0;
        self.faulty == 0 && self.is_patient && loses_none
    }

    /// Returns whether every page can be delivered, from the storage or from its origin.
    fn fetches_all(&self) -> bool {
        self.faulty == 0 && self.storage > CRAMPED && !self.has_probes
    }
}

struct World {
    nature: Nature,
    chance: Chance,
    ledger: Rc<RefCell<Ledger>>,
    journal: Journal,
    engine: Rc<Engine>,
    log: Rc<RefCell<LogReader>>,
    arena: Arc<Arena>,
    /// The network of the clients of HTTP/3, if there are any.
    network: Option<(Chance, Rc<Network>)>,
}

impl World {
    fn begin(life: &Life, arenas: &[Arc<Arena>; 2]) -> io::Result<World> {
        let Life { nature, chance, datagrams, ledger, place, begins, disk } = life;
        let (nature, chance, ledger) = (nature.clone(), chance.clone(), ledger.clone());
        clock::simulate(*begins);
        let [first, transient] = arenas;
        let mut storage = Stevedore::new("s0", Kind::Malloc, 0, first.clone());
        if nature.has_device {
            let faults = Faults { short: 30, errors: nature.store_errors() };
            let store = SlowStore::new(below(&chance, u64::MAX), faults)?;
            tokio::task::spawn_local(work_off(store.clone(), 1 + below(&chance, 20)));
            storage = storage.with_device(Arc::new(store));
        }
        let storages = vec![storage, Stevedore::new("Transient", Kind::Malloc, 1, transient.clone())];
        let config = simulated::config("world", place.to_owned(), params(&nature)?);
        let dir = File::open(place)?.into();
        let journal = Journal::default();
        let listeners: Vec<Box<dyn InvalidationListener>> = vec![Box::new(journal.clone())];
        let disks = disk.as_ref().map_or(Ok(OpenDisks::default()), MemoryDevice::open)?;
        for disk in &disks.disks {
            tokio::task::spawn_local(disk::work(disk.running.clone(), chance.clone()));
        }
        let engine = Engine::start(config, dir, storages, disks, listeners).map_err(io::Error::other)?;
        let log = Rc::new(RefCell::new(LogReader::open(place)?));
        let network =
            datagrams.as_ref().map(|chance| (chance.clone(), Network::new(chance, nature.reactors)));
        if let Some((_, network)) = &network {
            let frontend = Sides::get().frontend();
            engine.serve_http3(network.wires().to_vec(), &frontend).map_err(io::Error::other)?;
            network.begin();
        }
        let (engine, arena) = (Rc::new(engine), first.clone());
        Ok(World { nature, chance, ledger, journal, engine, log, arena, network })
    }

    fn fault(&self, text: &str) {
        self.ledger.borrow_mut().fault(text);
    }

    /// Runs until the end of the world, or until the worker is killed: then returns its memory.
    async fn live(&self) -> io::Result<Option<UnusedFiles>> {
        self.open_origins();
        let operator = Operator {
            chance: self.chance.clone(),
            ledger: self.ledger.clone(),
            engine: self.engine.clone(),
            programs: self.nature.programs(),
            changes_vcl: self.nature.changes_vcl,
            pages: self.nature.pages,
        };
        operator.load("vcl0", 0).map_err(io::Error::other)?;
        let helper = tokio::task::spawn_local(help(self.engine.clone(), self.log.clone(), HELP_EVERY));
        let operator = tokio::task::spawn_local(operator.work());
        let mut clients: Vec<_> = (0..self.nature.clients).map(|_| self.client()).collect();
        if let Some((chance, network)) = &self.network {
            let number = 1 + below(chance, 12);
            clients.extend((0..number).map(|_| self.http3_client(chance, network)));
        }
        if let Some(milliseconds) = self.nature.drains_after {
            tokio::task::spawn_local(drain(self.engine.clone(), self.ledger.clone(), milliseconds));
        }
        if let Some(milliseconds) = self.nature.ends_after {
            sleep(Duration::from_millis(milliseconds)).await;
            return Ok(None);
        }
        if let Some(Death { after, at_purge }) = self.nature.dies {
            sleep(Duration::from_millis(after)).await;
            if at_purge {
                self.next_purge().await;
            }
            self.ledger.borrow_mut().killed();
            return self.arena.copy_files().map(Some);
        }
        for client in clients {
            // Panics are recorded separately.
            let _ = client.await;
        }
        operator.abort();
        if self.nature.keeps_all() {
            self.ledger.borrow_mut().check_fetches();
        }
        helper.abort();
        tokio::task::spawn_local(help(self.engine.clone(), self.log.clone(), HELP_SELDOM));
        self.drop_all().await;
        Ok(None)
    }

    /// Waits until a client has purged a page.
    async fn next_purge(&self) {
        let purge = self.ledger.borrow().purge();
        // It is too late for a purge if all clients have ended.
        let _ = timeout(PURGE_WITHIN, purge.notified()).await;
    }

    fn open_origins(&self) {
        for (name, most) in [("one", None), ("two", Some(MOST_AT_ONCE))] {
            let origin = Origin {
                chance: self.chance.clone(),
                ledger: self.ledger.clone(),
                faulty: self.nature.faulty,
                longest: self.nature.longest,
                cuts: self.nature.cuts,
                pages: self.nature.pages,
                sick: self.nature.sick_periods(&self.chance),
                // Each VCL counts its requests separately.
                most_at_once: most.filter(|_| !self.nature.changes_vcl),
                busy: Rc::default(),
            };
            origin.listen(&vcl::path_of(name));
        }
    }

    /// Returns the requests of a client with an address.
    fn requester(&self, chance: &Chance, address: IpAddr) -> Requester {
        Requester {
            chance: chance.clone(),
            ledger: self.ledger.clone(),
            journal: self.journal.clone(),
            pages: self.nature.pages,
            has_favourite: self.nature.has_favourite,
            is_patient: self.nature.is_patient,
            address,
            known: RefCell::default(),
        }
    }

    /// Starts a client that connects at a random time.
    fn client(&self) -> JoinHandle<()> {
        let chance = &self.chance;
        let ends = wire::ends(chance);
        let (stream, peer) = memory::connection(wire::limits(chance), ends);
        let mut requester = self.requester(chance, ends.peer.ip());
        let mut incoming = Incoming { slowness: one_of(chance, &[0, 0, 0, 5, 100]), ..Incoming::default() };
        let most_requests = self.nature.most_requests;
        let is_h2 = percent(chance, 30);
        let header = percent(chance, 15).then(|| proxy::choose(chance));
        let is_damaged = header.is_some() && percent(chance, 20);
        let reactor = below(chance, self.nature.reactors as u64) as usize;
        let after = Duration::from_millis(below(chance, one_of(chance, &[10, 20_000])));
        let engine = self.engine.clone();
        tokio::task::spawn_local(async move {
            sleep(after).await;
            engine.serve(stream, reactor, header.is_some());
            if is_damaged {
                return proxy::run_damaged(&peer, &mut incoming, &requester).await;
            }
            if let Some(ProxyHeader { bytes, address }) = header {
                requester.address = address.unwrap_or(requester.address);
                // If the engine has closed the connection, the client detects that.
                let _ = wire::write(&peer, &bytes, &requester.chance).await;
            }
            if is_h2 {
                H2Client { requester, peer, incoming, most_requests }.run().await;
            } else {
                Client { requester, peer, incoming, most_requests }.run().await;
            }
        })
    }

    /// Starts a client of HTTP/3 that connects at a random time.
    fn http3_client(&self, chance: &Chance, network: &Rc<Network>) -> JoinHandle<()> {
        let address = wire::ends(chance).peer;
        let client = H3Client {
            requester: self.requester(chance, address.ip()),
            network: network.clone(),
            address,
            config: Sides::get().client(),
            most_requests: self.nature.most_requests,
        };
        let after = Duration::from_millis(below(chance, one_of(chance, &[10, 20_000])));
        tokio::task::spawn_local(async move {
            sleep(after).await;
            client.run().await;
        })
    }

    /// Drops all objects, and checks that nothing is left.
    async fn drop_all(&self) {
        // Fetches for the cache continue without their clients.
        sleep(Duration::from_mins(1)).await;
        let everything = ["ban", "obj.status", "!=", "0"].map(Vec::from).to_vec();
        if let Err(why) = self.engine.carry_out(Request::Cli { argv: everything }) {
            self.fault(&format!("the last ban is refused: {why}"));
        }
        // By then all timeouts have passed, and the ban lurker has tested every object.
        sleep(Duration::from_secs(200)).await;
        let left = self.engine.holdings();
        if left != Holdings::default() {
            self.fault(&format!("at the end there are still {left:?}"));
        }
        let open = self.log.borrow().open_transactions().unwrap_or_default();
        if !open.is_empty() {
            self.fault(&format!("transactions of the log that did not end: {open:?}"));
        }
    }
}

fn params(nature: &Nature) -> io::Result<Params> {
    let mut params = ParamSet::default();
    let onerror = if nature.onerror { "+esi_include_onerror" } else { "-esi_include_onerror" };
    let rfc9111 = if nature.follows_rfc9111 { "+rfc9111" } else { "-rfc9111" };
    for (name, value) in [
        ("vsl_space", "1M"),
        ("thread_pools", "1"),
        ("reactors", &nature.reactors.to_string()),
        ("ban_any_variant", &nature.ban_any_variant.to_string()),
        ("feature", "+http2"),
        ("feature", "+esi_disable_xml_check"),
        ("feature", onerror),
        ("feature", rfc9111),
        ("stale_if_error", &nature.stale_for_errors().to_string()),
    ] {
        params.set(name, value).map_err(io::Error::other)?;
    }
    Ok(params.values().clone())
}

/// Completes pending reads and writes of a store at intervals, without end.
async fn work_off(store: SlowStore, milliseconds: u64) {
    loop {
        sleep(Duration::from_millis(milliseconds)).await;
        store.step();
    }
}

/// Drains the worker after this time.
async fn drain(engine: Rc<Engine>, ledger: Rc<RefCell<Ledger>>, milliseconds: u64) {
    sleep(Duration::from_millis(milliseconds)).await;
    ledger.borrow_mut().drain();
    engine.drain();
}

/// Does the work of the engine's helper threads and reads the log, without end.
async fn help(engine: Rc<Engine>, log: Rc<RefCell<LogReader>>, pause: Duration) {
    loop {
        engine.help();
        log.borrow_mut().follow().expect("the log is a file in memory");
        sleep(pause).await;
    }
}
