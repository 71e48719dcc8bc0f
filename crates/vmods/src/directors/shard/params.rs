//! The parameters of a selection. Those that a call omits are taken from the task's own values,
//! the parameter object that the director is associated with, or the defaults.

use std::sync::{Arc, PoisonError, RwLock};

use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{Ctx, ModuleError};

use crate::directors::hash::hash_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Hash,
    Url,
    Key(u32),
    Blob(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Healthy {
    Chosen,
    Ignore,
    All,
}

impl By {
    pub fn name(self) -> &'static str {
        match self {
            By::Hash => "HASH",
            By::Url => "URL",
            By::Key(_) => "KEY",
            By::Blob(_) => "BLOB",
        }
    }
}

impl Healthy {
    pub fn name(self) -> &'static str {
        match self {
            Healthy::Chosen => "CHOSEN",
            Healthy::Ignore => "IGNORE",
            Healthy::All => "ALL",
        }
    }

    pub fn of(name: &str) -> Self {
        match name {
            "IGNORE" => Healthy::Ignore,
            "ALL" => Healthy::All,
            _ => Healthy::Chosen,
        }
    }
}

/// Parameters that were given in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Given {
    pub by: Option<By>,
    pub alt: Option<i64>,
    pub warmup: Option<f64>,
    pub rampup: Option<bool>,
    pub healthy: Option<Healthy>,
}

impl Given {
    pub fn fill(&mut self, from: Given) {
        self.by = self.by.or(from.by);
        self.alt = self.alt.or(from.alt);
        self.warmup = self.warmup.or(from.warmup);
        self.rampup = self.rampup.or(from.rampup);
        self.healthy = self.healthy.or(from.healthy);
    }

    fn complete(self) -> Params {
        Params {
            by: self.by.unwrap_or(By::Hash),
            alt: self.alt.unwrap_or(0),
            warmup: self.warmup.unwrap_or(-1.0),
            rampup: self.rampup.unwrap_or(true),
            healthy: self.healthy.unwrap_or(Healthy::Chosen),
        }
    }
}

/// All parameters of a selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    pub by: By,
    pub alt: i64,
    /// -1: use the director's value.
    pub warmup: f64,
    pub rampup: bool,
    pub healthy: Healthy,
}

/// A `shard_param` object.
pub struct ParamObject {
    pub name: String,
    given: RwLock<Given>,
}

impl ParamObject {
    pub fn new(name: &str) -> Self {
        ParamObject { name: name.to_owned(), given: RwLock::default() }
    }

    fn given(&self) -> Given {
        *self.given.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Source of parameters that are not given.
#[derive(Clone, Default)]
pub enum Base {
    #[default]
    Defaults,
    Object(Arc<ParamObject>),
    /// The task's own values for the object, then the object's.
    TaskOf(Arc<ParamObject>),
}

/// A task's own values for a director or a parameter object.
#[derive(Clone, Default)]
pub struct TaskValues {
    pub given: Given,
    pub base: Base,
}

pub fn failure(name: &str, text: &str) -> ModuleError {
    ModuleError(format!("vmod_directors: shard {name}: {text}"))
}

/// Returns whether the subroutine works on a request to a backend. vcl_pipe does.
pub fn is_backend_side(method: Method) -> bool {
    matches!(
        method,
        Method::Pipe
            | Method::BackendFetch
            | Method::BackendRefresh
            | Method::BackendResponse
            | Method::BackendError
    )
}

pub fn is_housekeeping(method: Method) -> bool {
    matches!(method, Method::Init | Method::Fini)
}

/// Returns the task's values for the director or parameter object at this address.
pub fn task_values<'c>(ctx: &'c mut Ctx<'_>, address: usize) -> &'c mut Option<TaskValues> {
    ctx.host.task_privates().get(address)
}

pub fn merge(ctx: &mut Ctx<'_>, mut given: Given, base: &Base) -> Params {
    match base {
        Base::Defaults => {}
        Base::Object(object) => given.fill(object.given()),
        Base::TaskOf(object) => {
            if let Some(own) = task_values(ctx, Arc::as_ptr(object).addr()) {
                given.fill(own.given);
            }
            given.fill(object.given());
        }
    }
    given.complete()
}

/// Returns the effective parameters of an object in the current subroutine.
pub fn read(ctx: &mut Ctx<'_>, object: &Arc<ParamObject>) -> Params {
    let base = if is_backend_side(ctx.host.method()) { Base::TaskOf } else { Base::Object };
    merge(ctx, Given::default(), &base(object.clone()))
}

/// Changes a parameter object: for all tasks in vcl_init, otherwise for the current task.
pub fn change(ctx: &mut Ctx<'_>, object: &Arc<ParamObject>, who: &str, to: Given) -> Result<(), ModuleError> {
    let method = ctx.host.method();
    if is_backend_side(method) {
        let values = TaskValues { given: to, base: Base::Defaults };
        *task_values(ctx, Arc::as_ptr(object).addr()) = Some(values);
    } else if is_housekeeping(method) {
        *object.given.write().unwrap_or_else(PoisonError::into_inner) = to;
    } else {
        let text = format!("{who} may only be used in vcl_init and in backend/pipe context");
        return Err(failure(&object.name, &text));
    }
    Ok(())
}

/// Returns the key that these parameters select by.
pub fn key_of(ctx: &mut Ctx<'_>, params: &Params) -> u32 {
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
