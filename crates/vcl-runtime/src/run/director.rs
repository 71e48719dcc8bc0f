//! Backends and directors in VCL: indices into a table that belongs to the loaded VCL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use lacquer_sources::clock;

use super::{Ctx, Instance};

pub use super::{Director, DirectorCell, Directors};
pub use crate::backend::{AdminHealth, BackendId, Health, Load};

/// The number of backends that a text about a director names.
const MOST_MEMBERS: usize = 4;
/// The number of directors one behind the other that are examined for it.
const MOST_LEVELS: usize = 16;

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
            self.admin_changed.store(clock::real().to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the retries of fetches that the requests have not paid for, in hundredths.
    pub fn retry_debt(&self) -> &AtomicU32 {
        &self.retry_debt
    }

    /// Returns the health after applying the administrator's setting.
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

impl Directors {
    pub fn add(&self, director: Arc<dyn Director>) -> BackendId {
        let mut cells = self.cells.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        cells.push(Some(Arc::new(DirectorCell {
            director,
            admin: AtomicU8::new(0),
            admin_changed: AtomicU64::new(clock::real().to_bits()),
            retry_debt: AtomicU32::new(0),
        })));
        BackendId(cells.len() as u32)
    }

    pub fn get(&self, id: BackendId) -> Option<Arc<DirectorCell>> {
        let cells = self.cells.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        cells.get((id.0 as usize).checked_sub(1)?)?.clone()
    }

    /// Returns the row after removing it. Its place in the table stays empty, which takes 8 bytes.
    pub fn remove(&self, id: BackendId) -> Option<Arc<DirectorCell>> {
        let mut cells = self.cells.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        cells.get_mut((id.0 as usize).checked_sub(1)?)?.take()
    }

    /// Returns all rows in the order in which they were added.
    pub fn all(&self) -> Vec<(BackendId, Arc<DirectorCell>)> {
        let cells = self.cells.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let with_id =
            |(i, cell): (usize, &Option<Arc<DirectorCell>>)| Some((BackendId(i as u32 + 1), cell.clone()?));
        cells.iter().enumerate().filter_map(with_id).collect()
    }

    pub fn healthy(&self, id: BackendId, vcl: &Instance) -> Health {
        let Some(cell) = self.get(id) else { return Health { healthy: false, changed: 0.0 } };
        cell.overridden(cell.director.healthy(vcl))
    }

    /// Returns the reasons why a backend or director cannot serve, for the log. Names at most a few of its backends.
    pub fn why_sick(&self, id: BackendId) -> String {
        let (mut reasons, mut left) = (Vec::new(), MOST_MEMBERS);
        self.collect_reasons(id, MOST_LEVELS, &mut left, &mut reasons);
        reasons.join("; ")
    }

    fn collect_reasons(&self, id: BackendId, levels: usize, left: &mut usize, reasons: &mut Vec<String>) {
        let Some(cell) = self.get(id).filter(|_| *left > 0 && levels > 0) else { return };
        let name = cell.director.name();
        let own = match cell.admin() {
            AdminHealth::Sick => Some("set to sick".to_owned()),
            AdminHealth::Deleted => Some("deleted".to_owned()),
            AdminHealth::Healthy => return,
            AdminHealth::Auto => cell.director.sickness(),
        };
        let members = cell.director.members();
        if let Some(why) = own {
            *left -= 1;
            reasons.push(format!("{name}: {why}"));
        } else if cell.director.kind() != "backend" && members.is_empty() {
            reasons.push(format!("{name} has no backends"));
        }
        for (i, member) in members.iter().enumerate() {
            if *left == 0 {
                return reasons.push(format!("and {} more", members.len() - i));
            }
            self.collect_reasons(*member, levels - 1, left, reasons);
        }
    }

    /// Returns the health for the current task.
    pub fn healthy_for(&self, id: BackendId, ctx: &mut Ctx<'_>) -> Health {
        let Some(cell) = self.get(id) else { return Health { healthy: false, changed: 0.0 } };
        cell.overridden(cell.director.healthy_for(ctx))
    }
}
