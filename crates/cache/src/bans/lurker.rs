//! The lurker checks objects that are not requested against the bans that need no request, so that bans can be
//! dropped. Bans with conditions on the request are barriers: an object advances at most to the next older ban.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::locks::Mutex;

use crate::bans::list::{Ban, BanList, GROUP};
use crate::cache::Cache;
use crate::object::Object;
use crate::shard::Shard;
use crate::stats::{add, bump};

/// Seconds to sleep when there is nothing to do. Any long time would do.
const IDLE: f64 = 49.62;
/// The number of slots that are visited for each acquisition of a shard's lock.
const WINDOW: u32 = 256;

/// Parameters `ban_lurker_sleep`, `ban_lurker_age`, `ban_lurker_batch`, `ban_cutoff`.
#[derive(Clone, Copy, Debug)]
pub struct LurkerParams {
    pub sleep: f64,
    pub age: f64,
    pub batch: u32,
    pub cutoff: u32,
}

/// The treatment of the objects that refer to a ban.
struct Step {
    /// The number of the plan's bans that are newer than this one.
    newer: usize,
    /// The ban that objects refer to afterwards if they are not hit.
    to: Arc<Ban>,
    /// The ban is beyond the cutoff: its objects are removed without a check.
    kill: bool,
}

/// The kind of work that is about to begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Object,
    /// A further group of tests for the same object.
    Tests,
}

/// The plan of a pass, made before any object is visited.
#[derive(Default)]
struct Plan {
    /// Bans that the pass completes, newest first.
    bans: Vec<Arc<Ban>>,
    steps: HashMap<u32, Step>,
    /// Seconds until the next ban is old enough.
    sleep: f64,
}

impl Cache {
    /// Makes one pass. Returns the seconds to sleep unless woken. `pace` sleeps between batches for the seconds that
    /// it gets; it is called with 0 after each group of tests. `log` gets the texts for ExpBan.
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
        let on_disks = self.bans.begin_pass();
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
        self.bans.complete_tested(&plan.bans, on_disks);
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
            // Objects that advance past a ban are tested against it: times need not be in the order of the list.
            if wait < 0.0 || to.is_some() {
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
                // A lookup has advanced the object concurrently.
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
