//! Removes objects when ttl, grace and keep are over. A helper thread calls [`Cache::expire`] at the time that it
//! last returned, or earlier when [`Hooks::expiry`](crate::Hooks) is called.

use std::fmt;
use std::sync::Arc;

use lacquer_flow::lookup::Limits;

use crate::cache::Cache;
use crate::expiry_events::{NEVER, address};
use crate::object::{Object, Timers};
use crate::shard::{DeferredWork, Shard};
use crate::stats::bump;

impl Cache {
    /// Removes at most `budget` expired objects. Returns the time of the next call: `now` if the budget is used up,
    /// infinity for an empty cache. `log` gets Varnish's texts for ExpKill, if tracing is on.
    pub fn expire(&self, now: f64, budget: usize, log: &mut dyn FnMut(fmt::Arguments<'_>)) -> f64 {
        self.events.clock().set_due(0);
        self.events.report(now, log);
        let mut left = budget;
        let mut next = NEVER;
        for shard in &self.shards {
            let mut deferred = DeferredWork::default();
            {
                let mut shard = shard.lock();
                left = self.expire_shard(&mut shard, now, left, &mut deferred);
                next = next.min(shard.heap.first().map_or(NEVER, |(when, _)| when));
            }
            let trace = self.events.is_traced();
            for object in deferred.objects.iter().filter(|_| trace) {
                let (p, e) = (address(object), object.expires() - now);
                log(format_args!("EXP_Inspect p={p:#x} e={e:.6} f={:#x}", object.flags()));
                let (x, t, h) = (object.vxid(), object.fresh_until(Limits::NONE) - now, object.hits());
                log(format_args!("EXP_Expired x={x} t={t:.0} h={h}"));
            }
            deferred.run();
            if left == 0 {
                return now;
            }
        }
        self.inspect(next, now, log);
        self.events.clock().set_due(next);
        // Objects that were inserted concurrently saw a due time of zero, so the expiry hook was not called for them.
        let earliest = |s: &crate::locks::Mutex<Shard>| s.lock().heap.first().map_or(NEVER, |(w, _)| w);
        self.events.clock().time(self.shards.iter().map(earliest).min().unwrap_or(NEVER))
    }

    fn expire_shard(
        &self,
        shard: &mut Shard,
        now: f64,
        mut left: usize,
        deferred: &mut DeferredWork,
    ) -> usize {
        let tick = self.events.clock().ticks(now);
        shard.heap.follow(tick);
        while left > 0 {
            let Some((_, slot)) = shard.heap.first().filter(|&(when, _)| when <= tick) else { break };
            let Some(object) = shard.slab.get(slot).object.clone() else { break };
            if object.expires() > now {
                let when = self.events.clock().ticks(object.expires()).max(tick + 1);
                let Shard { slab, heap, .. } = &mut *shard;
                heap.change(slab, slot, when);
                continue;
            }
            left -= 1;
            bump(&self.counters.n_expired);
            // `expire` logs the removal.
            self.remove_unlogged(shard, slot, deferred);
        }
        left
    }

    /// Logs the object of the next deadline.
    fn inspect(&self, next: u64, now: f64, log: &mut dyn FnMut(fmt::Arguments<'_>)) {
        if next == NEVER || !self.events.is_traced() {
            return;
        }
        let found = self.shards.iter().find_map(|shard| {
            let shard = shard.lock();
            let (_, slot) = shard.heap.first().filter(|&(when, _)| when == next)?;
            shard.slab.get(slot).object.clone()
        });
        if let Some(object) = found {
            let (p, e) = (address(&object), object.expires() - now);
            log(format_args!("EXP_Inspect p={p:#x} e={e:.6} f={:#x}", object.flags()));
        }
    }

    /// Extends an object's grace to `grace` seconds, at the expense of its keep: it stays in the index for as long as
    /// before. Returns whether its grace is longer now; it is not if the object has left the index.
    pub fn extend_grace(&self, object: &Object, grace: f64) -> bool {
        let Some((shard, slot)) = self.locate(object) else { return false };
        let shard = shard.lock();
        if shard.object(slot, object.vxid()).is_none() {
            return false;
        }
        let Timers { ttl, grace: before, keep } = object.timers();
        let grace = (grace as f32).min(before + keep).max(before);
        object.set_timers(Timers { ttl, grace, keep: (before + keep - grace).max(0.0) });
        grace > before
    }

    /// Limits an object's ttl, grace and keep to these values, in seconds; NaN leaves a value as it is. The ttl
    /// counts from `now`.
    pub(crate) fn shorten(
        &self,
        shard: &mut Shard,
        slot: u32,
        object: &Arc<Object>,
        now: f64,
        [ttl, grace, keep]: [f64; 3],
    ) {
        let old = object.expires();
        let mut timers = object.timers();
        let limit = |field: &mut f32, most: f64| {
            if most < f64::from(*field) {
                // Rounded down, so that a ttl that ends now has ended.
                let nearest = most as f32;
                *field = if f64::from(nearest) > most { nearest.next_down() } else { nearest };
            }
        };
        limit(&mut timers.ttl, now + ttl - object.t_origin());
        limit(&mut timers.grace, grace);
        limit(&mut timers.keep, keep);
        object.set_timers(timers);
        let key = shard.slab.key(slot);
        self.bump_generation(&key);
        let when = self.events.clock().ticks(object.expires());
        let Shard { slab, heap, .. } = shard;
        heap.change(slab, slot, when);
        self.events.rearmed(object, old, when);
    }
}
