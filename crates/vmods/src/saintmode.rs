//! Module saintmode: excludes a backend for objects that it failed to deliver, and for all objects if
//! there are too many of those.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{
    Args, BackendId, Ctx, Director, Health, Instance, ModuleError, ObjectState, ObjectType, Value,
};

use crate::support::{CallResult, DONE, Table, director_name, is_backend_side, log, text};

pub(crate) static MODULE: Table = Table {
    name: "saintmode",
    functions: &[("denylist", denylist), ("status", status)],
    objects: &[ObjectType {
        name: "saintmode",
        new,
        methods: &[("backend", backend), ("denylist_count", denylist_count), ("is_healthy", is_healthy)],
    }],
    suspends: &[],
};

/// An object for which the backend is not used until a time.
struct Denial {
    hash: Vec<u8>,
    until: f64,
}

struct Saint {
    name: String,
    backend: BackendId,
    backend_name: String,
    /// The number of denied objects that makes the backend sick; 0 disables the module.
    threshold: usize,
    denials: Mutex<Vec<Denial>>,
}

/// The result of the checks for one object.
enum Verdict {
    Usable,
    Denied,
    TooMany,
}

impl Saint {
    fn verdict(&self, hash: Option<&[u8]>, now: f64) -> Verdict {
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        denials.retain(|t| t.until >= now);
        if denials.iter().any(|t| Some(&t.hash[..]) == hash) {
            Verdict::Denied
        } else if denials.len() >= self.threshold {
            Verdict::TooMany
        } else {
            Verdict::Usable
        }
    }

    fn count(&self) -> usize {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether the backend can be used for the current object. If not, logs the reason.
    fn is_usable(&self, ctx: &mut Ctx<'_>, hash: Option<&[u8]>) -> bool {
        if self.threshold == 0 || self.count() == 0 {
            return true;
        }
        let why = match self.verdict(hash, ctx.host.now()) {
            Verdict::Usable => return true,
            Verdict::Denied => "object denylisted",
            Verdict::TooMany => "hit threshold",
        };
        log(ctx, Tag::VCL_Log, format!("saintmode: unhealthy: {why} for backend {}", self.backend_name));
        false
    }
}

struct SaintDirector(Arc<Saint>);

impl Director for SaintDirector {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn kind(&self) -> &'static str {
        "saintmode"
    }

    fn resolve(&self, ctx: &mut Ctx<'_>, _me: BackendId) -> BackendId {
        if self.healthy_for(ctx).healthy { self.0.backend } else { BackendId::NONE }
    }

    fn healthy(&self, vcl: &Instance) -> Health {
        let mut health = vcl.directors.healthy(self.0.backend, vcl);
        health.healthy &= self.0.threshold == 0 || self.0.count() < self.0.threshold;
        health
    }

    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        let hash = if is_backend_side(ctx.method()) { ctx.get_blob(Var::BereqHash) } else { None };
        let is_usable = self.0.is_usable(ctx, hash);
        let mut health = ctx.vcl.directors.healthy_for(self.0.backend, ctx);
        health.healthy &= is_usable;
        health
    }

    fn members(&self) -> Vec<BackendId> {
        vec![self.0.backend]
    }

    fn sickness(&self) -> Option<String> {
        let (count, threshold) = (self.0.count(), self.0.threshold);
        (threshold != 0 && count >= threshold)
            .then(|| format!("{count} objects on its list, of at most {threshold}"))
    }

    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String {
        let word = if self.healthy(vcl).healthy { "healthy" } else { "sick" };
        match (details, json) {
            (false, false) => format!("0/0\t{word}"),
            (false, true) => format!("[0, 0, \"{word}\"]"),
            (true, _) => String::new(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The saintmode objects of a VCL.
#[derive(Default)]
struct All(Mutex<Vec<Arc<Saint>>>);

fn all(ctx: &Ctx<'_>) -> Vec<Arc<Saint>> {
    ctx.vcl_state::<All>(0).0.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Object {
    id: BackendId,
    saint: Arc<Saint>,
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let backend = args.backend(0);
    if backend.is_none() {
        return Err(ModuleError(format!("{}: saintmode needs a backend", args.object_name)));
    }
    let saint = Arc::new(Saint {
        name: args.object_name.to_owned(),
        backend,
        backend_name: director_name(ctx.vcl, backend),
        threshold: usize::try_from(args.int(1)).unwrap_or(0),
        denials: Mutex::default(),
    });
    ctx.vcl_state::<All>(0).0.lock().unwrap_or_else(PoisonError::into_inner).push(saint.clone());
    let id = ctx.vcl.directors.add(Arc::new(SaintDirector(saint.clone())));
    Ok(Arc::new(Object { id, saint }))
}

fn backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(args.this::<Object>()?.id))
}

fn denylist_count<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(args.this::<Object>()?.saint.count() as i64))
}

fn is_healthy<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let saint = &args.this::<Object>()?.saint;
    let hash = match ctx.method() {
        Method::Recv | Method::Hash | Method::Init | Method::Fini => None,
        method if is_backend_side(method) => ctx.get_blob(Var::BereqHash),
        _ => ctx.get_blob(Var::ReqHash),
    };
    let is_healthy = saint.is_usable(ctx, hash) && ctx.vcl.directors.healthy_for(saint.backend, ctx).healthy;
    Ok(Value::Bool(is_healthy))
}

fn denylist<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let saints = all(ctx);
    if saints.is_empty() {
        log(ctx, Tag::VCL_Error, "saintmode.denylist(): Saintmode is not configured");
        return DONE;
    }
    if ctx.method() != Method::BackendResponse {
        log(ctx, Tag::VCL_Error, "saintmode.denylist() called outside of vcl_backend_response");
        return DONE;
    }
    let used = ctx.host.get_backend(Var::BerespBackend);
    let Some(saint) = saints.iter().find(|s| s.backend == used) else {
        let text = "Error: saintmode.denylist(): Saintmode not configured for this backend.";
        log(ctx, Tag::VCL_Error, text);
        return DONE;
    };
    if saint.threshold == 0 {
        // The list is not used, so nothing would remove its entries.
        return DONE;
    }
    let hash = ctx.get_blob(Var::BereqHash).unwrap_or_default().to_vec();
    let trouble = Denial { hash, until: ctx.host.now() + args.real(0) };
    saint.denials.lock().unwrap_or_else(PoisonError::into_inner).push(trouble);
    let (name, seconds) = (&saint.backend_name, args.real(0));
    let note = format!("saintmode: object put on denylist for backend {name} for {seconds:.2} seconds");
    log(ctx, Tag::VCL_Log, note);
    DONE
}

fn status<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let row = |s: &Arc<Saint>| {
        format!(
            "\t\t{{ \"name\": \"{}\", \"backend\": \"{}\", \"count\": \"{}\", \"threshold\": \"{}\" }}",
            s.name,
            s.backend_name,
            s.count(),
            s.threshold
        )
    };
    let rows: Vec<String> = all(ctx).iter().map(row).collect();
    text(ctx, format!("{{\n\t\"saintmode\": [\n{}\n\t]\n}}\n", rows.join(",\n")).as_bytes())
}
