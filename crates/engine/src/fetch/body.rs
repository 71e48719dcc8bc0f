//! Receives the response body into storage, through the filters that VCL or the encoding requires.

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use lacquer_cache::{Object, flag};
use lacquer_filters::Chain;
use lacquer_flow::storing::{self, Arrival};
use lacquer_flow::transfer::{self, Pace};
use lacquer_http::h1::{ChunkedDecoder, Framing};
use lacquer_http::{BodyStatus, SessClose, Text, header_table as h};
use lacquer_net::deadlines::Deadline;
use lacquer_net::multiplex::failure_of;
use lacquer_shm::Tag;
use lacquer_shm::vsl::Field;
use lacquer_sources::clock;

use super::completion::{self, CutShort};
use super::connection::OriginConnection;
use super::draft::Draft;
use super::object::Stored;
use super::parts::Step;
use super::{Fetch, gone};

pub async fn fetch(f: &mut Fetch) -> Step {
    let Some(mut connection) = f.reclaim() else { return Step::Error };
    let (framing, ahead) = (connection.reply().framing(), connection.reply().ahead());
    let no_body = framing.status == BodyStatus::None;
    let list = if no_body {
        f.beresp_headers().unset(h::CONTENT_ENCODING);
        f.response.do_gzip = false;
        f.response.do_gunzip = false;
        f.attempt.do_stream = false;
        Cow::default()
    } else {
        f.filter_list()
    };
    if !f.reserve_filter_space(&list, no_body) {
        f.close_origin(connection, Some(SessClose::Overload));
        return Step::Error;
    }
    let mut chain = match f.filters_from(&list) {
        Ok(chain) => chain,
        Err(reason) => {
            f.close_origin(connection, Some(reason));
            return Step::Error;
        }
    };
    let part = f.part_to_store(&connection, !chain.is_empty());
    let ahead = if part.is_some() || f.awaits_trailers(&connection) { Text::NONE } else { ahead };
    let stored = store(f, framing, ahead, !chain.is_empty());
    let Some(mut stored) = stored else {
        f.discard_continued();
        f.close_origin(connection, Some(SessClose::RxBody));
        return Step::Error;
    };
    if let Stored::Begun(draft) = &mut stored {
        draft.make_part(part.as_deref());
        if !f.publish_early(draft) {
            return completion::repeat(f, connection, gone::PART_GONE);
        }
    }
    let how = if f.attempt.do_stream { "stream" } else { "-" };
    let status = framing.status;
    let [name, how] = [status.name(), how].map(|word| Field::Text(word.as_bytes()));
    f.task.log_mut().put_fields(Tag::Fetch_Body, &[Field::Number(status.number().into()), name, how]);
    let received = match &mut stored {
        Stored::Whole(_) => {
            f.count_whole(&mut connection);
            Ok(())
        }
        Stored::Begun(draft) if no_body => f.end_empty_body(&mut connection, draft).await,
        Stored::Begun(draft) if f.completion.is_rest => {
            // Boxed: the future is large.
            Box::pin(f.complete_body(&mut connection, draft, &mut chain)).await
        }
        Stored::Begun(draft) => f.receive_body(&mut connection, draft, &mut chain).await,
    };
    f.take_report(&chain.report(), status, stored.object());
    if let Err(why) = received {
        if why == SHORT_BODY {
            let (length, is_filtered) = (f.framing_of_whole(framing).content_length, !chain.is_empty());
            f.keep_part(stored, CutShort { connection: &connection, length, is_filtered });
        } else {
            f.discard_continued();
        }
        return broken(f, connection, &why);
    }
    complete(f, part.is_some(), stored, connection)
}

#[inline]
fn complete(f: &mut Fetch, is_part: bool, stored: Stored, connection: OriginConnection) -> Step {
    let completed =
        if is_part { f.complete_part(stored, connection) } else { complete_whole(f, stored, connection) };
    if completed.is_none() {
        return completion::repeat(f, None, gone::PART_GONE);
    }
    f.drop_completed_part();
    Step::Done(completed)
}

#[inline]
fn complete_whole(f: &mut Fetch, stored: Stored, connection: OriginConnection) -> Option<Arc<Object>> {
    let completed = f.complete(stored, connection)?;
    if f.follows_rfc9111() {
        f.drop_parts_beside(&completed);
    }
    Some(completed)
}

/// Stores the head of the response, and its body if all of it arrived with the head.
#[inline]
fn store(f: &mut Fetch, framing: Framing, ahead: Text, is_filtered: bool) -> Option<Stored> {
    let whole = f.framing_of_whole(framing);
    // The bytes after the rest of a part do not belong to it, however many there are.
    let came = if f.completion.is_rest { 0 } else { ahead.len() };
    match storing::arrival(whole, is_filtered, came, f.storing()) {
        Arrival::Whole => f.store_whole(ahead),
        Arrival::Pieces(length) => f.begin(length).map(Stored::Begun),
    }
}

/// Ends the fetch, because the body ended early or is malformed.
fn broken(f: &mut Fetch, connection: OriginConnection, why: &str) -> Step {
    if !why.is_empty() {
        f.fetch_error(why);
    }
    f.close_origin(connection, Some(SessClose::RxBody));
    if f.attempt.do_stream {
        f.task.services().counters().fetch_failed.add(1);
        return Step::Fail;
    }
    Step::Error
}

impl Fetch {
    /// Counts a body that was received together with the head.
    fn count_whole(&mut self, connection: &mut OriginConnection) {
        let whole = connection.reply_mut().take_ahead();
        connection.reply_mut().end();
        self.keep_trailers(connection);
        self.exchange.account.beresp_reads += 1;
        self.exchange.account.beresp_body += whole.len() as u64;
    }

    /// Stores the part as the beginning of the body, and receives the rest.
    async fn complete_body(
        &mut self,
        connection: &mut OriginConnection,
        draft: &mut Draft,
        chain: &mut Chain,
    ) -> Result<(), String> {
        self.recheck_continued(draft).await;
        self.store_part(draft, chain).await?;
        let received = self.receive_body(connection, draft, chain).await;
        if !draft.is_published {
            self.recheck_continued(draft).await;
        }
        received
    }

    /// Stores the part as the beginning of the body, through the filters of the response.
    async fn store_part(&mut self, draft: &mut Draft, chain: &mut Chain) -> Result<(), String> {
        let Some(part) = self.completion.continued() else { return Ok(()) };
        let (mut at, end) = (0, self.continued_bytes());
        while at < end {
            if self.is_cancelled(&draft.object) {
                return self.skip_rest(draft);
            }
            let Some(chunk) = part.chunk_at(at) else {
                self.task.services().cache().fail(&part);
                return Err(UNREADABLE.to_owned());
            };
            let bytes = chunk.bytes();
            let most = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            let bytes = &bytes[..bytes.len().min(most)];
            self.wait_for_reader(draft).await;
            self.filter_and_store(draft, chain, bytes, false).await?;
            at += bytes.len() as u64;
            self.yield_if_due(bytes.len()).await;
        }
        Ok(())
    }

    /// Receives the whole body. The error is a text for the log; it is empty if the cause was logged already.
    async fn receive_body(
        &mut self,
        connection: &mut OriginConnection,
        draft: &mut Draft,
        chain: &mut Chain,
    ) -> Result<(), String> {
        let ahead = connection.reply_mut().take_ahead();
        connection.rx_mut().unread(self.task.ws().get(ahead));
        match connection.reply().framing().status {
            BodyStatus::Length if chain.is_empty() => self.receive_straight(connection, draft).await,
            _ => self.receive_pieces(connection, draft, chain).await,
        }
    }

    /// Reads from the socket directly into storage; for a body with Content-Length and without filters.
    async fn receive_straight(
        &mut self,
        connection: &mut OriginConnection,
        draft: &mut Draft,
    ) -> Result<(), String> {
        let mut left = connection.reply().framing().content_length;
        let abandonment = self.abandonment(Some(&draft.object));
        while left > 0 {
            if self.is_cancelled(&draft.object) {
                return self.stop(connection, draft);
            }
            self.wait_for_reader(draft).await;
            if !self.make_room(draft).await {
                return Err(String::new());
            }
            let window = draft.writer.window();
            let n = window.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = read_timed(connection, &self.exchange.deadline, &mut window[..n]);
            let Some(got) = abandonment.unless(pin!(read)).await else { return self.stop(connection, draft) };
            match got {
                Ok(0) => return Err(SHORT_BODY.into()),
                Err(e) => {
                    self.log_read_error(&e);
                    return Err(SHORT_BODY.into());
                }
                Ok(n) => {
                    draft.writer.commit(n);
                    left -= n as u64;
                    self.exchange.account.beresp_reads += 1;
                    self.exchange.account.beresp_body += n as u64;
                    if left > 0 {
                        self.yield_if_due(n).await;
                    }
                }
            }
        }
        self.end_body(connection, draft, BodyStatus::Length).await
    }

    async fn receive_pieces(
        &mut self,
        connection: &mut OriginConnection,
        draft: &mut Draft,
        chain: &mut Chain,
    ) -> Result<(), String> {
        // Do not start the filters before there is room for their output.
        if !chain.is_empty() && !self.make_room(draft).await {
            return Err(String::new());
        }
        let mut buffer = Vec::new();
        let framing = connection.reply().framing();
        let (mut left, status, mut ended) = (framing.content_length, framing.status, false);
        let mut decoder = ChunkedDecoder::lenient();
        let abandonment = self.abandonment(Some(&draft.object));
        while !ended {
            if self.is_cancelled(&draft.object) {
                return self.stop(connection, draft);
            }
            let most = if status == BodyStatus::Length { left } else { u64::MAX };
            let want = PIECE.min(usize::try_from(most).unwrap_or(usize::MAX));
            self.wait_for_reader(draft).await;
            let piece = next_piece(connection, &self.exchange.deadline, &mut buffer, want);
            let Some(piece) = abandonment.unless(pin!(piece)).await else {
                return self.stop(connection, draft);
            };
            let n = match piece {
                Ok(n) => n,
                Err(e) => self.handle_read_error(&e, status)?,
            };
            self.exchange.account.beresp_reads += 1;
            self.yield_if_due(n).await;
            match status {
                BodyStatus::Eof => {
                    ended = n == 0;
                    self.exchange.account.beresp_body += n as u64;
                    self.filter_and_store(draft, chain, &buffer[..n], false).await?;
                }
                BodyStatus::Length => {
                    if n == 0 {
                        return Err(SHORT_BODY.into());
                    }
                    left -= n as u64;
                    ended = left == 0;
                    self.exchange.account.beresp_body += n as u64;
                    self.filter_and_store(draft, chain, &buffer[..n], false).await?;
                }
                _ => {
                    if n == 0 {
                        return Err(decoder.eof_text().into());
                    }
                    let rest = self.decode_and_store(draft, chain, &mut decoder, &mut buffer[..n]).await?;
                    connection.rx_mut().unread(rest);
                    ended = decoder.is_done();
                }
            }
        }
        self.end_body(connection, draft, status).await?;
        if !chain.is_empty() && self.is_cancelled(&draft.object) {
            // The filters may not have processed all input.
            return self.skip_rest(draft);
        }
        self.filter_and_store(draft, chain, &[], true).await
    }

    /// Decodes the chunks in a piece, filters and stores them. Returns the bytes after the last chunk.
    async fn decode_and_store<'b>(
        &mut self,
        draft: &mut Draft,
        chain: &mut Chain,
        decoder: &mut ChunkedDecoder,
        mut rest: &'b mut [u8],
    ) -> Result<&'b [u8], String> {
        while !rest.is_empty() && !decoder.is_done() {
            let run = decoder.decode_run(rest).map_err(|e| e.text().to_owned())?;
            self.exchange.account.beresp_body += (run.end - run.start) as u64;
            self.filter_and_store(draft, chain, &rest[run.start..run.end], false).await?;
            rest = &mut rest[run.consumed..];
        }
        Ok(rest)
    }

    /// Yields to other tasks periodically while a fast origin sends a large body. Counts `n` bytes received, and the
    /// evictions since the last call.
    pub(super) async fn yield_if_due(&mut self, n: usize) {
        let evictions = self.product.nuked.saturating_sub(self.attempt.nuked_before) as usize;
        self.attempt.nuked_before = self.product.nuked;
        let stored = n.saturating_add(evictions.saturating_mul(EVICTION));
        self.attempt.pace.made(stored / STORED_PER_MADE).await;
    }

    /// Handles a read error. Only for a body that ends with the connection is it an error; for other bodies the
    /// result is the same as an early end of the input.
    fn handle_read_error(&mut self, e: &io::Error, status: BodyStatus) -> Result<usize, String> {
        if status != BodyStatus::Eof {
            self.log_read_error(e);
            return Ok(0);
        }
        let is_closed = e.kind() == io::ErrorKind::UnexpectedEof;
        if is_closed && self.task.params().ssl_accept_truncation {
            return Ok(0);
        }
        self.log_read_error(e);
        Err("eof socket fail".into())
    }

    /// Logs why the socket returned no more bytes.
    fn log_read_error(&mut self, e: &io::Error) {
        if self.log_tls_error(e) {
            return;
        }
        if let Some(failure) = failure_of(e) {
            return self.fetch_error(&failure.to_string());
        }
        let errno = e.raw_os_error().unwrap_or(lacquer_system::EAGAIN);
        self.fetch_error(&lacquer_system::error_text(errno));
    }

    /// Logs an error of TLS. Returns whether it is one.
    pub(super) fn log_tls_error(&mut self, e: &io::Error) -> bool {
        let Some(reason) = lacquer_net::tls_reason_of(e) else { return false };
        self.task.log_mut().put(Tag::BackendSSL, reason.as_bytes());
        self.fetch_error(&reason);
        true
    }

    /// Passes a piece through the filters and stores their output, one step at a time. For a private object, each
    /// step waits until the reader is close enough.
    async fn filter_and_store(
        &mut self,
        draft: &mut Draft,
        chain: &mut Chain,
        mut input: &[u8],
        end: bool,
    ) -> Result<(), String> {
        while let Some(out) = chain.next(&mut input, end)? {
            if !self.append(draft, out).await {
                return Err(String::new());
            }
            let made = out.len();
            if chain.is_empty() {
                // One piece of input is done, and more may be there at once.
                continue;
            }
            self.attempt.pace.made(made).await;
            self.wait_for_reader(draft).await;
            if self.is_cancelled(&draft.object) {
                // Nobody will read the body, so skip the rest of the filtering.
                return self.skip_rest(draft);
            }
        }
        Ok(())
    }

    /// Waits while the fetch is too far ahead of its only reader, unless it is abandoned, or stops it.
    async fn wait_for_reader(&mut self, draft: &Draft) {
        let (limit, writer) = (self.transit_limit(), &draft.writer);
        match transfer::pace(limit, self.purpose.is_background, || writer.len()) {
            Pace::Continue => {}
            Pace::Wait(limit) => {
                let is_near = poll_fn(|cx| writer.poll_transit(limit, cx));
                self.abandonment(Some(&draft.object)).unless(pin!(is_near)).await;
            }
            Pace::Cancel => draft.object.cancel(),
        }
    }

    /// Returns whether the rest of the body is not needed: the fetch is abandoned, or the only reader has stopped.
    pub(super) fn is_cancelled(&self, object: &Arc<Object>) -> bool {
        self.is_abandoned(Some(object)) || object.is(flag::CANCEL)
    }

    /// Returns whether the trailers of the response are passed on and may be yet to come.
    #[inline]
    fn awaits_trailers(&self, connection: &OriginConnection) -> bool {
        self.exchange.trailers.is_some()
            && !connection.reply().is_bodyless()
            && connection.stream().is_some_and(|stream| !stream.is_drained())
    }

    /// Waits for the trailers behind an empty body, if they are passed on.
    #[inline]
    async fn end_empty_body(
        &mut self,
        connection: &mut OriginConnection,
        draft: &Draft,
    ) -> Result<(), String> {
        if self.awaits_trailers(connection) {
            // Boxed: the future is large.
            Box::pin(self.end_stream(connection, draft)).await?;
        }
        self.keep_trailers(connection);
        Ok(())
    }

    /// Records the end of a body.
    async fn end_body(
        &mut self,
        connection: &mut OriginConnection,
        draft: &Draft,
        status: BodyStatus,
    ) -> Result<(), String> {
        if connection.stream().is_some() {
            if status == BodyStatus::Length {
                self.end_stream(connection, draft).await?;
            }
            self.keep_trailers(connection);
        } else if status == BodyStatus::Eof {
            connection.close_unless_closing(SessClose::RespClose);
            return Ok(());
        }
        connection.reply_mut().end();
        Ok(())
    }

    /// Waits for the end of the stream after a body of a known length, so that a longer body is not taken for a whole one.
    async fn end_stream(&mut self, connection: &mut OriginConnection, draft: &Draft) -> Result<(), String> {
        let (abandonment, mut more) = (self.abandonment(Some(&draft.object)), [0]);
        // Boxed: the future is large.
        let mut read = Box::pin(read_timed(connection, &self.exchange.deadline, &mut more));
        let done = abandonment.unless(read.as_mut()).await;
        drop(read);
        match done {
            None => self.stop(connection, draft),
            Some(Ok(0)) => Ok(()),
            Some(Ok(_)) => Err("the body is longer than Content-Length".to_owned()),
            Some(Err(e)) => {
                self.log_read_error(&e);
                Err(SHORT_BODY.to_owned())
            }
        }
    }

    /// Stops the transfer of a body whose rest is not needed. Returns an error if the fetch itself is abandoned.
    fn stop(&mut self, connection: &mut OriginConnection, draft: &Draft) -> Result<(), String> {
        connection.must_close(SessClose::RxBody);
        self.skip_rest(draft).inspect(|()| self.note_abandoned())
    }

    /// Ends the storing of a body whose rest is not needed. It succeeds only if the one reader of the object has stopped: in
    /// all other cases, later requests would take the stored bytes for the whole body.
    fn skip_rest(&mut self, draft: &Draft) -> Result<(), String> {
        if draft.object.is(flag::CANCEL) && !self.is_abandoned(Some(&draft.object)) {
            return Ok(());
        }
        self.note_abandoned();
        Err(String::new())
    }

    fn note_abandoned(&mut self) {
        self.task.log_mut().put(Tag::Debug, b"Fetch: Pass delivery abandoned");
        self.task.services().counters().fetch_abandoned.add(1);
    }
}

/// The cost of one eviction, as the number of bytes that can be stored in the same time.
const EVICTION: usize = 8 * 1024;
/// The number of unfiltered bytes that can be stored in the time in which a filter outputs one byte.
const STORED_PER_MADE: usize = 4;
/// The log text for a body shorter than its Content-Length; as in Varnish.
const SHORT_BODY: &str = "straight insufficient bytes";
const UNREADABLE: &str = "The stored part of the body cannot be read";

/// The largest number of bytes in one read.
pub const PIECE: usize = 64 * 1024;

/// Reads the next piece of the body into the start of `buffer`. Returns its length.
async fn next_piece(
    connection: &mut OriginConnection,
    deadline: &Deadline,
    buffer: &mut Vec<u8>,
    most: usize,
) -> io::Result<usize> {
    let ahead = connection.rx().read_ahead().len();
    if ahead > 0 && ahead <= most && crate::knobs::fetch_fragment() == 0 {
        *buffer = connection.rx_mut().take_read_ahead();
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
    let limit = clock::limit(connection.waits().between_bytes);
    let most = match crate::knobs::fetch_fragment() {
        0 => buf.len(),
        fragment => fragment.min(buf.len()),
    };
    let read = deadline.limit(deadline.now(), limit, connection.rx_mut().read(&mut buf[..most])).await;
    read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}
