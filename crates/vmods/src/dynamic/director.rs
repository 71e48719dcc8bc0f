//! Directors: one backend for each host and port.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lacquer_names::{Name, Refresh, TtlFrom};
use lacquer_shm::Tag;
use lacquer_sources::clock;
use lacquer_vcl::program::{Backend, BackendLimits, HostName, Probe};
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl_runtime::acl::AclTable;
use lacquer_vcl_runtime::{
    Args, BackendId, Ctx, HeaderName, HostLookup, Instance, ModuleError, NewBackend, NoBackend, ObjectState,
    Value,
};

use crate::standard;
use crate::support::{CallResult, DONE, log, shown, word};

/// Returns no backend, and the reason to the log: now, and for a fetch that has none because of it.
pub(super) fn none<'a>(ctx: &mut Ctx<'a>, why: String) -> CallResult<'a> {
    log(ctx, Tag::Error, &why);
    NoBackend::explain(ctx.host.task_privates(), why);
    Ok(Value::Backend(BackendId::NONE))
}

/// The maximum number of hosts and ports of one director. A client that can choose hosts could otherwise fill the
/// memory. A further one replaces one that is not used.
const MOST_DOMAINS: usize = 10_000;
/// The times without use, in seconds, after which a host without an answer and one without requests can be replaced. Tasks
/// that have its backend lose it, so they must have had time to use it.
const REPLACED_UNRESOLVED: f64 = 30.0;
const REPLACED_IDLE: f64 = 60.0;
/// The time in seconds between searches for hosts that can be replaced.
const SEARCH_INTERVAL: f64 = 1.0;

pub(super) struct Dynamic {
    pub name: String,
    template: Template,
    pub lookup: HostLookup,
    usage_timeout: f64,
    first_lookup: Duration,
    domains: Mutex<Domains>,
    /// The services that were used.
    pub services: Mutex<HashMap<String, Arc<Name>>>,
    is_debugged: AtomicBool,
}

/// The settings that all backends of a director share.
struct Template {
    port: String,
    host_header: Option<Vec<u8>>,
    authority: Option<String>,
    limits: BackendLimits,
    proxy_header: Option<u32>,
    probe: Option<Probe>,
    via: BackendId,
}

#[derive(Default)]
struct Domains {
    all: HashMap<Key, Arc<Domain>>,
    /// The time of the next check for unused domains.
    next_check: f64,
    /// The domains that could be replaced at the last search, the first to be replaced last.
    replaceable: Vec<Key>,
    /// The time of the next search for them.
    next_search: f64,
}

impl Domains {
    /// Removes the domain that is needed least, if one can be replaced. Returns its backend.
    fn remove_one(&mut self, vcl: &Instance, now: f64) -> Option<BackendId> {
        if let Some(id) = self.remove_found(vcl, now) {
            return Some(id);
        }
        if now < self.next_search {
            return None;
        }
        self.next_search = now + SEARCH_INTERVAL;
        self.replaceable = by_need(&self.all, vcl, now);
        self.remove_found(vcl, now)
    }

    /// Removes the next domain that the last search has found, unless it is in use again.
    fn remove_found(&mut self, vcl: &Instance, now: f64) -> Option<BackendId> {
        while let Some(key) = self.replaceable.pop() {
            if self.all.get(&key).is_some_and(|domain| domain.need(vcl, now).is_some()) {
                return self.all.remove(&key).map(|domain| domain.id);
            }
        }
        None
    }
}

/// Returns the domains that can be replaced, those that are needed most first. Of equal ones, those that were used last are
/// first.
fn by_need(all: &HashMap<Key, Arc<Domain>>, vcl: &Instance, now: f64) -> Vec<Key> {
    let needed = |(key, domain): (_, &Arc<Domain>)| Some((domain.need(vcl, now)?, domain.last_use(), key));
    let mut found: Vec<(Need, f64, &Key)> = all.iter().filter_map(needed).collect();
    found.sort_by(|one, other| other.0.cmp(&one.0).then(other.1.total_cmp(&one.1)));
    found.into_iter().map(|(_, _, key)| key.clone()).collect()
}

/// The need for a domain that can be replaced, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Resting,
    Unresolved,
    Idle,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub host: String,
    pub port: String,
    pub authority: Option<String>,
}

pub(super) struct Domain {
    pub id: BackendId,
    /// The time of the last use, as the bits of an `f64`.
    used: AtomicU64,
    rests: AtomicBool,
    /// Whether vcl_init uses it. Directors may contain its backend, so no other one replaces it.
    is_permanent: bool,
}

impl Domain {
    fn last_use(&self) -> f64 {
        f64::from_bits(self.used.load(Ordering::Relaxed))
    }

    /// Returns the need for the domain, or `None` if it cannot be replaced.
    fn need(&self, vcl: &Instance, now: f64) -> Option<Need> {
        if self.is_permanent {
            return None;
        }
        if self.rests.load(Ordering::Relaxed) {
            return Some(Need::Resting);
        }
        let unused = now - self.last_use();
        if unused < REPLACED_UNRESOLVED {
            return None;
        }
        let Some(cell) = vcl.directors.get(self.id) else { return Some(Need::Unresolved) };
        let names = cell.director.host_names();
        if names.iter().any(|name| !name.has_addresses()) {
            return Some(Need::Unresolved);
        }
        (unused >= REPLACED_IDLE && cell.director.load().in_use == 0).then_some(Need::Idle)
    }
}

impl Dynamic {
    fn domains(&self) -> MutexGuard<'_, Domains> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_argument(args: &Args<'_>, i: usize) -> Option<String> {
    args.str(i).map(|text| String::from_utf8_lossy(text).into_owned())
}

fn timeout(seconds: f64) -> Option<f64> {
    (seconds >= 0.0).then_some(seconds)
}

pub(super) fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let fault = |text: &str| ModuleError(format!("vmod-dynamic {} {text}", args.object_name));
    let port = text_argument(args, 0).unwrap_or_default();
    if port.is_empty() {
        return Err(fault("port is required"));
    }
    for (i, what) in
        [(5, "ttl"), (9, "domain_usage_timeout"), (10, "first_lookup_timeout"), (15, "retry_after")]
    {
        if args.real(i).is_nan() || args.real(i) <= 0.0 {
            return Err(fault(&format!("{what} must be positive")));
        }
    }
    for (i, what) in [(11, "max_connections"), (17, "keep"), (20, "wait_limit")] {
        if args.int(i) < 0 {
            return Err(fault(&format!("{what} must not be negative")));
        }
    }
    let proxy_header = args.int(12);
    if !(0..=2).contains(&proxy_header) {
        return Err(fault("proxy_header must be 0, 1 or 2"));
    }
    let acl = args.acl(4).and_then(|index| ctx.vcl.program.acls.get(index as usize)).map(AclTable::new);
    let filter = acl.map(|acl| {
        let filter = move |ip: &IpAddr| acl.check(&SocketAddr::new(*ip, 0)).matches;
        Arc::new(filter) as Arc<dyn Fn(&IpAddr) -> bool + Send + Sync>
    });
    let from = match word(args, 14) {
        "dns" => TtlFrom::Answer,
        "min" => TtlFrom::Shorter,
        "max" => TtlFrom::Longer,
        _ => TtlFrom::User,
    };
    let refresh =
        Refresh { from, ttl: Some(clock::seconds(args.real(5))), retry: Some(clock::seconds(args.real(15))) };
    let limits = BackendLimits {
        connect_timeout: timeout(args.real(6)),
        first_byte_timeout: timeout(args.real(7)),
        between_bytes_timeout: timeout(args.real(8)),
        max_connections: Some(args.int(11).min(i64::from(u32::MAX)) as u32).filter(|&n| n > 0),
        wait_timeout: timeout(args.real(19)),
        wait_limit: Some(args.int(20).min(i64::from(u32::MAX)) as u32).filter(|&n| n > 0),
        max_age: timeout(args.real(21)),
        max_requests: (args.int(22) >= 0).then(|| args.int(22).min(i64::from(u32::MAX)) as u32),
    };
    let template = Template {
        port,
        host_header: args.str(1).map(<[u8]>::to_vec),
        authority: text_argument(args, 18),
        limits,
        proxy_header: Some(proxy_header as u32).filter(|&n| n > 0),
        probe: args.probe(3).cloned(),
        via: args.backend(16),
    };
    Ok(Arc::new(Dynamic {
        name: args.object_name.to_owned(),
        template,
        lookup: HostLookup { refresh, filter },
        usage_timeout: args.real(9),
        first_lookup: clock::seconds(args.real(10)),
        domains: Mutex::default(),
        services: Mutex::default(),
        is_debugged: AtomicBool::new(false),
    }))
}

/// Returns the host of the request, without its port.
fn host_of_request(ctx: &mut Ctx<'_>) -> String {
    let name = HeaderName::new("Host");
    let host = [HttpId::Bereq, HttpId::Req].iter().find_map(|http| {
        let host = ctx.host.header(*http, &name)?;
        (!host.is_empty()).then(|| String::from_utf8_lossy(host).into_owned())
    });
    let host = host.unwrap_or_default();
    match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !bare.ends_with(':') => {
            bare.to_owned()
        }
        _ => host,
    }
}

pub(super) fn backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let dynamic = args.this::<Dynamic>()?;
    let given = |i| text_argument(args, i).filter(|text| !text.is_empty());
    let host = given(0).unwrap_or_else(|| host_of_request(ctx));
    if host.is_empty() {
        return none(ctx, format!("vmod-dynamic {}: the request has no host", dynamic.name));
    }
    let port = given(1).unwrap_or_else(|| dynamic.template.port.clone());
    let authority = text_argument(args, 2).or_else(|| dynamic.template.authority.clone());
    let key = Key { host: host.to_ascii_lowercase(), port, authority };
    let domain = match dynamic.domain(ctx, &key) {
        Ok(domain) => domain,
        Err(why) => {
            return none(ctx, format!("vmod-dynamic {} {}:{} {why}", dynamic.name, key.host, key.port));
        }
    };
    let names = ctx.vcl.directors.get(domain.id).map(|cell| cell.director.host_names());
    dynamic.first_lookups(ctx, names.unwrap_or_default())?;
    Ok(Value::Backend(domain.id))
}

impl Dynamic {
    /// Waits for the first lookups of names, if VCL can wait here.
    pub(super) fn first_lookups(
        &self,
        ctx: &mut Ctx<'_>,
        mut names: Vec<Arc<Name>>,
    ) -> Result<(), ModuleError> {
        names.retain(|name| !name.is_usable());
        if names.is_empty() || !ctx.can_wait() {
            return Ok(());
        }
        let limit = self.first_lookup;
        let all = async {
            for name in &names {
                name.first_lookup().await;
            }
        };
        let ended = ctx.block_on(Box::pin(async move { tokio::time::timeout(limit, all).await }))?;
        if ended.is_err() {
            let late = names.iter().filter(|name| !name.is_usable()).map(|name| name.host());
            let late: Vec<&str> = late.collect();
            log(ctx, Tag::Error, format!("vmod-dynamic {} {} timeout", self.name, late.join(" ")));
        }
        Ok(())
    }

    /// Returns the domain of a host and port. Creates it at its first use, and ends the rest of an unused one.
    pub(super) fn domain(&self, ctx: &mut Ctx<'_>, key: &Key) -> Result<Arc<Domain>, String> {
        let now = ctx.host.real_now();
        let mut domains = self.domains();
        self.rest_unused(ctx, &mut domains, now);
        if let Some(domain) = domains.all.get(key) {
            domain.used.store(now.to_bits(), Ordering::Relaxed);
            if domain.rests.swap(false, Ordering::Relaxed)
                && let Some(cell) = ctx.vcl.directors.get(domain.id)
            {
                cell.director.set_resting(false)?;
            }
            return Ok(domain.clone());
        }
        let backend = self.new_backend(key)?;
        if domains.all.len() >= MOST_DOMAINS {
            let removed = domains.remove_one(ctx.vcl, now);
            ctx.vcl.remove_backend(removed.ok_or_else(|| {
                format!("is refused: the director has {MOST_DOMAINS} hosts that are in use")
            })?);
        }
        let id = ctx.vcl.make_backend(backend)?;
        let domain = Arc::new(Domain {
            id,
            used: AtomicU64::new(now.to_bits()),
            rests: AtomicBool::new(false),
            is_permanent: ctx.method() == Method::Init,
        });
        domains.all.insert(key.clone(), domain.clone());
        drop(domains);
        if self.is_debugged.load(Ordering::Relaxed) {
            log(ctx, Tag::Debug, format!("vmod-dynamic {} {}:{} created", self.name, key.host, key.port));
        }
        Ok(domain)
    }

    /// Ends the lookups of domains that were not used for a long time.
    fn rest_unused(&self, ctx: &Ctx<'_>, domains: &mut Domains, now: f64) {
        if now < domains.next_check {
            return;
        }
        domains.replaceable.clear();
        domains.next_search = now;
        domains.next_check = now + (self.usage_timeout / 4.0).clamp(0.5, 60.0);
        for domain in domains.all.values() {
            if now - domain.last_use() > self.usage_timeout
                && !domain.rests.swap(true, Ordering::Relaxed)
                && let Some(cell) = ctx.vcl.directors.get(domain.id)
            {
                // Ending the lookups cannot fail.
                let _ = cell.director.set_resting(true);
            }
        }
    }

    fn new_backend(&self, key: &Key) -> Result<NewBackend, String> {
        let template = &self.template;
        let port = key.port.parse().ok().or_else(|| standard::service(&key.port));
        let port = port.filter(|&port| port > 0).ok_or("has an unknown port")?;
        let mut spec = Backend {
            name: format!("{}({}:{})", self.name, key.host, key.port),
            host_header: template.host_header.as_deref().map(Into::into),
            limits: template.limits.clone(),
            proxy_header: template.proxy_header,
            ..Backend::default()
        };
        if !template.via.is_none() {
            let host_header = template.host_header.as_deref().map(|text| shown(Some(text)).into_owned());
            let authority = key.authority.clone().or(host_header).unwrap_or_else(|| key.host.clone());
            spec.authority = Some(authority).filter(|text| !text.is_empty());
        }
        match key.host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => {
                if self.lookup.filter.as_ref().is_some_and(|filter| !filter(&ip)) {
                    return Err("whitelist mismatch".to_owned());
                }
                let family = if ip.is_ipv4() { &mut spec.address.ipv4 } else { &mut spec.address.ipv6 };
                *family = Some(SocketAddr::new(ip, port));
                spec.host_header.get_or_insert_with(|| key.host.as_str().into());
            }
            Err(_) if lacquer_vcl::is_host_name(&key.host) => {
                spec.address.name = Some(HostName { host: key.host.clone(), port });
            }
            Err(_) => return Err("is not a host name".to_owned()),
        }
        Ok(NewBackend {
            spec,
            probe: template.probe.clone(),
            via: template.via,
            lookup: self.lookup.clone(),
            local: None,
        })
    }
}

pub(super) fn debug<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    args.this::<Dynamic>()?.is_debugged.store(args.bool(0), Ordering::Relaxed);
    DONE
}
