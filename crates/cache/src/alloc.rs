//! Creating objects: allocates memory in a storage, and evicts objects when the storage is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_storage::{BodyWriter, ChunkSizes, Full, Layout, Parts, Stevedore};

use crate::cache::Cache;
use crate::evicted::Evicted;
use crate::object::{Object, ObjectSpec, flag};
use crate::stats::bump;

/// After this many evictions without success, an object is stored in pieces.
const TRIES_BEFORE_SPLIT: u32 = 8;

/// Bodies with a single reader are stored in pieces of at most this size, which are freed as they are delivered.
const PASSING_PIECE: usize = 256 * 1024;

/// The maximum length of a body that may share a span with its hit-for-miss or hit-for-pass object, which outlives
/// the body's only reader.
const KEPT_WITH_MARK: u64 = 512;

/// The minimum size of the pieces of a body that is already in memory.
const LEAST_PIECE: usize = 16 * 1024;

/// The eviction budget for one object (initially `nuke_limit`), and the log function for evictions (Varnish's texts
/// under ExpKill).
pub struct Nuke<'a> {
    pub left: u32,
    pub log: &'a mut dyn FnMut(&str),
    /// Evictions that are left until the attempt pauses.
    at_once: u32,
    /// Evictions so far for the current allocation.
    tries: u32,
}

impl<'a> Nuke<'a> {
    pub fn new(left: u32, log: &'a mut dyn FnMut(&str)) -> Nuke<'a> {
        Nuke { left, log, at_once: u32::MAX, tries: 0 }
    }

    /// Makes the attempt pause after `at_once` evictions: it ends with `Full`, and [`Nuke::is_paused`] returns true
    /// if more are allowed. `tries` is the number of evictions in earlier attempts.
    #[must_use]
    pub fn pause_after(mut self, at_once: u32, tries: u32) -> Nuke<'a> {
        self.at_once = at_once;
        self.tries = tries;
        self
    }

    /// Returns whether the caller should repeat the attempt after a pause.
    pub fn is_paused(&self) -> bool {
        self.at_once == 0 && self.left > 0
    }
}

impl Cache {
    /// Creates an object whose body is in memory, in the most compact form if there is room for that.
    pub fn create(
        &self,
        stevedore: &Stevedore,
        spec: &ObjectSpec<'_>,
        body: &[u8],
        nuke: &mut Nuke<'_>,
    ) -> Result<Arc<Object>, Full> {
        let fixed = spec.fixed();
        let parts = Parts { head: &[&fixed, spec.vary, spec.head], extra: spec.extra };
        if !stevedore.is_small(body.len() as u64) {
            return self.create_large(stevedore, spec, body, nuke);
        }
        let stored = self.with_room(stevedore, false, nuke, |_| stevedore.complete(parts, body))?;
        Ok(Object::new(stored, spec, stevedore.index()))
    }

    /// Creates the object in as many spans as necessary.
    fn create_large(
        &self,
        stevedore: &Stevedore,
        spec: &ObjectSpec<'_>,
        body: &[u8],
        nuke: &mut Nuke<'_>,
    ) -> Result<Arc<Object>, Full> {
        let sizes =
            ChunkSizes { first: LEAST_PIECE, max: body.len() + spec.head.len() + spec.vary.len() + 64 };
        let (object, mut writer) = self.begin(stevedore, spec, Some(body.len() as u64), sizes, nuke)?;
        let mut rest = body;
        while !rest.is_empty() {
            self.reserve(stevedore, &mut writer, nuke)?;
            rest = &rest[writer.write(rest)?..];
        }
        writer.finish();
        Ok(object)
    }

    /// Creates an object whose body will be written through the writer. `expected` is the length of the body, if
    /// known.
    pub fn begin(
        &self,
        stevedore: &Stevedore,
        spec: &ObjectSpec<'_>,
        expected: Option<u64>,
        sizes: ChunkSizes,
        nuke: &mut Nuke<'_>,
    ) -> Result<(Arc<Object>, BodyWriter), Full> {
        let fixed = spec.fixed();
        let parts = Parts { head: &[&fixed, spec.vary, spec.head], extra: spec.extra };
        let want = expected.unwrap_or(0).saturating_add(spec.head.len() as u64);
        let large = !stevedore.is_small(want);
        let is_mark = spec.flags & (flag::HFM | flag::HFP) != 0;
        let apart = is_mark && spec.flags & flag::PRIVATE == 0 && expected.is_none_or(|n| n > KEPT_WITH_MARK);
        let one_reader = is_mark || spec.flags & flag::PRIVATE != 0;
        let passing = if one_reader { PASSING_PIECE } else { usize::MAX };
        let spilled = self.spilled_piece(stevedore, spec.flags, expected);
        let max = sizes.max.min(passing).min(spilled);
        let sizes = ChunkSizes { first: sizes.first.min(max), max };
        let make = |tries| {
            let layout = if apart {
                Layout::Apart
            } else if tries >= TRIES_BEFORE_SPLIT || stevedore.has_free(want.saturating_mul(2)) {
                Layout::Pieces
            } else {
                Layout::OneSpan
            };
            stevedore.begin(parts, expected, sizes, layout)
        };
        let (stored, writer) = self.with_room(stevedore, large, nuke, make)?;
        Ok((Object::new(stored, spec, stevedore.index()), writer))
    }

    /// Creates an object that shares the body of another one, without a copy. Returns `None` if the body must be
    /// copied, because it is short, incomplete, not in memory, or in another store.
    pub fn share(
        &self,
        stevedore: &Stevedore,
        spec: &ObjectSpec<'_>,
        body_of: &Object,
        nuke: &mut Nuke<'_>,
    ) -> Result<Option<Arc<Object>>, Full> {
        let fixed = spec.fixed();
        let parts = Parts { head: &[&fixed, spec.vary, spec.head], extra: spec.extra };
        if stevedore.is_small(body_of.body_len()) {
            return Ok(None);
        }
        let shared = self.with_room(stevedore, false, nuke, |_| stevedore.share(parts, body_of.stored()))?;
        Ok(shared.map(|stored| Object::new(stored, spec, stevedore.index())))
    }

    /// Ensures that the writer has room for at least one more byte.
    pub fn reserve(
        &self,
        stevedore: &Stevedore,
        writer: &mut BodyWriter,
        nuke: &mut Nuke<'_>,
    ) -> Result<(), Full> {
        let large = !stevedore.is_small(writer.wants() as u64);
        self.with_room(stevedore, large, nuke, |tries| {
            let want = writer.wants();
            let split = tries >= TRIES_BEFORE_SPLIT || stevedore.has_free(want as u64 * 2);
            writer.reserve_from(if split { 0 } else { want / 4 })
        })
    }

    /// Calls `make` and evicts an object after each failure, until `make` succeeds or no more objects may be evicted.
    /// `make` gets the number of evictions so far. If all fails, a `large` allocation is tried once more in pieces.
    /// Evictions from memory in front of a disk are not limited, because the disk has the objects.
    pub(crate) fn with_room<T>(
        &self,
        stevedore: &Stevedore,
        large: bool,
        nuke: &mut Nuke<'_>,
        mut make: impl FnMut(u32) -> Result<T, Full>,
    ) -> Result<T, Full> {
        loop {
            if let Ok(made) = make(nuke.tries) {
                nuke.tries = 0;
                return Ok(made);
            }
            if nuke.is_paused() {
                return Err(Full);
            }
            if nuke.left == 0 {
                if large && let Ok(made) = make(TRIES_BEFORE_SPLIT) {
                    return Ok(made);
                }
                (nuke.log)("LRU reached nuke_limit");
                bump(&self.counters.n_lru_limited);
                return Err(Full);
            }
            match self.nuke_one(stevedore.index(), large, nuke.log) {
                Evicted::Object if self.disks.is_behind(stevedore.index()) => {}
                Evicted::Object => nuke.left -= 1,
                // The body is freed with the last object that shares it.
                Evicted::Head => {}
                Evicted::Nothing => {
                    // All remaining objects are held by readers. Storing in pieces is better than failing.
                    self.pressure.fetch_add(1, Ordering::Relaxed);
                    (nuke.log)("LRU_Fail");
                    return if large { make(TRIES_BEFORE_SPLIT) } else { Err(Full) };
                }
            }
            nuke.at_once -= 1;
            nuke.tries += 1;
        }
    }
}
