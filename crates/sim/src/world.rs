//! One world, from its seed to its end.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lacquer_cli::link::{AddressSpace, Request, WorkerConfig};
use lacquer_net::memory;
use lacquer_params::{ParamSet, Params};
use lacquer_sources::clock;
use lacquer_sources::random::{self, Random};
use lacquer_storage::{Arena, Kind, Stevedore};
use lacquer_vcl::{NoFiles, NumericResolver, Options};
use lacquer_worker::simulated::{Engine, Holdings};
use tokio::runtime::LocalOptions;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::asker::Asker;
use crate::client::Client;
use crate::h2_client::H2Client;
use crate::ledger::Ledger;
use crate::operator::Operator;
use crate::origin::Origin;
use crate::panics;
use crate::wire::{self, Chance, Incoming, below, one_of, percent};

/// The time at which every world begins, in seconds since the epoch.
const BEGINNING: f64 = 1_800_000_000.0;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub seed: u64,
    pub requests: u64,
    /// Responses that clients got in full.
    pub complete: u64,
    /// Responses that origins sent.
    pub sent: usize,
    /// Seconds of the world's time.
    pub seconds: f64,
    /// What should not have happened.
    pub faults: Vec<String>,
    /// Follows from all that happened.
    pub trace: u64,
}

const VCL: &str = r#"vcl 4.1;
backend one { .path = "PLACE/one"; .first_byte_timeout = 4s; .between_bytes_timeout = 2s; .connect_timeout = 1s; }
backend two { .path = "PLACE/two"; .first_byte_timeout = 4s; .between_bytes_timeout = 2s; .max_connections = 4; }
sub vcl_recv {
    if (req.url ~ "[13579]$") { set req.backend_hint = two; }
    if (req.method == "PURGE") { return (purge); }
    if (req.url ~ "^/pass/") { return (pass); }
    return (hash);
}
sub vcl_backend_response {
    set beresp.http.X-Path = bereq.url;
    set beresp.grace = GRACE;
    set beresp.keep = KEEP;
    if (bereq.url ~ "[37]$") { set beresp.do_stream = false; }
}
sub vcl_backend_error { if (bereq.retries < RETRIES) { return (retry); } }
sub vcl_deliver { set resp.http.X-Request = req.http.X-Request; }
sub vcl_synth { set resp.http.X-Request = req.http.X-Request; }
"#;

/// Runs the world of a seed. `tells` prints what happens in it.
pub fn run(seed: u64, tells: bool) -> io::Result<Report> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = std::env::temp_dir().join(format!("lacquer-world-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(LocalOptions::default())?;
    random::seed(seed);
    panics::forget();
    let chance: Chance = Rc::new(RefCell::new(Random::new(seed)));
    let nature = Nature::choose(&chance);
    let arenas = [Arena::anonymous(Some(nature.storage))?, Arena::anonymous(Some(8 << 20))?];
    let lived = runtime.block_on(async {
        let world = World::begin(nature, chance, place.clone(), &arenas, Ledger::new(tells))?;
        let begun = clock::real();
        world.live().await?;
        Ok::<_, io::Error>((world.ledger.clone(), clock::real() - begun))
    });
    memory::serve_nothing();
    // All tasks end here, wherever they are.
    drop(runtime);
    std::fs::remove_dir_all(&place)?;
    let (ledger, seconds) = lived?;
    let mut ledger = ledger.borrow_mut();
    let left: u64 = arenas.iter().map(|arena| arena.used()).sum();
    if left > 0 {
        ledger.fault(&format!("{left} bytes are in use after the end of the engine"));
    }
    for text in panics::found() {
        ledger.fault(&text);
    }
    let (requests, complete, sent) = ledger.counts();
    let faults = ledger.faults().to_vec();
    Ok(Report { seed, requests, complete, sent, seconds, faults, trace: ledger.trace() })
}

/// What a world is like.
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
    /// The engine ends after so many milliseconds, whatever it does then.
    ends_after: Option<u64>,
}

const CRAMPED: u64 = 1 << 20;

impl Nature {
    fn choose(chance: &Chance) -> Nature {
        Nature {
            storage: if percent(chance, 30) { CRAMPED } else { 64 << 20 },
            pages: one_of(chance, &[1, 2, 8]),
            clients: 2 + below(chance, 30),
            most_requests: one_of(chance, &[3, 10, 40]),
            faulty: one_of(chance, &[0, 5, 20, 50]),
            longest: one_of(chance, &[10_000, 100_000, 400_000]),
            ends_after: percent(chance, 10).then(|| below(chance, 20_000)),
        }
    }

    /// Returns whether nothing that may be cached is lost before its time: a fault on a connection drops what came over
    /// it, and a full storage drops anything.
    fn keeps_all(&self) -> bool {
        self.faulty == 0 && self.storage > CRAMPED
    }
}

struct World {
    nature: Nature,
    chance: Chance,
    ledger: Rc<RefCell<Ledger>>,
    engine: Rc<Engine>,
    place: PathBuf,
}

impl World {
    fn begin(
        nature: Nature,
        chance: Chance,
        place: PathBuf,
        arenas: &[Arc<Arena>; 2],
        ledger: Ledger,
    ) -> io::Result<World> {
        clock::simulate(BEGINNING);
        let [first, transient] = arenas;
        let storages = vec![
            Stevedore::new("s0", Kind::Malloc, 0, first.clone()),
            Stevedore::new("Transient", Kind::Malloc, 1, transient.clone()),
        ];
        let config = WorkerConfig {
            identity: "world".into(),
            workdir: place.clone(),
            sockets: Vec::new(),
            storages: Vec::new(),
            address_space: AddressSpace { reserve: 1 << 30, heaps: None },
            params: params()?,
            credentials: None,
            vsm_fd: -1,
            panic_fd: -1,
            manager_pid: std::process::id(),
        };
        let engine = Engine::start(config, File::open(&place)?.into(), storages).map_err(io::Error::other)?;
        Ok(World { nature, chance, ledger: Rc::new(RefCell::new(ledger)), engine: Rc::new(engine), place })
    }

    fn programs(&self) -> io::Result<Rc<[Vec<u8>]>> {
        let compile = |(grace, keep, retries): &(&str, &str, &str)| {
            let place = self.place.to_string_lossy();
            let text = VCL.replace("PLACE", &place).replace("GRACE", grace);
            let text = text.replace("KEEP", keep).replace("RETRIES", retries);
            let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &NumericResolver);
            let compiled = lacquer_vcl::compile("world", text, &options)
                .map_err(|found| io::Error::other(lacquer_vcl::vcl_load_text(&found)))?;
            postcard::to_stdvec(&compiled.program).map_err(io::Error::other)
        };
        [("10s", "30s", "1"), ("0s", "0s", "0")].iter().map(compile).collect()
    }

    fn fault(&self, text: &str) {
        self.ledger.borrow_mut().fault(text);
    }

    async fn live(&self) -> io::Result<()> {
        self.open_origins();
        let operator = Operator {
            chance: self.chance.clone(),
            ledger: self.ledger.clone(),
            engine: self.engine.clone(),
            programs: self.programs()?,
            pages: self.nature.pages,
        };
        operator.load("vcl0", 0).map_err(io::Error::other)?;
        tokio::task::spawn_local(help(self.engine.clone()));
        let operator = tokio::task::spawn_local(operator.work());
        let clients: Vec<_> = (0..self.nature.clients).map(|_| self.client()).collect();
        if let Some(milliseconds) = self.nature.ends_after {
            sleep(Duration::from_millis(milliseconds)).await;
            return Ok(());
        }
        for client in clients {
            // A panic is found by itself.
            let _ = client.await;
        }
        operator.abort();
        if self.nature.keeps_all() {
            self.ledger.borrow_mut().check_fetches(|path| path.starts_with("/calm/"));
        }
        self.let_go().await;
        Ok(())
    }

    fn open_origins(&self) {
        let origin = Origin {
            chance: self.chance.clone(),
            ledger: self.ledger.clone(),
            faulty: self.nature.faulty,
            longest: self.nature.longest,
        };
        for name in ["one", "two"] {
            origin.listen(&self.place.join(name).to_string_lossy());
        }
    }

    /// A client that connects at some time.
    fn client(&self) -> JoinHandle<()> {
        let (stream, peer) = memory::connection(wire::limits(&self.chance), wire::ends(&self.chance));
        let asker =
            Asker { chance: self.chance.clone(), ledger: self.ledger.clone(), pages: self.nature.pages };
        let incoming = Incoming { slowness: one_of(&self.chance, &[0, 0, 0, 5, 100]), ..Incoming::default() };
        let most_requests = self.nature.most_requests;
        let is_h2 = percent(&self.chance, 30);
        let after = Duration::from_millis(below(&self.chance, one_of(&self.chance, &[10, 20_000])));
        let engine = self.engine.clone();
        tokio::task::spawn_local(async move {
            sleep(after).await;
            engine.serve(stream);
            if is_h2 {
                H2Client { asker, peer, incoming, most_requests }.run().await;
            } else {
                Client { asker, peer, incoming, most_requests }.run().await;
            }
        })
    }

    /// Lets all objects go, and checks that nothing is left.
    async fn let_go(&self) {
        // Fetches for the cache go on without their clients.
        sleep(Duration::from_mins(1)).await;
        let everything = ["ban", "obj.status", "!=", "0"].map(str::to_owned).to_vec();
        if let Err(why) = self.engine.carry_out(Request::Cli { argv: everything }) {
            self.fault(&format!("the last ban is refused: {why}"));
        }
        // All timeouts are over by then, and the ban lurker has been everywhere.
        sleep(Duration::from_secs(200)).await;
        let left = self.engine.holdings();
        if left != Holdings::default() {
            self.fault(&format!("at the end there are still {left:?}"));
        }
    }
}

fn params() -> io::Result<Params> {
    let mut params = ParamSet::default();
    for (name, value) in [("vsl_space", "1M"), ("thread_pools", "1"), ("feature", "+http2")] {
        params.set(name, value).map_err(io::Error::other)?;
    }
    Ok(params.values().clone())
}

/// Does the work of the engine's helper threads for ever.
async fn help(engine: Rc<Engine>) {
    loop {
        engine.help();
        sleep(Duration::from_millis(100)).await;
    }
}
