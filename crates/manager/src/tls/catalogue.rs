//! The certificates with their transactions: those in use, those that the next commit adds, and those that it removes.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use lacquer_cli::json;
use lacquer_tls::{Bundle, ChainPool, Change, Entry, FrontendSetup, Leaf, Protocols, Rank, Settings, Setup};

use super::config::Paths;
use super::files::Recent;
use super::on_demand::OnDemand;
use super::refusal::Refusal;
use super::secrets::Secrets;
use crate::client_certificates::{ClientOptions, Verification};
use crate::jail::Jail;

/// The state of a certificate in the current transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    /// The next commit activates it.
    Staged,
    /// The next commit removes it.
    Discarded {
        /// Whether it is in use until then.
        active: bool,
    },
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Staged => "staged",
            State::Discarded { .. } => "discard",
        }
    }

    fn is_in_use(self) -> bool {
        matches!(self, State::Active | State::Discarded { active: true })
    }
}

/// A certificate to load.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// `None` for one that is made up.
    pub id: Option<String>,
    /// The number of its listener, or `None` for all listeners.
    pub frontend: Option<u32>,
    pub paths: Paths,
    pub settings: Arc<Settings>,
    /// Whether it becomes the default of its listener.
    pub default: bool,
}

/// A certificate.
#[derive(Debug)]
struct Loaded {
    id: String,
    wanted: Wanted,
    leaf: Arc<Leaf>,
    state: State,
    /// As the worker has it.
    entry: Entry,
}

/// A listener, and the files of its verification of clients.
#[derive(Debug, PartialEq, Eq)]
struct Frontend {
    setup: FrontendSetup,
    clients: ClientOptions,
}

/// All certificates.
#[derive(Debug, Default)]
pub struct Catalogue {
    frontends: Vec<Frontend>,
    protocols: Protocols,
    all: Vec<Loaded>,
    pool: ChainPool,
    recent: Recent,
    /// The names whose certificates are obtained on demand.
    on_demand: Option<OnDemand>,
    /// `None` until a worker needs them.
    secrets: Option<Secrets>,
    /// Numbers that were given out.
    numbers: Numbers,
}

#[derive(Debug, Default)]
struct Numbers {
    names: u32,
    entries: u64,
    defaults: u64,
    transaction: u32,
}

/// The names that certificates have, each with the listener and the state of the certificate.
#[derive(Debug, Default)]
pub struct Taken {
    active: HashSet<(Option<u32>, String)>,
    staged: HashSet<(Option<u32>, String)>,
}

impl Catalogue {
    /// Adds a listener, and the files that its verification of clients was read from. Several sockets of the same name
    /// are one listener, which has one group of settings.
    pub fn add_frontend(&mut self, setup: FrontendSetup, clients: ClientOptions) -> Result<u32, String> {
        let new = Frontend { setup, clients };
        let name = &new.setup.name;
        match self.frontend(name) {
            Some(known) if self.frontends[known as usize] == new => Ok(known),
            Some(_) => Err(format!(
                "two listeners are named {name} and have different settings of TLS; give each a name of its own"
            )),
            None => {
                self.frontends.push(new);
                Ok(self.frontends.len() as u32 - 1)
            }
        }
    }

    /// Sets the protocols of listeners that set none.
    pub fn set_protocols(&mut self, protocols: Protocols) {
        self.protocols = protocols;
    }

    /// Sets the names whose certificates are obtained on demand.
    pub fn set_on_demand(&mut self, on_demand: Option<OnDemand>) {
        self.on_demand = on_demand;
    }

    /// Returns the names whose certificates are obtained on demand.
    pub fn on_demand(&self) -> Option<&OnDemand> {
        self.on_demand.as_ref()
    }

    /// Looks at the file of these names; see [`OnDemand::look`].
    pub fn look_at_on_demand(&mut self, jail: &Jail) -> Option<Result<OnDemand, String>> {
        self.on_demand.as_mut().and_then(|on_demand| on_demand.look(jail))
    }

    /// Returns the number of the listener with this name.
    pub fn frontend(&self, name: &str) -> Option<u32> {
        self.frontends.iter().position(|frontend| frontend.setup.name == name).map(|at| at as u32)
    }

    /// Returns whether a listener has TLS.
    pub fn is_configured(&self) -> bool {
        !self.frontends.is_empty()
    }

    /// Returns the names of the listeners for which no certificate is in use.
    pub fn without_certificates(&self) -> impl Iterator<Item = &str> {
        let has = |at| self.all.iter().any(|l| l.state.is_in_use() && l.wanted.frontend == at);
        let without = self.frontends.iter().zip(0..).filter(move |(_, at)| !has(None) && !has(Some(*at)));
        without.map(|(frontend, _)| frontend.setup.name.as_str())
    }

    /// Returns whether an id is in use. A certificate that the next commit removes does not keep its own.
    pub fn has(&self, id: &str) -> bool {
        self.all.iter().any(|loaded| loaded.id == id && !matches!(loaded.state, State::Discarded { .. }))
    }

    /// Returns the certificate that was loaded last.
    pub fn recent(&mut self) -> &mut Recent {
        &mut self.recent
    }

    /// Returns a new id.
    fn make_id(&mut self) -> String {
        loop {
            let id = format!("cert{}", self.numbers.names);
            self.numbers.names += 1;
            if !self.has(&id) {
                return id;
            }
        }
    }

    /// Returns the names of all certificates, for `tls_err_dup_servername`.
    pub fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        for loaded in &self.all {
            taken.add(loaded);
        }
        taken
    }

    /// Stages a certificate for the next commit. With `taken`, each of its names must be new.
    pub fn stage(
        &mut self,
        wanted: Wanted,
        (bundle, leaf): (Bundle, Arc<Leaf>),
        taken: Option<&mut Taken>,
    ) -> Result<(), Refusal> {
        if let Some(taken) = &taken {
            taken.check(&wanted, &leaf)?;
        }
        let id = wanted.id.clone().unwrap_or_else(|| self.make_id());
        let rank = Rank { transaction: self.numbers.transaction, order: self.all.len() as u32 };
        let default = if wanted.default {
            self.numbers.defaults += 1;
            self.numbers.defaults
        } else {
            0
        };
        let entry = self.entry(&wanted, bundle, rank, default);
        let loaded = Loaded { id, wanted, leaf, state: State::Staged, entry };
        if let Some(taken) = taken {
            taken.add(&loaded);
        }
        self.all.push(loaded);
        Ok(())
    }

    fn entry(&mut self, wanted: &Wanted, mut bundle: Bundle, rank: Rank, default: u64) -> Entry {
        bundle.share(&mut self.pool);
        self.numbers.entries += 1;
        Entry {
            id: self.numbers.entries,
            frontend: wanted.frontend,
            rank,
            default,
            settings: wanted.settings.clone(),
            bundle,
        }
    }

    /// Returns what the next commit changes in the worker.
    pub fn pending(&self) -> Change {
        let mut change = Change::default();
        for loaded in &self.all {
            match loaded.state {
                State::Staged => change.add.push(loaded.entry.clone()),
                State::Discarded { active: true } => change.remove.push(loaded.entry.id),
                State::Active | State::Discarded { active: false } => {}
            }
        }
        change
    }

    /// Makes the staged changes permanent.
    pub fn commit(&mut self) {
        self.all.retain(|loaded| !matches!(loaded.state, State::Discarded { .. }));
        for loaded in &mut self.all {
            loaded.state = State::Active;
        }
        self.numbers.transaction += 1;
        self.pool.tidy();
    }

    /// Forgets the staged changes.
    pub fn rollback(&mut self) {
        self.all.retain(|loaded| loaded.state.is_in_use());
        for loaded in &mut self.all {
            loaded.state = State::Active;
        }
        self.pool.tidy();
    }

    /// Marks the certificates with this id for removal. Returns whether there is one.
    pub fn discard(&mut self, id: &str) -> bool {
        let mut found = false;
        for loaded in self.all.iter_mut().filter(|loaded| loaded.id == id) {
            loaded.state = State::Discarded { active: loaded.state.is_in_use() };
            found = true;
        }
        found
    }

    /// Returns whether the next commit changes something.
    pub fn has_pending(&self) -> bool {
        self.all.iter().any(|loaded| loaded.state != State::Active)
    }

    /// Returns what was wanted for the certificates in use, in order.
    pub fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        self.all.iter().map(|loaded| &loaded.wanted)
    }

    /// Returns the files of the verifications of clients, by the listener.
    pub fn client_options(&self) -> impl Iterator<Item = &ClientOptions> {
        self.frontends.iter().map(|frontend| &frontend.clients)
    }

    /// Replaces all certificates and verifications of clients by what their files contain now, in the same order. Returns
    /// the change for the worker and the new certificates. Unchanged ones stay.
    pub fn renewed(
        &mut self,
        read: Vec<(Bundle, Arc<Leaf>)>,
        clients: Vec<Option<Verification>>,
        on_demand: Option<OnDemand>,
    ) -> (Change, Renewed) {
        let (mut change, mut renewed) = (Change::default(), Vec::new());
        for ((at, frontend), clients) in self.frontends.iter().enumerate().zip(clients) {
            if frontend.setup.clients != clients {
                change.clients.push((at as u32, clients));
            }
        }
        for (at, (bundle, leaf)) in read.into_iter().enumerate() {
            let Some(loaded) = self.all.get(at).filter(|loaded| loaded.entry.bundle != bundle) else {
                continue;
            };
            let (id, rank, default) = (loaded.entry.id, loaded.entry.rank, loaded.entry.default);
            let wanted = loaded.wanted.clone();
            let entry = self.entry(&wanted, bundle, rank, default);
            change.remove.push(id);
            change.add.push(entry.clone());
            renewed.push((at, entry, leaf));
        }
        change.on_demand = on_demand.as_ref().map(|on_demand| Box::new(on_demand.list().clone()));
        let clients = change.clients.clone();
        (change, Renewed { certificates: renewed, clients, on_demand: on_demand.map(Box::new) })
    }

    /// Takes over the certificates of [`Catalogue::renewed`], after the worker has them.
    pub fn renew(&mut self, renewed: Renewed) {
        self.on_demand = renewed.on_demand.map(|on_demand| *on_demand);
        for (at, clients) in renewed.clients {
            if let Some(frontend) = self.frontends.get_mut(at as usize) {
                frontend.setup.clients = clients;
            }
        }
        for (at, entry, leaf) in renewed.certificates {
            if let Some(loaded) = self.all.get_mut(at) {
                (loaded.entry, loaded.leaf) = (entry, leaf);
            }
        }
        self.pool.tidy();
    }

    /// Prepares to put a certificate into effect without a transaction, in the place of the one in use that has its id.
    /// Returns the change for the worker, and the certificate.
    pub fn replacement(
        &mut self,
        wanted: Wanted,
        (bundle, leaf): (Bundle, Arc<Leaf>),
    ) -> (Change, Replacement) {
        let is_same = |loaded: &&Loaded| loaded.state.is_in_use() && Some(&loaded.id) == wanted.id.as_ref();
        let old = self.all.iter().find(is_same);
        let (old, rank, default) = match old.map(|loaded| &loaded.entry) {
            Some(entry) => (Some(entry.id), entry.rank, entry.default),
            None => (None, Rank { transaction: self.numbers.transaction, order: self.all.len() as u32 }, 0),
        };
        let entry = self.entry(&wanted, bundle, rank, default);
        let change =
            Change { remove: old.into_iter().collect(), add: vec![entry.clone()], ..Change::default() };
        (change, Replacement { old, wanted, leaf, entry })
    }

    /// Takes over the certificate of [`Catalogue::replacement`], after the worker has it.
    pub fn replace(&mut self, replacement: Replacement) {
        let Replacement { old, wanted, leaf, entry } = replacement;
        if let Some(loaded) = self.all.iter_mut().find(|loaded| Some(loaded.entry.id) == old) {
            (loaded.leaf, loaded.entry) = (leaf, entry);
        } else {
            let id = wanted.id.clone().unwrap_or_else(|| self.make_id());
            self.all.push(Loaded { id, wanted, leaf, state: State::Active, entry });
        }
        self.pool.tidy();
    }

    /// Returns the settings of a new worker, if a listener has TLS. `secret` is used the first time, for tickets and
    /// for QUIC.
    pub fn setup(&mut self, now: f64, secret: [u8; 32]) -> Option<Setup> {
        if !self.is_configured() {
            return None;
        }
        self.secrets.get_or_insert_with(|| Secrets::new(secret, now));
        let Secrets { tickets, quic } = self.secrets(now)?;
        let frontends = self.frontends.iter().map(|frontend| frontend.setup.clone()).collect();
        Some(Setup { frontends, protocols: self.protocols, ticket_secret: tickets, quic_secret: quic })
    }

    /// Returns the secrets of now, and forgets those of earlier tickets.
    pub fn secrets(&mut self, now: f64) -> Option<Secrets> {
        let secrets = self.secrets.as_mut()?;
        secrets.tickets.advance(now);
        Some(secrets.clone())
    }

    /// Continues with the secrets of another program.
    pub fn adopt_secrets(&mut self, secrets: Option<Secrets>) {
        self.secrets = secrets;
    }

    /// Returns the certificates in use, for a new worker.
    pub fn in_use(&self) -> Change {
        let in_use = self.all.iter().filter(|loaded| loaded.state.is_in_use());
        let on_demand = self.on_demand.as_ref().map(|on_demand| Box::new(on_demand.list().clone()));
        let add = in_use.map(|loaded| loaded.entry.clone()).collect();
        Change { add, on_demand, ..Change::default() }
    }

    /// Returns the rows of `tls.cert.list`: those for all listeners, then those of each listener.
    fn rows(&self, only_staged: bool) -> impl Iterator<Item = [String; 4]> {
        let frontends = std::iter::once(None).chain((0..self.frontends.len() as u32).map(Some));
        frontends.flat_map(move |frontend| {
            let here = self.all.iter().filter(move |loaded| loaded.wanted.frontend == frontend);
            here.filter(move |loaded| !only_staged || loaded.state != State::Active).map(move |loaded| {
                let name = frontend.map_or("default", |at| &self.frontends[at as usize].setup.name);
                let subject = loaded.leaf.subject().unwrap_or_default();
                let subject = subject.replace(|c: char| c.is_control(), "?");
                [name.to_owned(), loaded.id.clone(), loaded.state.name().to_owned(), subject]
            })
        })
    }

    /// Returns the list of certificates.
    pub fn list(&self, only_staged: bool) -> String {
        let mut out = String::new();
        for row in self.rows(only_staged) {
            let _ = writeln!(out, "{}", row.join("\t"));
        }
        out
    }

    /// Returns the list of certificates as JSON, in Varnish's form.
    pub fn list_json(&self, only_staged: bool) -> String {
        let rows: Vec<String> = self
            .rows(only_staged)
            .map(|[frontend, id, state, subject]| {
                let quoted = [frontend, id, state, subject].map(|text| json::string(&text));
                let [frontend, id, state, subject] = quoted;
                format!(
                    "  {{\"frontend\": {frontend}, \"id\": {id}, \"status\": {state}, \"subject\": {subject}}}"
                )
            })
            .collect();
        format!("[\n{}\n]\n", rows.join(",\n"))
    }
}

/// New versions of certificates and of verifications of clients.
#[derive(Debug)]
pub struct Renewed {
    certificates: Vec<(usize, Entry, Arc<Leaf>)>,
    clients: Vec<(u32, Option<Verification>)>,
    on_demand: Option<Box<OnDemand>>,
}

/// A certificate that takes effect at once.
#[derive(Debug)]
pub struct Replacement {
    /// The one that it replaces.
    old: Option<u64>,
    wanted: Wanted,
    leaf: Arc<Leaf>,
    entry: Entry,
}

impl Taken {
    fn add(&mut self, loaded: &Loaded) {
        let names = match loaded.state {
            State::Active => &mut self.active,
            State::Staged => &mut self.staged,
            State::Discarded { .. } => return,
        };
        names.extend(loaded.leaf.names().iter().map(|name| (loaded.wanted.frontend, name.clone())));
    }

    fn check(&self, wanted: &Wanted, leaf: &Leaf) -> Result<(), Refusal> {
        let mut text = String::new();
        for name in leaf.names() {
            let key = (wanted.frontend, name.clone());
            if self.active.contains(&key) {
                let _ = writeln!(text, "'{name}' already loaded.");
            } else if self.staged.contains(&key) {
                let _ = writeln!(text, "'{name}' already staged.");
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(format!("{}: {text}", wanted.paths.certificate.display())))
    }
}
