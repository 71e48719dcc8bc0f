//! The engine on the thread of its caller, without manager, listening sockets, helper threads and jail. A simulated world
//! runs it, and decides what happens when.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_backend::Stream;
use lacquer_backend::memory::Near;
use lacquer_cli::link::{Request, WorkerConfig};
use lacquer_params::Params;
use lacquer_sources::clock;
use lacquer_storage::Stevedore;

use crate::boot::{self, MAKERS};
use crate::control;
use crate::helpers;
use crate::reactor::Reactor;
use crate::session::{self, Listener};
use crate::shared::Shared;
use crate::turn::{Place, in_turns};
use crate::vcl_life;

pub struct Engine {
    shared: Arc<Shared>,
    reactor: Rc<Reactor>,
    listener: Arc<Listener>,
    begun: f64,
}

/// What the engine holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    pub sessions: u64,
    pub requests: u64,
    pub fetches: u64,
    /// Requests that wait for an object or an origin.
    pub waiting: u64,
    /// Connections to origins that are in use.
    pub origin_slots: u64,
    pub objects: u64,
    pub keys: u64,
    /// Bytes of all storages.
    pub stored: u64,
}

impl Engine {
    /// Starts the engine with one reactor. `dir` is an empty directory for its shared memory. Call it in a task of the
    /// runtime that is to run it.
    pub fn start(config: WorkerConfig, dir: OwnedFd, storages: Vec<Stevedore>) -> Result<Engine, String> {
        let shared = boot::share(config, boot::open_dir(dir)?, storages)?;
        shared.runtimes.add(tokio::runtime::Handle::current());
        let reactor = Reactor::new(shared.clone(), 0, MAKERS);
        let listener =
            Listener { name: "a0".to_owned(), endpoint: ":80".to_owned(), proxy: false, path: None };
        let engine = Engine { shared, reactor, listener: Arc::new(listener), begun: clock::real() };
        engine.spawn(Place::Sweeping, engine.reactor.clone().keep_sweeping());
        engine.spawn(Place::Housekeeping, crate::origin_watch::watch(engine.reactor.clone()));
        engine.spawn(Place::Housekeeping, engine.reactor.clone().housekeeping());
        Ok(engine)
    }

    fn spawn(&self, place: Place, work: impl Future<Output = ()> + 'static) {
        let watched = self.reactor.watched.clone();
        tokio::task::spawn_local(async move { in_turns(&watched.turn, place, pin!(work)).await });
    }

    /// Serves a client.
    pub fn serve(&self, client: Near) {
        self.reactor.counters.sess_conn.add(1);
        let session = session::run(self.reactor.clone(), Stream::Memory(client), self.listener.clone());
        self.spawn(Place::Connection, session);
    }

    /// Carries out a request of the manager. Returns the text of the answer, or of the refusal.
    pub fn carry_out(&self, request: Request) -> Result<String, String> {
        vcl_life::poll(&self.shared);
        let answer = control::answer(&self.shared, request);
        if answer.status == lacquer_cli::status::OK { Ok(answer.text) } else { Err(answer.text) }
    }

    pub fn set_params(&self, params: Params) {
        self.shared.set_params(params);
    }

    /// Does what is due of the work of the helper threads.
    pub fn help(&self) {
        helpers::expire_some(&self.shared);
        helpers::lurk_once(&self.shared, &mut |_pause| {});
        vcl_life::poll(&self.shared);
    }

    pub fn holdings(&self) -> Holdings {
        self.reactor.flush_counters();
        helpers::publish(&self.shared, self.begun);
        let pool = self.shared.pool_counters.pool(0);
        let origins = vcl_life::origins(&self.shared);
        Holdings {
            sessions: pool.sess.live.get(),
            requests: pool.req.live.get(),
            fetches: self.shared.pool_counters.busyobj.live.get(),
            waiting: self.shared.admission.waiting() + self.shared.admission.queued(),
            origin_slots: origins.iter().map(|origin| u64::from(origin.in_use())).sum(),
            objects: self.shared.counters.n_object.get(),
            keys: self.shared.counters.n_objecthead.get(),
            stored: self.shared.stevedores.all().iter().map(Stevedore::used_space).sum(),
        }
    }
}
