//! Sends the request's body to the origin, through the filters of `bereq.filters`.

use std::io;

use lacquer_cache::Object;
use lacquer_deliver::Pace;
use lacquer_filters::{Chain, Filter, Gunzip, STEP_MAX};
use lacquer_flow::transfer;
use lacquer_http::h1::{ChunkHeader, LAST_CHUNK};
use lacquer_http::trailers::{self, RequestTrailers};
use lacquer_http::{fixed_text_table, header_table as h};
use lacquer_params::Params;
use lacquer_shm::Tag;
use lacquer_shm::vsl::text;

use super::Fetch;
use super::connection::{OriginConnection, Outgoing};
use super::early::{Sent, Until, send_unless_answered};
use crate::emulated::workspace_costs;
use crate::logged::Logged;
use crate::req_body::{BodyError, ReqBody};

/// The state of sending a body to the origin.
pub struct Upload {
    chain: Chain,
    pace: Pace,
    chunked: bool,
    /// The buffer for a chunk with its frame.
    framed: Vec<u8>,
    sent: u64,
    pieces: u64,
    /// The protocol marks the end of a body of any length.
    is_stream: bool,
    /// The reason why trailers are not passed on.
    refusal: Option<&'static str>,
    trailers: Option<Box<RequestTrailers>>,
}

impl Upload {
    /// Returns the numbers of bytes and pieces that were sent.
    pub fn sent(&self) -> (u64, u64) {
        (self.sent, self.pieces)
    }

    /// Sends one piece of the body. An empty piece is the end.
    pub async fn push(&mut self, to: Outgoing<'_>, piece: &[u8]) -> io::Result<()> {
        let end = piece.is_empty();
        let mut rest = piece;
        while let Some(out) =
            self.chain.next(&mut rest, end).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?
        {
            self.pieces += 1;
            self.sent += out.len() as u64;
            let made = out.len();
            if self.chunked {
                // Copying is cheaper than two more writes.
                self.framed.clear();
                self.framed.extend_from_slice(ChunkHeader::new(out.len()).as_bytes());
                self.framed.extend_from_slice(out);
                self.framed.extend_from_slice(b"\r\n");
                to.send(&self.framed).await?;
            } else {
                to.send(out).await?;
            }
            self.pace.made(made).await;
        }
        Ok(())
    }

    pub async fn end(&mut self, to: Outgoing<'_>) -> io::Result<()> {
        self.push(to, &[]).await?;
        if self.chunked {
            return to.send(LAST_CHUNK).await;
        }
        let lines = self.trailers.as_ref().map_or(&[][..], |trailers| trailers.lines());
        if !to.finish(lines)?
            && let Some(trailers) = &mut self.trailers
        {
            trailers.refuse("the origin limits them");
        }
        Ok(())
    }

    /// Takes the trailers behind the body, which its end sends.
    fn take_trailers(&mut self, body: &mut ReqBody) {
        self.trailers = body.take_trailers();
        if let (Some(trailers), Some(reason)) = (&mut self.trailers, self.refusal) {
            trailers.refuse(reason);
        }
    }

    /// Returns the trailers that were sent.
    pub fn into_trailers(self) -> Option<Box<RequestTrailers>> {
        self.trailers
    }

    /// Sends a body that was cached before.
    async fn object(&mut self, to: Outgoing<'_>, body: &Object) -> io::Result<()> {
        let mut at = 0;
        while let Some(chunk) = body.chunk_at(at).filter(|c| !c.is_empty()) {
            for piece in chunk.bytes().chunks(STEP_MAX) {
                self.push(to, piece).await?;
            }
            at += chunk.len() as u64;
        }
        self.end(to).await
    }
}

impl Fetch {
    /// Prepares sending the body, and changes the head to match. `is_stream` is whether the protocol marks the end of a
    /// body of any length. Returns `None`, with the reason in the log, on failure.
    pub(super) fn open_upload(&mut self, is_stream: bool) -> Option<Upload> {
        let length_known = match (&self.request.cached_body, &self.request.body) {
            (None, Some(body)) => body.announced().is_some(),
            _ => true,
        };
        let mut upload = Upload {
            chain: Chain::default(),
            pace: Pace::default(),
            chunked: !length_known,
            framed: Vec::new(),
            sent: 0,
            pieces: 0,
            is_stream,
            refusal: self.trailers_refusal(is_stream),
            trailers: None,
        };
        let has_body = self.request.cached_body.is_some() || self.request.body.is_some();
        if self.request.filters.is_some() && !self.push_filters(&mut upload) {
            self.fetch_error("Failure to push processors");
            return None;
        }
        if !has_body {
            // An earlier attempt, whose body VCL has unset since, may have declared a chunked body.
            self.bereq_headers().unset(h::TRANSFER_ENCODING);
            // A rollback restores the length of the client's body.
            let (http, ws) = (&self.request.http, self.task.ws());
            if http.has(ws, h::CONTENT_LENGTH) && !http.value_is(ws, h::CONTENT_LENGTH, b"0") {
                describe_no_body(&mut self.bereq_headers());
            }
        }
        let has_coding = self.request.http.has(self.task.ws(), h::TRANSFER_ENCODING);
        // An earlier attempt may have declared a chunked body.
        upload.chunked |= has_coding && !self.request.http.has(self.task.ws(), h::CONTENT_LENGTH);
        if upload.chunked {
            let mut headers = self.bereq_headers();
            headers.unset(h::CONTENT_LENGTH);
            if is_stream {
                headers.unset(h::TRANSFER_ENCODING);
                upload.chunked = false;
            } else if !has_coding {
                headers.add(h::TRANSFER_ENCODING, b"chunked");
            }
        } else if has_body {
            self.describe_length();
        }
        Some(upload)
    }

    /// Makes `Content-Length` that of the body, which a rollback may have replaced. Nothing else describes the end of the
    /// body.
    fn describe_length(&mut self) {
        let length = match (&self.request.cached_body, &self.request.body) {
            (Some(body), _) => Some(body.body_len()),
            (None, body) => body.as_ref().and_then(ReqBody::announced),
        };
        let Some(length) = length else { return };
        let mut digits = [0; text::MAX];
        let length = text::digits(length, &mut digits);
        let (http, ws) = (&self.request.http, self.task.ws());
        if !http.value_is(ws, h::CONTENT_LENGTH, length) || http.has(ws, h::TRANSFER_ENCODING) {
            let mut headers = self.bereq_headers();
            headers.unset(h::TRANSFER_ENCODING);
            headers.unset(h::CONTENT_LENGTH);
            headers.add(h::CONTENT_LENGTH, length);
        }
    }

    /// Creates the filters in `bereq.filters`. They have no effect without a body. Returns false, with the reason in
    /// the log, on failure.
    fn push_filters(&mut self, upload: &mut Upload) -> bool {
        let list = self.task.ws().get(self.request.filters).to_vec();
        self.task.log_mut().put(Tag::Filters, &list);
        let has_body = self.request.cached_body.is_some() || self.request.body.is_some();
        let mut filters: Vec<Box<dyn Filter>> = Vec::new();
        for (name, rest) in lacquer_filters::names(&list) {
            if !workspace_costs::charge(self.task.ws_mut(), workspace_costs::FILTER) {
                return false;
            }
            match name {
                b"gunzip" if has_body => {
                    self.task.services().counters().n_gunzip.add(1);
                    self.bereq_headers().unset(h::CONTENT_ENCODING);
                    upload.chunked = true;
                    filters.push(Box::new(Gunzip::for_delivery()));
                }
                b"range" => {
                    self.task.log_mut().put(Tag::Error, b"range can only be used on the client side");
                }
                // ESI has no effect here: request bodies are not parsed for it.
                b"gunzip" | b"esi" => {}
                _ => {
                    self.task.log_mut().put(Tag::Error, crate::req_filters::unknown(rest).as_bytes());
                    return false;
                }
            }
        }
        upload.chain = Chain::new(filters, self.task.params().gzip_buffer);
        true
    }

    /// Sends the request's body, if it has one, until the response begins.
    pub(super) async fn send_body(
        &mut self,
        connection: &mut OriginConnection,
        mut upload: Upload,
    ) -> io::Result<Sent> {
        let (rx, to) = connection.request_halves();
        let result = if let Some(body) = self.request.cached_body.clone() {
            send_unless_answered(rx, Until::Refusal, upload.object(to, &body)).await
        } else if let Some(mut body) = self.request.body.take() {
            let mut fault = None;
            self.begin_forwarding();
            let params = self.task.params().clone();
            let forwarded = forward_body(&params, (&mut body, &mut fault), to, &mut upload, |_| ());
            let result = send_unless_answered(rx, Until::Refusal, forwarded).await;
            self.request.body = Some(body);
            match fault {
                Some(fault) => Err(self.body_fault(fault)),
                None => result,
            }
        } else {
            Ok(Sent::Whole)
        };
        self.count_upload(&mut upload);
        result
    }

    /// Counts and logs the bytes of an upload that has ended.
    pub(super) fn count_upload(&mut self, upload: &mut Upload) {
        self.exchange.account.bereq_body += upload.sent;
        self.task.log_filtered_out(&upload.chain.report());
        self.task.log_sent(if upload.is_stream { "H2B" } else { "V1B" }, upload.pieces, upload.sent);
        self.log_trailers(upload.trailers.take());
    }

    /// Returns the reason why the trailers of this request cannot be passed on, if there is one.
    fn trailers_refusal(&self, is_stream: bool) -> Option<&'static str> {
        let is_filtered = self.request.filters.is_some()
            || self.request.body.as_ref().is_some_and(|body| body.filters.is_some());
        match () {
            () if !is_stream => Some("the origin is asked over HTTP/1.1"),
            () if is_filtered => Some("filters change the body"),
            () => None,
        }
    }

    /// Logs the trailers of the request that were sent, and those that were dropped.
    pub(super) fn log_trailers(&mut self, trailers: Option<Box<RequestTrailers>>) {
        let Some(trailers) = trailers else { return };
        let log = self.task.log_mut();
        for (name, value) in trailers::fields(trailers.lines()) {
            log.put(Tag::BereqHeader, &[name, b": ", value].concat());
        }
        if trailers.omitted() > 0 {
            let text = format_args!("trailers: {} forbidden fields were dropped", trailers.omitted());
            log.put_fmt(Tag::Notice, text);
        }
        if let Some(reason) = trailers.refusal() {
            log.put_fmt(Tag::Notice, format_args!("trailers were dropped: {reason}"));
        }
    }

    /// Records that the client does not send its body as announced. Returns the error of the upload.
    #[cold]
    pub(super) fn body_fault(&mut self, fault: BodyError) -> io::Error {
        if fault.is_of_client() {
            self.exchange.is_fault_of_client = true;
            self.response.status = self.body_fault_status();
            self.response.reason = fixed_text_table::reason_text(self.response.status);
        }
        // The fault is logged with the client's request.
        if let Some(body) = &mut self.request.body {
            body.fail(fault);
        }
        self.fetch_error("req.body read error: 0 (Success)");
        io::ErrorKind::InvalidData.into()
    }

    /// Returns the status for a client that does not send its body as announced; 0 stands for that of any failed fetch.
    #[cold]
    fn body_fault_status(&self) -> u16 {
        const USUAL: u16 = 503;
        let status = match self.task.sess().tls() {
            Some(_) => 400,
            None => self.task.params().http_req_body_status as u16,
        };
        if status == USUAL { 0 } else { status }
    }

    /// Records that the client's body is forwarded as it arrives. It can be read only once.
    pub(super) fn begin_forwarding(&mut self) {
        self.retries.forbidden = Some("req.body not cached");
        self.waiter.events.reads_body.set(true);
    }
}

/// Sets the headers of a request without a body. A method that usually has one gets a length (RFC 9110 section 8.6).
pub fn describe_no_body(headers: &mut Logged<'_>) {
    if !transfer::usually_has_body(headers.message.method(headers.ws)) {
        headers.unset(h::CONTENT_LENGTH);
    } else if !headers.message.value_is(headers.ws, h::CONTENT_LENGTH, b"0") {
        headers.unset(h::CONTENT_LENGTH);
        headers.add(h::CONTENT_LENGTH, b"0");
    }
}

/// Forwards the client's body as it arrives. `progress` is called after each piece.
pub(super) async fn forward_body(
    params: &Params,
    (body, failed): (&mut ReqBody, &mut Option<BodyError>),
    to: Outgoing<'_>,
    upload: &mut Upload,
    progress: impl Fn(&Upload),
) -> io::Result<()> {
    loop {
        let piece = match body.next(params).await {
            Ok(piece) => piece,
            Err(fault) => {
                *failed = Some(fault);
                return Err(io::ErrorKind::InvalidData.into());
            }
        };
        let is_end = piece.is_empty();
        let sent = if is_end {
            upload.take_trailers(body);
            upload.end(to).await
        } else {
            upload.push(to, piece).await
        };
        progress(upload);
        if is_end || sent.is_err() {
            return sent;
        }
    }
}
