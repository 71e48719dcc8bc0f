//! The list of weighted backends that most directors have, and its texts for `backend.list`.

use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lacquer_vcl_runtime::{BackendId, Ctx, Health, Instance, ModuleError};

use crate::support::director_name;

#[derive(Clone, Copy)]
pub struct Member {
    pub backend: BackendId,
    pub weight: f64,
    /// The members are in ascending order of it.
    pub rank: u64,
}

pub struct Group {
    pub name: String,
    members: RwLock<Vec<Member>>,
}

/// Column of `backend.list -p` for each member, in addition to its health.
pub enum Column {
    Weight,
    Nothing,
    /// Marks the member in use.
    Current {
        index: usize,
        sticky: bool,
    },
}

impl Group {
    pub fn new(name: &str) -> Self {
        Group { name: name.to_owned(), members: RwLock::default() }
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Vec<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, Vec<Member>> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a backend behind those of the same rank.
    pub fn add(&self, backend: BackendId, weight: f64, rank: u64) -> Result<(), ModuleError> {
        if backend.is_none() {
            return Err(ModuleError(format!("{}: None backend cannot be added", self.name)));
        }
        let mut members = self.write();
        let at = members.partition_point(|member| member.rank <= rank);
        members.insert(at, Member { backend, weight, rank });
        Ok(())
    }

    /// Removes the backend. Returns its former position and the number of remaining members.
    pub fn remove(&self, backend: BackendId) -> Result<Option<(usize, usize)>, ModuleError> {
        if backend.is_none() {
            return Err(ModuleError(format!("{}: None backend cannot be removed", self.name)));
        }
        let mut members = self.write();
        let Some(at) = members.iter().position(|m| m.backend == backend) else { return Ok(None) };
        members.remove(at);
        Ok(Some((at, members.len())))
    }

    /// Returns healthy if any member is. The time of the change is the latest of the examined members.
    pub fn any_healthy(&self, vcl: &Instance) -> Health {
        any_healthy(self.read().iter().map(|m| m.backend), |id| vcl.directors.healthy(id, vcl))
    }

    pub fn any_healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        let vcl = ctx.vcl;
        any_healthy(self.read().iter().map(|m| m.backend), |id| vcl.directors.healthy_for(id, ctx))
    }

    /// Returns the healthy member at `point` (0 to 1) of the cumulative weights of healthy members.
    pub fn pick(&self, ctx: &mut Ctx<'_>, point: f64) -> BackendId {
        let (members, vcl) = (self.read(), ctx.vcl);
        let mut healthy = members.clone();
        healthy.retain(|m| vcl.directors.healthy_for(m.backend, ctx).healthy);
        let total: f64 = healthy.iter().map(|m| m.weight).sum();
        if total <= 0.0 {
            return BackendId::NONE;
        }
        let mut reached = 0.0;
        for member in &healthy {
            reached += member.weight;
            if point * total < reached {
                return member.backend;
            }
        }
        // The sum was rounded, so the point is at the end.
        healthy.iter().rfind(|m| m.weight > 0.0).map_or(BackendId::NONE, |m| m.backend)
    }

    pub fn list(&self, vcl: &Instance, details: bool, json: bool, column: &Column) -> String {
        let rows: Vec<Row> = self
            .read()
            .iter()
            .map(|m| {
                let healthy = vcl.directors.healthy(m.backend, vcl).healthy;
                Row {
                    name: director_name(vcl, m.backend),
                    healthy,
                    weight: if healthy { m.weight } else { 0.0 },
                }
            })
            .collect();
        match (details, json) {
            (false, json) => summary(rows.iter().filter(|r| r.healthy).count(), rows.len(), json),
            (true, false) => text(&rows, column),
            (true, true) => json_text(&rows, column),
        }
    }
}

struct Row {
    name: String,
    healthy: bool,
    weight: f64,
}

pub fn any_healthy(
    backends: impl Iterator<Item = BackendId>,
    mut ask: impl FnMut(BackendId) -> Health,
) -> Health {
    let mut found = Health { healthy: false, changed: 0.0 };
    for backend in backends {
        let health = ask(backend);
        found.changed = found.changed.max(health.changed);
        if health.healthy {
            found.healthy = true;
            break;
        }
    }
    found
}

pub fn health_word(healthy: bool) -> &'static str {
    if healthy { "healthy" } else { "sick" }
}

pub fn summary(healthy: usize, all: usize, json: bool) -> String {
    let word = health_word(healthy > 0);
    if json { format!("[{healthy}, {all}, \"{word}\"]") } else { format!("{healthy}/{all}\t{word}") }
}

fn text(rows: &[Row], column: &Column) -> String {
    let title = if matches!(column, Column::Current { .. }) { "Current" } else { "Weight" };
    let mut out = format!("\n\n\tBackend\t{title}\tHealth\n");
    let total: f64 = rows.iter().map(|r| r.weight).sum();
    for (i, row) in rows.iter().enumerate() {
        let middle = match column {
            Column::Weight => format!("{:6.2}%", 100.0 * row.weight / total),
            Column::Nothing => "-".to_owned(),
            Column::Current { index, .. } => if *index == i { "*" } else { "" }.to_owned(),
        };
        let _ = writeln!(out, "\t{}\t{middle}\t{}", row.name, health_word(row.healthy));
    }
    out
}

fn json_text(rows: &[Row], column: &Column) -> String {
    let mut out = "{\n".to_owned();
    match column {
        Column::Weight => {
            let total: f64 = rows.iter().map(|r| r.weight).sum();
            let _ = writeln!(out, "  \"total_weight\": {total:.6},");
        }
        Column::Current { sticky, .. } => {
            let _ = writeln!(out, "  \"sticky\": {sticky},");
        }
        Column::Nothing => {}
    }
    let members = rows.iter().enumerate().map(|(i, row)| {
        let extra = match column {
            Column::Weight => format!("      \"weight\": {:.6},\n", row.weight),
            Column::Current { index, .. } => format!("      \"current\": {},\n", *index == i),
            Column::Nothing => String::new(),
        };
        let health = health_word(row.healthy);
        format!("    \"{}\": {{\n{extra}      \"health\": \"{health}\"\n    }}", row.name)
    });
    let members: Vec<String> = members.collect();
    out + "  \"backends\": {\n" + &members.join(",\n") + "\n  }\n}"
}
