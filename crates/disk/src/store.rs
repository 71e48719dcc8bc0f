//! A store: its index, its log and its journal over one device. Its parts work on threads of their own
//! ([`crate::Running`]), or step by step in tests.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::blocks::Blocks;
use crate::buffers::Buffers;
use crate::health::{Cause, Event, Health, Observed, Reason};
use crate::index::{Entry, Index};
use crate::journal::{self, Ban, Cursor, Found, Live};
use crate::layout::{Layout, OpenError, VERSION};
use crate::membership::Membership;
use crate::record::{Key, fingerprint};
use crate::segment::InUse;
use crate::state::{Dropped, Hold, Meant, Pending, Phase, State};
use crate::stats::{Stats, add, bump};

/// The number of segments that may be begun before the journal has to allow more.
pub(crate) const EPOCHS_AHEAD: u64 = 16;

/// The cache above the store. Called with no lock held.
pub trait Owner: Send + Sync {
    /// Returns whether an object with this key is in memory and was hit there.
    fn is_used(&self, key: &Key) -> bool;

    /// Passes the tags of an object to `each`, which its head contains. Returns false if they are not known, and the
    /// object must not be used. Reads nothing but the head, so that it may be called with any lock held.
    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) -> bool;

    /// Drops the objects with this key whose bodies are on a device.
    fn forget(&self, key: &Key);

    /// Drops those of these objects that no response uses: they only keep segments from being used again. Returns whether one
    /// was hit.
    fn let_go(&self, key: &Key) -> bool {
        let _ = key;
        false
    }

    /// Learns that an object has left the store, because its segment is used again. Does the same as
    /// [`forget`](Self::forget).
    fn evicted(&self, key: &Key, variant: u32) {
        let _ = variant;
        self.forget(key);
    }

    /// Receives the failure of the device. `is_invalid` states whether the next start finds the store empty; if not, it
    /// must not be opened again.
    fn failed(&self, is_invalid: bool);
}

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Objects whose bodies are smaller than `min` or larger than `max` are not stored.
    pub min: u64,
    pub max: u64,
    /// The number of bytes that may wait to be written.
    pub queue: u64,
    /// The time within which written objects are made durable.
    pub flush_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { min: 0, max: u64::MAX, queue: 64 << 20, flush_interval: Duration::from_secs(1) }
    }
}

/// The owner of a store, and the values that it chooses.
struct Owned {
    /// Whether the threads that write shall end.
    is_ending: AtomicBool,
    by: OnceLock<Box<dyn Owner>>,
    options: Options,
    /// The time within which written objects are made durable, in milliseconds.
    flush_interval: AtomicU64,
    clock: fn() -> f64,
}

pub struct Store {
    pub(crate) layout: Layout,
    pub(crate) blocks: Box<dyn Blocks>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) index: Index,
    pub(crate) state: Mutex<State>,
    pub(crate) health: Arc<Health>,
    /// Wakes the writer and the journal.
    pub(crate) has_objects: Condvar,
    pub(crate) has_records: Condvar,
    pub(crate) past: Past,
    owned: Owned,
    cursor: Mutex<Cursor>,
    /// The membership in the superblocks. Held while these are written, so that nothing undoes that the contents of a failed
    /// device were made invalid.
    superblocks: Mutex<Option<Membership>>,
}

/// The state of a store, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    pub phase: Phase,
    /// Whether reads take long, so that objects are misses.
    pub is_stalled: bool,
    /// The bytes that the store occupies, and those of its segments that contain objects.
    pub size: u64,
    pub used: u64,
    pub objects: u64,
    /// The time at which the oldest segment that contains objects was begun, in seconds since the epoch.
    pub oldest: Option<f64>,
}

/// The records of the previous process that still matter.
#[derive(Clone, Debug, Default)]
pub struct Past {
    pub bans: Vec<Ban>,
    /// The highest number of a ban that the journal recorded.
    pub last_ban: u32,
}

/// An object that may have the wanted key, and whose segment is not reused while this exists, or until it is released.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub entry: Entry,
    pub log: u64,
    /// Whether a previous process has written it.
    pub(crate) is_old: bool,
    pub(crate) pin: Option<Arc<()>>,
}

impl Store {
    /// Opens a store. Its index must then be read with [`recover`](Self::recover). `clock` returns seconds since the
    /// epoch.
    pub fn open(
        blocks: Box<dyn Blocks>,
        options: Options,
        clock: fn() -> f64,
    ) -> Result<Arc<Self>, OpenError> {
        let mut layout = Layout::open(&*blocks)?;
        let mut found = journal::read(&layout, &*blocks)?;
        let health = Arc::<Health>::default();
        for &at in &found.mended {
            health.report(Event::Mended { at });
        }
        if let Some(at) = found.lost {
            // Any object may be one of those that the lost records concern.
            layout.renew(&*blocks, clock())?;
            layout = Layout::open(&*blocks)?;
            found = journal::read(&layout, &*blocks)?;
            health.note_cleared(Cause::JournalDamaged { at });
        }
        let Found { live, cursor, .. } = found;
        let membership = Membership::read(&layout, &*blocks).ok().flatten();
        let blocks = Box::new(Observed { blocks, health: Arc::clone(&health) });
        let past = Past { bans: live.bans.clone(), last_ban: live.last_ban };
        Ok(Arc::new(Self {
            layout,
            blocks,
            buffers: Arc::default(),
            index: Index::default(),
            state: Mutex::new(State::new(&layout, live)),
            health,
            has_objects: Condvar::new(),
            has_records: Condvar::new(),
            past,
            owned: Owned {
                is_ending: AtomicBool::new(false),
                by: OnceLock::new(),
                flush_interval: AtomicU64::new(options.flush_interval.as_millis() as u64),
                options,
                clock,
            },
            cursor: Mutex::new(cursor),
            superblocks: Mutex::new(membership),
        }))
    }

    /// Sets the cache above the store. Only the first call has an effect.
    pub fn set_owner(&self, owner: Box<dyn Owner>) {
        let _ = self.owned.by.set(owner);
    }

    pub(crate) fn owner(&self) -> Option<&dyn Owner> {
        self.owned.by.get().map(|owner| &**owner)
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn stats(&self) -> &Stats {
        &self.health.stats
    }

    pub fn past(&self) -> &Past {
        &self.past
    }

    pub fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Returns the number of objects.
    pub fn objects(&self) -> u64 {
        self.index.len()
    }

    /// Returns the memory that the index occupies, in bytes.
    pub fn index_bytes(&self) -> u64 {
        self.index.bytes()
    }

    /// Returns the figures for people.
    pub fn figures(&self) -> Figures {
        let (state, layout) = (self.state.lock(), &self.layout);
        let used = state.slots.iter().filter(|slot| slot.epoch > 0);
        let begun = used.clone().map(|slot| slot.begun).filter(|&begun| begun > 0.0);
        Figures {
            phase: state.phase,
            is_stalled: self.health.is_stalled(),
            size: layout.size(),
            used: used.count() as u64 * layout.segment,
            objects: self.objects(),
            oldest: begun.reduce(f64::min),
        }
    }

    /// Returns whether the device is in use. Cheap.
    pub fn works(&self) -> bool {
        !self.health.is_out()
    }

    /// Returns whether the device is in use and reads end soon. Cheap.
    pub fn responds(&self) -> bool {
        self.works() && !self.health.is_stalled()
    }

    /// Takes the events since the last call, and the number of those that had no room.
    pub fn take_events(&self) -> (Vec<Event>, u64) {
        self.health.take_events()
    }

    /// Observes how long reads and writes take. Must be called every 250 ms.
    pub fn watch_step(&self) {
        if let Some(reason) = self.health.tick() {
            self.fail(Vec::new(), reason);
        }
        self.check_leaving();
    }

    /// Takes the device out of use if too many reads have failed. Must be called with no lock held.
    pub(crate) fn check_health(&self) {
        if self.health.has_failed() {
            self.fail(Vec::new(), Reason::Reads);
        }
    }

    /// Returns the number of segments that contain objects, and the number of all segments.
    pub fn segments(&self) -> (u64, u64) {
        let used = self.state.lock().slots.iter().filter(|slot| slot.epoch > 0).count();
        (used as u64, self.layout.segments)
    }

    /// Asks the threads that write to end, and a start that still reads the index.
    pub(crate) fn begin_end(&self) {
        self.owned.is_ending.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.owned.is_ending.load(Ordering::SeqCst)
    }

    pub(crate) fn now(&self) -> f64 {
        (self.owned.clock)()
    }

    /// Returns the time within which written objects are made durable.
    pub(crate) fn flush_interval(&self) -> Duration {
        Duration::from_millis(self.owned.flush_interval.load(Ordering::Relaxed))
    }

    /// Sets the time within which written objects are made durable, in seconds, rounded down to milliseconds.
    pub fn set_flush_interval(&self, seconds: f64) {
        let milliseconds = (seconds * 1000.0).max(1.0) as u64;
        self.owned.flush_interval.store(milliseconds, Ordering::Relaxed);
        // The lock orders this with a thread that is about to wait.
        drop(self.state.lock());
        self.has_objects.notify_all();
    }

    pub(crate) fn options(&self) -> Options {
        self.owned.options
    }

    /// Returns the number of bytes that may wait to be written.
    pub fn queue_limit(&self) -> u64 {
        self.owned.options.queue
    }

    /// Returns the number of bytes that wait to be written.
    pub fn queued_bytes(&self) -> u64 {
        self.state.lock().queue.bytes()
    }

    /// Returns whether the index contains objects that may have this key, and the device responds. Cheap.
    pub fn may_have(&self, key: &Key) -> bool {
        !self.index.is_empty() && self.index.has(fingerprint(key)) && !self.health.is_stalled()
    }

    /// Removes all objects with a key. `hold` is dropped when that is durable.
    pub fn purge(&self, key: &Key, hold: Option<Hold>) -> Dropped {
        self.purge_fingerprint(fingerprint(key), hold)
    }

    /// Removes all objects whose keys have a fingerprint.
    pub fn purge_fingerprint(&self, fingerprint: u64, hold: Option<Hold>) -> Dropped {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Failing => {
                state.pending.holds.extend(hold);
                return Dropped::default();
            }
            Phase::Failed | Phase::Retired => return Dropped::default(),
            Phase::Recovering | Phase::Working => {}
        }
        if !state.may_have(&self.index, fingerprint) {
            // An earlier purge may have removed the objects. The answer waits for its record.
            if hold.is_some() && (state.pending.count > 0 || state.journaling.is_some()) {
                state.pending.holds.extend(hold);
                drop(state);
                self.has_records.notify_one();
            }
            return Dropped::default();
        }
        let dropped = state.drop_objects(&self.index, fingerprint, Meant::All);
        let bound = state.next_log(&self.layout);
        state.record_purge(fingerprint, bound, hold);
        drop(state);
        self.has_records.notify_one();
        dropped
    }

    /// Removes an object that is damaged.
    pub(crate) fn drop_damaged(&self, candidate: &Candidate) {
        self.note_damaged(candidate.entry.place());
        self.drop_unreadable(candidate);
    }

    /// Counts and reports the damaged object at a place.
    pub(crate) fn note_damaged(&self, place: u64) {
        bump(&self.health.stats.damaged);
        self.health.report(Event::Damaged { at: place });
    }

    /// Removes an object that cannot be read, or must not be used.
    pub(crate) fn drop_unreadable(&self, candidate: &Candidate) {
        let mut state = self.state.lock();
        if self.index.remove(candidate.entry.fingerprint, candidate.entry.place()) {
            // Without this, an older object with the same key would be found at the next start.
            state.record_purge(candidate.entry.fingerprint, candidate.log + 1, None);
            self.has_records.notify_one();
        }
    }

    /// Writes the pending records of the journal. Returns whether there were any.
    pub fn journal_step(&self) -> bool {
        let mut cursor = self.cursor.lock();
        let (pending, live, is_recovering) = {
            let mut state = self.state.lock();
            if state.phase == Phase::Failing {
                return false;
            }
            let mut pending = std::mem::take(&mut state.pending);
            if state.phase.is_out() {
                // Nothing is recorded any more. Holds wake tasks.
                drop(state);
                drop(cursor);
                drop(pending);
                return false;
            }
            if pending.count == 0 && !pending.wants_checkpoint {
                // Earlier records are durable, because the cursor is held while they are written.
                return !pending.holds.is_empty();
            }
            // The write may not end. If the device is then taken out of use, the holds are taken from here.
            state.journaling = Some(std::mem::take(&mut pending.holds));
            let Live { tail, last_ban, limit, .. } = state.live;
            let live = Live { tail, last_ban, limit, ..Live::default() };
            (pending, live, state.phase == Phase::Recovering)
        };
        add(&self.health.stats.journaled, pending.count);
        bump(&self.health.stats.journal_groups);
        let written = if pending.wants_checkpoint {
            Ok(Err(journal::NoRoom))
        } else {
            self.raise_for_tags(&mut cursor)
                .and_then(|()| cursor.append(&self.layout, &*self.blocks, &live, &pending.records))
        };
        let written = match written {
            Ok(Err(journal::NoRoom)) if is_recovering => {
                // The live records are not known yet. The answers wait until they are.
                let mut state = self.state.lock();
                let holds = state.journaling.take().unwrap_or_default();
                state.pending.put_back(Pending { holds, ..pending });
                return false;
            }
            Ok(Err(journal::NoRoom)) => self.checkpoint(&mut cursor),
            Ok(Ok(())) => Ok(live.last_ban),
            Err(error) => Err(error),
        };
        let holds = {
            let mut state = self.state.lock();
            state.live.durable_ban = state.live.durable_ban.max(written.as_ref().copied().unwrap_or(0));
            state.journaling.take().unwrap_or_default()
        };
        drop(cursor);
        if written.is_err() {
            self.fail(holds, Reason::Write);
            return true;
        }
        // Now the answers go out.
        drop(holds);
        true
    }

    /// Records that an epoch may be begun, and some after it. Must be called before its header is written. Returns false if
    /// the device has failed.
    pub(crate) fn allow_epoch(&self, epoch: u64) -> bool {
        if self.cursor.lock().limit >= epoch {
            return true;
        }
        let mut state = self.state.lock();
        state.live.limit = epoch + EPOCHS_AHEAD;
        state.pending.count += 1;
        drop(state);
        while self.cursor.lock().limit < epoch {
            if !self.journal_step() {
                return self.cursor.lock().limit >= epoch;
            }
        }
        true
    }

    /// Raises the version of the store before the journal first contains purges by tags.
    fn raise_for_tags(&self, cursor: &mut Cursor) -> io::Result<()> {
        if cursor.is_raised || self.state.lock().known_tags.purges() == 0 {
            Ok(())
        } else {
            self.raise(cursor)
        }
    }

    /// Raises the version of the store before the first large object is written.
    pub(crate) fn raise_for_large_objects(&self) -> io::Result<()> {
        let mut cursor = self.cursor.lock();
        if cursor.is_raised { Ok(()) } else { self.raise(&mut cursor) }
    }

    fn raise(&self, cursor: &mut Cursor) -> io::Result<()> {
        let _alone = self.superblocks.lock();
        if self.phase().is_out() {
            return Err(io::Error::other("the store has failed"));
        }
        self.layout.raise_version(&*self.blocks)?;
        cursor.is_raised = true;
        Ok(())
    }

    /// Records the length of the journal, all of which is durable. A start that finds less of it then takes what is missing
    /// for damage, and not for a torn write. Must be called now and then, and at a clean end.
    pub(crate) fn mark_journal(&self) -> io::Result<()> {
        let mut cursor = self.cursor.lock();
        let mark = cursor.mark();
        let _alone = self.superblocks.lock();
        if self.phase() != Phase::Working || mark <= cursor.marked {
            return Ok(());
        }
        let version = if cursor.is_raised { VERSION } else { self.layout.version };
        mark.write(&Layout { version, ..self.layout }, &*self.blocks)?;
        cursor.marked = mark;
        Ok(())
    }

    /// Returns the position of the journal if its records are lost though segments are in use.
    pub(crate) fn lost_journal(&self, found: &InUse) -> Option<u64> {
        found.lost_journal(&self.layout, &self.cursor.lock())
    }

    /// Writes a checkpoint. Returns the highest number of a ban that is in it.
    fn checkpoint(&self, cursor: &mut Cursor) -> io::Result<u32> {
        loop {
            let live = {
                let mut state = self.state.lock();
                state.trim();
                state.live.clone()
            };
            self.raise_for_tags(cursor)?;
            if cursor.checkpoint(&self.layout, &*self.blocks, &live)?.is_ok() {
                return Ok(live.last_ban);
            }
            self.clear();
        }
    }

    /// Drops all objects, and with them the records that concern them: the journal has no room for these.
    fn clear(&self) {
        self.health.note_cleared(Cause::JournalFull);
        let mut state = self.state.lock();
        state.live.tail = state.next_log(&self.layout);
        state.live.clear();
        state.flying.iter_mut().for_each(|record| record.is_purged = true);
        let dropped = state.queue.clear();
        for slot in &mut state.slots {
            slot.bans = (u32::MAX, 0);
        }
        self.index.sweep(|_| true);
        drop(state);
        drop(dropped);
    }

    /// Takes the device out of use: its objects are misses. Purges and bans cannot be recorded from now on, so the
    /// contents are made invalid for the next start, by a superblock with another id. Only then are `holds`, and those of
    /// the purges and bans since, dropped. A device that stalls is not written to.
    pub(crate) fn fail(&self, holds: Vec<Hold>, reason: Reason) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Failed | Phase::Retired) {
            drop(state);
            return drop(holds);
        }
        // Another thread drops them if this one is held up.
        state.pending.holds.extend(holds);
        if state.phase == Phase::Failing {
            return;
        }
        state.phase = Phase::Failing;
        self.health.is_crowded.store(false, Ordering::Relaxed);
        let dropped = state.queue.clear();
        self.index.sweep(|_| true);
        drop(state);
        drop(dropped);
        self.end_use(reason);
    }

    /// Makes the contents of a failing store invalid, if that is possible, and reports it.
    pub(crate) fn end_use(&self, reason: Reason) {
        self.health.take_out(reason);
        let is_stalled = matches!(reason, Reason::Stall | Reason::WriteStall);
        let is_invalid = !is_stalled && self.invalidate().is_ok();
        if self.health.end_leaving() {
            self.report_failure(is_invalid);
        }
    }

    /// Ends the use of a failing store whose contents could not be made invalid in time. Must be called with each tick.
    fn check_leaving(&self) {
        if self.health.give_up_leaving() {
            self.report_failure(false);
        }
    }

    /// Reports the failure, and lets the answers go out that wait. Called once for each failure.
    fn report_failure(&self, is_invalid: bool) {
        if let Some(owner) = self.owner() {
            owner.failed(is_invalid);
        }
        let pending = {
            let mut state = self.state.lock();
            state.phase = Phase::Failed;
            (std::mem::take(&mut state.pending), state.journaling.take())
        };
        drop(pending);
    }

    fn invalidate(&self) -> io::Result<()> {
        let membership = self.superblocks.lock();
        if self.phase() != Phase::Failing {
            return Err(io::Error::other("this took too long"));
        }
        self.layout.renew_with(&*self.blocks, self.now(), *membership)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} objects, {:?})", self.objects(), self.layout)
    }
}
