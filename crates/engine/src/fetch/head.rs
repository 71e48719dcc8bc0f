//! Receives and parses the head of an origin's response, within its limits. Skips interim responses.

use std::io;
use std::pin::pin;

use lacquer_flow::retry::{self, Exchange};
use lacquer_flow::reuse::{self, Garbage, Malformed};
use lacquer_flow::transfer::Kind;
use lacquer_http::h1::{self, BadHead, Framing, HeadScan};
use lacquer_http::{BodyStatus, Mark, SessClose, Slot, Text, fixed};
use lacquer_net::deadlines::Moment;
use lacquer_net::multiplex::Stream;
use lacquer_shm::Tag;
use lacquer_vcl_runtime::local_failure_reason;

use super::Fetch;
use super::connection::{OriginConnection, SHORTEST_WAIT};

/// The largest number of interim responses before the final one.
const MOST_INTERIM: u32 = 16;
const OVERFLOW: &str = "overflow";
/// The parameter that limits the length of a header field.
const RESP_HDR_LEN: &str = "http_resp_hdr_len";

/// The timeouts for one head, in seconds.
struct Limits {
    /// The limit until the first byte.
    first: f64,
    /// The limit between two reads.
    between: f64,
    /// The limit from the first byte to the last.
    whole: f64,
}

/// A wait for bytes: its start, its limit in seconds, and the log text when the limit expires.
type Wait = (Moment, f64, &'static str);

impl Limits {
    fn wait(&self, begun: Moment, head_begun: Option<Moment>, now: Moment, reused: bool) -> Wait {
        let Some(head_begun) = head_begun else {
            let text = if reused { "first byte timeout (reused connection)" } else { "first byte timeout" };
            return (begun, self.first, text);
        };
        if self.whole - now.since(head_begun) < self.between {
            return (head_begun, self.whole, "head timeout (backend_head_timeout)");
        }
        (now, self.between, "timeout")
    }
}

impl Fetch {
    fn head_limits(&self, connection: &OriginConnection) -> Limits {
        let first = connection.waits().first_byte.max(SHORTEST_WAIT);
        let between = connection.waits().between_bytes.max(SHORTEST_WAIT);
        let whole = self.task.params().backend_head_timeout.max(SHORTEST_WAIT).min(first + between);
        Limits { first, between, whole }
    }

    pub(super) async fn receive_head(&mut self, connection: &mut OriginConnection) -> Exchange {
        let max =
            (self.task.params().http_resp_size as usize).min(self.task.ws().free_space().saturating_sub(1));
        let limits = self.head_limits(connection);
        let begun = self.exchange.deadline.now();
        let (mut have, mut scanned, mut interim) = (0, 0, Interim::default());
        let mut head_begun = None;
        let abandonment = self.abandonment(None);
        let (text, close) = loop {
            if have + interim.bytes >= max {
                break (OVERFLOW, SessClose::RxOverflow);
            }
            let Ok(window) = self.task.ws_mut().reserve(max) else { break (OVERFLOW, SessClose::RxOverflow) };
            let (since, limit, late) =
                limits.wait(begun, head_begun, self.exchange.deadline.now(), connection.is_reused());
            let read = {
                let read = pin!(connection.rx_mut().read(&mut window[have..max]));
                self.exchange.deadline.limit(since, limit, abandonment.unless(read)).await
            };
            let n = match read {
                Some(None) => return self.abandon(connection),
                Some(Some(Ok(n))) if n > 0 => n,
                Some(Some(Err(e))) if connection.stream().is_some() => {
                    return self.fail_stream(connection, &e, have + interim.bytes);
                }
                Some(Some(read)) => break (self.unexpected_end(&read), SessClose::RxBad),
                None => break (late, SessClose::RxTimeout),
            };
            have += n;
            head_begun = head_begun.or_else(|| Some(self.exchange.deadline.now()));
            match self.scan_head(connection, &mut have, scanned, &mut interim) {
                HeadScan::Empty => (have, scanned, head_begun) = (0, 0, None),
                HeadScan::More { scanned: so_far } => scanned = so_far,
                HeadScan::Complete | HeadScan::H2Preface => return self.parse_head(connection, have),
            }
            if interim.count > MOST_INTERIM {
                break ("too many interim responses", SessClose::RxOverflow);
            }
        };
        self.exchange.account.beresp_header += (have + interim.bytes) as u64;
        self.fetch_error(text);
        if text == OVERFLOW {
            let is_configured = max == self.task.params().http_resp_size as usize;
            self.report_exceeded_limit(if is_configured { "http_resp_size" } else { "workspace_backend" });
        }
        connection.must_close(close);
        if let (SessClose::RxTimeout, Some(stream)) = (close, connection.stream()) {
            stream.leave_if_silent();
        }
        match (have + interim.bytes, close) {
            (0, SessClose::RxTimeout) => Exchange::Late,
            (0, _) => Exchange::Silent,
            _ => Exchange::Failed,
        }
    }

    /// Logs why TLS has ended the connection before the head was complete, unless the origin has closed it.
    fn unexpected_end(&mut self, read: &io::Result<usize>) -> &'static str {
        if let Err(e) = read
            && e.kind() != io::ErrorKind::UnexpectedEof
        {
            self.log_tls_error(e);
        }
        "HTC eof (Unexpected end of input)"
    }

    /// Searches the reserved bytes for the end of the head, and removes interim responses from them. Those that may belong
    /// to another request do not reach the client.
    fn scan_head(
        &mut self,
        connection: &OriginConnection,
        have: &mut usize,
        scanned: usize,
        interim: &mut Interim,
    ) -> HeadScan {
        let mut scan = h1::head_complete(self.task.ws().reserved(*have), scanned);
        while scan == HeadScan::Complete && interim.count <= MOST_INTERIM {
            let head = self.task.ws().reserved(*have);
            let Some((status, length)) = h1::interim_head(head) else { break };
            let is_in_doubt = connection.is_reused() && connection.has_faulty_origin();
            if self.follows_rfc9111() && !is_in_doubt {
                self.forward_interim(status, length, *have);
            }
            *have = self.task.ws_mut().skip_reserved(*have, length);
            interim.count += 1;
            interim.bytes += length;
            self.task.services().counters().backend_interim.add(1);
            self.task.log_mut().put_fmt(Tag::Notice, format_args!("interim response: {status}"));
            scan = h1::head_complete(self.task.ws().reserved(*have), 0);
        }
        scan
    }

    /// Hands an interim response to the request that waits for this fetch. `100` concerns the request body, which
    /// the client was already asked for.
    #[cold]
    fn forward_interim(&mut self, status: u16, length: usize, have: usize) {
        if self.purpose.is_background || status == 100 {
            return;
        }
        let Some(fields) = h1::interim_fields(&self.task.ws().reserved(have)[..length]) else {
            let why = b"An interim response has too many fields to be forwarded";
            return self.task.log_mut().put(Tag::Error, why);
        };
        let fields = fields.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        self.waiter.events.interim.borrow_mut().push(crate::interim::Interim { status, fields });
    }

    fn parse_head(&mut self, connection: &mut OriginConnection, have: usize) -> Exchange {
        let before = self.task.ws().mark();
        let text = self.task.ws_mut().commit(have);
        let limit = self.task.params().http_resp_hdr_len as usize;
        let parsed = h1::parse_response(
            self.task.ws_mut(),
            text,
            &mut self.response.http,
            limit,
            self.request.http.version(),
        );
        let head = match parsed {
            Ok(head) => head,
            Err(bad) => return self.refuse_head(connection, text, &bad, before),
        };
        self.exchange.account.beresp_header += head.len as u64;
        let decided =
            h1::decide_connection(&mut self.response.http, self.task.ws_mut(), SessClose::RespClose);
        connection.decide_close(decided.unwrap_or_default());
        let method = self.request.http.method(self.task.ws());
        let mut framing = h1::response_body(&self.response.http, self.task.ws(), head.framing, method);
        if let Some(stream) = connection.stream() {
            self.response.http.put(self.task.ws(), Slot::Proto, fixed::HTTP_20);
            framing = framing_of_stream(stream, framing, text.tail(head.len).len());
        }
        let is_bodyless = method == b"HEAD" || matches!(self.response.http.status(), 204 | 304);
        connection.reply_mut().begin(framing, text.tail(head.len), is_bodyless);
        if connection.stream().is_some() {
            self.expect_trailers();
        }
        let may_be_foreign = || connection.may_be_foreign(self.task.ws());
        if reuse::is_discarded(connection.is_in_doubt(), || self.is_repeatable(), may_be_foreign) {
            return self.discard_response(connection, before);
        }
        // In the log, these changes come before the head.
        if head.proto_lowered {
            self.task.put_from(Tag::BerespProtocol, |ws| self.response.http.proto(ws));
        }
        if head.reason_added && connection.stream().is_none() {
            self.task.put_from(Tag::BerespReason, |ws| self.response.http.reason(ws));
        }
        self.count_framing(framing.status);
        self.beresp_headers().log_all();
        if connection.reply().buffered_body().is_none() {
            connection.mark_answered();
        }
        Exchange::Responded
    }

    /// Handles bytes that are no valid head: they are a malformed response, or bytes after an earlier response.
    #[cold]
    fn refuse_head(
        &mut self,
        connection: &mut OriginConnection,
        text: Text,
        bad: &BadHead,
        before: Mark,
    ) -> Exchange {
        self.exchange.account.beresp_header += text.len() as u64;
        if connection.origin().endpoint.is_local()
            && let Some(reason) = local_failure_reason(self.task.ws().get(text))
        {
            let reason = String::from_utf8_lossy(reason).into_owned();
            self.fetch_error(&format!("backend {}: {reason}", connection.origin().spec.name));
            connection.must_close(SessClose::RxBad);
            return Exchange::Failed;
        }
        let garbage = Garbage {
            is_reused: connection.is_reused(),
            begins_a_head: self.task.ws().get(text).starts_with(b"HTTP/"),
            follows_bodyless: connection.follows_bodyless(),
        };
        let malformed = reuse::malformed(garbage, || self.is_repeatable());
        if malformed != Malformed::Response {
            connection.reply_mut().set_surplus(text);
        }
        if malformed == Malformed::Repeat {
            self.task.put_from(Tag::HttpGarbage, |ws| h1::garbage(ws.get(text)));
            return self.discard_response(connection, before);
        }
        if let Some(bogo) = &bad.bogo {
            let mut text = Vec::new();
            bogo.write(self.task.ws(), RESP_HDR_LEN, &mut text);
            self.task.log_mut().put(Tag::BogoHeader, &text);
            if let Some(limit) = bogo.limit(RESP_HDR_LEN) {
                self.report_exceeded_limit(limit);
            }
        }
        self.task.put_from(Tag::HttpGarbage, |ws| h1::garbage(ws.get(text)));
        self.task.log_mut().put(Tag::BerespStatus, b"503");
        self.task.log_mut().put(Tag::BerespReason, b"Service Unavailable");
        self.fetch_error("http format error");
        connection.must_close(SessClose::RxJunk);
        Exchange::Failed
    }

    /// Returns whether the request may be sent again although the origin may have processed it.
    fn is_repeatable(&self) -> bool {
        self.retries.forbidden.is_none() && retry::is_idempotent(self.request.http.method(self.task.ws()))
    }

    /// Reports the parameter that the response head exceeds, in the log and as the reason of the error response.
    #[cold]
    fn report_exceeded_limit(&mut self, parameter: &str) {
        let text = format!("Backend response exceeds {parameter}");
        self.fetch_error(&text);
        if let Ok(reason) = self.task.ws_mut().copy(text.as_bytes()) {
            (self.response.status, self.response.reason) = (503, reason);
        }
    }

    fn count_framing(&self, framing: BodyStatus) {
        let c = self.task.services().counters();
        let is_head = self.request.http.method(self.task.ws()) == b"HEAD";
        let counter = match Kind::of(is_head, self.response.http.status(), framing) {
            Kind::Head => &c.fetch_head,
            Kind::Interim => &c.fetch_1xx,
            Kind::NoContent => &c.fetch_204,
            Kind::NotModified => &c.fetch_304,
            Kind::Chunked => &c.fetch_chunked,
            Kind::Length => &c.fetch_length,
            Kind::Eof => &c.fetch_eof,
            Kind::Bad => &c.fetch_bad,
            Kind::Empty => &c.fetch_none,
        };
        counter.add(1);
    }

    /// Discards a response on a reused connection that may belong to another request.
    fn discard_response(&mut self, connection: &mut OriginConnection, before: Mark) -> Exchange {
        self.fetch_error("response in doubt (reused connection)");
        connection.keep_surplus(self.task.ws());
        connection.must_close(SessClose::RxJunk);
        self.response.http.clear();
        self.task.ws_mut().release(before);
        Exchange::Foreign
    }
}

/// Returns the framing of a response over HTTP/2, of whose body `received` bytes were read with its head. The end of the
/// stream is that of the body.
fn framing_of_stream(stream: &Stream, framing: Framing, received: usize) -> Framing {
    match framing.status {
        // Trailers follow a body, even an empty one.
        BodyStatus::Eof if stream.is_drained() && !stream.has_trailers() => Framing::length(received as u64),
        _ => framing,
    }
}

/// The interim responses received so far.
#[derive(Default)]
struct Interim {
    count: u32,
    bytes: usize,
}
