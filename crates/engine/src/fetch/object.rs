//! The object that a fetch creates: allocating it, appending to it, and publishing it.

use std::sync::Arc;
use std::time::Duration;

use lacquer_cache::{
    Awaited, Cache, ChunkSizes, Full, Nuke, Object, ObjectSpec, Stevedore, Tag as Mark, Timers, flag,
};
use lacquer_flow::storing::{self, StoreChoice, Storing, Variant, Verdict};
use lacquer_flow::{Lifetime, validation};
use lacquer_http::{Filter, Text, Workspace, pack, vary};
use lacquer_shm::Tag;

use super::connection::OriginConnection;
use super::draft::{Draft, Moving};
use super::ending::Ended;
use super::parts::Target;
use super::{Fetch, transit};
use crate::logged::names;
use crate::task::TaskParts;

/// An object that has been stored with its head.
pub enum Stored {
    /// Its body is complete.
    Whole(Arc<Object>),
    /// Its body will be appended.
    Begun(Draft),
}

impl Stored {
    pub fn object(&self) -> &Arc<Object> {
        match self {
            Stored::Whole(object) | Stored::Begun(Draft { object, .. }) => object,
        }
    }

    fn is_published(&self) -> bool {
        matches!(self, Stored::Begun(Draft { is_published: true, .. }))
    }
}

/// The storage for a new object, and the object's head.
struct Site<'s> {
    cache: &'s Cache,
    stevedore: &'s Stevedore,
    spec: ObjectSpec<'s>,
    sizes: ChunkSizes,
    is_mark: bool,
    ws: &'s Workspace,
}

impl Site<'_> {
    /// Stores the head. The body will be appended; `expected` is its length, if known.
    fn begin(&self, expected: Option<u64>, nuke: &mut Nuke<'_>) -> Result<Draft, Full> {
        // An object that is kept only as a mark frees its body later, so its head and body must not share a span.
        let expected = expected.filter(|_| !self.is_mark);
        let (object, writer) = self.cache.begin(self.stevedore, &self.spec, expected, self.sizes, nuke)?;
        let moving = Moving::from(self.cache.spill_from(self.stevedore, self.spec.flags));
        Ok(Draft { object, writer, is_published: false, moving })
    }
}

/// The number of evictions after which other tasks run. They take half a millisecond at most.
const EVICTIONS_AT_ONCE: u32 = 25;

/// The bytes that are stored before the body.
#[derive(Clone, Copy)]
struct Parts<'p> {
    head: &'p [u8],
    vary: &'p [u8],
    extra: &'p [u8],
}

fn timers(lifetime: Lifetime) -> Timers {
    let Lifetime { ttl, grace, keep, .. } = lifetime;
    Timers { ttl: ttl as f32, grace: grace as f32, keep: keep as f32 }
}

impl Fetch {
    /// Stores an object of which the whole body is in the workspace. Returns `None` if there is no room.
    pub fn store_whole(&mut self, body: Text) -> Option<Stored> {
        self.store(&[], |site, nuke| {
            let body = site.ws.get(body);
            site.cache.create(site.stevedore, &site.spec, body, nuke).map(Stored::Whole)
        })
    }

    /// Stores the head of an object. `expected` is the length of the body, if known. Returns `None` if there is no
    /// room.
    pub fn begin(&mut self, expected: Option<u64>) -> Option<Draft> {
        self.store(&[], |site, nuke| site.begin(expected, nuke))
    }

    /// Stores a head with the body of another object, and with the data that filters stored with it. If the body
    /// cannot be shared, it must be appended. Returns `None` if there is no room.
    pub fn share(&mut self, body_of: &Object) -> Option<Stored> {
        self.store(body_of.extra(), |site, nuke| {
            match site.cache.share(site.stevedore, &site.spec, body_of, nuke)? {
                Some(object) => Ok(Stored::Whole(object)),
                None => site.begin(Some(body_of.body_len()), nuke).map(Stored::Begun),
            }
        })
    }

    /// Creates the object with its head by `create`. The lifetime decides where it is stored.
    fn store<T>(
        &mut self,
        extra: &[u8],
        create: impl Fn(&Site<'_>, &mut Nuke<'_>) -> Result<T, Full>,
    ) -> Option<T> {
        let vary = self.variant();
        let storing = self.storing();
        let filter = match storing {
            Storing::Cached if self.follows_rfc9111() => Filter::INSERT_WITH_RANGE,
            Storing::Cached => Filter::INSERT,
            _ => Filter::PASS_OBJECT,
        };
        let mut head = self.task.take_output();
        pack::pack(&self.response.http, self.task.ws(), filter, &mut head);
        if storing == Storing::Cached && self.product.stale_if_error > 0.0 {
            pack::add_stale_if_error(&mut head, self.product.stale_if_error);
        }
        let stored = self.store_at_place(Parts { head: &head, vary: &vary, extra }, storing, create);
        if stored.is_some() {
            self.log_obj(&head);
        } else {
            self.fetch_error("Could not get storage");
        }
        self.task.return_output(head);
        stored
    }

    fn store_at_place<T>(
        &mut self,
        parts: Parts<'_>,
        storing: Storing,
        create: impl Fn(&Site<'_>, &mut Nuke<'_>) -> Result<T, Full>,
    ) -> Option<T> {
        let chosen = self.store_choice(storing)?;
        let stored = self.store_at(chosen, parts, storing, &create);
        let transient = self.task.services().stevedores().transient();
        if stored.is_some() || chosen == transient {
            return stored;
        }
        self.response.lifetime = self.response.lifetime.salvaged(self.task.params().shortlived);
        self.store_at(transient, parts, storing, &create)
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

    /// Returns the packed Vary headers of the object. An object that only its own request matches is uncacheable.
    fn variant(&mut self) -> Vec<u8> {
        let (response, request) = (&self.response.http, &self.request.http);
        let is_pass = self.purpose.is_pass;
        let is_valid = is_pass || !self.follows_rfc9111() || vary::has_only_names(response, self.task.ws());
        let found = storing::variant(is_pass, response, request, self.task.ws());
        match if is_valid { found } else { Variant::Unknown } {
            Variant::Of(packed) => packed,
            Variant::Unknown => {
                let text = b"Illegal 'Vary' header from backend, making this a pass.";
                self.task.log_mut().put(Tag::Error, text);
                self.response.is_uncacheable = true;
                Vec::new()
            }
            Variant::None => {
                if !std::mem::replace(&mut self.response.is_uncacheable, true) {
                    self.task.log_mut().put(Tag::Notice, b"Vary is *, making this a pass");
                }
                Vec::new()
            }
        }
    }

    /// Logs the stored head.
    fn log_obj(&mut self, head: &[u8]) {
        if self.task.log().is_masked(Tag::ObjHeader) && self.task.log().is_masked(Tag::ObjStatus) {
            return;
        }
        let Some(packed) = pack::PackedHead::new(head) else { return };
        let TaskParts { ws, log, .. } = self.task.parts();
        log.put(Tag::ObjProtocol, self.response.http.proto(ws));
        log.put(Tag::ObjStatus, self.response.http.status_text(ws));
        log.put(Tag::ObjReason, packed.reason());
        for line in packed.lines() {
            log.put(Tag::ObjHeader, line);
        }
    }

    fn object_flags(&self, storing: Storing) -> u32 {
        let mut flags = flag::of(storing);
        let mut set = |when: bool, bit: u32| flags |= if when { bit } else { 0 };
        set(validation::is_possible(storing, &self.response.http, self.task.ws()), flag::IMSCAND);
        set(self.attempt.gzipped, flag::GZIPED);
        set(self.attempt.encoding_changed, flag::CHGCE);
        set(self.attempt.has_esi, flag::ESIPROC);
        flags
    }

    fn store_at<T>(
        &mut self,
        place: u32,
        parts: Parts<'_>,
        storing: Storing,
        create: impl Fn(&Site<'_>, &mut Nuke<'_>) -> Result<T, Full>,
    ) -> Option<T> {
        let services = self.task.services().clone();
        let stevedore = services.stevedores().get(place)?;
        let spec = ObjectSpec {
            vxid: self.task.vxid().number(),
            t_origin: self.response.lifetime.origin,
            timers: timers(self.response.lifetime),
            flags: self.object_flags(storing),
            last_modified: validation::last_modified(
                &self.response.http,
                self.task.ws(),
                self.response.lifetime,
            ),
            vary: parts.vary,
            head: parts.head,
            extra: parts.extra,
        };
        let transit_limit = self.transit_limit();
        let TaskParts { params: p, ws, log, .. } = self.task.parts();
        let sizes = transit::chunk_sizes(p.fetch_chunksize, p.fetch_maxchunksize, transit_limit);
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        let mut nuke = Nuke::new(p.nuke_limit, &mut note);
        let (cache, is_mark) = (services.cache(), storing.is_mark());
        let made = create(&Site { cache, stevedore, spec, sizes, is_mark, ws }, &mut nuke);
        self.product.nuked = p.nuke_limit - nuke.left;
        let kind = stevedore.kind().name();
        let Ok(stored) = made else {
            let text = format_args!("Failed to create object from {kind} {}", stevedore.name());
            log.put_fmt(Tag::Error, text);
            return None;
        };
        crate::task::log_storage(log, kind, stevedore.name());
        Some(stored)
    }

    /// Returns the number of the storage; `None` if VCL has set none.
    fn store_choice(&mut self, storing: Storing) -> Option<u32> {
        let c = self.task.services().counters();
        match storing::store_choice(storing, self.response.lifetime, self.task.params().shortlived) {
            StoreChoice::Chosen => return self.attempt.storage,
            StoreChoice::TransientUncacheable => c.beresp_uncacheable.add(1),
            StoreChoice::TransientShortlived => c.beresp_shortlived.add(1),
        }
        Some(self.task.services().stevedores().transient())
    }

    /// Returns the tags that the origin gave the object, for purges by tag.
    fn tags(&self) -> Vec<Mark> {
        let (ws, cache) = (self.task.ws(), self.task.services().cache());
        let lists =
            [names::XKEY, names::X_HASH_TWO].into_iter().flat_map(|n| self.response.http.get_all(ws, n));
        lists.flat_map(lacquer_vmods::xkey::tags).map(|word| cache.tag(word)).collect()
    }

    /// Publishes the object before its body is complete, if VCL allows it (`beresp.do_stream`). Returns false if that is
    /// refused, see `publish`.
    pub fn publish_early(&mut self, draft: &mut Draft) -> bool {
        if self.attempt.do_stream {
            let target = Target::Streaming(draft.object.clone());
            draft.is_published = self.publish(&draft.object, target).is_some();
        }
        draft.is_published == self.attempt.do_stream
    }

    /// Publishes the object: other requests may use it. `then` is the state of the destination from now on. Returns
    /// the requests that waited for the object. Returns `None`, and changes nothing, if the object contains the body of
    /// another one that has left the cache.
    fn publish(&mut self, object: &Arc<Object>, then: Target) -> Option<Awaited> {
        let awaited = match std::mem::replace(&mut self.product.target, then) {
            Target::Cache(busy) => match self.source() {
                None => busy.publish_tagged(object, self.tags()),
                Some(source) => match busy.publish_confirmed(object, self.tags(), &source) {
                    Ok(awaited) => awaited,
                    Err(busy) => {
                        self.product.target = Target::Cache(busy);
                        return None;
                    }
                },
            },
            _ => Awaited::default(),
        };
        self.announce(Some(object.clone()));
        Some(awaited)
    }

    /// Returns the object whose body the new one contains: the one that a 304 confirms, or the part that is completed.
    fn source(&self) -> Option<Arc<Object>> {
        let confirmed = || self.product.stale.clone().filter(|_| self.attempt.was_304);
        self.completion.continued().or_else(confirmed)
    }

    /// Completes an object whose body was received in full over the connection, and replaces the stale object. A
    /// client that receives the object may cause the next fetch at once, so the connection is released before. Returns
    /// `None` if the object contains the body of another one that has left the cache: it is dropped.
    #[inline]
    pub fn complete(&mut self, stored: Stored, connection: OriginConnection) -> Option<Arc<Object>> {
        let mut ended = self.end_origin(connection, None);
        self.drop_if_foreign(&ended, stored.object());
        if stored.is_published() {
            ended.release(self.task.services(), Some(stored.object()));
        }
        let Some((object, awaited)) = self.settle(stored) else {
            ended.release(self.task.services(), None);
            return None;
        };
        self.drop_if_foreign(&ended, &object);
        ended.release(self.task.services(), Some(&object));
        drop(awaited);
        self.task.stamp("BerespBody");
        if let Some(stale) = self.product.stale.take() {
            let log = self.task.services().log();
            let text = format_args!("VBF_Superseded x={} n={}", stale.vxid(), object.vxid());
            log.write_fmt(Tag::ExpKill, lacquer_shm::Vxid::NONE, text);
            self.task.services().cache().supersede(&stale);
        }
        Some(object)
    }

    /// Removes an object that may be the response to another request from the index. Called before and after it is
    /// published.
    fn drop_if_foreign(&self, ended: &Ended, object: &Object) {
        if ended.is_foreign {
            self.task.services().cache().expel(object);
        }
    }

    /// Completes the object, because no more bytes will be appended. Returns the object that the index contains from
    /// now on, and the requests that waited for it; `None` if `publish` refuses it.
    pub fn settle(&mut self, stored: Stored) -> Option<(Arc<Object>, Awaited)> {
        let mut awaited = Awaited::default();
        let mut stored = stored;
        let is_storable = match &mut stored {
            Stored::Begun(draft) => draft.finish_move(),
            Stored::Whole(_) => true,
        };
        let object = match stored {
            // Readers already hold this object; the index may get a more compact one.
            Stored::Begun(Draft { object, writer, is_published: true, .. }) => {
                self.product.target = Target::Delivered;
                self.task.services().cache().finish(object, writer)
            }
            Stored::Begun(Draft { object, writer, is_published: false, .. }) => {
                writer.finish();
                awaited = self.publish(&object, Target::Delivered)?;
                object
            }
            Stored::Whole(object) => {
                awaited = self.publish(&object, Target::Delivered)?;
                object
            }
        };
        // Nobody reads a body that was abandoned, or that was fetched in the background for a mark.
        if object.is(flag::CANCEL) || self.purpose.is_background && self.response.is_uncacheable {
            object.stored().drop_body();
        }
        if !is_storable {
            // A part of the body is on a disk that takes no more. It serves those who have the object.
            self.task.services().cache().kill(&object);
        }
        Some((object, awaited))
    }

    /// Ensures that bytes can be appended to the object, by eviction if necessary. Returns false if there is no room
    /// even then. Yields to other tasks while many objects are evicted.
    pub async fn make_room(&mut self, draft: &mut Draft) -> bool {
        // Boxed: the futures are large.
        if draft.moving.is_due(draft.writer.len()) && !Box::pin(self.move_body(draft)).await {
            return false;
        }
        let (mut tries, mut waited) = (0, Duration::ZERO);
        loop {
            match self.reserve(draft, tries) {
                Some(true) => return true,
                Some(false) if !Box::pin(self.free_memory(draft, &mut waited)).await => {
                    self.fetch_error("Could not get storage");
                    return false;
                }
                Some(false) => continue,
                None => tokio::task::yield_now().await,
            }
            tries = u32::saturating_add(tries, EVICTIONS_AT_ONCE);
        }
    }

    /// Returns whether bytes can be appended to the object, or `None` if eviction was paused and can continue.
    /// `tries` is the number of evictions tried so far.
    fn reserve(&mut self, draft: &mut Draft, tries: u32) -> Option<bool> {
        let services = self.task.services().clone();
        let shared = services.shared();
        let Draft { object, writer, .. } = draft;
        let Some(stevedore) = shared.stevedores().get(u32::from(object.stevedore())) else {
            return Some(false);
        };
        let TaskParts { params, log, .. } = self.task.parts();
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        // A body of many megabytes may evict as many objects as several smaller bodies.
        let megabytes = u32::try_from(writer.len() >> 20).unwrap_or(u32::MAX);
        let limit = params.nuke_limit.saturating_mul(megabytes.saturating_add(1));
        let nuke = Nuke::new(limit.saturating_sub(self.product.nuked), &mut note);
        let mut nuke = nuke.pause_after(EVICTIONS_AT_ONCE, tries);
        let has_room = shared.cache().reserve(stevedore, writer, &mut nuke).is_ok();
        self.product.nuked = limit - nuke.left;
        if !has_room && nuke.is_paused() {
            return None;
        }
        Some(has_room)
    }

    /// Appends bytes to the object. Returns false if there is no room for them.
    pub async fn append(&mut self, draft: &mut Draft, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if !self.make_room(draft).await {
                return false;
            }
            let window = draft.writer.window();
            let n = window.len().min(bytes.len());
            window[..n].copy_from_slice(&bytes[..n]);
            draft.writer.commit(n);
            bytes = &bytes[n..];
        }
        true
    }
}
