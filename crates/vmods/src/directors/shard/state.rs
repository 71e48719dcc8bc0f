//! One shard director: its settings, its parameters, its circle, and the changes that tasks make.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Ctx, ModuleError};

use super::circle::{Change, Circle};
use super::params::{Base, Given, ParamObject, failure, task_values};

pub const DEFAULT_REPLICAS: i64 = 67;

/// Bits of `.debug()`.
pub struct Debug;

impl Debug {
    pub const LOOKUP: u32 = 1;
    pub const CIRCLE: u32 = 2;
    pub const RAMPWARM: u32 = 4;
}

#[derive(Clone, Copy, Default)]
pub struct Settings {
    pub warmup: f64,
    pub rampup: f64,
}

pub struct Shard {
    pub name: String,
    debug: AtomicU32,
    settings: RwLock<Settings>,
    /// The parameter object that it is associated with.
    param: RwLock<Option<Arc<ParamObject>>>,
    circle: RwLock<Circle>,
}

impl Shard {
    pub fn new(name: &str) -> Self {
        Shard {
            name: name.to_owned(),
            debug: AtomicU32::new(0),
            settings: RwLock::default(),
            param: RwLock::default(),
            circle: RwLock::default(),
        }
    }

    pub fn fail(&self, text: &str) -> ModuleError {
        failure(&self.name, text)
    }

    pub fn error(&self, ctx: &mut Ctx<'_>, text: &str) {
        crate::support::log(ctx, Tag::Error, self.fail(text).0);
    }

    pub fn notice(&self, ctx: &mut Ctx<'_>, text: &str) {
        crate::support::log(ctx, Tag::Notice, self.fail(text).0);
    }

    pub fn debug(&self, ctx: &mut Ctx<'_>, flag: u32, text: impl FnOnce() -> String) {
        if self.debug.load(Ordering::Relaxed) & flag != 0 {
            let text = format!("vmod_directors: shard: {}", text());
            ctx.host.log_as(0, Tag::Debug as u8, text.as_bytes());
        }
    }

    pub fn circle(&self) -> RwLockReadGuard<'_, Circle> {
        self.circle.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn settings(&self) -> Settings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn set_debug(&self, flags: u32) {
        self.debug.store(flags, Ordering::Relaxed);
    }

    pub fn associate(&self, param: Option<Arc<ParamObject>>) {
        *self.param.write().unwrap_or_else(PoisonError::into_inner) = param;
    }

    pub fn param(&self) -> Option<Arc<ParamObject>> {
        self.param.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Applies changes to the backends. Returns whether there are any backends afterwards.
    pub fn reconfigure(&self, ctx: &mut Ctx<'_>, changes: Vec<Change>, replicas: i64) -> bool {
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

    /// Returns the changes that this task has made and not yet applied.
    pub fn pending<'c>(self: &Arc<Self>, ctx: &'c mut Ctx<'_>) -> &'c mut Vec<Change> {
        let cell: &mut Option<Pending> = ctx.host.task_privates().get(self.address());
        &mut cell.get_or_insert_with(|| Pending { shard: self.clone(), changes: Vec::new() }).changes
    }

    /// Returns the parameters for calls without arguments: those of the task or of the association.
    pub fn base(self: &Arc<Self>, ctx: &mut Ctx<'_>) -> (Given, Base) {
        let address = self.address();
        if let Some(own) = task_values(ctx, address) {
            return (own.given, own.base.clone());
        }
        (Given::default(), self.param().map_or(Base::Defaults, Base::TaskOf))
    }
}

/// Changes that a task has made and not yet applied. They are applied when it ends, at the latest.
pub struct Pending {
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
