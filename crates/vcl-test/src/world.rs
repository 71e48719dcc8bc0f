//! The world of tests: the engine with a VCL, simulated clients and origins, and a clock that only the test moves.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lacquer_cache::disk::OpenDisks;
use lacquer_cli::link::{Request, VclState};
use lacquer_inspect::directory::Directory;
use lacquer_inspect::ring::{LogReader, Record};
use lacquer_inspect::why::SourceText;
use lacquer_net::memory::{self, Ends};
use lacquer_params::{ParamSet, Params};
use lacquer_shm::vsm::CHILD_DIRNAME;
use lacquer_sources::{clock, random};
use lacquer_storage::{Arena, Kind, Stevedore};
use lacquer_worker::simulated::{self, Engine};
use tokio::time::{advance, sleep, timeout};

use crate::folder::Folder;
use crate::format::{ClientRequest, Health};
use crate::message::{Incoming, Message, Side};
use crate::origin::{self, LIMITS, SharedOrigins};
use crate::program::Compiled;

/// The time at which the first test starts, in seconds since the epoch: a morning in January 2027.
const BEGINNING: f64 = 1_800_000_000.0;
/// The time between two tests, in seconds, after which little of the first one has an effect on the second.
const BETWEEN: f64 = 86_400.0;
/// The last part of a pause, in seconds, in which time passes in small steps.
const SMALL_STEPS: f64 = 10.0;
const STEP: Duration = Duration::from_secs(1);
/// After a request, so much time passes, in which work without delays ends.
const SETTLE: Duration = Duration::from_millis(1);
/// The longest time for a response.
const PATIENCE: Duration = Duration::from_hours(1);
const STORAGE: u64 = 512 << 20;
const TRANSIENT: u64 = 128 << 20;
/// The settings that tests need. A held down origin would outlast a change of its rules.
const PARAMS: [(&str, &str); 9] = [
    ("vsl_space", "16M"),
    ("thread_pools", "1"),
    ("reactors", "1"),
    ("feature", "+trace"),
    ("vsl_mask", "+Hash"),
    ("vsl_mask", "+VCL_trace"),
    ("vsl_reclen", "4k"),
    ("backend_local_error_holddown", "0"),
    ("backend_remote_error_holddown", "0"),
];
/// The first and last port of clients.
const PORTS: (u16, u16) = (1024, 65_000);

/// A request as its client has seen it.
#[derive(Debug)]
pub struct Exchange {
    /// The port of the client, which the log contains.
    pub port: u16,
    /// `None` if the connection ended without a response.
    pub response: Option<Message>,
    /// The duration in seconds.
    pub took: f64,
}

pub struct World {
    engine: Rc<Engine>,
    origins: SharedOrigins,
    compiled: Arc<Compiled>,
    /// The parameters of the command line.
    params: ParamSet,
    log: LogReader,
    /// The number of VCLs that were loaded.
    loads: u32,
    /// The backends whose health the test has set.
    set_health: Vec<String>,
    port: u16,
    _folder: Folder,
}

impl World {
    /// Starts the engine. Must be called in a task of a runtime whose clock is paused.
    pub fn begin(compiled: Arc<Compiled>, params: &[(String, String)]) -> Result<World, String> {
        let failed = |error: std::io::Error| format!("the engine cannot start: {error}");
        let folder = Folder::new().map_err(failed)?;
        memory::serve_nothing();
        memory::refuse_others();
        random::seed(1);
        clock::simulate(BEGINNING);
        let arena = |size| Arena::anonymous(Some(size)).map_err(failed);
        let storages = vec![
            Stevedore::new("s0", Kind::Malloc, 0, arena(STORAGE)?),
            Stevedore::new("Transient", Kind::Malloc, 1, arena(TRANSIENT)?),
        ];
        let mut usual = ParamSet::default();
        set_usual(&mut usual, params)?;
        let config = simulated::config("test", folder.path().to_owned(), usual.values().clone());
        let dir = File::open(folder.path().join(CHILD_DIRNAME)).map_err(failed)?.into();
        let engine = Engine::start(config, dir, storages, OpenDisks::default(), Vec::new())?;
        let log = LogReader::at_start(&Directory::at(folder.path())).map_err(|fault| fault.what)?;
        let origins = SharedOrigins::default();
        for (name, address) in &compiled.backends {
            origin::open(name, *address, &origins);
        }
        Ok(World {
            engine: Rc::new(engine),
            origins,
            compiled,
            params: usual,
            log,
            loads: 0,
            set_health: Vec::new(),
            port: PORTS.0,
            _folder: folder,
        })
    }

    /// Returns the texts of the VCL.
    pub fn sources(&self) -> &[SourceText] {
        &self.compiled.sources
    }

    pub fn origins(&self) -> &SharedOrigins {
        &self.origins
    }

    /// Begins a test: with an empty cache, a VCL without state, and its own parameters.
    pub async fn begin_test(&mut self, params: &[(String, String)]) -> Result<(), String> {
        if self.loads > 0 {
            self.pass_time(BETWEEN).await;
            self.engine.drop_objects();
        }
        self.origins.borrow_mut().clear();
        for backend in std::mem::take(&mut self.set_health) {
            self.command(&["backend.set_health", &backend, Health::Auto.word()])?;
        }
        self.set_params(params)?;
        if self.loads == 0 || self.compiled.has_objects {
            self.load()?;
        }
        self.port = PORTS.0;
        self.read_log(&mut |_| {})
    }

    fn load(&mut self) -> Result<(), String> {
        let name = format!("test{}", self.loads);
        let program = self.compiled.program.clone();
        let load = Request::LoadVcl { name: name.clone(), program, state: VclState::Auto, warm: true };
        self.engine.carry_out(load)?;
        self.engine.carry_out(Request::UseVcl { name })?;
        if let Some(old) = self.loads.checked_sub(1) {
            let name = format!("test{old}");
            let cold = Request::SetVclState { name: name.clone(), state: VclState::Cold, warm: false };
            self.engine.carry_out(cold)?;
            self.engine.carry_out(Request::DiscardVcl { name })?;
        }
        self.loads += 1;
        Ok(())
    }

    /// Sets the parameters of the command line, then these.
    pub fn set_params(&self, more: &[(String, String)]) -> Result<(), String> {
        let mut all = self.params.clone();
        set_all(&mut all, more)?;
        self.engine.set_params(all.values().clone());
        Ok(())
    }

    /// Carries out a command of the management port.
    pub fn command(&self, words: &[&str]) -> Result<String, String> {
        let argv = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.engine.carry_out(Request::Cli { argv })
    }

    pub fn set_health(&mut self, backend: &str, health: Health) -> Result<(), String> {
        if !self.compiled.backends.iter().any(|(name, _)| name == backend) {
            return Err(format!("the VCL has no backend {backend}"));
        }
        self.set_health.push(backend.to_owned());
        self.command(&["backend.set_health", backend, health.word()]).map(drop)
    }

    /// Lets so many seconds pass.
    pub async fn pass_time(&self, seconds: f64) {
        let at_once = seconds - SMALL_STEPS;
        if at_once > 0.0 {
            advance(clock::seconds(at_once)).await;
            self.engine.help();
        }
        let mut rest = clock::seconds(seconds.min(SMALL_STEPS));
        while !rest.is_zero() {
            let step = rest.min(STEP);
            sleep(step).await;
            self.engine.help();
            rest -= step;
        }
    }

    /// Sends a request, from several clients if it says so, and waits for the responses.
    pub async fn send(&mut self, request: &Rc<ClientRequest>) -> Vec<Exchange> {
        let mut clients = Vec::new();
        for _ in 0..request.clients {
            let (near, peer) = memory::connection(LIMITS, self.ends(request.from));
            let port = self.port;
            self.engine.serve(near, 0, false);
            let request = request.clone();
            clients.push(tokio::task::spawn_local(async move {
                let begin = clock::monotonic();
                let response = timeout(PATIENCE, exchange(&peer, &request)).await.unwrap_or_default();
                let took = clock::monotonic() - begin;
                Exchange { port, response, took }
            }));
        }
        let mut exchanges = Vec::new();
        for client in clients {
            exchanges.extend(client.await);
        }
        self.settle().await;
        exchanges
    }

    fn ends(&mut self, from: IpAddr) -> Ends {
        self.port = if self.port < PORTS.1 { self.port + 1 } else { PORTS.0 };
        Ends { engine: SocketAddr::from((Ipv4Addr::LOCALHOST, 80)), peer: SocketAddr::new(from, self.port) }
    }

    /// Lets work that needs no time end.
    pub async fn settle(&self) {
        sleep(SETTLE).await;
        self.engine.help();
    }

    /// Reads the records of the log since the last call.
    pub fn read_log(&mut self, each: &mut impl FnMut(Record<'_>)) -> Result<(), String> {
        self.log.read(each).map_err(|error| format!("the log cannot be read: {error}"))?;
        match std::mem::take(&mut self.log.missed) {
            0 => Ok(()),
            _ => Err("a request has more records than the log holds".to_owned()),
        }
    }
}

/// Returns the parameters of a command line.
pub fn params_of(given: &[(String, String)]) -> Result<Params, String> {
    let mut all = ParamSet::default();
    set_usual(&mut all, given)?;
    Ok(all.values().clone())
}

/// Sets the parameters that tests need, and those of the command line.
fn set_usual(params: &mut ParamSet, given: &[(String, String)]) -> Result<(), String> {
    for (name, value) in PARAMS {
        params.set(name, value).map_err(|error| format!("param {name}: {error}"))?;
    }
    set_all(params, given)
}

fn set_all(params: &mut ParamSet, given: &[(String, String)]) -> Result<(), String> {
    for (name, value) in given {
        params.set(name, value).map_err(|error| format!("param {name}: {error}"))?;
    }
    Ok(())
}

async fn exchange(peer: &memory::Peer, request: &ClientRequest) -> Option<Message> {
    // If the engine closes the connection, the client detects that when it reads.
    let _ = peer.write_all(&bytes_of(request)).await;
    let is_to_head = request.method == "HEAD";
    Incoming::default().message(peer, Side::Response { is_to_head }).await
}

/// Returns a request as it is sent. The host is that of the URL, or localhost.
fn bytes_of(request: &ClientRequest) -> Vec<u8> {
    let whole = ["http://", "https://"].iter().find_map(|scheme| request.url.strip_prefix(scheme));
    let (host, path) = match whole {
        Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        None => ("localhost", &request.url[..]),
    };
    let has = |wanted: &str| request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let slash = if path.is_empty() || path.starts_with('?') { "/" } else { "" };
    let mut head = format!("{} {slash}{path} HTTP/1.1\r\n", request.method);
    if !has("Host") {
        let _ = write!(head, "Host: {host}\r\n");
    }
    for (name, value) in &request.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let body = request.body.as_deref().unwrap_or_default();
    if request.body.is_some() && !has("Content-Length") && !has("Transfer-Encoding") {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    [head.as_bytes(), body].concat()
}
