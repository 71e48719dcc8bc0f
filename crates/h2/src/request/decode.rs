//! Decodes a header block that arrives in fragments into a message.

use super::check::{CALM, Log, MALFORMED, Role, check, check_trailer, connection_specific, shown};
use super::{Body, Limits};
use crate::error_table::{Error, Reason};
use crate::fault::{Note, Tag};
use crate::hpack::{Decoder, HpackError, Line, Step, TRUNCATED};
use lacquer_http::h1::{canonical_request_length, content_length};
use lacquer_http::header_table::{COOKIE, HOST};
use lacquer_http::workspace::Mark;
use lacquer_http::{Field, Filter, Message, Slot, Text, Workspace, fixed};

const REQ_SIZE: Error = Error::Stream(Reason::ReqSize);
const DAMAGED: Error = Error::Connection(Reason::CompressionError);

/// The index in `:authority` from which it is overwritten to become `host`.
const HOST_IN_AUTHORITY: usize = ":authority".len() - "host".len();

/// A request whose headers are complete and valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    pub body: Body,
}

/// The numbers of bytes by which a header block may still grow: encoded and decoded.
#[derive(Debug)]
struct Allowance {
    encoded: usize,
    decoded: usize,
}

/// A header block that is being received. A connection has at most one.
#[derive(Debug)]
pub struct RequestDecoder {
    /// The end of the workspace's contents before decoding.
    mark: Mark,
    /// The area for the lines, which are stored one after the other with a NUL between them.
    area: Text,
    used: usize,
    hdr_len: usize,
    left: Allowance,
    /// An incomplete field, and the minimum number of bytes that it needs.
    rest: Vec<u8>,
    needed: usize,
    has_scheme: bool,
    has_authority: bool,
    /// The block contains trailers, which are checked and discarded.
    is_trailers: bool,
    /// The error of the stream. It is reported at the end of the block.
    error: Option<Error>,
    /// The buffer for fields that are discarded.
    spill: Vec<u8>,
}

impl RequestDecoder {
    /// Begins a block: clears `msg` and allocates an area of the workspace.
    pub fn begin(
        decoder: &mut Decoder,
        ws: &mut Workspace,
        msg: &mut Message,
        limits: &Limits,
    ) -> RequestDecoder {
        msg.clear();
        msg.put(ws, Slot::Proto, fixed::HTTP_20);
        let mark = ws.mark();
        let area = ws.alloc(limits.req_size.min(ws.free_space())).unwrap_or(Text::EMPTY);
        RequestDecoder { area, ..RequestDecoder::new(decoder, mark, limits) }
    }

    /// Begins a block of a stream that is refused with `error`. The block is decoded because it may change the
    /// tables. The workspace and the message that are passed to the other functions are not changed.
    pub fn refused(decoder: &mut Decoder, error: Error, limits: &Limits) -> RequestDecoder {
        let nowhere = Workspace::new(0).mark();
        RequestDecoder { error: Some(error), ..RequestDecoder::new(decoder, nowhere, limits) }
    }

    /// Begins a block of trailers, which ends a request whose headers were received before. It must end with
    /// [`RequestDecoder::finish_trailers`]. Its fields are discarded.
    pub fn trailers(decoder: &mut Decoder, limits: &Limits) -> RequestDecoder {
        let nowhere = Workspace::new(0).mark();
        RequestDecoder { is_trailers: true, ..RequestDecoder::new(decoder, nowhere, limits) }
    }

    fn new(decoder: &mut Decoder, mark: Mark, limits: &Limits) -> RequestDecoder {
        decoder.begin();
        RequestDecoder {
            mark,
            area: Text::EMPTY,
            used: 0,
            hdr_len: limits.hdr_len,
            left: Allowance { encoded: limits.list_size, decoded: limits.list_size },
            rest: Vec::new(),
            needed: 0,
            has_scheme: false,
            has_authority: false,
            is_trailers: false,
            error: None,
            spill: Vec::new(),
        }
    }

    /// Decodes a fragment of the block. An error here ends the connection.
    pub fn feed(
        &mut self,
        decoder: &mut Decoder,
        fragment: &[u8],
        ws: &mut Workspace,
        msg: &mut Message,
        log: Log<'_>,
    ) -> Result<(), Error> {
        self.left.encoded = self.left.encoded.checked_sub(fragment.len()).ok_or_else(|| too_large(log))?;
        if self.rest.is_empty() {
            let consumed = self.fields(decoder, fragment, ws, msg, log)?;
            self.rest.extend_from_slice(&fragment[consumed..]);
            return Ok(());
        }
        self.rest.extend_from_slice(fragment);
        if self.rest.len() >= self.needed {
            let mut rest = std::mem::take(&mut self.rest);
            let consumed = self.fields(decoder, &rest, ws, msg, log)?;
            rest.drain(..consumed);
            self.rest = rest;
        }
        Ok(())
    }

    /// Decodes the complete fields in `input`. Returns the number of bytes that they use.
    fn fields(
        &mut self,
        decoder: &mut Decoder,
        input: &[u8],
        ws: &mut Workspace,
        msg: &mut Message,
        log: Log<'_>,
    ) -> Result<usize, Error> {
        let mut left = input;
        loop {
            let out = match self.error {
                None if !self.is_trailers => &mut ws.get_mut(self.area)[self.used..],
                _ => &mut self.spill[..],
            };
            let line = match decoder.next(&mut left, out).map_err(|error| damaged(error, log))? {
                Step::Field(line) => line,
                Step::End => return Ok(input.len()),
                Step::More { needed } => {
                    self.needed = needed;
                    return Ok(input.len() - left.len());
                }
                Step::Full => {
                    if !self.is_trailers {
                        self.error.get_or_insert(REQ_SIZE);
                    }
                    self.spill.resize(decoder.room_for(left), 0);
                    continue;
                }
            };
            if self.error.is_none() {
                let taken = if self.is_trailers {
                    check_trailer(line, &self.spill[..line.len], self.hdr_len, log)
                } else {
                    self.take(line, ws, msg, log)
                };
                self.error = taken.err();
            }
            self.left.decoded = self.left.decoded.checked_sub(line.len + 1).ok_or_else(|| too_large(log))?;
        }
    }

    /// Adds the line that was just written to the message.
    #[inline]
    fn take(&mut self, line: Line, ws: &mut Workspace, msg: &mut Message, log: Log<'_>) -> Result<(), Error> {
        let whole = self.area.slice(self.used, self.used + line.len);
        let role = check(line, ws.get(whole), self.hdr_len, log)?;
        let end = self.used + line.len;
        *ws.get_mut(self.area).get_mut(end).ok_or(REQ_SIZE)? = 0;
        self.used = end + 1;
        match role {
            Role::Header => header(whole, whole, line.name_len, ws, msg, log),
            Role::Method => start_line(Slot::Method, whole, line, ws, msg, log),
            Role::Path => start_line(Slot::Url, whole, line, ws, msg, log),
            Role::Scheme => {
                // VCL reads it as an ordinary header.
                header(whole.tail(1), whole, line.name_len - 1, ws, msg, log)?;
                once(&mut self.has_scheme, ":scheme", log)
            }
            Role::Authority => {
                ws.get_mut(whole)[HOST_IN_AUTHORITY..line.name_len].copy_from_slice(b"host");
                header(whole.tail(HOST_IN_AUTHORITY), whole, "host".len(), ws, msg, log)?;
                once(&mut self.has_authority, ":authority", log)
            }
        }
    }

    /// Ends the block. Returns the request, unless the stream has a fault.
    pub fn finish(
        self,
        ws: &mut Workspace,
        msg: &mut Message,
        end_stream: bool,
        log: Log<'_>,
    ) -> Result<RequestHead, Error> {
        self.check_end(log)?;
        match self.error {
            Some(error) => {
                if error == REQ_SIZE {
                    log(Note::new(Tag::LostHeader, "Header list too large (http_req_size)"));
                }
                return Err(error);
            }
            None if !self.has_scheme => {
                log(Note::new(Tag::Debug, "Missing :scheme"));
                return Err(Error::Stream(Reason::MissingScheme));
            }
            None => {}
        }
        // The unused rest of the area is returned to the workspace. The lines stay in place.
        ws.release(self.mark);
        let kept = ws.alloc(self.used).is_ok() && msg.collect(ws, COOKIE, b"; ").is_ok();
        if !kept {
            return Err(CALM);
        }
        if canonical_request_length(msg, ws).is_err() {
            return Err(CALM);
        }
        if self.has_authority {
            join_hosts(ws, msg);
        }
        request(ws, msg, end_stream, log)
    }

    /// Ends a block of trailers.
    pub fn finish_trailers(self, log: Log<'_>) -> Result<(), Error> {
        self.check_end(log)?;
        self.error.map_or(Ok(()), Err)
    }

    /// Fails if the block ends within a field.
    fn check_end(&self, log: Log<'_>) -> Result<(), Error> {
        if self.rest.is_empty() {
            return Ok(());
        }
        log(Note::new(Tag::BogoHeader, format!("HPACK compression error/fini ({TRUNCATED})")));
        Err(DAMAGED)
    }
}

/// Merges `:authority` and `Host`. Both may be present if they are equal (RFC 9113 section 8.3.1); then one is kept.
/// A request with two different ones is refused like any request with several `Host` headers.
fn join_hosts(ws: &mut Workspace, msg: &mut Message) {
    if msg.count(ws, HOST) < 2 {
        return;
    }
    let first = msg.get(ws, HOST).unwrap_or_default();
    let agree = msg.get_all(ws, HOST).all(|host| host.eq_ignore_ascii_case(first));
    if agree && let Some(line) = msg.find(ws, HOST).map(Field::line_text) {
        // The line is in the workspace, and there is room because two headers were removed.
        let _ = msg.set_line(ws, HOST, line, |_| ());
    }
}

/// Checks the rules for the request as a whole.
fn request(ws: &Workspace, msg: &Message, end_stream: bool, log: Log<'_>) -> Result<RequestHead, Error> {
    let mut debug = |text: &'static str| {
        log(Note::new(Tag::Debug, text));
        MALFORMED
    };
    let length = content_length(msg, ws).map_err(|_| debug("Non-parseable Content-Length"))?;
    let body = match length {
        Some(1..) if end_stream => {
            const TEXT: &str = "H2: rx header with END_STREAM and content-length > 0";
            log(Note::new(Tag::SessError, TEXT));
            return Err(Error::Connection(Reason::ProtocolError));
        }
        _ if end_stream => Body::None,
        Some(length) => Body::Length(length),
        None => Body::UntilEnd,
    };
    if msg.text(Slot::Method).is_none() {
        return Err(debug("Missing :method"));
    }
    if msg.text(Slot::Url).is_none() {
        return Err(debug("Missing :path"));
    }
    if msg.url(ws) == b"*" && msg.method(ws) != b"OPTIONS" {
        log(Note::new(Tag::BogoHeader, "Illegal :path pseudo-header"));
        return Err(MALFORMED);
    }
    Ok(RequestHead { body })
}

#[inline]
fn header(
    line: Text,
    whole: Text,
    name_len: usize,
    ws: &Workspace,
    msg: &mut Message,
    log: Log<'_>,
) -> Result<(), Error> {
    let Some(field) = msg.append_split_line(ws, line, name_len) else {
        log(Note::new(
            Tag::LostHeader,
            format!("Too many headers: {} (http_max_hdr)", shown(ws.get(whole), 20)),
        ));
        return Err(CALM);
    };
    if field.is_filtered(Filter::HTTP2) || field.name(ws) == b"te" && field.value(ws) != b"trailers" {
        return Err(connection_specific(field.name(ws), log));
    }
    Ok(())
}

fn start_line(
    slot: Slot,
    whole: Text,
    line: Line,
    ws: &Workspace,
    msg: &mut Message,
    log: Log<'_>,
) -> Result<(), Error> {
    if msg.text(slot).is_some() {
        return Err(duplicate(&shown(ws.get(whole), line.name_len), log));
    }
    msg.put(ws, slot, whole.tail(line.name_len + 2));
    Ok(())
}

fn once(seen: &mut bool, name: &str, log: Log<'_>) -> Result<(), Error> {
    if *seen {
        return Err(duplicate(name, log));
    }
    *seen = true;
    Ok(())
}

#[cold]
fn duplicate(name: &str, log: Log<'_>) -> Error {
    log(Note::new(Tag::BogoHeader, format!("Duplicate pseudo-header {name}")));
    MALFORMED
}

#[cold]
fn damaged(error: HpackError, log: Log<'_>) -> Error {
    log(Note::new(Tag::SessBogoHeader, format!("HPACK compression error ({})", error.text())));
    DAMAGED
}

#[cold]
fn too_large(log: Log<'_>) -> Error {
    log(Note::new(Tag::SessError, "Header list too large (h2_max_header_list_size)"));
    Error::Connection(Reason::EnhanceYourCalm)
}
