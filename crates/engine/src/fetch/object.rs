//! The object that a fetch creates: allocating it, appending to it, and publishing it.

use std::sync::Arc;

use lacquer_cache::{Nuke, Object, ObjectSpec, Tag as Mark, Timers, flag};
use lacquer_flow::storing::{self, StoreChoice, Storing, Verdict};
use lacquer_flow::{Lifetime, validation};
use lacquer_http::{Filter, Text, pack, vary};
use lacquer_shm::Tag;

use super::parts::Target;
use super::{Fetch, transit};
use crate::task::names;

/// The body of a new object.
#[derive(Clone, Copy)]
pub enum Content<'c> {
    /// The body will be appended. Contains its length, if known.
    Incoming(Option<u64>),
    /// The whole body is in the workspace.
    Whole(Text),
    /// The body is that of another object, with the data that filters stored with it. If the body cannot be shared, it
    /// is appended as for [`Content::Incoming`].
    Copied(&'c Object),
}

/// The number of evictions after which other tasks run. They take half a millisecond at most.
const EVICTIONS_AT_ONCE: u32 = 25;

fn timers(lifetime: Lifetime) -> Timers {
    let Lifetime { ttl, grace, keep, .. } = lifetime;
    Timers { ttl: ttl as f32, grace: grace as f32, keep: keep as f32 }
}

impl Fetch {
    /// Creates the object with its head. The lifetime decides where it is stored. Returns false if there is no room.
    pub fn store_head(&mut self, content: Content<'_>) -> bool {
        let spec = if self.purpose.is_pass { Vec::new() } else { self.vary_spec() };
        let storing = self.storing();
        let filter = if storing == Storing::Cached { Filter::INSERT } else { Filter::PASS_OBJECT };
        let mut head = std::mem::take(&mut self.exchange.out);
        head.clear();
        pack::pack(&self.response.http, &self.task.ws, filter, &mut head);
        let stored = self.store(&head, &spec, storing, content);
        if stored {
            self.log_obj(&head);
        } else {
            self.fetch_error("Could not get storage");
        }
        self.exchange.out = head;
        stored
    }

    fn store(&mut self, head: &[u8], spec: &[u8], storing: Storing, content: Content<'_>) -> bool {
        let Some(chosen) = self.store_choice(storing) else { return false };
        if self.make_object(chosen, (head, spec), storing, content) {
            return true;
        }
        let transient = self.task.services.stevedores().transient();
        if chosen == transient {
            return false;
        }
        self.response.lifetime = self.response.lifetime.salvaged(self.task.params.shortlived);
        self.make_object(transient, (head, spec), storing, content)
    }

    /// Returns which requests may use the response, as far as VCL has decided.
    #[inline]
    pub(super) fn storing(&self) -> Storing {
        Storing::of(Verdict {
            is_pass: self.purpose.is_pass,
            is_uncacheable: self.response.is_uncacheable,
            is_pass_wanted: self.response.is_hit_for_pass,
        })
    }

    /// Returns the packed Vary headers of the object. An invalid Vary makes the object uncacheable.
    fn vary_spec(&mut self) -> Vec<u8> {
        let mut spec = Vec::new();
        let made =
            vary::create(&self.response.http, &self.task.ws, &self.request.http, &self.task.ws, &mut spec);
        if made.is_err() {
            let text = b"Illegal 'Vary' header from backend, making this a pass.";
            self.task.log.put(Tag::Error, text);
            self.response.is_uncacheable = true;
            spec.clear();
        }
        spec
    }

    /// Logs the stored head.
    fn log_obj(&mut self, head: &[u8]) {
        if self.task.log.is_masked(Tag::ObjHeader) && self.task.log.is_masked(Tag::ObjStatus) {
            return;
        }
        let Some(packed) = pack::PackedHead::new(head) else { return };
        let log = &mut self.task.log;
        log.put(Tag::ObjProtocol, self.response.http.proto(&self.task.ws));
        log.put(Tag::ObjStatus, self.response.http.status_text(&self.task.ws));
        log.put(Tag::ObjReason, packed.reason());
        for line in packed.lines() {
            log.put(Tag::ObjHeader, line);
        }
    }

    fn object_flags(&self, storing: Storing) -> u32 {
        let mut flags = flag::of(storing);
        let mut set = |when: bool, bit: u32| flags |= if when { bit } else { 0 };
        set(validation::is_possible(storing, &self.response.http, &self.task.ws), flag::IMSCAND);
        set(self.attempt.gzipped, flag::GZIPED);
        set(self.attempt.encoding_changed, flag::CHGCE);
        set(self.attempt.has_esi, flag::ESIPROC);
        flags
    }

    fn make_object(
        &mut self,
        place: u32,
        (head, vary): (&[u8], &[u8]),
        storing: Storing,
        content: Content<'_>,
    ) -> bool {
        let services = self.task.services.clone();
        let cache = services.cache();
        let Some(stevedore) = services.stevedores().get(place) else { return false };
        let last_modified =
            validation::last_modified(&self.response.http, &self.task.ws, self.response.lifetime);
        let (expected, extra) = match content {
            Content::Incoming(expected) => (expected, [].as_slice()),
            Content::Copied(object) => (Some(object.body_len()), object.extra()),
            Content::Whole(_) => (None, [].as_slice()),
        };
        let spec = ObjectSpec {
            vxid: self.task.vxid().number(),
            t_origin: self.response.lifetime.origin,
            timers: timers(self.response.lifetime),
            flags: self.object_flags(storing),
            last_modified,
            vary,
            head,
            extra,
        };
        let p = &self.task.params;
        let sizes = transit::chunk_sizes(p.fetch_chunksize, p.fetch_maxchunksize, self.transit_limit());
        let log = &mut self.task.log;
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        let mut nuke = Nuke::new(p.nuke_limit, &mut note);
        // An object that is kept only as a mark frees its body later, so its head and body must not share a span.
        let expected = expected.filter(|_| !storing.is_mark());
        let whole = match content {
            Content::Whole(body) => {
                cache.create(stevedore, &spec, self.task.ws.get(body), &mut nuke).map(Some)
            }
            Content::Copied(object) => cache.share(stevedore, &spec, object, &mut nuke),
            Content::Incoming(_) => Ok(None),
        };
        let made = whole.and_then(|whole| match whole {
            Some(object) => Ok((object, None)),
            None => {
                let begun = cache.begin(stevedore, &spec, expected, sizes, &mut nuke);
                begun.map(|(object, writer)| (object, Some(writer)))
            }
        });
        self.product.nuked = p.nuke_limit - nuke.left;
        let kind = stevedore.kind().name();
        let Ok((object, writer)) = made else {
            let text = format_args!("Failed to create object from {kind} {}", stevedore.name());
            self.task.log.put_fmt(Tag::Error, text);
            return false;
        };
        crate::task::log_storage(&mut self.task.log, kind, stevedore.name());
        self.product.object = Some(object);
        self.product.writer = writer;
        true
    }

    /// Returns the number of the storage; `None` if VCL has set none.
    fn store_choice(&mut self, storing: Storing) -> Option<u32> {
        let c = self.task.services.counters();
        match storing::store_choice(storing, self.response.lifetime, self.task.params.shortlived) {
            StoreChoice::Chosen => return self.attempt.storage,
            StoreChoice::TransientUncacheable => c.beresp_uncacheable.add(1),
            StoreChoice::TransientShortlived => c.beresp_shortlived.add(1),
        }
        Some(self.task.services.stevedores().transient())
    }

    /// Returns the tags that the origin gave the object, for purges by tag.
    fn tags(&self) -> Vec<Mark> {
        let (ws, cache) = (&self.task.ws, self.task.services.cache());
        let lists =
            [names::XKEY, names::X_HASH_TWO].into_iter().flat_map(|n| self.response.http.get_all(ws, n));
        lists.flat_map(lacquer_vmods::xkey::tags).map(|word| cache.tag(word)).collect()
    }

    /// Publishes the object: other requests may use it, even while it is still being fetched.
    pub fn publish(&mut self) {
        let Some(object) = self.product.object.clone() else { return };
        if let Target::Cache(busy) = std::mem::replace(&mut self.product.target, Target::Delivered) {
            busy.publish_tagged(&object, self.tags());
        }
        self.announce(Some(object));
    }

    /// Completes an object whose body was received in full, and replaces the stale object. `published` is true if
    /// other requests already use it.
    pub fn complete(&mut self, published: bool) {
        self.drop_if_foreign();
        self.settle(published);
        self.drop_if_foreign();
        self.task.stamp("BerespBody");
        if let (Some(stale), Some(object)) = (self.product.stale.take(), &self.product.object) {
            let log = self.task.services.log();
            let text = format_args!("VBF_Superseded x={} n={}", stale.vxid(), object.vxid());
            log.write_fmt(Tag::ExpKill, lacquer_shm::Vxid::NONE, text);
            self.task.services.cache().supersede(&stale);
        }
    }

    /// Removes an object that may be the response to another request from the index. Called before and after it is
    /// published.
    fn drop_if_foreign(&self) {
        if let Some(object) = self.product.object.as_ref().filter(|_| self.attempt.is_foreign) {
            self.task.services.cache().kill(object);
        }
    }

    /// Completes the object, because no more bytes will be appended.
    pub fn settle(&mut self, published: bool) {
        if published {
            // Readers already hold this object; the index may get a more compact one.
            if let (Some(writer), Some(object)) = (self.product.writer.take(), self.product.object.take()) {
                self.product.object = Some(self.task.services.cache().finish(object, writer));
            }
        } else {
            if let Some(writer) = self.product.writer.take() {
                writer.finish();
            }
            self.publish();
        }
        // Nobody reads a body that was abandoned, or that was fetched in the background for a mark.
        let unread = |o: &&Arc<Object>| {
            o.is(flag::CANCEL) || self.purpose.is_background && self.response.is_uncacheable
        };
        if let Some(object) = self.product.object.as_ref().filter(unread) {
            object.stored().drop_body();
        }
    }

    /// Ensures that bytes can be appended to the object, by eviction if necessary. Returns false if there is no room
    /// even then. Yields to other tasks while many objects are evicted.
    pub async fn make_room(&mut self) -> bool {
        let mut tries = 0;
        loop {
            match self.reserve(tries) {
                Some(has_room) => return has_room,
                None => tokio::task::yield_now().await,
            }
            tries = u32::saturating_add(tries, EVICTIONS_AT_ONCE);
        }
    }

    /// Returns whether bytes can be appended to the object, or `None` if eviction was paused and can continue.
    /// `tries` is the number of evictions tried so far.
    fn reserve(&mut self, tries: u32) -> Option<bool> {
        let services = self.task.services.clone();
        let shared = services.shared();
        let (Some(writer), Some(object)) = (&mut self.product.writer, &self.product.object) else {
            return Some(false);
        };
        let Some(stevedore) = shared.stevedores().get(u32::from(object.stevedore())) else {
            return Some(false);
        };
        let log = &mut self.task.log;
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        // A body of many megabytes may evict as many objects as several smaller bodies.
        let megabytes = u32::try_from(writer.len() >> 20).unwrap_or(u32::MAX);
        let limit = self.task.params.nuke_limit.saturating_mul(megabytes.saturating_add(1));
        let nuke = Nuke::new(limit.saturating_sub(self.product.nuked), &mut note);
        let mut nuke = nuke.pause_after(EVICTIONS_AT_ONCE, tries);
        let has_room = shared.cache().reserve(stevedore, writer, &mut nuke).is_ok();
        self.product.nuked = limit - nuke.left;
        if !has_room && nuke.is_paused() {
            return None;
        }
        if !has_room {
            self.fetch_error("Could not get storage");
        }
        Some(has_room)
    }

    /// Appends bytes to the object. Returns false if there is no room for them.
    pub async fn append(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if !self.make_room().await {
                return false;
            }
            let Some(writer) = &mut self.product.writer else { return false };
            let window = writer.window();
            let n = window.len().min(bytes.len());
            window[..n].copy_from_slice(&bytes[..n]);
            writer.commit(n);
            bytes = &bytes[n..];
        }
        true
    }
}
