//! The ban list and what objects and bans know of each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use parking_lot::RwLock;

use crate::bans::build::BanSpec;
use crate::bans::test::{Operand, Test};
use crate::bans::{BanRequest, HeadReader};
use crate::object::Object;
use crate::stats::{CacheStats, add, bump, sub};

/// Bytes of a ban without conditions, in the form in which Varnish keeps and counts them.
const HEAD_LEN: u64 = 16;

/// A ban in the list.
#[derive(Debug)]
pub(crate) struct Ban {
    pub(crate) number: u32,
    pub(crate) time: f64,
    pub(crate) tests: Vec<Test>,
    completed: AtomicBool,
    /// Objects for which this is the newest ban they were checked against.
    pub(crate) objects: AtomicI64,
}

impl Ban {
    pub(crate) fn is_completed(&self) -> bool {
        self.completed.load(Ordering::Acquire)
    }

    pub(crate) fn needs_request(&self) -> bool {
        self.tests.iter().any(|t| t.field.needs_request())
    }

    pub(crate) fn looks_at_object(&self) -> bool {
        self.tests.iter().any(|t| !t.field.needs_request())
    }

    /// Whether the ban hits the object; counts the conditions looked at.
    pub(crate) fn hits(
        &self,
        object: &Object,
        request: Option<&dyn BanRequest>,
        heads: &dyn HeadReader,
        tests: &mut u64,
    ) -> bool {
        self.tests.iter().all(|test| {
            *tests += 1;
            test.applies(object, request, heads, self.time)
        })
    }

    /// Its size in Varnish's form (compiled expressions left out), for the counters of it.
    fn size(&self) -> u64 {
        let mut size = HEAD_LEN;
        for test in &self.tests {
            size += 1 + test.field.header().map_or(0, |h| h.len() as u64 + 3);
            size = size.next_multiple_of(8) + 8;
            size += match &test.operand {
                Operand::Text(text) | Operand::Regex(text, _) => text.len() as u64 + 1,
                Operand::Seconds(_) => 8,
            };
            size += 1;
        }
        size
    }
}

/// All bans, newest first.
pub struct BanList {
    pub(crate) bans: RwLock<VecDeque<Arc<Ban>>>,
    newest: AtomicU32,
    pub(crate) heads: Box<dyn HeadReader>,
    pub(crate) counters: Arc<CacheStats>,
    kick: Option<Box<dyn Fn() + Send + Sync>>,
}

impl BanList {
    pub(crate) fn new(
        heads: Box<dyn HeadReader>,
        counters: Arc<CacheStats>,
        now: f64,
        kick: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        let list = Self { bans: RwLock::default(), newest: AtomicU32::new(0), heads, counters, kick };
        // A place for the first objects to point to.
        list.add(BanSpec::default(), now, false);
        list.complete(&list.bans.read()[0]);
        list
    }

    /// Adds a ban; with `dups` (parameter `ban_dups`), older equal ones are done with.
    pub fn add(&self, spec: BanSpec, now: f64, dups: bool) {
        let c = &self.counters;
        let mut bans = self.bans.write();
        let ban = Arc::new(Ban {
            number: self.newest.load(Ordering::Relaxed) + 1,
            time: now,
            tests: spec.tests,
            completed: AtomicBool::new(false),
            objects: AtomicI64::new(0),
        });
        bump(&c.bans);
        bump(&c.bans_added);
        add(&c.bans_obj, u64::from(ban.looks_at_object()));
        add(&c.bans_req, u64::from(ban.needs_request()));
        add(&c.bans_persisted_bytes, ban.size());
        if dups && !ban.tests.iter().any(|t| t.field.depends_on_time()) {
            for old in bans.iter().filter(|old| !old.is_completed() && old.tests == ban.tests) {
                self.complete(old);
                bump(&c.bans_dups);
            }
        }
        self.newest.store(ban.number, Ordering::Release);
        let needs_request = ban.needs_request();
        bans.push_front(ban);
        drop(bans);
        if !needs_request {
            self.kick();
        }
    }

    pub(crate) fn complete(&self, ban: &Ban) {
        if !ban.completed.swap(true, Ordering::AcqRel) {
            bump(&self.counters.bans_completed);
            add(&self.counters.bans_persisted_fragmentation, ban.size() - HEAD_LEN);
        }
    }

    pub(crate) fn kick(&self) {
        if let Some(kick) = &self.kick {
            kick();
        }
    }

    /// Whether the object was checked against all bans.
    pub(crate) fn is_current(&self, object: &Object) -> bool {
        object.ban() == self.newest.load(Ordering::Acquire)
    }

    /// A new object: bans that exist do not concern it.
    pub(crate) fn attach(&self, object: &Object) {
        if object.is(crate::object::flag::PRIVATE) {
            return;
        }
        if let Some(newest) = self.bans.read().front() {
            newest.objects.fetch_add(1, Ordering::Relaxed);
            object.set_ban(newest.number);
        }
    }

    /// An object leaves the index.
    pub(crate) fn detach(&self, object: &Object) {
        let bans = self.bans.read();
        if let Some(ban) = find(&bans, object.ban()) {
            ban.objects.fetch_sub(1, Ordering::Relaxed);
        }
        object.set_ban(0);
    }

    /// Notes that the object was checked against the bans up to `ban`. The caller holds its shard.
    pub(crate) fn advance(&self, bans: &VecDeque<Arc<Ban>>, object: &Object, to: &Ban) {
        if let Some(old) = find(bans, object.ban()) {
            old.objects.fetch_sub(1, Ordering::Relaxed);
        }
        to.objects.fetch_add(1, Ordering::Relaxed);
        object.set_ban(to.number);
    }

    /// Whether a ban hits the object. If none does, the object is up to date. The caller holds its
    /// shard, and removes the object if so.
    pub(crate) fn check(&self, object: &Object, request: &dyn BanRequest) -> bool {
        if self.is_current(object) {
            return false;
        }
        let bans = self.bans.read();
        let seen = object.ban();
        let mut tests = 0;
        let newer = bans.iter().take_while(|ban| ban.number > seen);
        let hit = newer
            .filter(|ban| !ban.is_completed())
            .any(|ban| ban.hits(object, Some(request), &*self.heads, &mut tests));
        let c = &self.counters;
        bump(&c.bans_tested);
        add(&c.bans_tests_tested, tests);
        if hit {
            bump(&c.bans_obj_killed);
        } else if let Some(newest) = bans.front() {
            self.advance(&bans, object, newest);
        }
        let tail_is_free = bans.back().is_some_and(|b| b.objects.load(Ordering::Relaxed) <= 0);
        drop(bans);
        if tail_is_free {
            self.kick();
        }
        hit
    }

    /// Drops bans from the tail that no object needs.
    pub(crate) fn clean_tail(&self) {
        let c = &self.counters;
        let mut bans = self.bans.write();
        while bans.len() > 1 && bans.back().is_some_and(|b| b.objects.load(Ordering::Relaxed) <= 0) {
            let Some(ban) = bans.pop_back() else { break };
            sub(&c.bans_completed, u64::from(ban.is_completed()));
            sub(&c.bans_obj, u64::from(ban.looks_at_object()));
            sub(&c.bans_req, u64::from(ban.needs_request()));
            sub(&c.bans, 1);
            bump(&c.bans_deleted);
            let size = if ban.is_completed() { HEAD_LEN } else { ban.size() };
            add(&c.bans_persisted_fragmentation, size);
        }
    }
}

fn find(bans: &VecDeque<Arc<Ban>>, number: u32) -> Option<&Arc<Ban>> {
    let newest = bans.front()?.number;
    bans.get(newest.checked_sub(number)? as usize)
}

impl std::fmt::Debug for BanList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.bans.read().iter()).finish()
    }
}
