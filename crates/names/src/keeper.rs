//! The thread that keeps names up to date.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::known::{self, Known};
use crate::lookup::Lookup;
use crate::name::{Kind, Name, Refresh};
use crate::servers::Memory;
use crate::settings::Settings;

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The maximum number of lookups at the same time.
const MOST_LOOKUPS: usize = 64;
/// The same for the other family of names that have addresses of one. Servers may never answer for it.
const MOST_OTHER_FAMILIES: usize = 16;
/// The shortest time for which a name waits for the other family.
const SHORTEST_REST: Duration = Duration::from_secs(1);
/// Time between two checks whether the system's files or the settings have changed.
const CHECK: Duration = Duration::from_secs(1);
/// The longest time until the thread notices that a name is not used anymore.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

type ReadSettings = dyn Fn() -> Settings + Send + Sync;
type Table = HashMap<(String, Kind, Refresh), Weak<Name>>;

/// All names. The thread starts with the first one.
pub struct Names {
    settings: Arc<ReadSettings>,
    state: Mutex<State>,
    /// The number of changes of addresses.
    changes: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    table: Table,
    /// The answers of the process before this one.
    earlier: Known,
    /// The size at which names without users are removed from the table.
    cleaned_at: usize,
    added: Option<mpsc::UnboundedSender<Weak<Name>>>,
}

impl Names {
    pub fn new(settings: impl Fn() -> Settings + Send + Sync + 'static) -> Names {
        Names { settings: Arc::new(settings), state: Mutex::default(), changes: Arc::default() }
    }

    /// Continues with the answers of another process, which `Names::known` has returned there. They are those of names that
    /// are watched from now on, until their first lookup has succeeded.
    pub fn take_known(&self, text: &str) {
        self.state.lock().earlier = Known::read(text);
        // The next process gets them too, even if no lookup succeeds in this one.
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the last good answers as a text, and the number of changes up to now. Returns `None` if that number is as
    /// given.
    pub fn known(&self, changes: u64) -> Option<(u64, String)> {
        let now = self.changes.load(Ordering::Relaxed);
        if now == changes {
            return None;
        }
        let mut text = String::new();
        let names: Vec<Arc<Name>> = {
            let mut state = self.state.lock();
            for (name, kind, answer) in state.earlier.rest() {
                known::write(&mut text, name, kind, answer);
            }
            state.table.values().filter_map(Weak::upgrade).collect()
        };
        for name in names {
            known::write(&mut text, name.host(), name.kind(), &name.answer());
        }
        Some((now, text))
    }

    /// Returns a name, which is looked up from now on. Fails if the thread cannot start.
    pub fn watch(&self, host: &str, refresh: Refresh) -> io::Result<Arc<Name>> {
        self.keep(host, Kind::Host, refresh)
    }

    /// Returns the name of a service (SRV records), which is looked up from now on.
    pub fn watch_service(&self, service: &str, refresh: Refresh) -> io::Result<Arc<Name>> {
        self.keep(service, Kind::Service, refresh)
    }

    fn keep(&self, host: &str, kind: Kind, refresh: Refresh) -> io::Result<Arc<Name>> {
        let host = host.to_ascii_lowercase();
        let mut state = self.state.lock();
        let key = (host, kind, refresh);
        if let Some(name) = state.table.get(&key).and_then(Weak::upgrade) {
            return Ok(name);
        }
        if state.table.len() > state.cleaned_at {
            state.table.retain(|_, name| name.strong_count() > 0);
            state.cleaned_at = 2 * state.table.len() + 16;
        }
        if state.added.is_none() {
            state.added = Some(start(self.settings.clone(), self.changes.clone())?);
        }
        let earlier = state.earlier.take(&key.0, kind).unwrap_or_default();
        let name = Arc::new(Name::new(&key.0, kind, refresh, earlier));
        if let Some(added) = &state.added {
            added
                .send(Arc::downgrade(&name))
                .map_err(|_| io::Error::other("the thread for names has ended"))?;
        }
        state.table.insert(key, Arc::downgrade(&name));
        Ok(name)
    }
}

fn start(
    settings: Arc<ReadSettings>,
    changes: Arc<AtomicU64>,
) -> io::Result<mpsc::UnboundedSender<Weak<Name>>> {
    let (added, arrivals) = mpsc::unbounded_channel();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = move || LocalSet::new().block_on(&runtime, serve(settings, changes, arrivals));
    std::thread::Builder::new().name("names".to_owned()).spawn(run)?;
    Ok(added)
}

/// The parts that the tasks of all names share.
struct Keeper {
    settings: Arc<ReadSettings>,
    changes: Arc<AtomicU64>,
    lookup: RefCell<Rc<Lookup>>,
    permits: Semaphore,
    /// Those for the other family.
    spare_permits: Semaphore,
    /// The sources that `lookup` was made from.
    sources: RefCell<Sources>,
    generation: Cell<u64>,
    all: RefCell<Vec<Weak<Name>>>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Sources {
    servers: String,
    changed: [Option<SystemTime>; 2],
}

impl Sources {
    fn now(settings: &Settings) -> Sources {
        let changed =
            [HOSTS, RESOLV_CONF].map(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok());
        Sources { servers: settings.servers.clone(), changed }
    }

    fn lookup(&self) -> Lookup {
        let [hosts, resolv_conf] = [HOSTS, RESOLV_CONF].map(|path| std::fs::read(path).unwrap_or_default());
        Lookup::new(&self.servers, &hosts, &resolv_conf)
    }
}

async fn serve(
    settings: Arc<ReadSettings>,
    changes: Arc<AtomicU64>,
    mut arrivals: mpsc::UnboundedReceiver<Weak<Name>>,
) {
    let sources = Sources::now(&settings());
    let keeper = Rc::new(Keeper {
        lookup: RefCell::new(Rc::new(sources.lookup())),
        settings,
        changes,
        permits: Semaphore::new(MOST_LOOKUPS),
        spare_permits: Semaphore::new(MOST_OTHER_FAMILIES),
        sources: RefCell::new(sources),
        generation: Cell::new(0),
        all: RefCell::default(),
    });
    let mut check = Instant::now() + CHECK;
    loop {
        tokio::select! {
            name = arrivals.recv() => {
                // The process drops its names.
                let Some(name) = name else { return };
                keeper.all.borrow_mut().push(name.clone());
                tokio::task::spawn_local(keep(keeper.clone(), name));
            }
            () = sleep_until(check) => {
                check = Instant::now() + CHECK;
                keeper.check();
            }
        }
    }
}

impl Keeper {
    /// Looks up all names again, if the system's files or the list of servers have changed.
    fn check(&self) {
        self.all.borrow_mut().retain(|name| name.strong_count() > 0);
        let sources = Sources::now(&(self.settings)());
        if sources == *self.sources.borrow() {
            return;
        }
        *self.lookup.borrow_mut() = Rc::new(sources.lookup());
        *self.sources.borrow_mut() = sources;
        self.generation.set(self.generation.get() + 1);
        self.all.borrow().iter().filter_map(Weak::upgrade).for_each(|name| name.due.notify_one());
    }
}

/// Looks up a name until nobody uses it.
async fn keep(keeper: Rc<Keeper>, name: Weak<Name>) {
    let (mut memory, mut remembered) = (Memory::default(), 0);
    loop {
        let Some(user) = name.upgrade() else { return };
        let Ok(permit) = keeper.permits.acquire().await else { return };
        let generation = keeper.generation.get();
        if generation != remembered {
            // Other servers may give other answers.
            (memory, remembered) = (Memory::default(), generation);
        }
        let Some(next) = keeper.look_up(&user, &mut memory).await else { continue };
        drop(permit);
        let mut next = Instant::now() + next;
        if memory.is_half() {
            next = keeper.look_up_rest(&user, &mut memory, next).await;
        }
        let due = user.due.clone();
        drop(user);
        loop {
            let rest = next.saturating_duration_since(Instant::now());
            if rest.is_zero() || timeout(rest.min(LONGEST_SLEEP), due.notified()).await.is_ok() {
                break;
            }
            if name.strong_count() == 0 {
                return;
            }
        }
    }
}

impl Keeper {
    /// Looks up a name. Returns the time until the next lookup, or `None` if the sources have changed meanwhile.
    async fn look_up(&self, user: &Name, memory: &mut Memory) -> Option<Duration> {
        let generation = self.generation.get();
        let lookup = self.lookup.borrow().clone();
        let settings = (self.settings)();
        let outcome = match user.kind() {
            Kind::Host => lookup.run(user.host(), memory, &settings, !user.is_usable()).await,
            Kind::Service => lookup.service(user.host()).await,
        };
        if generation != self.generation.get() {
            return None;
        }
        let updated = user.update(outcome, &(self.settings)());
        if updated.has_changed {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        Some(updated.next)
    }

    /// Looks up the other family of a name that has addresses of one. Lookups of names that have none are not delayed by
    /// it, and neither is the next lookup of this one, at `next`. Returns the time of that.
    async fn look_up_rest(&self, user: &Name, memory: &mut Memory, next: Instant) -> Instant {
        let rest = async {
            let _permit = self.spare_permits.acquire().await.ok()?;
            self.look_up(user, memory).await
        };
        let found = timeout_at(next.max(Instant::now() + SHORTEST_REST), rest).await;
        match found {
            Ok(Some(next)) => Instant::now() + next,
            // At once, with the new sources.
            Ok(None) => Instant::now(),
            Err(_late) => {
                memory.give_up_half((self.settings)().ttl.1);
                next
            }
        }
    }
}
