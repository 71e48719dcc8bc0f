//! Objects go when ttl, grace and keep are over. A helper thread calls [`Cache::expire`] at the time it
//! answered last, or when [`Hooks::expiry`](crate::Hooks) says that it should be earlier.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lacquer_flow::lookup::Limits;

use crate::cache::Cache;
use crate::object::Object;
use crate::shard::{After, Shard};
use crate::stats::bump;

/// Time as the heaps keep it: hundredths of a second since the cache began, 497 days at most. A
/// deadline beyond that is looked at again then.
#[derive(Debug)]
pub(crate) struct Clock {
    base: f64,
    /// When `expire` is due, as far as its caller knows.
    due: AtomicU32,
}

const TICKS: f64 = 100.0;
const NEVER: u32 = u32::MAX;

impl Clock {
    pub(crate) fn new(now: f64) -> Self {
        Self { base: now.floor(), due: AtomicU32::new(NEVER) }
    }

    /// The first tick not before a time.
    pub(crate) fn ticks(&self, when: f64) -> u32 {
        ((when - self.base) * TICKS).ceil().clamp(0.0, f64::from(NEVER - 1)) as u32
    }

    fn time(&self, ticks: u32) -> f64 {
        if ticks == NEVER { f64::INFINITY } else { self.base + f64::from(ticks) / TICKS }
    }
}

/// Something expiry logs, kept until its thread comes by.
#[derive(Debug)]
pub(crate) enum Note {
    Text(String),
    Removed { vxid: u64, fresh_until: f64, hits: u32 },
}

fn address(object: &Arc<Object>) -> usize {
    Arc::as_ptr(object).addr()
}

impl Cache {
    /// Removes what is over, at most `budget` objects; answers when to come back (at once if the budget
    /// was too small, infinity for an empty cache). `log` gets Varnish's texts for ExpKill, if tracing
    /// is on.
    pub fn expire(&self, now: f64, budget: usize, log: &mut dyn FnMut(fmt::Arguments<'_>)) -> f64 {
        self.clock.due.store(0, Ordering::SeqCst);
        self.report(now, log);
        let mut left = budget;
        let mut next = NEVER;
        for shard in &self.shards {
            let mut after = After::default();
            {
                let mut shard = shard.lock();
                left = self.expire_shard(&mut shard, now, left, &mut after);
                next = next.min(shard.heap.first().map_or(NEVER, |(when, _)| when));
            }
            let trace = self.trace.load(Ordering::Relaxed);
            for object in after.objects.iter().filter(|_| trace) {
                let (p, e) = (address(object), object.expires() - now);
                log(format_args!("EXP_Inspect p={p:#x} e={e:.6} f={:#x}", object.flags()));
                let (x, t, h) = (object.vxid(), object.fresh_until(Limits::NONE) - now, object.hits());
                log(format_args!("EXP_Expired x={x} t={t:.0} h={h}"));
            }
            after.run();
            if left == 0 {
                return now;
            }
        }
        self.inspect(next, now, log);
        self.clock.due.store(next, Ordering::SeqCst);
        // What was inserted meanwhile saw a due time of zero and rang no bell.
        let earliest = |s: &parking_lot::Mutex<Shard>| s.lock().heap.first().map_or(NEVER, |(w, _)| w);
        self.clock.time(self.shards.iter().map(earliest).min().unwrap_or(NEVER))
    }

    fn expire_shard(&self, shard: &mut Shard, now: f64, mut left: usize, after: &mut After) -> usize {
        let tick = self.clock.ticks(now);
        while left > 0 {
            let Some((_, slot)) = shard.heap.first().filter(|&(when, _)| when <= tick) else { break };
            let Some(object) = shard.slab.get(slot).object.clone() else { break };
            if object.expires() > now {
                let when = self.clock.ticks(object.expires()).max(tick + 1);
                let Shard { slab, heap, .. } = &mut *shard;
                heap.change(slab, slot, when);
                continue;
            }
            left -= 1;
            bump(&self.counters.n_expired);
            // `expire` logs it.
            self.forget(shard, slot, after);
        }
        left
    }

    /// Logs what the next deadline belongs to.
    fn inspect(&self, next: u32, now: f64, log: &mut dyn FnMut(fmt::Arguments<'_>)) {
        if next == NEVER || !self.trace.load(Ordering::Relaxed) {
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

    fn report(&self, now: f64, log: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let notes = std::mem::take(&mut *self.notes.lock());
        for note in notes {
            match note {
                Note::Text(text) => log(format_args!("{text}")),
                Note::Removed { vxid, fresh_until, hits } => {
                    log(format_args!("EXP_Removed x={vxid} t={:.0} h={hits}", fresh_until - now));
                }
            }
        }
    }

    fn note(&self, note: Note) {
        self.notes.lock().push(note);
        self.ring();
    }

    /// The index knows at once what Varnish mails to its expiry thread.
    fn mailed(&self) {
        bump(&self.counters.exp_mailed);
        bump(&self.counters.exp_received);
    }

    pub(crate) fn note_removed(&self, object: &Object) {
        self.mailed();
        if self.trace.load(Ordering::Relaxed) {
            let (vxid, fresh_until, hits) = (object.vxid(), object.fresh_until(Limits::NONE), object.hits());
            self.note(Note::Removed { vxid, fresh_until, hits });
        }
    }

    /// An object's deadline is new or changed.
    pub(crate) fn note_inserted(&self, object: &Arc<Object>, when: u32) {
        self.mailed();
        if self.trace.load(Ordering::Relaxed) {
            let (p, e, f) = (address(object), object.expires(), object.flags());
            self.note(Note::Text(format!("EXP_When p={p:#x} e={e:.6} f={f:#x}")));
        }
        self.due_by(when);
    }

    pub(crate) fn due_by(&self, when: u32) {
        if when < self.clock.due.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    fn ring(&self) {
        if let Some(ring) = &self.expiry_bell {
            ring();
        }
    }

    /// Shortens an object's ttl, grace and keep to these at most, in seconds (NaN: leave); the ttl counts
    /// from `now`.
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
                // Rounded down: what is to end now ends now.
                let nearest = most as f32;
                *field = if f64::from(nearest) > most { nearest.next_down() } else { nearest };
            }
        };
        limit(&mut timers.ttl, now + ttl - object.t_origin());
        limit(&mut timers.grace, grace);
        limit(&mut timers.keep, keep);
        object.set_timers(timers);
        let key = shard.slab.get(slot).key;
        self.touch(&key);
        let when = self.clock.ticks(object.expires());
        let Shard { slab, heap, .. } = shard;
        heap.change(slab, slot, when);
        if self.trace.load(Ordering::Relaxed) {
            let (p, e, f) = (address(object), object.expires(), object.flags());
            self.note(Note::Text(format!("EXP_Rearm p={p:#x} E={old:.6} e={e:.6} f={f:#x}")));
        }
        self.note_inserted(object, when);
    }
}
