//! The search for an object in the stores.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lacquer_disk::{Candidate, Loaded, Receiver, Ring};

use crate::cache::Cache;
use crate::descriptor::Descriptor;
use crate::disk::variant;
use crate::locks::Mutex;
use crate::object::{FIXED, flag};
use crate::slab::{Digest, Key, key_of};
use crate::tags::Tag;

/// An object that was read from a store, and is not in memory yet.
#[derive(Debug)]
pub struct DiskObject {
    pub(crate) loaded: Loaded,
    pub(crate) descriptor: Descriptor,
    pub(crate) tags: Vec<Tag>,
    /// The index of the store, and the number of its storage.
    pub(crate) disk: usize,
    pub(crate) stevedore: u8,
}

impl DiskObject {
    /// Accepts an object of the key whose descriptor, head and data of filters can be read, and whose head contains its
    /// tags.
    fn new(cache: &Cache, disk: usize, key: &Key, loaded: Loaded) -> Option<Self> {
        let descriptor = Descriptor::read(loaded.fields().descriptor).ok()?;
        let (_, head) = split_head(loaded.fields().head)?;
        let heads = &cache.bans.heads;
        let is_sound = heads.is_sound(head) && heads.is_sound_extra(loaded.fields().extra, loaded.body_len());
        if descriptor.key != *key || !is_sound {
            return None;
        }
        let tags = cache.tags_in(head);
        let has_tags = descriptor.flags & flag::TAGGED != 0;
        let stevedore = cache.disks.get(disk)?.stevedore;
        (has_tags != tags.is_empty()).then_some(Self { loaded, descriptor, tags, disk, stevedore })
    }

    /// Returns the number of its storage.
    pub fn stevedore(&self) -> u8 {
        self.stevedore
    }

    /// Returns the Vary specification, which is empty if the object does not vary.
    pub fn vary(&self) -> &[u8] {
        split_head(self.loaded.fields().head).map_or(&[], |(vary, _)| vary)
    }
}

/// Returns the Vary specification and the packed head.
pub(crate) fn split_head(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let (fixed, rest) = head.split_first_chunk::<FIXED>()?;
    let (last_modified, length) = fixed.split_first_chunk::<8>()?;
    if !f64::from_le_bytes(*last_modified).is_finite() {
        return None;
    }
    rest.split_at_checked(u32::from_le_bytes(length.try_into().ok()?) as usize)
}

/// The most objects that a search reads.
const MOST_READS: usize = 8;

/// The search for an object of a key in the stores.
///
/// A key may have thousands of variants. The number of a variant is a hash of the names and values of the headers by which
/// it varies, so the variant of a request is found once the names are known: those of an object in memory, and those of
/// one object for each other set of names.
#[derive(Debug)]
pub struct DiskSearch {
    cache: Arc<Cache>,
    key: Key,
    now: f64,
    /// The variants of the request, one for each known set of names.
    wanted: Vec<u32>,
    candidates: VecDeque<(usize, Candidate)>,
    /// The log positions of the objects that were read.
    tried: Vec<u64>,
}

/// Returns the Vary specification of the request's variant, from that of another variant with the same names. `None` if the
/// request matches all variants.
pub type Predict<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

impl Cache {
    /// Returns whether there are stores on disks.
    #[inline]
    pub fn has_disks(&self) -> bool {
        !self.disks.is_empty()
    }

    /// Takes a ring for a reactor, if there is one left.
    pub fn take_ring(&self) -> Option<Ring> {
        self.disks.take_ring()
    }

    /// Begins the search for an object that is not in memory. Returns `None` if no store can have one.
    pub fn search_disks(
        self: &Arc<Self>,
        digest: &Digest,
        now: f64,
        predict: Predict<'_>,
    ) -> Option<DiskSearch> {
        let key = key_of(digest);
        if !self.disks.may_have(&key) {
            return None;
        }
        let (wanted, candidates, tried) = (Vec::new(), VecDeque::new(), Vec::new());
        let mut search = DiskSearch { cache: Arc::clone(self), key, now, wanted, candidates, tried };
        let newest = {
            let shard = self.shard(&key).lock();
            let newest = shard.slots(&key).find_map(|slot| shard.slab.get(slot).object.clone());
            newest.filter(|object| !object.is(flag::HFM | flag::HFP))
        };
        // The names of the newest object in memory save a read.
        let known = newest.and_then(|object| search.number(object.vary().unwrap_or_default(), predict));
        search.wanted.extend(known);
        search.find();
        (!search.candidates.is_empty()).then_some(search)
    }
}

impl DiskSearch {
    /// Returns the number of the request's variant. `None` if the request matches all variants.
    fn number(&self, vary: &[u8], predict: Predict<'_>) -> Option<u32> {
        let predicted = if vary.is_empty() { Vec::new() } else { predict(vary)? };
        Some(variant::of(&*self.cache.bans.heads, &predicted))
    }

    /// Collects the objects to read: those of the wanted variants, and one for each set of names that is not known.
    fn find(&mut self) {
        let Self { cache, key, now, wanted, tried, .. } = self;
        let found = cache.disks.iter().map(|disk| disk.store().candidates_of(key, *now, wanted)).enumerate();
        // At most one store has objects of a key.
        let all = found.flat_map(|(disk, found)| found.into_iter().map(move |candidate| (disk, candidate)));
        self.candidates = all.filter(|(_, candidate)| !tried.contains(&candidate.log)).collect();
    }

    /// Continues with the names by which an object that was read varies.
    pub fn learn(&mut self, found: &DiskObject, predict: Predict<'_>) {
        let read = found.loaded.candidate().entry.variant;
        let is_known = self.wanted.iter().any(|known| lacquer_disk::have_same_names(*known, read));
        if let Some(number) = self.number(found.vary(), predict).filter(|_| !is_known) {
            self.wanted.push(number);
            self.find();
        }
    }

    /// Starts to read the next object, in the ring of this thread if there is one. Returns `None` if there are no more.
    pub fn read_next(&mut self, ring: Option<&Ring>) -> Option<Reading> {
        if self.tried.len() >= MOST_READS {
            return None;
        }
        let (disk, candidate) = self.candidates.pop_front()?;
        self.tried.push(candidate.log);
        let result = Arc::new(Mutex::new(State::Reading(None)));
        let (cache, promise) = (Arc::clone(&self.cache), Promise(Arc::clone(&result)));
        let awaited = AwaitedObject { cache, disk, key: self.key, promise };
        self.cache.disks.get(disk)?.running.load(ring, candidate, self.key, awaited);
        Some(Reading(result))
    }
}

enum State {
    Reading(Option<Waker>),
    Done(Option<Box<DiskObject>>),
}

/// The read of an object: a future of the object, if it has the key and is sound.
#[must_use = "the object is read in vain"]
pub struct Reading(Arc<Mutex<State>>);

impl Future for Reading {
    type Output = Option<Box<DiskObject>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self.0.lock() {
            State::Done(found) => Poll::Ready(found.take()),
            State::Reading(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Receives an object from a store.
struct AwaitedObject {
    cache: Arc<Cache>,
    disk: usize,
    key: Key,
    promise: Promise,
}

impl Receiver for AwaitedObject {
    fn is_awaited(&self) -> bool {
        self.promise.is_awaited()
    }

    fn receive(self, loaded: Option<Loaded>) {
        let Self { cache, disk, key, promise } = self;
        promise.keep(loaded.and_then(|loaded| DiskObject::new(&cache, disk, &key, loaded)));
    }
}

/// The duty to end a read. Dropping it ends the read without an object.
struct Promise(Arc<Mutex<State>>);

impl Promise {
    fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn keep(self, found: Option<DiskObject>) {
        self.end(found);
    }

    fn end(&self, found: Option<DiskObject>) {
        let mut state = self.0.lock();
        let State::Reading(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Done(found.map(Box::new));
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.end(None);
    }
}
