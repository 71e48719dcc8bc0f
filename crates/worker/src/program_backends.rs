//! Creates the backends of programs: those that they declare, and those that their modules ask for.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lacquer_engine::backends::{Origin, OriginContext, OriginLeaf};
use lacquer_engine::named_origin::{AddressObserver, NamedOrigin, Proxy, Recipe};
use lacquer_engine::vcl_table::{Entry, Temperature};
use lacquer_names::{Name, Refresh};
use lacquer_net::LocalServer;
use lacquer_shm::vsm::Cluster;
use lacquer_shm::{Tag, VsmDir, Vxid};
use lacquer_sources::clock::{self, Instant};
use lacquer_vcl::program::{Backend, Probe, Program};
use lacquer_vcl_runtime::{BackendMaker, Director, HostLookup, Instance, NewBackend};

use crate::origin_tls::DeclaredTls;
use crate::probing;
use crate::process::Process;

/// The time that the load of a program waits for the first addresses of its hosts. It ends when all are known.
const FIRST_LOOKUPS: Duration = Duration::from_secs(1);

/// The declared backends of a program, while they are created.
pub struct DeclaredBackends<'p> {
    process: &'p Arc<Process>,
    vcl_name: &'p str,
    cluster: Option<&'p Cluster>,
    /// The positions of the declarations, by name.
    positions: HashMap<String, usize>,
    /// The backends by these positions.
    made: HashMap<usize, Arc<Origin>>,
    probes: Vec<Probe>,
    tls: Arc<DeclaredTls>,
    prefer_ipv6: bool,
    origins: Vec<Arc<Origin>>,
    fault: Option<String>,
}

impl<'p> DeclaredBackends<'p> {
    pub fn of(
        program: &Program,
        process: &'p Arc<Process>,
        vcl_name: &'p str,
        cluster: Option<&'p Cluster>,
    ) -> Self {
        let declared = program.origins.backends.iter().enumerate();
        DeclaredBackends {
            process,
            vcl_name,
            cluster,
            positions: declared.map(|(position, backend)| (backend.name.clone(), position)).collect(),
            made: HashMap::new(),
            probes: program.origins.probes.clone(),
            tls: Arc::new(DeclaredTls::of(program)),
            prefer_ipv6: process.shared().params().prefer_ipv6,
            origins: Vec::new(),
            fault: None,
        }
    }

    /// Creates a backend. A failure is returned by [`DeclaredBackends::finish`].
    pub fn make(&mut self, spec: &Backend) -> Arc<dyn Director> {
        let index = self.positions.get(&spec.name).copied().unwrap_or(usize::MAX);
        let tls = self.tls.make(index, &spec.name).unwrap_or_else(|why| {
            self.fault.get_or_insert(why);
            None
        });
        let via = spec.via.and_then(|i| self.made.get(&(i as usize))).cloned();
        let via = via.map(|declared| Proxy { declared, lookup: HostLookup::default() });
        let uses_names = uses_names(spec, via.as_ref());
        let probe = spec.probe.and_then(|i| self.probes.get(i as usize));
        let context = OriginContext {
            vcl_name: self.vcl_name,
            probe: probe.filter(|_| !uses_names),
            via: via.as_ref().map(Proxy::as_declared),
            tls,
            prefer_ipv6: self.prefer_ipv6,
            now: clock::real(),
            ..OriginContext::default()
        };
        let origin = Arc::new(Origin::new(declared(spec), context));
        if !origin.spec.none {
            let is_shared = Arc::strong_count(&origin.endpoint) > 1;
            self.process.shared().pool_counters().count_backend(is_shared);
        }
        origin.publish(&self.process.vsm(), self.cluster);
        probing::report(&origin, self.process.shared().log());
        self.origins.push(origin.clone());
        self.made.insert(index, origin.clone());
        if !uses_names {
            return Arc::new(OriginLeaf(origin));
        }
        let (tls, backend) = (self.tls.clone(), spec.name.clone());
        let recipe = Recipe {
            vcl_name: self.vcl_name.to_owned(),
            probe: probe.cloned(),
            via,
            tls: Box::new(move || tls.make(index, &backend)),
            prefer_ipv6: self.prefer_ipv6,
            lookup: HostLookup::default(),
        };
        match follow(self.process, origin, recipe) {
            Ok(named) => named,
            Err(why) => {
                self.fault.get_or_insert(why);
                Arc::new(OriginLeaf(self.origins[self.origins.len() - 1].clone()))
            }
        }
    }

    /// Returns the declarations.
    pub fn finish(self) -> Result<Vec<Arc<Origin>>, String> {
        self.fault.map_or(Ok(self.origins), Err)
    }
}

/// Returns whether the addresses of a backend, or of the one through which it connects, may change.
fn uses_names(spec: &Backend, via: Option<&Proxy>) -> bool {
    spec.address.name.is_some() || via.is_some_and(|via| via.declared.spec.address.name.is_some())
}

/// Returns the declaration of the origins of a name: its requests name the host, not one of its addresses.
fn declared(spec: &Backend) -> Backend {
    let mut spec = spec.clone();
    if let Some(name) = &spec.address.name {
        (spec.address.ipv4, spec.address.ipv6) = (None, None);
        spec.host_header.get_or_insert_with(|| name.host.as_str().into());
    }
    spec
}

fn follow(process: &Arc<Process>, declared: Arc<Origin>, recipe: Recipe) -> Result<Arc<NamedOrigin>, String> {
    let named = NamedOrigin::new(declared, recipe, Box::new(Observer(Arc::downgrade(process))));
    named.follow()?;
    Ok(named)
}

/// Starts and stops the probes of the addresses of a name, and logs changes.
struct Observer(Weak<Process>);

impl AddressObserver for Observer {
    fn watch(&self, host: &str, refresh: Refresh) -> Result<Arc<Name>, String> {
        let process = self.0.upgrade().ok_or("the worker ends")?;
        process.hosts().watch(host, refresh).map_err(|error| error.to_string())
    }

    fn added(&self, origin: &Arc<Origin>) {
        if let Some(process) = self.0.upgrade() {
            probing::start(origin, &process);
        }
    }

    fn removed(&self, origin: &Arc<Origin>) {
        if let Some(process) = self.0.upgrade() {
            probing::stop(origin, process.shared().log());
            origin.wake_all();
        }
    }

    fn report(&self, text: &str, is_failure: bool) {
        if let Some(process) = self.0.upgrade() {
            let tag = if is_failure { Tag::Error } else { Tag::Notice };
            process.shared().log().write(tag, Vxid::NONE, text.as_bytes());
        }
    }
}

/// Waits a moment for the first addresses of the hosts of a program. Returns a warning for each host without one.
pub fn first_addresses(vcl: &Instance) -> Vec<String> {
    let until = (Instant::now() + FIRST_LOOKUPS).into_std();
    let mut warnings = Vec::new();
    for (_, cell) in vcl.directors.all() {
        let Some(named) = cell.director.as_any().downcast_ref::<NamedOrigin>() else { continue };
        for name in named.host_names() {
            name.wait_until(until);
        }
        if let Some(why) = named.missing() {
            warnings.push(format!("Backend {} is sick until its host is resolved: {why}", named.name()));
        }
    }
    warnings
}

/// Starts the probes of all backends, because the program becomes warm.
pub fn warm_up(vcl: &Instance, process: &Arc<Process>) {
    for (_, cell) in vcl.directors.all() {
        warm_up_one(&*cell.director, process);
    }
}

fn warm_up_one(director: &dyn Director, process: &Arc<Process>) {
    if let Some(leaf) = director.as_any().downcast_ref::<OriginLeaf>() {
        probing::warm_up(&leaf.0, process);
    } else if let Some(named) = director.as_any().downcast_ref::<NamedOrigin>() {
        named.declared().show(true);
        named.set_warm(true);
        named.origins().iter().for_each(|origin| probing::start(origin, process));
    }
}

/// Stops the probes of all backends, because the program becomes cold.
pub fn cool_down(vcl: &Instance, process: &Process) {
    for (_, cell) in vcl.directors.all() {
        cool_down_one(&*cell.director, process);
    }
}

fn cool_down_one(director: &dyn Director, process: &Process) {
    let log = process.shared().log();
    if let Some(leaf) = director.as_any().downcast_ref::<OriginLeaf>() {
        probing::cool_down(&leaf.0, log);
    } else if let Some(named) = director.as_any().downcast_ref::<NamedOrigin>() {
        named.set_warm(false);
        named.origins().iter().for_each(|origin| probing::stop(origin, log));
        named.declared().show(false);
    }
}

/// Creates backends and counters for the modules of one program.
pub struct Maker(pub Weak<Process>);

impl BackendMaker for Maker {
    fn make(&self, vcl: &Instance, backend: NewBackend) -> Result<Arc<dyn Director>, String> {
        let process = self.0.upgrade().ok_or("the worker ends")?;
        let NewBackend { spec, probe, via, lookup, local } = backend;
        let default_probe = vcl.program.origins.default_probe().filter(|_| local.is_none());
        let probe = probe.or_else(|| default_probe.cloned());
        let via = vcl.directors.get(via).and_then(|cell| {
            let leaf = cell.director.as_any();
            let fixed = leaf.downcast_ref::<OriginLeaf>();
            let fixed = fixed.map(|leaf| Proxy { declared: leaf.0.clone(), lookup: HostLookup::default() });
            fixed.or_else(|| Some(leaf.downcast_ref::<NamedOrigin>()?.as_proxy()))
        });
        let uses_names = uses_names(&spec, via.as_ref());
        let prefer_ipv6 = process.shared().params().prefer_ipv6;
        let context = OriginContext {
            vcl_name: &vcl.name,
            probe: probe.as_ref().filter(|_| !uses_names),
            via: via.as_ref().map(Proxy::as_declared),
            local: local.map(LocalServer),
            prefer_ipv6,
            now: clock::real(),
            ..OriginContext::default()
        };
        let origin = Arc::new(Origin::new(declared(&spec), context));
        origin.publish(&process.vsm(), None);
        let director: Arc<dyn Director> = if uses_names {
            let vcl_name = vcl.name.clone();
            let tls = Box::new(|| Ok(None));
            let recipe = Recipe { vcl_name, probe, via, tls, prefer_ipv6, lookup };
            follow(&process, origin, recipe)?
        } else {
            Arc::new(OriginLeaf(origin))
        };
        if is_warm(&process, vcl) {
            warm_up_one(&*director, &process);
        }
        Ok(director)
    }

    fn retire(&self, director: &dyn Director) {
        if let Some(process) = self.0.upgrade() {
            cool_down_one(director, &process);
        }
    }

    fn watch_service(&self, service: &str, refresh: Refresh) -> Result<Arc<Name>, String> {
        let process = self.0.upgrade().ok_or("the worker ends")?;
        process.hosts().watch_service(service, refresh).map_err(|error| error.to_string())
    }

    fn shared_memory(&self) -> Result<VsmDir, String> {
        let process = self.0.upgrade().ok_or("the worker ends")?;
        let dir = process.vsm().clone();
        Ok(dir)
    }
}

/// Returns whether a program is warm. It is in the table of programs only after `vcl_init`.
fn is_warm(process: &Process, vcl: &Instance) -> bool {
    let entries = process.shared().vcls().entries();
    let mut programs = entries.iter().map(Entry::program);
    let found = programs.find(|program| std::ptr::eq(program.loaded.instance(), vcl));
    found.is_some_and(|program| program.temperature() == Temperature::Warm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_vcl::program::HostName;

    #[test]
    fn requests_to_a_name_have_its_host() {
        let name = HostName { host: "www.example".to_owned(), port: 80 };
        let mut spec = Backend { name: "b".to_owned(), ..Backend::default() };
        spec.address.name = Some(name);
        assert_eq!(declared(&spec).host_header, Some("www.example".into()));
        spec.host_header = Some("own".into());
        assert_eq!(declared(&spec).host_header, Some("own".into()));
    }
}
