//! The body of the answer into storage, through the filters that VCL or the encoding ask for.

use std::io;

use lacquer_cache::{BodyState, ChunkSizes, Nuke, ObjectSpec, Tag as Mark, Timers, flag};
use lacquer_filters::Chain;
use lacquer_http::{BodyStatus, Filter, SessClose, conditional, header_table as h, pack, vary};
use lacquer_shm::Tag;
use tokio::time::timeout;

use super::connect::OriginConnection;
use super::{Fetch, Step, Target};
use crate::clock;
use crate::task::names;

pub async fn fetch(f: &mut Fetch) -> Step {
    let Some(connection) = &f.origin else {
        f.fetch_error("No backend connection (rollback?)");
        return Step::Error;
    };
    let framing = connection.framing;
    let no_body = framing.status == BodyStatus::None
        || (framing.status == BodyStatus::Length && framing.content_length == 0);
    let list = if no_body {
        f.beresp_headers().unset(h::CONTENT_ENCODING);
        f.do_gzip = false;
        f.do_gunzip = false;
        f.do_stream = false;
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
    let expected = match framing.status {
        BodyStatus::Length if chain.is_empty() => Some(framing.content_length),
        BodyStatus::None => Some(0),
        _ => None,
    };
    if !f.store_head(expected, &[]) {
        f.close_origin(Some(SessClose::RxBody));
        return Step::Error;
    }
    if f.do_stream {
        f.publish();
    }
    let how = if f.do_stream { "stream" } else { "-" };
    let status = framing.status;
    f.task.log.put_fmt(Tag::Fetch_Body, format_args!("{} {} {how}", status.number(), status.name()));
    let mut received = Ok(());
    if framing.status != BodyStatus::None {
        received = f.receive_body(&mut chain).await;
    }
    f.take_report(chain.report(), status);
    if let Err(why) = received {
        return broken(f, &why);
    }
    f.close_origin(None);
    f.complete();
    Step::Done
}

/// The body ended early or makes no sense.
fn broken(f: &mut Fetch, why: &str) -> Step {
    if !why.is_empty() {
        f.fetch_error(why);
    }
    f.close_origin(Some(SessClose::RxBody));
    if f.do_stream {
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
    f.gzipped = stale.is(flag::GZIPED);
    f.encoding_changed = stale.is(flag::CHGCE);
    f.has_esi = stale.is(flag::ESIPROC);
    if !f.store_head(Some(stale.body_len()), stale.extra()) {
        return template_failed(f, "");
    }
    if f.do_stream {
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
    f.complete();
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
    pub fn store_head(&mut self, expected: Option<u64>, extra: &[u8]) -> bool {
        let private = matches!(self.target, Target::Private);
        let spec = if private { Vec::new() } else { self.vary_spec() };
        let filter = if self.uncacheable { Filter::PASS_OBJECT } else { Filter::INSERT };
        let mut head = Vec::with_capacity(512);
        pack::pack(&self.beresp, &self.task.ws, filter, &mut head);
        self.log_obj(&head);
        let Some(chosen) = self.place() else {
            self.fetch_error("Could not get storage");
            return false;
        };
        let flags = self.object_flags(private);
        if self.make_object(chosen, (&head, &spec, extra), flags, expected) {
            return true;
        }
        let transient = self.task.reactor.shared.stevedores.transient();
        if chosen != transient {
            // Salvage: a short life in Transient is better than no answer.
            self.ttl = self.ttl.min(self.task.params.shortlived);
            self.grace = 0.0;
            self.keep = 0.0;
            if self.make_object(transient, (&head, &spec, extra), flags, expected) {
                return true;
            }
        }
        self.fetch_error("Could not get storage");
        false
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
        let validators =
            conditional::strong_last_modified(&self.beresp, ws).is_some() || self.beresp.has(ws, h::ETAG);
        let mut flags = 0;
        let mut set = |when: bool, bit: u32| flags |= if when { bit } else { 0 };
        set(private, flag::PRIVATE);
        set(self.uncacheable, flag::HFM);
        set(self.hit_for_pass, flag::HFP);
        set(!self.uncacheable && self.beresp.status() == 200 && validators, flag::IMSCAND);
        set(self.gzipped, flag::GZIPED);
        set(self.encoding_changed, flag::CHGCE);
        set(self.has_esi, flag::ESIPROC);
        flags
    }

    fn make_object(
        &mut self,
        place: u32,
        (head, vary, extra): (&[u8], &[u8], &[u8]),
        flags: u32,
        expected: Option<u64>,
    ) -> bool {
        let shared = self.task.reactor.shared.clone();
        let Some(stevedore) = shared.stevedores.get(place) else { return false };
        let last_modified = self
            .beresp
            .get(&self.task.ws, h::LAST_MODIFIED)
            .map_or(self.t_origin.floor(), lacquer_http::date::parse_or_zero);
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
        let mut nuke = Nuke { left: self.nuke_left, log: &mut note };
        // What is kept as a mark only lets go of its body later: no span for head and body together.
        let expected = expected.filter(|_| !self.uncacheable || flags & flag::PRIVATE != 0);
        let made = shared.cache.begin(stevedore, &spec, expected, sizes, &mut nuke);
        self.nuke_left = nuke.left;
        let kind = stevedore.kind().name();
        let Ok((object, writer)) = made else {
            let text = format_args!("Failed to create object from {kind} {}", stevedore.name());
            self.task.log.put_fmt(Tag::Error, text);
            return false;
        };
        let text = format_args!("{kind} {}", stevedore.name());
        self.task.log.put_fmt(Tag::Storage, text);
        self.object = Some(object);
        self.writer = Some(writer);
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
        self.storage
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

    /// The body is complete.
    pub fn complete(&mut self) {
        let cache = self.task.reactor.shared.cache.clone();
        if self.do_stream {
            // Readers hold this object already; the index may take a more compact one.
            if let (Some(writer), Some(object)) = (self.writer.take(), self.object.take()) {
                self.object = Some(cache.finish(object, writer));
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
        self.task.stamp("BerespBody");
        if let (Some(stale), Some(object)) = (self.stale.take(), &self.object) {
            let log = &self.task.reactor.shared.log;
            let text = format_args!("VBF_Superseded x={} n={}", stale.vxid(), object.vxid());
            log.write_fmt(Tag::ExpKill, lacquer_shm::Vxid::NONE, text);
            cache.replace(&stale, object);
        }
    }

    /// Makes sure that the object can take more; false if there is no room even after eviction.
    fn reserve(&mut self) -> bool {
        let shared = self.task.reactor.shared.clone();
        let (Some(writer), Some(object)) = (&mut self.writer, &self.object) else { return false };
        let Some(stevedore) = shared.stevedores.get(u32::from(object.stevedore())) else { return false };
        let log = &mut self.task.log;
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        let mut nuke = Nuke { left: self.nuke_left, log: &mut note };
        let reserved = shared.cache.reserve(stevedore, writer, &mut nuke);
        self.nuke_left = nuke.left;
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
            let got = read_timed(connection, &mut window[..n]).await;
            match got {
                Ok(0) | Err(_) => return Err("straight insufficient bytes".into()),
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
        let mut buffer = vec![0u8; 64 * 1024];
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
                buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX))
            } else {
                buffer.len()
            };
            self.wait_for_reader().await;
            let n = match read_timed(connection, &mut buffer[..want]).await {
                Ok(n) => n,
                Err(_) if status == BodyStatus::Eof => return Err("eof socket fail".into()),
                Err(_) => 0,
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
                        return Err("straight insufficient bytes".into());
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

    fn through(&mut self, chain: &mut Chain, input: &[u8], end: bool) -> Result<(), String> {
        let out = chain.push(input, end)?;
        if self.append(out) { Ok(()) } else { Err(String::new()) }
    }

    /// With `beresp.transit_buffer`, the fetch does not run ahead of its only reader by more than that.
    async fn wait_for_reader(&mut self) {
        let limit = self.transit_buffer;
        if limit == 0 || !self.uncacheable || !self.do_stream {
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

async fn read_timed(connection: &mut OriginConnection, buf: &mut [u8]) -> io::Result<usize> {
    let limit = if connection.between_bytes > 0.0 { connection.between_bytes } else { 1e9 };
    let most = match crate::control::knobs::fetch_fragment() {
        0 => buf.len(),
        fragment => fragment.min(buf.len()),
    };
    match timeout(clock::seconds(limit), connection.rx.read(&mut buf[..most])).await {
        Ok(read) => read,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
