//! The shard director in VCL's table of directors, and its texts for `backend.list`.

use std::any::Any;
use std::sync::Arc;

use lacquer_sources::clock;
use lacquer_vcl_runtime::{BackendId, Ctx, Director, Health, Instance};

use super::params::{Base, Given, is_backend_side, key_of, merge};
use super::pick::pick;
use super::state::Shard;
use crate::directors::group::{any_healthy, health_word, summary};

/// The director in the VCL's table. Its address is the key of a task's values for it.
pub struct ShardDirector(pub Arc<Shard>);

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
        pick(ctx, &self.0, key, &params)
    }

    fn healthy(&self, vcl: &Instance) -> Health {
        any_healthy(self.0.circle().members.iter().map(|m| m.backend), |id| vcl.directors.healthy(id, vcl))
    }

    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        let vcl = ctx.vcl;
        let circle = self.0.circle();
        any_healthy(circle.members.iter().map(|m| m.backend), |id| vcl.directors.healthy_for(id, ctx))
    }

    fn members(&self) -> Vec<BackendId> {
        self.0.circle().members.iter().map(|member| member.backend).collect()
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
    let now = clock::real();
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
