//! The lurker: checks objects that nobody asks for against the bans that need no request, so that bans
//! can go. Bans that look at the request are barriers; objects move up to just below one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::locks::Mutex;

use crate::bans::list::{Ban, BanList, GROUP};
use crate::cache::Cache;
use crate::object::Object;
use crate::shard::Shard;
use crate::stats::{add, bump};

/// Sleep when nothing is due: long, and of no meaning.
const IDLE: f64 = 49.62;
/// Places looked at per hold of a shard's lock.
const WINDOW: u32 = 256;

/// Parameters `ban_lurker_sleep`, `ban_lurker_age`, `ban_lurker_batch`, `ban_cutoff`.
#[derive(Clone, Copy, Debug)]
pub struct LurkerParams {
    pub sleep: f64,
    pub age: f64,
    pub batch: u32,
    pub cutoff: u32,
}

/// Treatment of the objects that a ban holds.
struct Step {
    /// Number of the pass's bans that are newer than this one.
    newer: usize,
    /// Ban that takes the objects that are not hit.
    to: Arc<Ban>,
    /// The ban is too far down the list: its objects are removed without a check.
    kill: bool,
}

/// Work that is about to begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Object,
    /// Another group of tests for the same object.
    Tests,
}

/// A pass over the list, planned before objects are looked at.
#[derive(Default)]
struct Plan {
    /// Bans that will be done with, newest first.
    bans: Vec<Arc<Ban>>,
    steps: HashMap<u32, Step>,
    /// When the next ban gets old enough.
    sleep: f64,
}

impl Cache {
    /// Makes one pass; returns how long to sleep unless kicked. `pace` sleeps between batches for the seconds that
    /// it gets, and is called with 0 after each group of tests. `log` gets the texts for ExpBan.
    pub fn lurk(
        &self,
        now: f64,
        params: LurkerParams,
        pace: &mut dyn FnMut(f64),
        log: &mut dyn FnMut(&str),
    ) -> f64 {
        if params.sleep == 0.0 {
            self.bans.clean_tail();
            return IDLE;
        }
        let plan = self.plan(now, params);
        if !plan.steps.is_empty() {
            let mut batch = 0;
            for shard in &self.shards {
                self.lurk_shard(shard, &plan, log, &mut |begun| {
                    batch += u32::from(begun == Begun::Object);
                    if batch > params.batch {
                        pace(params.sleep);
                        batch = 0;
                    } else {
                        pace(0.0);
                    }
                });
            }
        }
        self.bans.clean_tail();
        let oldest = self.bans.bans.read().back().map_or(0, |b| b.number);
        for ban in plan.bans.iter().filter(|b| b.number >= oldest) {
            self.bans.complete(ban);
        }
        plan.sleep
    }

    fn plan(&self, now: f64, params: LurkerParams) -> Plan {
        let cutoff = if params.cutoff > 0 { params.cutoff as usize } else { usize::MAX };
        let list = self.bans.snapshot();
        let mut plan = Plan { sleep: IDLE, ..Plan::default() };
        let mut to: Option<Arc<Ban>> = None;
        for (i, ban) in list.iter().enumerate() {
            if let Some(to) = &to
                && ban.objects.load(Ordering::Relaxed) > 0
            {
                let step = Step { newer: plan.bans.len(), to: Arc::clone(to), kill: i > cutoff };
                plan.steps.insert(ban.number, step);
            }
            if ban.is_completed() {
                continue;
            }
            if ban.needs_request() && i <= cutoff {
                if to.is_some() {
                    to = list.get(i + 1).cloned();
                }
                continue;
            }
            let wait = ban.time - (now - params.age);
            if wait < 0.0 {
                plan.bans.push(Arc::clone(ban));
                to.get_or_insert_with(|| Arc::clone(ban));
            } else {
                plan.sleep = plan.sleep.min(wait);
            }
        }
        plan
    }

    fn lurk_shard(
        &self,
        shard: &Mutex<Shard>,
        plan: &Plan,
        log: &mut dyn FnMut(&str),
        pace: &mut dyn FnMut(Begun),
    ) {
        let mut from = 0;
        loop {
            let (end, found) = {
                let shard = shard.lock();
                let end = shard.slab.end();
                let window = from..end.min(from + WINDOW);
                let planned = |slot: u32| {
                    let object = shard.slab.get(slot).object.as_ref()?;
                    let step = plan.steps.get(&object.ban())?;
                    Some((slot, Arc::clone(object), step, object.ban()))
                };
                (end, window.filter_map(planned).collect::<Vec<_>>())
            };
            for (slot, object, step, ban) in found {
                pace(Begun::Object);
                self.lurk_object(shard, slot, &object, (plan, step), ban, log, pace);
            }
            from += WINDOW;
            if from >= end {
                return;
            }
        }
    }

    fn lurk_object(
        &self,
        shard: &Mutex<Shard>,
        slot: u32,
        object: &Arc<Object>,
        (plan, step): (&Plan, &Step),
        was: u32,
        log: &mut dyn FnMut(&str),
        pace: &mut dyn FnMut(Begun),
    ) {
        let c = &self.counters;
        for (i, ban) in plan.bans[..step.newer].iter().rev().enumerate() {
            if i % GROUP == GROUP - 1 {
                pace(Begun::Tests);
            }
            if object.ban() != was {
                // A lookup was faster.
                return;
            }
            if ban.is_completed() {
                continue;
            }
            if step.kill {
                log(&format!("{} killed for lurker cutoff", object.vxid()));
                bump(&c.bans_lurker_obj_killed_cutoff);
                self.kill(object);
                return;
            }
            let mut tests = 0;
            let hit = ban.hits(object, None, &*self.bans.heads, &mut tests);
            bump(&c.bans_lurker_tested);
            add(&c.bans_lurker_tests_tested, tests);
            if hit {
                log(&format!("{} banned by lurker", object.vxid()));
                bump(&c.bans_lurker_obj_killed);
                self.kill(object);
                return;
            }
        }
        let shard = shard.lock();
        if shard.object(slot, object.vxid()).is_some_and(|o| Arc::ptr_eq(o, object)) && object.ban() == was {
            BanList::advance(&self.bans.bans.read(), object, &step.to);
        }
    }
}
