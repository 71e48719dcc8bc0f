//! least_connections: selects the healthy backend with the fewest requests, and avoids those that fail or are slow.

use std::sync::{Mutex, PoisonError};

use lacquer_shm::Tag;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectType};

use super::balance::{Candidate, Ejections, Rules, choose, rank};
use super::group::{Column, Group};
use super::grouped::{Choice, add_weighted, backend, object, remove_backend};
use crate::random::bits31;
use crate::support::{director_name, log};

pub const TYPE: ObjectType = ObjectType {
    name: "least_connections",
    new,
    methods: &[
        ("add_backend", add_weighted::<LeastConnections>),
        ("remove_backend", remove_backend::<LeastConnections>),
        ("backend", backend::<LeastConnections>),
    ],
};

struct LeastConnections {
    rules: Rules,
    ejections: Mutex<Ejections>,
}

impl Choice for LeastConnections {
    const KIND: &'static str = "least-connections";

    fn choose(&self, group: &Group, ctx: &mut Ctx<'_>) -> BackendId {
        let mut candidates = Vec::new();
        for member in group.read().iter() {
            let health = ctx.vcl.directors.healthy_for(member.backend, ctx);
            let Some(cell) = ctx.vcl.directors.get(member.backend).filter(|_| health.healthy) else {
                continue;
            };
            let (load, since) = (cell.director.load(), health.changed);
            candidates.push(Candidate { backend: member.backend, weight: member.weight, load, since });
        }
        let now = ctx.host.real_now();
        let ejected = {
            let mut ejections = self.ejections.lock().unwrap_or_else(PoisonError::into_inner);
            ejections.apply(&mut candidates, &self.rules, now)
        };
        for Candidate { backend, load, .. } in ejected {
            let (name, ejection) = (director_name(ctx.vcl, backend), self.rules.ejection);
            let (failures, latency) = (load.failures, load.latency);
            let text = format!(
                "directors: {} avoids {name} for {ejection} s: {failures} failures, mean time {latency:?}",
                group.name
            );
            log(ctx, Tag::VCL_Log, text);
        }
        choose(candidates, &self.rules, now, |below| bits31() as usize % below)
    }

    fn column(&self) -> Column {
        Column::Weight
    }

    fn rank(&self, ctx: &mut Ctx<'_>, backend: BackendId) -> u64 {
        if self.rules.subset == 0 {
            return 0;
        }
        let name = director_name(ctx.vcl, backend);
        rank(ctx.get_str(Var::ServerIdentity).unwrap_or_default(), &name)
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let count = |i: usize, name: &str| {
        let value = u32::try_from(args.int(i));
        value.map_err(|_| ModuleError(format!("{}: {name} must not be negative", args.object_name)))
    };
    let real = |i: usize, name: &str| {
        let value = Some(args.real(i)).filter(|value| *value >= 0.0 && value.is_finite());
        value.ok_or_else(|| ModuleError(format!("{}: {name} must not be negative", args.object_name)))
    };
    let rules = Rules {
        choices: count(0, "choices")? as usize,
        subset: count(1, "subset")? as usize,
        slow_start: real(2, "slow_start")?,
        failures: count(3, "failures")?,
        slowness: real(4, "slowness")?,
        ejection: real(5, "ejection")?,
    };
    Ok(object(ctx, args, LeastConnections { rules, ejections: Mutex::default() }))
}
