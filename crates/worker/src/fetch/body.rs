//! The body of the answer into storage, through the filters that VCL or the encoding ask for.

use std::io;

use lacquer_cache::{BodyState, ChunkSizes, Nuke, ObjectSpec, Tag as Mark, Timers, flag};
use lacquer_filters::Chain;
use lacquer_http::{BodyStatus, Filter, SessClose, Text, conditional, header_table as h, pack, vary};
use lacquer_shm::Tag;
use lacquer_shm::vsl::Field;

use super::connection::OriginConnection;
use super::{Fetch, Step, Target};
use crate::deadlines::Deadline;
use crate::task::names;

/// The body of an object that is made.
#[derive(Clone, Copy)]
pub enum Content<'c> {
    /// It will come, so long if that is known.
    Coming(Option<u64>),
    /// It is there already, in the workspace.
    Whole(Text),
    /// As [`Content::Coming`], with what filters left behind of an earlier body.
    Again(u64, &'c [u8]),
}

/// A body of at most this size may stay with a mark.
const SMALL: usize = 512;

pub async fn fetch(f: &mut Fetch) -> Step {
    let Some(connection) = &f.origin else {
        f.fetch_error("No backend connection (rollback?)");
        return Step::Error;
    };
    let (framing, ahead) = (connection.framing, connection.ahead);
    let no_body = framing.status == BodyStatus::None;
    let list = if no_body {
        f.beresp_headers().unset(h::CONTENT_ENCODING);
        f.do_gzip = false;
        f.do_gunzip = false;
        f.attempt.do_stream = false;
        Vec::new()
    } else {
        f.filter_list()
    };
    if !f.pay_for_filters(&list, no_body) {
        f.close_origin(Some(SessClose::Overload));
        return Step::Error;
    }
    let mut chain = match f.filters_from(&list) {
        Ok(chain) => chain,
        Err(reason) => {
            f.close_origin(Some(reason));
            return Step::Error;
        }
    };
    let content = match framing.status {
        BodyStatus::Length if chain.is_empty() => match framing.content_length {
            n if n == ahead.len() as u64 && n > 0 && f.may_be_whole(ahead.len()) => Content::Whole(ahead),
            n => Content::Coming(Some(n)),
        },
        BodyStatus::None => Content::Coming(Some(0)),
        _ => Content::Coming(None),
    };
    if !f.store_head(content) {
        f.close_origin(Some(SessClose::RxBody));
        return Step::Error;
    }
    let whole = matches!(content, Content::Whole(_));
    if f.attempt.do_stream && !whole {
        f.publish();
    }
    let how = if f.attempt.do_stream { "stream" } else { "-" };
    let status = framing.status;
    let [name, how] = [status.name(), how].map(|word| Field::Text(word.as_bytes()));
    f.task.log.put_fields(Tag::Fetch_Body, &[Field::Number(status.number().into()), name, how]);
    let mut received = Ok(());
    if whole {
        f.count_whole();
    } else if framing.status != BodyStatus::None {
        received = f.receive_body(&mut chain).await;
    }
    f.take_report(chain.report(), status);
    if let Err(why) = received {
        return broken(f, &why);
    }
    f.close_origin(None);
    f.complete(f.attempt.do_stream && !whole);
    Step::Done
}

/// The body ended early or makes no sense.
fn broken(f: &mut Fetch, why: &str) -> Step {
    if !why.is_empty() {
        f.fetch_error(why);
    }
    f.close_origin(Some(SessClose::RxBody));
    if f.attempt.do_stream {
        f.task.reactor.counters.fetch_failed.add(1);
        return Step::Fail;
    }
    Step::Error
}

/// 304: the stale object's body goes on living under the new head.
pub async fn refresh(f: &mut Fetch) -> Step {
    let Some(stale) = f.stale.clone() else { return Step::Fail };
    if stale.state() == BodyState::Fetching {
        f.task.log.put(Tag::Notice, b"vsl: Conditional fetch wait for streaming object");
        stale.end().await;
    }
    if stale.state() == BodyState::Failed || stale.is(flag::FAILED) {
        return template_failed(f, "Template object failed");
    }
    f.attempt.gzipped = stale.is(flag::GZIPED);
    f.attempt.encoding_changed = stale.is(flag::CHGCE);
    f.attempt.has_esi = stale.is(flag::ESIPROC);
    if !f.store_head(Content::Again(stale.body_len(), stale.extra())) {
        return template_failed(f, "");
    }
    if f.attempt.do_stream {
        f.publish();
    }
    let mut at = 0;
    while at < stale.body_len() {
        let Some(chunk) = stale.chunk_at(at).filter(|c| !c.is_empty()) else {
            return template_failed(f, "Template object failed");
        };
        if !f.append(chunk.bytes()) {
            return template_failed(f, "Template object failed");
        }
        at += chunk.len() as u64;
    }
    f.close_origin(None);
    f.complete(f.attempt.do_stream);
    Step::Done
}

fn template_failed(f: &mut Fetch, why: &str) -> Step {
    if !why.is_empty() {
        f.fetch_error(why);
    }
    f.close_origin(Some(SessClose::RxBody));
    f.task.reactor.counters.fetch_failed.add(1);
    Step::Fail
}

impl Fetch {
    /// Makes the object with its head; where it is stored follows from how long it will live.
    pub fn store_head(&mut self, content: Content<'_>) -> bool {
        let private = matches!(self.target, Target::Private);
        let spec = if private { Vec::new() } else { self.vary_spec() };
        let filter = if self.uncacheable { Filter::PASS_OBJECT } else { Filter::INSERT };
        let mut head = std::mem::take(&mut self.out);
        head.clear();
        pack::pack(&self.beresp, &self.task.ws, filter, &mut head);
        let stored = self.store(&head, &spec, private, content);
        if stored {
            self.log_obj(&head);
        } else {
            self.fetch_error("Could not get storage");
        }
        self.out = head;
        stored
    }

    fn store(&mut self, head: &[u8], spec: &[u8], private: bool, content: Content<'_>) -> bool {
        let Some(chosen) = self.place() else { return false };
        let flags = self.object_flags(private);
        if self.make_object(chosen, (head, spec), flags, content) {
            return true;
        }
        let transient = self.task.reactor.shared.stevedores.transient();
        if chosen == transient {
            return false;
        }
        // Salvage: a short life in Transient is better than no answer.
        self.ttl = self.ttl.min(self.task.params.shortlived);
        self.grace = 0.0;
        self.keep = 0.0;
        self.make_object(transient, (head, spec), flags, content)
    }

    /// Whether the object may be made with its body. A mark must be able to let go of it.
    fn may_be_whole(&self, length: usize) -> bool {
        !self.uncacheable || length <= SMALL || matches!(self.target, Target::Private)
    }

    /// The body came with the head.
    fn count_whole(&mut self) {
        let Some(connection) = &mut self.origin else { return };
        let whole = std::mem::replace(&mut connection.ahead, Text::NONE);
        self.account.beresp_reads += 1;
        self.account.beresp_body += whole.len() as u64;
    }

    /// Which requests the object is for; an unusable Vary makes it a pass.
    fn vary_spec(&mut self) -> Vec<u8> {
        let mut spec = Vec::new();
        let made = vary::create(&self.beresp, &self.task.ws, &self.bereq, &self.task.ws, &mut spec);
        if made.is_err() {
            let text = b"Illegal 'Vary' header from backend, making this a pass.";
            self.task.log.put(Tag::Error, text);
            self.uncacheable = true;
            spec.clear();
        }
        spec
    }

    /// The stored head as the log shows it where it is not masked.
    fn log_obj(&mut self, head: &[u8]) {
        if self.task.log.is_masked(Tag::ObjHeader) && self.task.log.is_masked(Tag::ObjStatus) {
            return;
        }
        let Some(packed) = pack::PackedHead::new(head) else { return };
        let log = &mut self.task.log;
        log.put(Tag::ObjProtocol, self.beresp.proto(&self.task.ws));
        log.put(Tag::ObjStatus, self.beresp.status_text(&self.task.ws));
        log.put(Tag::ObjReason, packed.reason());
        for line in packed.lines() {
            log.put(Tag::ObjHeader, line);
        }
    }

    fn object_flags(&self, private: bool) -> u32 {
        let ws = &self.task.ws;
        let has_validator =
            || self.beresp.has(ws, h::ETAG) || conditional::strong_last_modified(&self.beresp, ws).is_some();
        let mut flags = 0;
        let mut set = |when: bool, bit: u32| flags |= if when { bit } else { 0 };
        set(private, flag::PRIVATE);
        set(self.uncacheable, flag::HFM);
        set(self.hit_for_pass, flag::HFP);
        set(!self.uncacheable && self.beresp.status() == 200 && has_validator(), flag::IMSCAND);
        set(self.attempt.gzipped, flag::GZIPED);
        set(self.attempt.encoding_changed, flag::CHGCE);
        set(self.attempt.has_esi, flag::ESIPROC);
        flags
    }

    fn make_object(
        &mut self,
        place: u32,
        (head, vary): (&[u8], &[u8]),
        flags: u32,
        content: Content<'_>,
    ) -> bool {
        let reactor = self.task.reactor.clone();
        let cache = &reactor.shared.cache;
        let Some(stevedore) = reactor.shared.stevedores.get(place) else { return false };
        let last_modified = self
            .beresp
            .get(&self.task.ws, h::LAST_MODIFIED)
            .map_or(self.t_origin.floor(), lacquer_http::date::parse_or_zero);
        let (expected, extra) = match content {
            Content::Coming(expected) => (expected, [].as_slice()),
            Content::Again(length, extra) => (Some(length), extra),
            Content::Whole(_) => (None, [].as_slice()),
        };
        let spec = ObjectSpec {
            vxid: self.task.vxid().number(),
            t_origin: self.t_origin,
            timers: Timers { ttl: self.ttl as f32, grace: self.grace as f32, keep: self.keep as f32 },
            flags,
            last_modified,
            vary,
            head,
            extra,
        };
        let p = &self.task.params;
        let sizes = ChunkSizes { first: p.fetch_chunksize as usize, max: p.fetch_maxchunksize as usize };
        let log = &mut self.task.log;
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        let mut nuke = Nuke { left: p.nuke_limit, log: &mut note };
        // What is kept as a mark only lets go of its body later: no span for head and body together.
        let expected = expected.filter(|_| !self.uncacheable || flags & flag::PRIVATE != 0);
        let made = match content {
            Content::Whole(body) => {
                let body = self.task.ws.get(body);
                cache.create(stevedore, &spec, body, &mut nuke).map(|object| (object, None))
            }
            _ => {
                let begun = cache.begin(stevedore, &spec, expected, sizes, &mut nuke);
                begun.map(|(object, writer)| (object, Some(writer)))
            }
        };
        self.nuked = p.nuke_limit - nuke.left;
        let kind = stevedore.kind().name();
        let Ok((object, writer)) = made else {
            let text = format_args!("Failed to create object from {kind} {}", stevedore.name());
            self.task.log.put_fmt(Tag::Error, text);
            return false;
        };
        crate::task::log_storage(&mut self.task.log, kind, stevedore.name());
        self.object = Some(object);
        self.writer = writer;
        true
    }

    /// VCL may have chosen none.
    fn place(&mut self) -> Option<u32> {
        let transient = self.task.reactor.shared.stevedores.transient();
        let c = &self.task.reactor.counters;
        if self.uncacheable {
            c.beresp_uncacheable.add(1);
            return Some(transient);
        }
        if self.ttl + self.grace + self.keep < self.task.params.shortlived {
            c.beresp_shortlived.add(1);
            return Some(transient);
        }
        self.attempt.storage
    }

    /// What the origin lets the object be purged by.
    fn tags(&self) -> Vec<Mark> {
        let (ws, cache) = (&self.task.ws, &self.task.reactor.shared.cache);
        let lists = [names::XKEY, names::X_HASH_TWO].into_iter().flat_map(|n| self.beresp.get_all(ws, n));
        lists.flat_map(lacquer_vmods::xkey::tags).map(|word| cache.tag(word)).collect()
    }

    /// From now on others may have the object while it is still being fetched.
    pub fn publish(&mut self) {
        let Some(object) = self.object.clone() else { return };
        if let Target::Cache(busy) = std::mem::replace(&mut self.target, Target::Delivered) {
            busy.publish_tagged(&object, self.tags());
        }
        self.announce(Some(object));
    }

    /// The body came whole; `published` tells whether others have the object already.
    fn complete(&mut self, published: bool) {
        self.settle(published);
        self.task.stamp("BerespBody");
        if let (Some(stale), Some(object)) = (self.stale.take(), &self.object) {
            let log = &self.task.reactor.shared.log;
            let text = format_args!("VBF_Superseded x={} n={}", stale.vxid(), object.vxid());
            log.write_fmt(Tag::ExpKill, lacquer_shm::Vxid::NONE, text);
            self.task.reactor.shared.cache.supersede(&stale);
        }
    }

    /// Nothing more comes: the object is what it is.
    pub fn settle(&mut self, published: bool) {
        if published {
            // Readers hold this object already; the index may take a more compact one.
            if let (Some(writer), Some(object)) = (self.writer.take(), self.object.take()) {
                self.object = Some(self.task.reactor.shared.cache.finish(object, writer));
            }
        } else {
            if let Some(writer) = self.writer.take() {
                writer.finish();
            }
            self.publish();
        }
        if let Some(object) = self.object.as_ref().filter(|o| o.is(flag::CANCEL)) {
            object.stored().slim();
        }
    }

    /// Makes sure that the object can take more; false if there is no room even after eviction.
    fn reserve(&mut self) -> bool {
        let reactor = self.task.reactor.clone();
        let shared = &reactor.shared;
        let (Some(writer), Some(object)) = (&mut self.writer, &self.object) else { return false };
        let Some(stevedore) = shared.stevedores.get(u32::from(object.stevedore())) else { return false };
        let log = &mut self.task.log;
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        // A body of many megabytes may take the place of as many objects as if it came in several.
        let megabytes = u32::try_from(writer.len() >> 20).unwrap_or(u32::MAX);
        let limit = self.task.params.nuke_limit.saturating_mul(megabytes.saturating_add(1));
        let mut nuke = Nuke { left: limit.saturating_sub(self.nuked), log: &mut note };
        let reserved = shared.cache.reserve(stevedore, writer, &mut nuke);
        self.nuked = limit - nuke.left;
        if reserved.is_err() {
            self.fetch_error("Could not get storage");
            return false;
        }
        true
    }

    /// Adds bytes to the object; false if there is no room for them.
    pub fn append(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if !self.reserve() {
                return false;
            }
            let Some(writer) = &mut self.writer else { return false };
            let window = writer.window();
            let n = window.len().min(bytes.len());
            window[..n].copy_from_slice(&bytes[..n]);
            writer.commit(n);
            bytes = &bytes[n..];
        }
        true
    }

    /// Receives the whole body. An error is a text for the log, empty if it is there already.
    async fn receive_body(&mut self, chain: &mut Chain) -> Result<(), String> {
        let Some(mut connection) = self.origin.take() else { return Err("No backend connection".into()) };
        let ahead = std::mem::replace(&mut connection.ahead, Text::NONE);
        connection.rx.unread(self.task.ws.get(ahead));
        let result = match connection.framing.status {
            BodyStatus::Length if chain.is_empty() => self.receive_straight(&mut connection).await,
            _ => self.receive_pieces(&mut connection, chain).await,
        };
        self.origin = Some(connection);
        result
    }

    /// Content-Length and no filter: from the socket straight into storage.
    async fn receive_straight(&mut self, connection: &mut OriginConnection) -> Result<(), String> {
        let mut left = connection.framing.content_length;
        while left > 0 {
            if self.is_cancelled() {
                connection.close = Some(SessClose::RxBody);
                return Ok(());
            }
            self.wait_for_reader().await;
            if !self.reserve() {
                return Err(String::new());
            }
            let Some(writer) = &mut self.writer else { return Err(String::new()) };
            let window = writer.window();
            let n = window.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let got = read_timed(connection, &self.deadline, &mut window[..n]).await;
            match got {
                Ok(0) => return Err(STRAIGHT_SHORT.into()),
                Err(e) => {
                    self.read_error(&e);
                    return Err(STRAIGHT_SHORT.into());
                }
                Ok(n) => {
                    writer.commit(n);
                    left -= n as u64;
                    self.account.beresp_reads += 1;
                    self.account.beresp_body += n as u64;
                }
            }
        }
        Ok(())
    }

    async fn receive_pieces(
        &mut self,
        connection: &mut OriginConnection,
        chain: &mut Chain,
    ) -> Result<(), String> {
        // No filter begins before there is room for what it makes.
        if !chain.is_empty() && !self.reserve() {
            return Err(String::new());
        }
        let mut buffer = Vec::new();
        let mut left = connection.framing.content_length;
        let status = connection.framing.status;
        let mut decoder = lacquer_http::h1::ChunkedDecoder::lenient();
        let mut ended = false;
        while !ended {
            if self.is_cancelled() {
                connection.close = Some(SessClose::RxBody);
                return Ok(());
            }
            let want = if status == BodyStatus::Length {
                PIECE.min(usize::try_from(left).unwrap_or(usize::MAX))
            } else {
                PIECE
            };
            self.wait_for_reader().await;
            let n = match next_piece(connection, &self.deadline, &mut buffer, want).await {
                Ok(n) => n,
                Err(e) => self.nothing_more(&e, status)?,
            };
            self.account.beresp_reads += 1;
            let mut input = &buffer[..n];
            match status {
                BodyStatus::Eof => {
                    ended = n == 0;
                    self.account.beresp_body += n as u64;
                    self.through(chain, input, false)?;
                }
                BodyStatus::Length => {
                    if n == 0 {
                        return Err(STRAIGHT_SHORT.into());
                    }
                    left -= n as u64;
                    ended = left == 0;
                    self.account.beresp_body += n as u64;
                    self.through(chain, input, false)?;
                }
                _ => {
                    if n == 0 {
                        return Err(decoder.eof_text().into());
                    }
                    while !input.is_empty() && !decoder.is_done() {
                        let piece = decoder.decode(input).map_err(|e| e.text().to_owned())?;
                        let data = piece.data(input);
                        input = &input[piece.consumed..];
                        self.account.beresp_body += data.len() as u64;
                        self.through(chain, data, false)?;
                    }
                    connection.rx.unread(input);
                    ended = decoder.is_done();
                }
            }
        }
        if status == BodyStatus::Eof {
            connection.close = Some(connection.close.unwrap_or(SessClose::RespClose));
        }
        self.through(chain, &[], true)
    }

    /// The socket failed: that is an error of its own where nothing else tells the end.
    fn nothing_more(&mut self, e: &io::Error, status: BodyStatus) -> Result<usize, String> {
        self.read_error(e);
        if status == BodyStatus::Eof { Err("eof socket fail".into()) } else { Ok(0) }
    }

    /// Why the socket gave nothing more.
    fn read_error(&mut self, e: &io::Error) {
        let errno = e.raw_os_error().unwrap_or(crate::sys::EAGAIN);
        self.fetch_error(&crate::sys::error_text(errno));
    }

    fn through(&mut self, chain: &mut Chain, input: &[u8], end: bool) -> Result<(), String> {
        let out = chain.push(input, end)?;
        if self.append(out) { Ok(()) } else { Err(String::new()) }
    }

    /// With `beresp.transit_buffer`, the fetch does not run ahead of its only reader by more than that.
    async fn wait_for_reader(&mut self) {
        let limit = self.transit_buffer;
        if limit == 0 || !self.uncacheable || !self.attempt.do_stream {
            return;
        }
        if let Some(writer) = &mut self.writer {
            std::future::poll_fn(|cx| writer.poll_transit(limit, cx)).await;
        }
    }

    /// The only reader of a private object has gone.
    fn is_cancelled(&mut self) -> bool {
        let cancelled = self.object.as_ref().is_some_and(|o| o.is(flag::CANCEL));
        if cancelled {
            self.task.log.put(Tag::Debug, b"Fetch: Pass delivery abandoned");
        }
        cancelled
    }
}

/// Less than Content-Length announced.
const STRAIGHT_SHORT: &str = "straight insufficient bytes";

/// What is read at most at a time.
const PIECE: usize = 64 * 1024;

/// The next of the body at the beginning of `buffer`; how much it is.
async fn next_piece(
    connection: &mut OriginConnection,
    deadline: &Deadline,
    buffer: &mut Vec<u8>,
    most: usize,
) -> io::Result<usize> {
    let pending = &mut connection.rx.pending;
    if !pending.is_empty() && pending.len() <= most && crate::control::knobs::fetch_fragment() == 0 {
        *buffer = std::mem::take(pending);
        return Ok(buffer.len());
    }
    buffer.resize(PIECE, 0);
    read_timed(connection, deadline, &mut buffer[..most]).await
}

async fn read_timed(
    connection: &mut OriginConnection,
    deadline: &Deadline,
    buf: &mut [u8],
) -> io::Result<usize> {
    let limit = crate::clock::limit(connection.between_bytes);
    let most = match crate::control::knobs::fetch_fragment() {
        0 => buf.len(),
        fragment => fragment.min(buf.len()),
    };
    let read = deadline.limit(deadline.now(), limit, connection.rx.read(&mut buf[..most])).await;
    read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}
