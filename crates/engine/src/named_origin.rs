//! A backend whose host is a name: one origin for each of its addresses, which change while the program runs.
//!
//! The origins share the counters and settings of the declaration; each has its own connections, limits and probes. With
//! addresses of both families, those of the preferred one become origins, and the others are only tried when one of
//! these does not accept.

use std::any::Any;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lacquer_cli::json;
use lacquer_names::{Answer, Listener, Name, Refresh};
use lacquer_net::SharedName;
use lacquer_sources::clock;
use lacquer_tls::origin::OriginTls;
use lacquer_vcl::program::Probe;
use lacquer_vcl_runtime::{BackendId, Ctx, Director, Health, HostLookup, Instance};
use parking_lot::{Mutex, RwLock};

use crate::backends::{Origin, OriginContext};
use crate::probes::Prober;

/// The settings of the origins, in addition to the declaration.
pub struct Recipe {
    pub vcl_name: String,
    pub probe: Option<Probe>,
    pub via: Option<Arc<Origin>>,
    /// Creates the settings for TLS of one address.
    pub tls: Box<dyn Fn() -> Result<Option<OriginTls>, String> + Send + Sync>,
    pub port: u16,
    pub prefer_ipv6: bool,
    pub lookup: HostLookup,
}

/// Follows the changes of the addresses.
pub trait AddressObserver: Send + Sync {
    /// Returns a name, which is looked up from now on.
    fn watch(&self, host: &str, refresh: Refresh) -> Result<Arc<Name>, String>;
    /// An origin was added to a warm program.
    fn added(&self, origin: &Arc<Origin>);
    fn removed(&self, origin: &Arc<Origin>);
    /// The name has other addresses, or its lookup failed. The text describes the event.
    fn report(&self, text: &str, is_failure: bool);
}

pub struct NamedOrigin {
    me: Weak<NamedOrigin>,
    /// The declaration. Nobody connects to it.
    declared: Arc<Origin>,
    recipe: Recipe,
    observer: Box<dyn AddressObserver>,
    state: RwLock<State>,
    /// Held while the origins change, so that changes do not overlap.
    changing: Mutex<()>,
    next: AtomicUsize,
    is_warm: AtomicBool,
    /// The name, unless the backend rests.
    name: RwLock<Option<Arc<Name>>>,
}

#[derive(Default)]
struct State {
    origins: Vec<(IpAddr, Arc<Origin>)>,
    changed: f64,
    failure: Option<String>,
}

impl NamedOrigin {
    /// Creates the backend. [`NamedOrigin::follow`] gives it its addresses.
    pub fn new(
        declared: Arc<Origin>,
        recipe: Recipe,
        observer: Box<dyn AddressObserver>,
    ) -> Arc<NamedOrigin> {
        Arc::new_cyclic(|me| NamedOrigin {
            me: me.clone(),
            state: RwLock::new(State { changed: declared.created, ..State::default() }),
            declared,
            recipe,
            observer,
            changing: Mutex::new(()),
            next: AtomicUsize::new(0),
            is_warm: AtomicBool::new(false),
            name: RwLock::new(None),
        })
    }

    /// Uses the addresses of the name from now on. Fails if it cannot be looked up.
    pub fn follow(&self) -> Result<(), String> {
        let host = self.host();
        let name = self.observer.watch(host, self.recipe.lookup.refresh);
        let name = name.map_err(|why| format!("{host} cannot be looked up: {why}"))?;
        *self.name.write() = Some(name.clone());
        if let Some(me) = self.me.upgrade() {
            let listener: Arc<dyn Listener> = me;
            name.listen(&listener);
        }
        Ok(())
    }

    fn host(&self) -> &str {
        self.declared.spec.address.name.as_ref().map_or("", |name| &name.host)
    }

    pub fn declared(&self) -> &Arc<Origin> {
        &self.declared
    }

    /// Returns the origins of the current addresses.
    pub fn origins(&self) -> Vec<Arc<Origin>> {
        self.state.read().origins.iter().map(|(_, origin)| origin.clone()).collect()
    }

    /// Returns the reason why there are no addresses, if there are none.
    pub fn missing(&self) -> Option<String> {
        let state = self.state.read();
        if !state.origins.is_empty() {
            return None;
        }
        let host = self.host();
        Some(match &state.failure {
            Some(why) => format!("{host} cannot be resolved: {why}"),
            None => format!("{host} is not resolved yet"),
        })
    }

    /// Selects the next origin, by round robin over those that are healthy. Fails if there are no addresses.
    pub fn pick(&self) -> Result<Arc<Origin>, String> {
        let state = self.state.read();
        let origins = &state.origins;
        if let [(_, only)] = &origins[..] {
            return Ok(only.clone());
        }
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..origins.len()).map(|i| &origins[start.wrapping_add(i) % origins.len()].1);
        let is_good = |origin: &&Arc<Origin>| !origin.is_sick() && !origin.endpoint.is_held_down();
        match in_turn.clone().find(is_good).or_else(|| in_turn.clone().next()) {
            Some(origin) => Ok(origin.clone()),
            None => {
                drop(state);
                let why = self.missing().unwrap_or_default();
                Err(format!("backend {}: {why}", self.declared.spec.name))
            }
        }
    }

    /// Records that the program becomes warm or cold. Origins that are added later are probed while it is warm.
    pub fn set_warm(&self, is_warm: bool) {
        self.is_warm.store(is_warm, Ordering::Relaxed);
    }

    fn wanted(&self, answer: &Answer) -> Vec<IpAddr> {
        let allowed = |ip: &IpAddr| self.recipe.lookup.filter.as_ref().is_none_or(|filter| filter(ip));
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) =
            answer.addresses.iter().copied().filter(allowed).partition(IpAddr::is_ipv4);
        let (first, second) = if self.recipe.prefer_ipv6 { (v6, v4) } else { (v4, v6) };
        if first.is_empty() { second } else { first }
    }

    fn make(&self, ip: IpAddr) -> Result<Arc<Origin>, String> {
        let mut spec = self.declared.spec.clone();
        let address = SocketAddr::new(ip, self.recipe.port);
        let family = if ip.is_ipv4() { &mut spec.address.ipv4 } else { &mut spec.address.ipv6 };
        *family = Some(address);
        // Addresses that the filter refuses must not be tried.
        let name =
            self.name.read().as_ref().map(Arc::downgrade).filter(|_| self.recipe.lookup.filter.is_none());
        let origin = Arc::new(Origin::new(
            spec,
            OriginContext {
                vcl_name: &self.recipe.vcl_name,
                probe: self.recipe.probe.as_ref(),
                via: self.recipe.via.as_deref(),
                tls: (self.recipe.tls)()?,
                name: name.map(SharedName),
                local: None,
                prefer_ipv6: self.recipe.prefer_ipv6,
                now: clock::real(),
            },
        ));
        origin.count_with(&self.declared);
        Ok(origin)
    }

    fn log(&self, answer: &Answer, used: &[IpAddr]) {
        let mut text = format!("backend {}: {} ", self.declared.spec.name, self.host());
        match &answer.failure {
            Some(why) => {
                let kept = if used.is_empty() { "" } else { " (the last addresses are kept)" };
                let _ = write!(text, "cannot be resolved: {why}{kept}");
            }
            None if used.is_empty() => text.push_str("has no addresses that may be used"),
            None => {
                text.push_str("has the addresses");
                for ip in used {
                    let _ = write!(text, " {ip}");
                }
            }
        }
        self.observer.report(&text, answer.failure.is_some() || used.is_empty());
    }
}

impl Listener for NamedOrigin {
    fn changed(&self, answer: &Answer) {
        let _changing = self.changing.lock();
        if self.name.read().is_none() {
            // The backend rests.
            return;
        }
        let wanted = self.wanted(answer);
        let before = self.state.read().origins.clone();
        let found = |ip: &IpAddr| before.iter().find(|(before, _)| before == ip).cloned();
        let mut origins = Vec::with_capacity(wanted.len());
        for ip in &wanted {
            match found(ip).map_or_else(|| self.make(*ip).map(|origin| (*ip, origin)), Ok) {
                Ok(origin) => origins.push(origin),
                Err(why) => {
                    self.observer.report(&format!("backend {}: {why}", self.declared.spec.name), true);
                }
            }
        }
        let is_new = |(ip, _): &&(IpAddr, Arc<Origin>)| !before.iter().any(|(old, _)| old == ip);
        let added: Vec<_> = origins.iter().filter(is_new).map(|(_, origin)| origin.clone()).collect();
        let removed = before.iter().filter(|(ip, _)| !wanted.contains(ip));
        {
            let mut state = self.state.write();
            if before.is_empty() != origins.is_empty() {
                state.changed = clock::real();
            }
            state.failure.clone_from(&answer.failure);
            state.origins = origins;
        }
        if self.is_warm.load(Ordering::Relaxed) {
            for origin in &added {
                self.observer.added(origin);
            }
        }
        for (_, origin) in removed {
            self.observer.removed(origin);
        }
        self.log(answer, &wanted);
    }
}

impl Director for NamedOrigin {
    fn name(&self) -> &str {
        &self.declared.spec.name
    }

    fn kind(&self) -> &'static str {
        "backend"
    }

    fn resolve(&self, _ctx: &mut Ctx<'_>, me: BackendId) -> BackendId {
        me
    }

    fn healthy(&self, _vcl: &Instance) -> Health {
        let state = self.state.read();
        let probers = state.origins.iter().filter_map(|(_, origin)| origin.prober.as_ref());
        let changed = probers.map(Prober::changed).fold(state.changed, f64::max);
        Health { healthy: state.origins.iter().any(|(_, origin)| !origin.is_sick()), changed }
    }

    fn determines_health(&self) -> bool {
        self.recipe.probe.is_some() || self.state.read().origins.is_empty()
    }

    fn list(&self, _vcl: &Instance, details: bool, json: bool) -> String {
        let origins = self.state.read().origins.clone();
        if let [(_, only)] = &origins[..]
            && let Some(prober) = &only.prober
        {
            return prober.list(details, json);
        }
        let good = origins.iter().filter(|(_, origin)| !origin.is_sick()).count();
        let word = |is_healthy| if is_healthy { "healthy" } else { "sick" };
        let total = if self.recipe.probe.is_some() { (good, origins.len()) } else { (0, 0) };
        match (details, json) {
            (false, false) => format!("{}/{}\t{}", total.0, total.1, word(good > 0)),
            (false, true) => format!("[{}, {}, \"{}\"]", total.0, total.1, word(good > 0)),
            (true, json) => self.list_addresses(&origins, json),
        }
    }

    fn host_name(&self) -> Option<Arc<Name>> {
        self.name.read().clone()
    }

    fn set_resting(&self, is_resting: bool) -> Result<(), String> {
        let rests = self.name.read().is_none();
        match (is_resting, rests) {
            (true, false) => {
                let _changing = self.changing.lock();
                *self.name.write() = None;
                let origins = std::mem::take(&mut *self.state.write());
                for (_, origin) in &origins.origins {
                    self.observer.removed(origin);
                }
                Ok(())
            }
            (false, true) => self.follow(),
            _ => Ok(()),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl NamedOrigin {
    fn list_addresses(&self, origins: &[(IpAddr, Arc<Origin>)], json: bool) -> String {
        let word = |origin: &Origin| if origin.is_sick() { "sick" } else { "healthy" };
        let missing = self.missing();
        if json {
            let one = |(ip, origin): &(IpAddr, Arc<Origin>)| format!("\"{ip}\": \"{}\"", word(origin));
            let list: Vec<String> = origins.iter().map(one).collect();
            let failure = missing.map_or_else(|| "null".to_owned(), |text| json::string(&text));
            return format!("{{\"addresses\": {{{}}}, \"failure\": {failure}}}", list.join(", "));
        }
        let mut out = String::new();
        for (ip, origin) in origins {
            let _ = write!(out, "\n  {ip} {}", word(origin));
        }
        if let Some(why) = missing {
            let _ = write!(out, "\n  {why}");
        }
        out.push('\n');
        out
    }
}
