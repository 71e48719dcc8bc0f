//! The exchange with an origin: a connection, the request with its body, the head of the answer.

use std::io;
use std::sync::Arc;

use lacquer_backend::endpoint;
use lacquer_http::h1::{self, HeadScan};
use lacquer_http::{BodyStatus, SessClose, header_table as h};
use lacquer_shm::Tag;
use lacquer_vcl_runtime::{BackendId, Ctx};

use super::Fetch;
use super::connection::{
    Limits, OriginConnection, choose, connect_or_reuse, introduce, log_close, log_open, refused,
};
use super::queue::Entry;
use super::upload::Upload;
use crate::admission::Bound;
use crate::backends::{Origin, OriginLeaf};

/// Seconds that are waited for an answer even where none are allowed.
const SHORTEST_WAIT: f64 = 1e-3;

/// Instead of a failure to connect: the wait for it was given up.
const ABANDONED: i32 = libc::ECANCELED;

/// Outcome of one try on one connection.
enum Tried {
    Good,
    /// Nothing came back: on a reused connection the try may be repeated.
    Silent,
    Bad,
}

/// Follows directors down to a backend.
pub fn resolve(ctx: &mut Ctx<'_>, start: BackendId) -> Result<(BackendId, Arc<Origin>), String> {
    const DEEPEST: usize = 64;
    if start.is_none() {
        return Err("No backend".to_owned());
    }
    let name = |vcl: &lacquer_vcl_runtime::Instance| {
        vcl.directors.get(start).map_or_else(String::new, |c| c.director.name().to_owned())
    };
    let mut id = start;
    for _ in 0..DEEPEST {
        let Some(cell) = ctx.vcl.directors.get(id) else { break };
        let next = cell.director.resolve(ctx, id);
        if next == id {
            return match ctx.vcl.origin(id) {
                Some(origin) => Ok((id, origin)),
                None => Err(format!("Director {} returned no backend", name(ctx.vcl))),
            };
        }
        if next.is_none() {
            break;
        }
        id = next;
    }
    Err(format!("Director {} returned no backend", name(ctx.vcl)))
}

/// How a VCL's directors lead to the worker's own backends.
trait Origins {
    fn origin(&self, id: BackendId) -> Option<Arc<Origin>>;
}

impl Origins for lacquer_vcl_runtime::Instance {
    fn origin(&self, id: BackendId) -> Option<Arc<Origin>> {
        self.directors.get(id)?.director.as_any().downcast_ref::<OriginLeaf>().map(|leaf| leaf.0.clone())
    }
}

/// What Varnish keeps of a connection in the workspace; counted, so that a size chosen for it means the same.
const CONNECTION_COST: usize = 112;

/// The parameter that limits a header line of a response.
const RESP_HDR_LEN: &str = "http_resp_hdr_len";

impl Fetch {
    /// Gets the head of an answer into `beresp`; false if there is none.
    pub async fn get_head(&mut self) -> bool {
        let vcl = self.task.vcl.clone();
        let wanted = self.backend;
        let mut ctx = Ctx::new(self, vcl.loaded.instance());
        let (id, origin) = match resolve(&mut ctx, wanted) {
            Ok(found) => found,
            Err(why) => {
                self.fetch_error(&why);
                return false;
            }
        };
        self.backend_resp = id;
        if !self.bereq.has(&self.task.ws, h::HOST) {
            self.bereq_headers().add(h::HOST, &origin.host);
        }
        let mut fresh_only = false;
        loop {
            if !self.connect(id, &origin, fresh_only).await {
                return false;
            }
            let reused = self.origin.as_ref().is_some_and(|o| o.reused);
            match self.exchange().await {
                Tried::Good => return true,
                Tried::Silent if reused && self.no_retry.is_none() => {
                    self.close_origin(None);
                    self.task.reactor.counters.backend_retry.add(1);
                    fresh_only = true;
                }
                Tried::Silent | Tried::Bad => {
                    self.close_origin(None);
                    return false;
                }
            }
        }
    }

    /// Opens or reuses a connection; false with the reason in the log.
    async fn connect(&mut self, id: BackendId, origin: &Arc<Origin>, fresh_only: bool) -> bool {
        let abandonment = self.abandonment();
        let task = &mut self.task;
        let counters = &task.reactor.shared.counters;
        let instance = task.vcl.loaded.instance();
        let admission = &*task.reactor.shared.admission;
        let bound = Bound::of(&task.params, task.reactor.shared.descriptors.limit());
        let most = bound.of_one_backend();
        let entry = Entry { origin, id, instance, params: &task.params, counters, most, admission };
        self.news.endpoint.set(origin.endpoint.id);
        match abandonment.unless(entry.pass(&mut task.log)).await {
            Some(true) => {}
            Some(false) => return false,
            None => {
                self.log_abandoned();
                return false;
            }
        }
        if self.task.ws.alloc(CONNECTION_COST).is_err() {
            self.fetch_error("out of workspace");
            origin.leave();
            return false;
        }
        match self.open(origin, fresh_only).await {
            Ok(()) => {
                origin.count(|c| {
                    c.conn.add(1);
                    c.req.add(1);
                });
                true
            }
            Err(e) if e.errno == ABANDONED => {
                origin.leave();
                self.log_abandoned();
                false
            }
            Err(e) => {
                refused(&mut self.task.log, origin, e);
                self.task.reactor.shared.counters.backend_fail.add(1);
                false
            }
        }
    }

    async fn open(&mut self, origin: &Arc<Origin>, fresh_only: bool) -> Result<(), endpoint::ConnectError> {
        let limits = Limits::of(origin, &self.task.params, self.attempt.connect_timeout);
        let found = connect_or_reuse(&self.task.reactor, origin, &limits, fresh_only);
        let Some(found) = self.abandonment().unless(found).await else {
            return Err(endpoint::ConnectError { errno: ABANDONED, held_down: false });
        };
        let found = found?;
        self.task.stamp("Connected");
        let connection = self.origin.insert(found);
        let (spec, p) = (&origin.spec, &self.task.params);
        connection.between_bytes =
            choose(self.attempt.between_bytes_timeout, spec.between_bytes_timeout, p.between_bytes_timeout);
        connection.first_byte =
            choose(self.attempt.first_byte_timeout, spec.first_byte_timeout, p.first_byte_timeout);
        if !connection.reused {
            self.account.bereq_header += introduce(connection, &self.task.sess).await;
        }
        log_open(&mut self.task.log, connection);
        Ok(())
    }

    /// Sends the request and reads the head of the answer.
    async fn exchange(&mut self) -> Tried {
        let Some(mut connection) = self.origin.take() else { return Tried::Bad };
        let tried = self.exchange_on(&mut connection).await;
        self.origin_addr = connection.facts.remote;
        self.origin = Some(connection);
        tried
    }

    async fn exchange_on(&mut self, connection: &mut OriginConnection) -> Tried {
        let Some(upload) = self.open_upload() else {
            self.task.stamp("Bereq");
            connection.close = Some(SessClose::Overload);
            return Tried::Bad;
        };
        let abandonment = self.abandonment();
        let sent = abandonment.unless(self.send_request(connection, upload)).await;
        let Some(sent) = sent else { return self.abandon(connection) };
        match sent {
            Ok(()) => {
                self.task.stamp("Bereq");
                self.task.reactor.counters.backend_req.add(1);
                self.receive_head(connection).await
            }
            Err(e) => {
                let reason = match e.kind() {
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SessClose::RemClose,
                    _ => SessClose::TxError,
                };
                let errno = e.raw_os_error().unwrap_or(0);
                let text = crate::sys::error_text(errno);
                self.fetch_error(&format!("backend write error: {errno} ({text}) ({})", reason.text()));
                self.task.stamp("Bereq");
                connection.close = connection.close.or(Some(reason));
                // An origin that closed an idle connection is not to blame.
                if self.no_retry.is_none() { Tried::Silent } else { Tried::Bad }
            }
        }
    }

    /// Nobody waits for the answer: the connection is closed with the request under way.
    fn abandon(&mut self, connection: &mut OriginConnection) -> Tried {
        self.log_abandoned();
        connection.close = Some(SessClose::RemClose);
        Tried::Bad
    }

    async fn send_request(&mut self, connection: &mut OriginConnection, upload: Upload) -> io::Result<()> {
        self.out.clear();
        let head = h1::write_request_head(&self.bereq, &self.task.ws, &mut self.out);
        connection.tx.write_all(&self.out).await?;
        self.account.bereq_header += head as u64;
        if self.cached_body.is_none() && self.client_body.is_none() {
            self.task.log_sent("V1B", 0, 0);
            return Ok(());
        }
        // Few requests have a body, and the future is large.
        Box::pin(self.send_body(&connection.tx, upload)).await
    }

    async fn receive_head(&mut self, connection: &mut OriginConnection) -> Tried {
        let max = (self.task.params.http_resp_size as usize).min(self.task.ws.free_space().saturating_sub(1));
        let first = connection.first_byte.max(SHORTEST_WAIT);
        let between = connection.between_bytes.max(SHORTEST_WAIT);
        let begun = self.deadline.now();
        let abandonment = self.abandonment();
        let mut have = 0;
        let mut scanned = 0;
        let (text, close) = loop {
            if have >= max {
                break ("overflow", SessClose::RxOverflow);
            }
            let Ok(window) = self.task.ws.reserve(max) else { break ("overflow", SessClose::RxOverflow) };
            let (since, limit) = if have == 0 { (begun, first) } else { (self.deadline.now(), between) };
            let read = abandonment.unless(connection.rx.read(&mut window[have..max]));
            let n = match self.deadline.limit(since, limit, read).await {
                Some(None) => return self.abandon(connection),
                Some(Some(Ok(n))) if n > 0 => n,
                Some(Some(_)) => break ("HTC eof (Unexpected end of input)", SessClose::RxBad),
                None if have == 0 && connection.reused => {
                    break ("first byte timeout (reused connection)", SessClose::RxTimeout);
                }
                None if have == 0 => break ("first byte timeout", SessClose::RxTimeout),
                None => break ("timeout", SessClose::RxTimeout),
            };
            have += n;
            match h1::head_complete(self.task.ws.reserved(have), scanned) {
                HeadScan::Empty => have = 0,
                HeadScan::More { scanned: so_far } => scanned = so_far,
                HeadScan::Complete | HeadScan::H2Preface => return self.parse_head(connection, have),
            }
        };
        self.account.beresp_header += have as u64;
        self.fetch_error(text);
        if close == SessClose::RxOverflow {
            self.blame_limit("http_resp_size");
        }
        connection.close = Some(close);
        if have == 0 && close != SessClose::RxTimeout { Tried::Silent } else { Tried::Bad }
    }

    fn parse_head(&mut self, connection: &mut OriginConnection, have: usize) -> Tried {
        let text = self.task.ws.commit(have);
        let limit = self.task.params.http_resp_hdr_len as usize;
        let parsed =
            h1::parse_response(&mut self.task.ws, text, &mut self.beresp, limit, self.bereq.version());
        let head = match parsed {
            Ok(head) => head,
            Err(bad) => {
                self.account.beresp_header += have as u64;
                if let Some(bogo) = &bad.bogo {
                    let mut text = Vec::new();
                    bogo.write(&self.task.ws, RESP_HDR_LEN, &mut text);
                    self.task.log.put(Tag::BogoHeader, &text);
                    if bogo.is_too_long() {
                        self.blame_limit(RESP_HDR_LEN);
                    }
                }
                self.task.log.put(Tag::HttpGarbage, h1::garbage(self.task.ws.get(text)));
                self.task.log.put(Tag::BerespStatus, b"503");
                self.task.log.put(Tag::BerespReason, b"Service Unavailable");
                self.fetch_error("http format error");
                connection.close = Some(SessClose::RxJunk);
                return Tried::Bad;
            }
        };
        self.account.beresp_header += head.len as u64;
        // The log tells what was changed before it tells all.
        if head.proto_lowered {
            self.task.log.put(Tag::BerespProtocol, self.beresp.proto(&self.task.ws));
        }
        if head.reason_added {
            self.task.log.put(Tag::BerespReason, self.beresp.reason(&self.task.ws));
        }
        connection.ahead = text.tail(head.len);
        let mut close = None;
        if let Ok(decided) = h1::decide_connection(&mut self.beresp, &mut self.task.ws, SessClose::RespClose)
        {
            close = decided;
        }
        connection.close = close;
        let method = self.bereq.method(&self.task.ws);
        connection.framing = h1::response_body(&self.beresp, &self.task.ws, head.framing, method);
        self.count_framing(connection.framing.status);
        self.beresp_headers().log_all();
        Tried::Good
    }

    /// Names the parameter that the response's head exceeds, in the log and as the reason on the error page.
    #[cold]
    fn blame_limit(&mut self, parameter: &str) {
        let text = format!("Backend response exceeds {parameter}");
        self.fetch_error(&text);
        if let Ok(reason) = self.task.ws.copy(text.as_bytes()) {
            (self.err_code, self.err_reason) = (503, reason);
        }
    }

    fn count_framing(&self, framing: BodyStatus) {
        let c = &self.task.reactor.counters;
        let counter = match self.beresp.status() {
            _ if self.bereq.method(&self.task.ws) == b"HEAD" => &c.fetch_head,
            0..=199 => &c.fetch_1xx,
            204 => &c.fetch_204,
            304 => &c.fetch_304,
            _ => match framing {
                BodyStatus::Chunked => &c.fetch_chunked,
                BodyStatus::Length => &c.fetch_length,
                BodyStatus::Eof => &c.fetch_eof,
                BodyStatus::Error => &c.fetch_bad,
                _ => &c.fetch_none,
            },
        };
        counter.add(1);
    }

    /// Ends the use of the connection: kept for the next, unless something speaks against it.
    pub fn close_origin(&mut self, reason: Option<SessClose>) {
        let Some(connection) = self.origin.take() else { return };
        let reason = connection.close.or(reason);
        let origin = connection.origin.clone();
        let proxied = origin.spec.proxy_header.is_some_and(|v| v > 0);
        let unread = !connection.rx.pending.is_empty() || !connection.ahead.is_empty();
        if reason.is_some() || proxied || unread {
            let none = if proxied && !unread { "null" } else { "REM_CLOSE" };
            let why = reason.map_or(none, SessClose::name);
            log_close(&mut self.task.log, &connection, Some(why));
            connection.close();
        } else {
            log_close(&mut self.task.log, &connection, None);
            connection.recycle(&self.task.reactor);
        }
        let a = self.account;
        origin.count(|c| {
            c.conn.sub(1);
            c.bereq_hdrbytes.add(a.bereq_header);
            c.bereq_bodybytes.add(a.bereq_body);
            c.beresp_hdrbytes.add(a.beresp_header);
            c.beresp_bodybytes.add(a.beresp_body);
        });
        origin.leave();
    }
}
