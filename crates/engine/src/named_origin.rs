//! A backend whose host is a name, or that connects through one whose host is a name (`.via`): one origin for each
//! address, or pair of addresses, which change while the program runs.
//!
//! The origins share the counters and settings of the declaration; each has its own connections, limits and probes. With
//! addresses of both families, those of the preferred one become origins, and the others are only tried when one of
//! these does not accept.

use std::any::Any;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lacquer_cli::json;
use lacquer_names::{Answer, LONGEST_ANSWER, Listener, Name, Refresh};
use lacquer_net::SharedName;
use lacquer_sources::clock;
use lacquer_tls::origin::OriginTls;
use lacquer_vcl::program::Probe;
use lacquer_vcl_runtime::{BackendId, Ctx, Director, Health, HostLookup, Instance, Load};
use parking_lot::{Mutex, RwLock};

use crate::backends::{Origin, OriginContext, Via};
use crate::origin_health::health_word;

/// The number of addresses whose sickness is explained.
const MOST_REASONS: usize = 2;

/// The settings of the origins, in addition to the declaration.
pub struct Recipe {
    pub vcl_name: String,
    pub probe: Option<Probe>,
    pub via: Option<Proxy>,
    /// Creates the settings for TLS of one address.
    pub tls: Box<dyn Fn() -> Result<Option<OriginTls>, String> + Send + Sync>,
    pub prefer_ipv6: bool,
    pub lookup: HostLookup,
}

/// The backend through which others connect (`.via`).
#[derive(Clone)]
pub struct Proxy {
    pub declared: Arc<Origin>,
    /// How its host is looked up, if that is a name.
    pub lookup: HostLookup,
}

impl Proxy {
    /// Returns the declaration, which has the address of the backend unless that follows a name.
    pub fn as_declared(&self) -> Via<'_> {
        Via { origin: &self.declared, address: None }
    }
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
    /// The names, unless the backend rests.
    names: RwLock<Option<Followed>>,
    proxy_listener: Arc<ProxyListener>,
}

/// The names whose addresses a backend uses.
#[derive(Clone)]
struct Followed {
    own: Option<Arc<Name>>,
    /// That of the backend through which connections are made.
    proxy: Option<Arc<Name>>,
}

#[derive(Default)]
struct State {
    origins: Vec<(Route, Arc<Origin>)>,
    changed: f64,
}

/// The addresses of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    origin: IpAddr,
    /// The address of the backend through which connections are made, if that follows a name.
    proxy: Option<IpAddr>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.origin)?;
        self.proxy.map_or(Ok(()), |proxy| write!(f, " via {proxy}"))
    }
}

/// Pairs the addresses of an origin with those of the backend through which connections are made. If there are too many
/// pairs, it uses each address in at least one.
fn pairs(own: &[IpAddr], proxies: &[IpAddr]) -> Vec<Route> {
    let pair = |origin, proxy| Route { origin, proxy: Some(proxy) };
    if own.len() * proxies.len() <= LONGEST_ANSWER {
        return own.iter().flat_map(|&to| proxies.iter().map(move |&proxy| pair(to, proxy))).collect();
    }
    let longest = own.len().max(proxies.len());
    (0..longest).map(|i| pair(own[i % own.len()], proxies[i % proxies.len()])).collect()
}

/// Informs a backend of changes of the one through which it connects.
struct ProxyListener(Weak<NamedOrigin>);

impl Listener for ProxyListener {
    fn changed(&self, _answer: &Answer) {
        if let Some(origin) = self.0.upgrade() {
            origin.update();
        }
    }
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
            names: RwLock::new(None),
            proxy_listener: Arc::new(ProxyListener(me.clone())),
        })
    }

    /// Uses the addresses of the names from now on. Fails if they cannot be looked up.
    pub fn follow(&self) -> Result<(), String> {
        let own = self.watch(&self.declared, &self.recipe.lookup)?;
        let proxy = self.recipe.via.as_ref();
        let proxy = proxy.map(|via| self.watch(&via.declared, &via.lookup)).transpose()?.flatten();
        *self.names.write() = Some(Followed { own: own.clone(), proxy: proxy.clone() });
        if let (Some(own), Some(me)) = (own, self.me.upgrade()) {
            let listener: Arc<dyn Listener> = me;
            own.listen(&listener);
        }
        if let Some(proxy) = proxy {
            let listener: Arc<dyn Listener> = self.proxy_listener.clone();
            proxy.listen(&listener);
        }
        Ok(())
    }

    fn watch(&self, declared: &Origin, lookup: &HostLookup) -> Result<Option<Arc<Name>>, String> {
        let Some(name) = &declared.spec.address.name else { return Ok(None) };
        let watched = self.observer.watch(&name.host, lookup.refresh);
        watched.map(Some).map_err(|why| format!("{} cannot be looked up: {why}", name.host))
    }

    /// Returns the backend as one through which others connect.
    pub fn as_proxy(&self) -> Proxy {
        Proxy { declared: self.declared.clone(), lookup: self.recipe.lookup.clone() }
    }

    pub fn declared(&self) -> &Arc<Origin> {
        &self.declared
    }

    /// Returns the origins of the current addresses.
    pub fn origins(&self) -> Vec<Arc<Origin>> {
        self.state.read().origins.iter().map(|(_, origin)| origin.clone()).collect()
    }

    /// Returns the origins of the current addresses, each with the word of its addresses: these, joined by `_via_`.
    pub fn named_origins(&self) -> Vec<(String, Arc<Origin>)> {
        let word = |route: &Route| route.to_string().replace(' ', "_");
        self.state.read().origins.iter().map(|(route, origin)| (word(route), origin.clone())).collect()
    }

    /// Returns the reason why there are no addresses, if there are none.
    pub fn missing(&self) -> Option<String> {
        if !self.state.read().origins.is_empty() {
            return None;
        }
        let followed = self.names.read().clone();
        let Some(Followed { own, proxy }) = followed else {
            return Some("its host is not looked up, because it is not used".to_owned());
        };
        let own = own.map(|name| (name, &self.recipe.lookup));
        let proxy = proxy.and_then(|name| Some((name, &self.recipe.via.as_ref()?.lookup)));
        let fault = |(name, lookup): &(Arc<Name>, &HostLookup)| {
            let (answer, host) = (name.answer(), name.host());
            match &answer.failure {
                _ if !answer.is_known => Some(format!("{host} is not resolved yet")),
                _ if !self.wanted(&answer, lookup).is_empty() => None,
                Some(why) => Some(format!("{host} cannot be resolved: {why}")),
                None => Some(format!("{host} has no addresses that may be used")),
            }
        };
        let found = own.as_ref().and_then(fault).or_else(|| proxy.as_ref().and_then(fault));
        Some(found.unwrap_or_else(|| "its addresses are not in use yet".to_owned()))
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

    /// Returns the addresses of an answer that may be used, of one family.
    fn wanted(&self, answer: &Answer, lookup: &HostLookup) -> Vec<IpAddr> {
        let allowed = |ip: &IpAddr| lookup.filter.as_ref().is_none_or(|filter| filter(ip));
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) =
            answer.addresses.iter().copied().filter(allowed).partition(IpAddr::is_ipv4);
        let (first, second) = if self.recipe.prefer_ipv6 { (v6, v4) } else { (v4, v6) };
        if first.is_empty() { second } else { first }
    }

    /// Returns the addresses of the origins that there should be.
    fn routes(&self, names: &Followed) -> Vec<Route> {
        let own = match &names.own {
            Some(name) => self.wanted(&name.answer(), &self.recipe.lookup),
            None => self.fixed().map(|address| address.ip()).into_iter().collect(),
        };
        let Some((proxy, via)) = names.proxy.as_ref().zip(self.recipe.via.as_ref()) else {
            return own.into_iter().map(|origin| Route { origin, proxy: None }).collect();
        };
        pairs(&own, &self.wanted(&proxy.answer(), &via.lookup))
    }

    /// Returns the address of the declaration, if its host is none that is looked up.
    fn fixed(&self) -> Option<SocketAddr> {
        let address = &self.declared.spec.address;
        if self.recipe.prefer_ipv6 { address.ipv6.or(address.ipv4) } else { address.ipv4.or(address.ipv6) }
    }

    fn make(&self, route: Route, names: &Followed) -> Result<Arc<Origin>, String> {
        let recipe = &self.recipe;
        let mut spec = self.declared.spec.clone();
        if let Some(name) = &spec.address.name {
            let address = Some(SocketAddr::new(route.origin, name.port));
            let family = if route.origin.is_ipv4() { &mut spec.address.ipv4 } else { &mut spec.address.ipv6 };
            *family = address;
        }
        // The name whose addresses are connected to. Those that the filter refuses must not be tried.
        let (name, lookup) = match &recipe.via {
            Some(via) => (&names.proxy, &via.lookup),
            None => (&names.own, &recipe.lookup),
        };
        let name = name.as_ref().filter(|_| lookup.filter.is_none()).map(Arc::downgrade);
        let via = recipe.via.as_ref().map(|via| {
            let port = via.declared.spec.address.name.as_ref().map_or(0, |name| name.port);
            Via { origin: &via.declared, address: route.proxy.map(|ip| SocketAddr::new(ip, port)) }
        });
        let origin = Arc::new(Origin::new(
            spec,
            OriginContext {
                vcl_name: &recipe.vcl_name,
                probe: recipe.probe.as_ref(),
                via,
                tls: (recipe.tls)()?,
                name: name.map(SharedName),
                local: None,
                prefer_ipv6: recipe.prefer_ipv6,
                now: clock::real(),
            },
        ));
        origin.count_with(&self.declared);
        Ok(origin)
    }

    /// Creates and drops origins, so that they are those of the current addresses.
    fn update(&self) {
        let _changing = self.changing.lock();
        // A backend that rests has no names.
        let Some(names) = self.names.read().clone() else { return };
        let wanted = self.routes(&names);
        let before = self.state.read().origins.clone();
        let found = |route: &Route| before.iter().find(|(before, _)| before == route).cloned();
        let mut origins = Vec::with_capacity(wanted.len());
        for route in &wanted {
            match found(route).map_or_else(|| self.make(*route, &names).map(|made| (*route, made)), Ok) {
                Ok(origin) => origins.push(origin),
                Err(why) => {
                    self.observer.report(&format!("backend {}: {why}", self.declared.spec.name), true);
                }
            }
        }
        let is_new = |(route, _): &&(Route, Arc<Origin>)| !before.iter().any(|(old, _)| old == route);
        let added: Vec<_> = origins.iter().filter(is_new).map(|(_, origin)| origin.clone()).collect();
        let removed = before.iter().filter(|(route, _)| !wanted.contains(route));
        {
            let mut state = self.state.write();
            if before.is_empty() != origins.is_empty() {
                state.changed = clock::real();
            }
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
    }

    fn log(&self, answer: &Answer, used: &[IpAddr]) {
        let host = self.declared.spec.address.name.as_ref().map_or("", |name| &name.host);
        let mut text = format!("backend {}: {host} ", self.declared.spec.name);
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
    /// Receives the changes of the backend's own host. Those of a proxy's host are logged by the proxy.
    fn changed(&self, answer: &Answer) {
        if self.names.read().is_none() {
            // The backend rests.
            return;
        }
        self.update();
        self.log(answer, &self.wanted(answer, &self.recipe.lookup));
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
        let times = state.origins.iter().map(|(_, origin)| origin.health_changed());
        let changed = times.fold(state.changed, f64::max);
        Health { healthy: state.origins.iter().any(|(_, origin)| origin.is_healthy()), changed }
    }

    fn determines_health(&self) -> bool {
        self.recipe.probe.is_some()
            || !self.state.read().origins.iter().any(|(_, origin)| origin.is_healthy())
    }

    /// Returns the reason why there are no addresses, or those of some addresses.
    fn sickness(&self) -> Option<String> {
        if let Some(why) = self.missing() {
            return Some(why);
        }
        let state = self.state.read();
        let of_address =
            |(route, origin): &(Route, Arc<Origin>)| Some(format!("{route}: {}", origin.sickness()?));
        let reasons: Vec<String> = state.origins.iter().filter_map(of_address).take(MOST_REASONS).collect();
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }

    /// Returns the requests of all addresses, and the best outcomes: those that fail are used last.
    fn load(&self) -> Load {
        let state = self.state.read();
        let loads = state.origins.iter().map(|(_, origin)| origin.load());
        let all = loads.reduce(|one, other| Load {
            in_use: one.in_use.saturating_add(other.in_use),
            failures: one.failures.min(other.failures),
            latency: one.latency.min(other.latency),
            setback: one.setback.min(other.setback),
        });
        all.unwrap_or_default()
    }

    fn list(&self, _vcl: &Instance, details: bool, json: bool) -> String {
        let origins = self.state.read().origins.clone();
        if let [(_, only)] = &origins[..]
            && self.recipe.probe.is_some()
        {
            return only.list(details, json);
        }
        let good = origins.iter().filter(|(_, origin)| origin.is_healthy()).count();
        let broken = || origins.iter().find(|(_, origin)| !origin.is_sick());
        let word = match good {
            0 => broken().map_or("sick", |(_, origin)| origin.health_text()),
            _ => "healthy",
        };
        let total = if self.recipe.probe.is_some() { (good, origins.len()) } else { (0, 0) };
        match (details, json) {
            (false, false) => format!("{}/{}\t{word}", total.0, total.1),
            (false, true) => format!("[{}, {}, \"{}\"]", total.0, total.1, health_word(good > 0)),
            (true, json) => self.list_addresses(&origins, json),
        }
    }

    fn host_names(&self) -> Vec<Arc<Name>> {
        let names = self.names.read().clone();
        names.map_or_else(Vec::new, |names| names.own.into_iter().chain(names.proxy).collect())
    }

    fn set_resting(&self, is_resting: bool) -> Result<(), String> {
        let rests = self.names.read().is_none();
        match (is_resting, rests) {
            (true, false) => {
                let _changing = self.changing.lock();
                *self.names.write() = None;
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
    fn list_addresses(&self, origins: &[(Route, Arc<Origin>)], json: bool) -> String {
        let missing = self.missing();
        if json {
            let one = |(route, origin): &(Route, Arc<Origin>)| {
                format!("\"{route}\": \"{}\"", health_word(origin.is_healthy()))
            };
            let list: Vec<String> = origins.iter().map(one).collect();
            let failure = missing.map_or_else(|| "null".to_owned(), |text| json::string(&text));
            return format!("{{\"addresses\": {{{}}}, \"failure\": {failure}}}", list.join(", "));
        }
        let mut out = String::new();
        for (route, origin) in origins {
            let _ = write!(out, "\n  {route} {}", origin.health_text());
        }
        if let Some(why) = missing {
            let _ = write!(out, "\n  {why}");
        }
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(network: u8, count: usize) -> Vec<IpAddr> {
        (0..count).map(|n| IpAddr::from([10, network, 0, n as u8])).collect()
    }

    #[test]
    fn each_address_is_in_a_pair_and_pairs_are_limited() {
        assert_eq!(pairs(&addresses(1, 2), &addresses(2, 3)).len(), 6);
        assert_eq!(pairs(&addresses(1, 0), &addresses(2, 3)), []);
        assert_eq!(pairs(&addresses(1, 64), &addresses(2, 0)), []);
        for (own, proxies) in [(64, 1), (64, 64), (1, 64), (9, 8), (3, 64)] {
            let (own, proxies) = (addresses(1, own), addresses(2, proxies));
            let routes = pairs(&own, &proxies);
            assert!(routes.len() <= LONGEST_ANSWER, "{}", routes.len());
            assert!(own.iter().all(|ip| routes.iter().any(|route| route.origin == *ip)));
            assert!(proxies.iter().all(|ip| routes.iter().any(|route| route.proxy == Some(*ip))));
        }
        assert_eq!(pairs(&addresses(1, 1), &addresses(2, 1))[0].to_string(), "10.1.0.0 via 10.2.0.0");
    }
}
