//! shard: a backend by consistent hashing, so that adding or removing one moves few keys; the points are
//! those of Varnish. Parameter objects and lazy choices are in `params`, the circle in `circle`.

mod circle;
mod methods;
mod params;
mod pick;

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{BackendId, Ctx, Director, Health, Instance, ModuleError};

use super::group::{any_healthy, health_word, summary};
use super::hash_of;
use circle::{Change, Circle};
use params::{Base, By, Given, ParamObject, Params, is_backend_side, merge, task_values};

pub use methods::{PARAM_TYPE, TYPE};

const DEFAULT_REPLICAS: i64 = 67;

/// Bits of `.debug()`.
struct Debug;

impl Debug {
    const LOOKUP: u32 = 1;
    const CIRCLE: u32 = 2;
    const RAMPWARM: u32 = 4;
}

#[derive(Clone, Copy, Default)]
struct Settings {
    warmup: f64,
    rampup: f64,
}

struct Shard {
    name: String,
    debug: AtomicU32,
    settings: RwLock<Settings>,
    /// The parameter object it is associated with.
    param: RwLock<Option<Arc<ParamObject>>>,
    circle: RwLock<Circle>,
}

fn failure(name: &str, text: &str) -> ModuleError {
    ModuleError(format!("vmod_directors: shard {name}: {text}"))
}

impl Shard {
    fn new(name: &str) -> Self {
        Shard {
            name: name.to_owned(),
            debug: AtomicU32::new(0),
            settings: RwLock::default(),
            param: RwLock::default(),
            circle: RwLock::default(),
        }
    }

    fn fail(&self, text: &str) -> ModuleError {
        failure(&self.name, text)
    }

    fn error(&self, ctx: &mut Ctx<'_>, text: &str) {
        crate::support::log(ctx, Tag::Error, self.fail(text).0);
    }

    fn notice(&self, ctx: &mut Ctx<'_>, text: &str) {
        crate::support::log(ctx, Tag::Notice, self.fail(text).0);
    }

    fn debug(&self, ctx: &mut Ctx<'_>, flag: u32, text: impl FnOnce() -> String) {
        if self.debug.load(Ordering::Relaxed) & flag != 0 {
            let text = format!("vmod_directors: shard: {}", text());
            ctx.host.log_as(0, Tag::Debug as u8, text.as_bytes());
        }
    }

    fn circle(&self) -> RwLockReadGuard<'_, Circle> {
        self.circle.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> Settings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn param(&self) -> Option<Arc<ParamObject>> {
        self.param.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Applies changes to the backends; whether there are any backends afterwards.
    fn reconfigure(&self, ctx: &mut Ctx<'_>, changes: Vec<Change>, replicas: i64) -> bool {
        let mut circle = self.circle.write().unwrap_or_else(PoisonError::into_inner);
        for double in circle.apply(changes, replicas) {
            let ident = double.ident.map_or_else(String::new, |ident| format!("/{ident}"));
            self.notice(ctx, &format!("backend {}{ident} already exists - skipping", double.name));
        }
        if circle.members.is_empty() {
            self.error(ctx, ".reconfigure() no backends");
            return false;
        }
        for (i, p) in circle.points.iter().enumerate() {
            let text = || format!("hashcircle[{i:5}] = {{point = {:8x}, host = {:2}}}", p.point, p.host);
            self.debug(ctx, Debug::CIRCLE, text);
        }
        true
    }

    /// The parameters where nothing is given by the call: those of the task or of the association.
    fn base(self: &Arc<Self>, ctx: &mut Ctx<'_>) -> (Given, Base) {
        let address = self.address();
        if let Some(own) = task_values(ctx, address) {
            return (own.given, own.base.clone());
        }
        (Given::default(), self.param().map_or(Base::Defaults, Base::TaskOf))
    }
}

/// Changes that a task has made but not yet applied; they are at the latest when it ends.
struct Pending {
    shard: Arc<Shard>,
    changes: Vec<Change>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.changes.is_empty() {
            let changes = std::mem::take(&mut self.changes);
            let mut circle = self.shard.circle.write().unwrap_or_else(PoisonError::into_inner);
            circle.apply(changes, DEFAULT_REPLICAS);
        }
    }
}

fn key_of(ctx: &mut Ctx<'_>, params: &Params) -> u32 {
    let method = ctx.host.method();
    let url = if is_backend_side(method) && method != Method::Pipe { Var::BereqUrl } else { Var::ReqUrl };
    match params.by {
        By::Key(key) | By::Blob(key) => key,
        By::Hash if is_backend_side(method) => {
            let digest = ctx.get_blob(Var::BereqHash).and_then(|d| d.first_chunk().copied());
            digest.map_or(0, u32::from_be_bytes)
        }
        By::Hash | By::Url => hash_of(ctx.get_str(url)),
    }
}

/// The director in the VCL's table. It keeps its own address, under which a task keeps its values.
struct ShardDirector(Arc<Shard>);

impl Director for ShardDirector {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn kind(&self) -> &'static str {
        "shard"
    }

    fn resolve(&self, ctx: &mut Ctx<'_>, _me: BackendId) -> BackendId {
        let (given, base) = if is_backend_side(ctx.host.method()) {
            self.0.base(ctx)
        } else {
            (Given::default(), self.0.param().map_or(Base::Defaults, Base::Object))
        };
        let params = merge(ctx, given, &base);
        let key = key_of(ctx, &params);
        pick::pick(ctx, &self.0, key, &params)
    }

    fn healthy(&self, vcl: &Instance) -> Health {
        any_healthy(self.0.circle().members.iter().map(|m| m.backend), |id| vcl.directors.healthy(id, vcl))
    }

    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        let vcl = ctx.vcl;
        let circle = self.0.circle();
        any_healthy(circle.members.iter().map(|m| m.backend), |id| vcl.directors.healthy_for(id, ctx))
    }

    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String {
        list(&self.0, vcl, details, json)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn list(shard: &Shard, vcl: &Instance, details: bool, json: bool) -> String {
    let circle = shard.circle();
    let settings = shard.settings();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0.0, |d| d.as_secs_f64());
    let mut healthy = 0;
    let mut rows = Vec::new();
    for member in &circle.members {
        let health = vcl.directors.healthy(member.backend, vcl);
        healthy += usize::from(health.healthy);
        let (rampup, since) = (member.rampup.unwrap_or(settings.rampup), now - health.changed);
        let (part, remaining) = match health.healthy {
            false => (0.0, 0.0),
            true if since < rampup => (since / rampup, rampup - since),
            true => (1.0, 0.0),
        };
        let (name, ident, word) = (&member.name, member.label(), health_word(health.healthy));
        rows.push(if json {
            format!(
                "    \"{name}\": {{\n      \"ident\": \"{ident}\",\n      \"health\": \"{word}\",\n      \
                 \"rampup\": {part:.6},\n      \"rampup_remaining\": {remaining:.3}\n    }}"
            )
        } else {
            format!("\t{name}\t{ident}\t{word}\t{:6.2}% {remaining:8.3}s\n", part * 100.0)
        });
    }
    match (details, json) {
        (false, json) => summary(healthy, circle.members.len(), json),
        (true, false) => "\n\n\tBackend\tIdent\tHealth\tRampup  Remaining\n".to_owned() + &rows.concat(),
        (true, true) => format!(
            "{{\n  \"warmup\": {:.6},\n  \"rampup_duration\": {:.6},\n  \"backends\": {{\n{}\n  }}\n}}",
            settings.warmup,
            settings.rampup,
            rows.join(",\n")
        ),
    }
}
