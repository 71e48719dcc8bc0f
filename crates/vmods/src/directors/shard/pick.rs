//! The selection: the first suitable backend, starting at a key's position on the circle.

use lacquer_vcl_runtime::{BackendId, Ctx};

use super::circle::Circle;
use super::params::{Healthy, Params};
use super::state::{Debug, Shard};
use crate::random::fine_fraction;

#[derive(Clone, Copy)]
struct Seen {
    host: usize,
    changed: f64,
}

/// A walk around the circle that visits every backend once.
struct Walk<'w> {
    circle: &'w Circle,
    at: usize,
    met: Vec<bool>,
    left: usize,
    /// The last backend selected, and the one before: selected earlier, or skipped as an alternative.
    last: Option<Seen>,
    previous: Option<Seen>,
}

impl Walk<'_> {
    /// Continues until `skip` backends were skipped and another one is found. Returns whether one was found. Only
    /// healthy backends count, or all if `any` is set.
    fn next(&mut self, ctx: &mut Ctx<'_>, mut skip: i64, any: bool) -> bool {
        while skip >= 0 && self.left > 0 {
            let host = self.circle.points[self.at].host;
            if !std::mem::replace(&mut self.met[host], true) {
                self.left -= 1;
                let health = ctx.vcl.directors.healthy_for(self.circle.members[host].backend, ctx);
                if health.healthy || any {
                    skip -= 1;
                }
                let seen = Some(Seen { host, changed: health.changed });
                if skip < 0 {
                    self.previous = self.last.or(self.previous);
                    self.last = seen;
                    return true;
                }
                if health.healthy {
                    self.previous = seen;
                }
            }
            self.at = (self.at + 1) % self.circle.points.len();
        }
        false
    }
}

pub fn pick(ctx: &mut Ctx<'_>, shard: &Shard, key: u32, params: &Params) -> BackendId {
    let circle = shard.circle();
    if circle.points.is_empty() {
        shard.error(ctx, "no backends");
        return BackendId::NONE;
    }
    let backend = |seen: Seen| circle.members[seen.host].backend;
    let alt = bounded_alt(ctx, shard, params.alt, circle.members.len());
    let at = circle.lookup(key);
    let text = || format!("lookup key {key:x} idx {at} host {}", circle.points[at].host);
    shard.debug(ctx, Debug::LOOKUP, text);

    let left = circle.members.len();
    let mut walk = Walk { circle: &circle, at, met: vec![false; left], left, last: None, previous: None };
    let found = (alt == 0 || walk.next(ctx, alt - 1, params.healthy != Healthy::All))
        && walk.next(ctx, 0, params.healthy == Healthy::Ignore);
    let (true, Some(chosen)) = (found, walk.last) else {
        return walk.previous.map_or(BackendId::NONE, backend);
    };
    let settings = shard.settings();
    let warmup = if params.warmup == -1.0 { settings.warmup } else { params.warmup };
    if alt > 0
        || params.healthy == Healthy::Ignore
        || (!params.rampup && warmup == 0.0)
        || !walk.next(ctx, 0, false)
    {
        return backend(chosen);
    }
    let alternative = walk.last.unwrap_or(chosen);
    let rampup = |seen: Seen| circle.members[seen.host].rampup.unwrap_or(settings.rampup);
    let since = |seen: Seen| ctx.host.now() - seen.changed;
    let (chosen_since, alternative_since) = (since(chosen), since(alternative));
    let (chosen_rampup, alternative_rampup) = (rampup(chosen), rampup(alternative));
    for (what, seen, rampup, since) in [
        ("chosen", chosen, chosen_rampup, chosen_since),
        ("alt", alternative, alternative_rampup, alternative_since),
    ] {
        let text = || format!("{what} host {} rampup {rampup:.6} changed {since:.6}", seen.host);
        shard.debug(ctx, Debug::RAMPWARM, text);
    }
    let stays = if chosen_since < chosen_rampup {
        !params.rampup
            || alternative_since < alternative_rampup
            || fine_fraction() * chosen_rampup < chosen_since
    } else {
        warmup == 0.0 || fine_fraction() > warmup
    };
    backend(if stays { chosen } else { alternative })
}

fn bounded_alt(ctx: &mut Ctx<'_>, shard: &Shard, alt: i64, members: usize) -> i64 {
    let most = members as i64 - 1;
    if alt < 0 {
        shard.error(ctx, &format!("invalid negative parameter alt={alt}, set to 0"));
        0
    } else if alt > most {
        shard.error(ctx, &format!("parameter alt={alt} limited to {most}"));
        most
    } else {
        alt
    }
}
