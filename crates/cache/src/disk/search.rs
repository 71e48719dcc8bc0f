//! The search for an object in the stores.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lacquer_disk::{Candidate, Loaded, Receiver, Ring};

use crate::cache::Cache;
use crate::descriptor::Descriptor;
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

/// The objects of a key in the stores, newest first.
#[derive(Debug)]
pub struct DiskSearch {
    cache: Arc<Cache>,
    key: Key,
    candidates: VecDeque<(usize, Candidate)>,
}

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
    pub fn search_disks(self: &Arc<Self>, digest: &Digest, now: f64) -> Option<DiskSearch> {
        let key = key_of(digest);
        if !self.disks.may_have(&key) {
            return None;
        }
        let of = |(disk, it): (usize, &super::Disk)| {
            it.store().candidates(&key, now).into_iter().map(move |candidate| (disk, candidate))
        };
        // At most one store has objects of a key.
        let candidates: VecDeque<_> = self.disks.iter().enumerate().flat_map(of).collect();
        (!candidates.is_empty()).then(|| DiskSearch { cache: Arc::clone(self), key, candidates })
    }
}

impl DiskSearch {
    /// Starts to read the next object, in the ring of this thread if there is one. Returns `None` if there are no more.
    pub fn read_next(&mut self, ring: Option<&Ring>) -> Option<Reading> {
        let (disk, candidate) = self.candidates.pop_front()?;
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
