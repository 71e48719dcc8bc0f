//! The ban list, and the references between objects and bans.
//!
//! No operation locks the list for long: a check of one object against many bans stops when the caller's time slice
//! is over, and bans are copied and dropped in groups.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use lacquer_storage::{Note, Stevedore};

use crate::locks::{Mutex, RwLock};

use crate::bans::build::BanSpec;
use crate::bans::test::{Operand, Test, fingerprint};
use crate::bans::text;
use crate::bans::{BanRequest, HeadReader};
use crate::object::Object;
use crate::stats::{CacheStats, add, bump, sub};

/// The size of a ban without conditions, in bytes, as Varnish stores and counts it.
const HEAD_LEN: u64 = 16;
/// The number of bans that are tested, copied or dropped at a time: at a few microseconds per test, less than half a
/// millisecond.
pub(crate) const GROUP: usize = 64;
/// Objects on disks that were not tested against more than this many bans are not used. It bounds the list.
const MOST_ON_DISKS: u32 = 10_000;

/// A ban in the list.
#[derive(Debug)]
pub(crate) struct Ban {
    pub(crate) number: u32,
    pub(crate) time: f64,
    pub(crate) tests: Vec<Test>,
    completed: AtomicBool,
    /// The number of objects for which this is the newest ban they were checked against.
    pub(crate) objects: AtomicI64,
    /// The ban in the store that the next process takes over.
    pub(crate) note: OnceLock<Note>,
    /// The text of that note, for a ban from a disk.
    pub(crate) past_text: OnceLock<Vec<u8>>,
}

impl Ban {
    pub(crate) fn new(number: u32, time: f64, spec: BanSpec) -> Self {
        let (completed, objects) = (AtomicBool::new(false), AtomicI64::new(0));
        let (note, past_text) = (OnceLock::new(), OnceLock::new());
        Self { number, time, tests: spec.tests, completed, objects, note, past_text }
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.completed.load(Ordering::Acquire)
    }

    pub(crate) fn needs_request(&self) -> bool {
        self.tests.iter().any(|t| t.field.needs_request())
    }

    pub(crate) fn tests_object(&self) -> bool {
        self.tests.iter().any(|t| !t.field.needs_request())
    }

    /// Returns whether the ban hits the object. Adds the number of evaluated conditions to `tests`.
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

    /// Returns the size in bytes of Varnish's form of the ban, without compiled expressions, for the counters.
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

/// The result of checking an object against the bans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No ban hits the object, and it was checked against all bans.
    Clear,
    /// A ban hits the object, or the object has left the index.
    Banned,
    /// The time slice ended before all bans were tested. The object records how far the check has come.
    Unfinished,
}

/// All bans, newest first.
pub struct BanList {
    pub(crate) bans: RwLock<VecDeque<Arc<Ban>>>,
    /// The numbers of bans by the fingerprint of their conditions. Locked after `bans`.
    pub(crate) by_fingerprint: Mutex<HashMap<u64, Vec<u32>>>,
    pub(crate) newest: AtomicU32,
    pub(crate) heads: Box<dyn HeadReader>,
    pub(crate) counters: Arc<CacheStats>,
    kick: Option<Box<dyn Fn() + Send + Sync>>,
    /// Returns the oldest ban that an object on a disk was last tested against.
    pub(crate) on_disks: OnceLock<OldestBan>,
    /// Objects from disks that were last tested against an older ban refer to this one: between them, there was none.
    pub(crate) base: AtomicU32,
    /// The oldest ban that an object was made to refer to since the lurker's pass began, which may have missed the object.
    late: AtomicU32,
    /// The store that keeps the bans for the next process.
    pub(crate) keeper: OnceLock<Stevedore>,
}

pub(crate) type OldestBan = Box<dyn Fn() -> u32 + Send + Sync>;

impl BanList {
    pub(crate) fn new(
        heads: Box<dyn HeadReader>,
        counters: Arc<CacheStats>,
        now: f64,
        kick: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        let list = Self {
            bans: RwLock::default(),
            by_fingerprint: Mutex::default(),
            newest: AtomicU32::new(0),
            heads,
            counters,
            kick,
            on_disks: OnceLock::new(),
            base: AtomicU32::new(0),
            late: AtomicU32::new(u32::MAX),
            keeper: OnceLock::new(),
        };
        // The ban that the first objects refer to.
        list.add(BanSpec::default(), now, false, |_, _| {});
        list.complete(&list.bans.read()[0]);
        list
    }

    /// Adds a ban. With `dups` (parameter `ban_dups`), older equal bans are completed. `record` receives the number and
    /// the words of the ban before it takes effect, with the list locked.
    pub(crate) fn add(&self, spec: BanSpec, now: f64, dups: bool, record: impl FnOnce(u32, &[Vec<u8>])) {
        let c = &self.counters;
        let depends_on_time = spec.tests.iter().any(|t| t.field.depends_on_time());
        let conditions = fingerprint(&spec.tests);
        let text = self.keeper.get().map(|_| text::encode(spec.words()));
        let mut bans = self.bans.write();
        let number = self.newest.load(Ordering::Relaxed) + 1;
        record(number, spec.words());
        let ban = Arc::new(Ban::new(number, now, spec));
        // Before the ban takes effect: the next process knows all bans that were answered.
        if let (Some(keeper), Some(text)) = (self.keeper.get(), text)
            && let Some(note) = keeper.write_note(ban.number, now, &text)
        {
            let _ = ban.note.set(note);
        }
        self.count_new(&ban);
        if !depends_on_time {
            let mut by_fingerprint = self.by_fingerprint.lock();
            let numbers = by_fingerprint.entry(conditions).or_default();
            if dups {
                numbers.retain(|&number| {
                    let old = find(&bans, number).filter(|old| old.tests == ban.tests);
                    if let Some(old) = old.filter(|old| !old.is_completed()) {
                        self.complete(old);
                        bump(&c.bans_dups);
                    }
                    old.is_none()
                });
            }
            numbers.push(ban.number);
        }
        self.newest.store(ban.number, Ordering::Release);
        let needs_request = ban.needs_request();
        bans.push_front(ban);
        drop(bans);
        if !needs_request {
            self.kick();
        }
    }

    pub(crate) fn count_new(&self, ban: &Ban) {
        let c = &self.counters;
        bump(&c.bans);
        bump(&c.bans_added);
        add(&c.bans_obj, u64::from(ban.tests_object()));
        add(&c.bans_req, u64::from(ban.needs_request()));
        add(&c.bans_persisted_bytes, ban.size());
    }

    pub(crate) fn complete(&self, ban: &Ban) {
        if !ban.completed.swap(true, Ordering::AcqRel) {
            if let (Some(keeper), Some(&note)) = (self.keeper.get(), ban.note.get()) {
                keeper.complete_note(note);
            }
            bump(&self.counters.bans_completed);
            add(&self.counters.bans_persisted_fragmentation, ban.size() - HEAD_LEN);
        }
    }

    pub(crate) fn kick(&self) {
        if let Some(kick) = &self.kick {
            kick();
        }
    }

    /// Returns whether the object was checked against all bans.
    pub(crate) fn is_current(&self, object: &Object) -> bool {
        object.ban() == self.newest.load(Ordering::Acquire)
    }

    /// Returns whether an object from a disk was tested against all bans, if this is the last one.
    pub(crate) fn is_newest(&self, number: u32) -> bool {
        number.max(self.base.load(Ordering::Relaxed)) == self.newest.load(Ordering::Acquire)
    }

    /// Makes a new object refer to the newest ban, because existing bans do not apply to it.
    pub(crate) fn attach(&self, object: &Object) {
        if object.is(crate::object::flag::PRIVATE) {
            return;
        }
        if let Some(newest) = self.bans.read().front() {
            newest.objects.fetch_add(1, Ordering::Relaxed);
            object.set_ban(newest.number);
        }
    }

    /// Releases the reference to a ban of an object that leaves the index.
    pub(crate) fn detach(&self, object: &Object) {
        let bans = self.bans.read();
        if let Some(ban) = find(&bans, object.ban()) {
            ban.objects.fetch_sub(1, Ordering::Relaxed);
        }
        object.set_ban(0);
    }

    /// Records that the object was checked against the bans up to `to`. The caller holds the lock of its shard.
    pub(crate) fn advance(bans: &VecDeque<Arc<Ban>>, object: &Object, to: &Ban) {
        if let Some(old) = find(bans, object.ban()) {
            old.objects.fetch_sub(1, Ordering::Relaxed);
        }
        to.objects.fetch_add(1, Ordering::Relaxed);
        object.set_ban(to.number);
    }

    /// Checks an object against the bans that it was not checked against before. The caller holds the lock of its
    /// shard, and removes the object if it is banned. `pause` returns whether the caller's time slice is over. It is
    /// called before each group of bans, unless there is only one group.
    ///
    /// The oldest group is tested first, because an object can only record up to which ban it was checked.
    pub(crate) fn check(
        &self,
        object: &Object,
        request: &dyn BanRequest,
        pause: &dyn Fn() -> bool,
    ) -> Verdict {
        if self.is_current(object) {
            return Verdict::Clear;
        }
        let bans = self.bans.read();
        let Some(newest) = bans.front() else { return Verdict::Clear };
        let mut left = newest.number.saturating_sub(object.ban()) as usize;
        left = left.min(bans.len());
        let mut tests = 0;
        let mut verdict = Verdict::Clear;
        let is_short = left <= GROUP;
        while left > 0 {
            if !is_short && pause() {
                verdict = Verdict::Unfinished;
                break;
            }
            let newer = left.saturating_sub(GROUP);
            let group = bans.range(newer..left).filter(|ban| !ban.is_completed());
            if group.into_iter().any(|ban| ban.hits(object, Some(request), &*self.heads, &mut tests)) {
                verdict = Verdict::Banned;
                break;
            }
            if newer > 0 {
                self.note_late(bans[newer].number);
            }
            Self::advance(&bans, object, &bans[newer]);
            left = newer;
        }
        let c = &self.counters;
        add(&c.bans_tests_tested, tests);
        add(&c.bans_tested, u64::from(verdict != Verdict::Unfinished));
        add(&c.bans_obj_killed, u64::from(verdict == Verdict::Banned));
        let tail_is_free = bans.back().is_some_and(|b| b.objects.load(Ordering::Relaxed) <= 0);
        drop(bans);
        if tail_is_free && verdict != Verdict::Unfinished {
            self.kick();
        }
        verdict
    }

    /// Drops bans at the tail that no object refers to.
    pub(crate) fn clean_tail(&self) {
        loop {
            let gone = self.take_tail();
            let mut by_fingerprint = self.by_fingerprint.lock();
            for ban in &gone {
                let conditions = fingerprint(&ban.tests);
                if let Some(numbers) = by_fingerprint.get_mut(&conditions) {
                    numbers.retain(|&number| number != ban.number);
                    if numbers.is_empty() {
                        by_fingerprint.remove(&conditions);
                    }
                }
            }
            drop(by_fingerprint);
            if gone.len() < GROUP {
                return;
            }
        }
    }

    /// Removes one group of bans at the tail that no object refers to. The caller frees them without holding a lock.
    fn take_tail(&self) -> Vec<Arc<Ban>> {
        let c = &self.counters;
        let mut gone = Vec::with_capacity(GROUP);
        let mut bans = self.bans.write();
        let needed = self.needed(&bans);
        while gone.len() < GROUP
            && bans.len() > 1
            && bans.back().is_some_and(|b| b.objects.load(Ordering::Relaxed) <= 0 && b.number < needed)
        {
            let Some(ban) = bans.pop_back() else { break };
            if let (Some(keeper), Some(&note)) = (self.keeper.get(), ban.note.get()) {
                keeper.remove_note(note);
            }
            sub(&c.bans_completed, u64::from(ban.is_completed()));
            sub(&c.bans_obj, u64::from(ban.tests_object()));
            sub(&c.bans_req, u64::from(ban.needs_request()));
            sub(&c.bans, 1);
            bump(&c.bans_deleted);
            let size = if ban.is_completed() { HEAD_LEN } else { ban.size() };
            add(&c.bans_persisted_fragmentation, size);
            gone.push(ban);
        }
        gone
    }

    /// Removes bans from the counters that those of a previous process replace.
    pub(crate) fn uncount(&self, replaced: impl IntoIterator<Item = Arc<Ban>>) {
        for ban in replaced {
            sub(&self.counters.bans, 1);
            sub(&self.counters.bans_added, 1);
            sub(&self.counters.bans_obj, u64::from(ban.tests_object()));
            sub(&self.counters.bans_req, u64::from(ban.needs_request()));
            sub(&self.counters.bans_completed, u64::from(ban.is_completed()));
            sub(&self.counters.bans_persisted_bytes, ban.size());
            if ban.is_completed() {
                sub(&self.counters.bans_persisted_fragmentation, ban.size() - HEAD_LEN);
            }
        }
    }

    /// Returns the number of the ban before which objects on disks need none.
    fn needed(&self, bans: &VecDeque<Arc<Ban>>) -> u32 {
        let newest = bans.front().map_or(0, |ban| ban.number);
        self.oldest_on_disks().max(newest.saturating_sub(MOST_ON_DISKS))
    }

    /// Makes an object from a disk refer to the ban that it was last tested against. Returns false if that is no longer
    /// in the list.
    pub(crate) fn attach_at(&self, object: &Object, number: u32) -> bool {
        let bans = self.bans.read();
        let number = number.max(self.base.load(Ordering::Relaxed));
        let Some(ban) = find(&bans, number) else { return false };
        self.note_late(number);
        ban.objects.fetch_add(1, Ordering::Relaxed);
        object.set_ban(number);
        true
    }

    /// Records that an object refers to a ban that may not be the newest. The caller holds the list's lock.
    pub(crate) fn note_late(&self, number: u32) {
        self.late.fetch_min(number, Ordering::Relaxed);
    }

    /// Begins a pass of the lurker. Returns the oldest ban that objects on disks were last tested against: the pass does
    /// not visit them.
    pub(crate) fn begin_pass(&self) -> u32 {
        let _no_object_is_attached = self.bans.write();
        self.late.store(u32::MAX, Ordering::Relaxed);
        self.oldest_on_disks()
    }

    /// Completes bans that a pass has tested, except for those that an object may need which the pass has not visited: on a
    /// disk at the beginning, which [`begin_pass`](Self::begin_pass) has returned, or at the end, or attached meanwhile to
    /// an older ban, from a disk or by a lookup that has tested some of the bans.
    pub(crate) fn complete_tested(&self, tested: &[Arc<Ban>], on_disks: u32) {
        let (oldest, newest) = {
            // Waits for lookups that have tested some of the bans.
            let bans = self.bans.write();
            let newest = on_disks.min(self.oldest_on_disks()).min(self.late.load(Ordering::Relaxed));
            (bans.back().map_or(0, |ban| ban.number), newest)
        };
        let is_done = |ban: &&Arc<Ban>| (oldest..=newest).contains(&ban.number);
        tested.iter().filter(is_done).for_each(|ban| self.complete(ban));
    }

    /// Returns the oldest ban that objects on disks were last tested against; `u32::MAX` if there are none.
    fn oldest_on_disks(&self) -> u32 {
        self.on_disks.get().map_or(u32::MAX, |oldest| oldest())
    }

    /// Copies the list, newest first, without bans that are dropped concurrently.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Ban>> {
        let mut all: Vec<Arc<Ban>> = Vec::new();
        loop {
            let bans = self.bans.read();
            let from = match (all.last(), bans.front()) {
                (Some(last), Some(newest)) => (newest.number - last.number) as usize + 1,
                _ => 0,
            };
            let end = bans.len().min(from + GROUP);
            if from >= end {
                return all;
            }
            all.extend(bans.range(from..end).cloned());
        }
    }
}

pub(crate) fn find(bans: &VecDeque<Arc<Ban>>, number: u32) -> Option<&Arc<Ban>> {
    let newest = bans.front()?.number;
    bans.get(newest.checked_sub(number)? as usize)
}

impl std::fmt::Debug for BanList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.bans.read().iter()).finish()
    }
}
