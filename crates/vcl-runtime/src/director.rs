//! Backends and directors as VCL handles them: small numbers into a table that belongs to the loaded VCL.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::ctx::Ctx;
use crate::instance::Instance;

/// A BACKEND value. Zero is no backend; otherwise the index into [`Directors`] plus one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BackendId(pub u32);

impl BackendId {
    pub const NONE: BackendId = BackendId(0);

    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Whether a director can serve, and since when (seconds since the epoch) it has been so.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    pub healthy: bool,
    pub changed: f64,
}

/// What an administrator said by `backend.set_health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AdminHealth {
    Auto = 0,
    Healthy = 1,
    Sick = 2,
    Deleted = 3,
}

/// A backend (leaf) or something that chooses among others.
pub trait Director: Send + Sync {
    /// The name in VCL.
    fn name(&self) -> &str;
    /// "backend", "round-robin", "fallback", "random", "hash", "shard", …
    fn kind(&self) -> &'static str;
    /// One step of the choice: a leaf returns `me`, a director one of its own; `NONE` if nothing can serve.
    fn resolve(&self, ctx: &mut Ctx<'_>, me: BackendId) -> BackendId;
    /// Health as probes and the directors below see it; the administrator's word is applied by [`Directors`].
    fn healthy(&self, vcl: &Instance) -> Health;
    /// Health for the task at hand; directors that judge by the object override it.
    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        self.healthy(ctx.vcl)
    }
    /// Whether it has an opinion of health at all; without one, it counts as healthy.
    fn judges(&self) -> bool {
        true
    }
    /// Text for `backend.list`: the "Probe" column; with `details` the `-p` text, or nothing. `json` asks
    /// for a JSON value.
    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String;
    fn as_any(&self) -> &dyn Any;
}

/// One row of a VCL's table of directors.
pub struct DirectorCell {
    pub director: Arc<dyn Director>,
    admin: AtomicU8,
    /// When it was made or the administrator last changed his mind: a double's bits.
    admin_changed: AtomicU64,
}

impl DirectorCell {
    pub fn admin(&self) -> AdminHealth {
        match self.admin.load(Ordering::Relaxed) {
            1 => AdminHealth::Healthy,
            2 => AdminHealth::Sick,
            3 => AdminHealth::Deleted,
            _ => AdminHealth::Auto,
        }
    }

    pub fn set_admin(&self, to: AdminHealth) {
        if self.admin.swap(to as u8, Ordering::Relaxed) != to as u8 {
            self.admin_changed.store(now().to_bits(), Ordering::Relaxed);
        }
    }

    /// What the administrator says overrides what the director knows.
    fn overridden(&self, mut health: Health) -> Health {
        health.changed = health.changed.max(f64::from_bits(self.admin_changed.load(Ordering::Relaxed)));
        match self.admin() {
            AdminHealth::Auto => {}
            AdminHealth::Healthy => health.healthy = true,
            AdminHealth::Sick | AdminHealth::Deleted => health.healthy = false,
        }
        health
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The directors of one loaded VCL. Rows are only ever added, so an id stays valid as long as the VCL.
#[derive(Default)]
pub struct Directors {
    cells: std::sync::RwLock<Vec<Arc<DirectorCell>>>,
}

impl Directors {
    pub fn add(&self, director: Arc<dyn Director>) -> BackendId {
        let mut cells = self.cells.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        cells.push(Arc::new(DirectorCell {
            director,
            admin: AtomicU8::new(0),
            admin_changed: AtomicU64::new(now().to_bits()),
        }));
        BackendId(cells.len() as u32)
    }

    pub fn get(&self, id: BackendId) -> Option<&DirectorCell> {
        let cells = self.cells.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let cell = Arc::as_ptr(cells.get((id.0 as usize).checked_sub(1)?)?);
        // SAFETY: rows are only ever added, so the reference counter of this one is held as long as `self` lives.
        Some(unsafe { &*cell })
    }

    /// In the order in which they were added.
    pub fn all(&self) -> Vec<(BackendId, Arc<DirectorCell>)> {
        let cells = self.cells.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        cells.iter().enumerate().map(|(i, c)| (BackendId(i as u32 + 1), c.clone())).collect()
    }

    pub fn healthy(&self, id: BackendId, vcl: &Instance) -> Health {
        let Some(cell) = self.get(id) else { return Health { healthy: false, changed: 0.0 } };
        cell.overridden(cell.director.healthy(vcl))
    }

    /// Health for the task at hand.
    pub fn healthy_for(&self, id: BackendId, ctx: &mut Ctx<'_>) -> Health {
        let Some(cell) = self.get(id) else { return Health { healthy: false, changed: 0.0 } };
        cell.overridden(cell.director.healthy_for(ctx))
    }
}
