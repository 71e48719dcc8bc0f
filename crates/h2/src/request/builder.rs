//! Assembles a request from decoded fields: each becomes a line of the message, in an area of the request's workspace.
//! HTTP/2 and HTTP/3 share it. The rules that differ depend on the [`Version`].

use super::check::{CALM, Log, MALFORMED, Role, add_trailer, check, connection_specific, shown, unknown};
use super::{Body, Limits, Version, connect, extended};
use crate::error_table::{Error, Reason};
use crate::fault::{Note, Tag};
use crate::hpack::Line;
use lacquer_http::h1::{Framing, canonical_request_length, content_length};
use lacquer_http::header_table::{COOKIE, HOST};
use lacquer_http::trailers::RequestTrailers;
use lacquer_http::workspace::Mark;
use lacquer_http::{BodyStatus, Field, Filter, Message, Slot, Text, Workspace, fixed};

const REQ_SIZE: Error = Error::Stream(Reason::ReqSize);

/// The index in `:authority` from which it is overwritten to become `host`.
const HOST_IN_AUTHORITY: usize = ":authority".len() - "host".len();

/// A request whose headers are complete and valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    pub body: Body,
    /// The request was an extended CONNECT. Its "body" is the client's side of the tunnel.
    pub is_extended: bool,
}

impl RequestHead {
    /// Returns how the end of the body is indicated. The bytes of a tunnel are no body.
    pub fn framing(&self) -> Framing {
        match self.body {
            Body::Tunnel | Body::None => Framing::NONE,
            Body::Length(length) => Framing { status: BodyStatus::Length, content_length: length },
            Body::UntilEnd => Framing::EOF,
        }
    }
}

/// The fields of a request, or of trailers, that were decoded so far.
#[derive(Debug)]
pub struct RequestBuilder {
    version: Version,
    /// The end of the workspace's contents before decoding.
    mark: Mark,
    /// The area for the lines, which are stored one after the other with a NUL between them.
    area: Text,
    used: usize,
    hdr_len: usize,
    /// The number of bytes by which the decoded fields may still grow.
    left: usize,
    seen: Seen,
    /// Pseudo-headers must precede other fields.
    ordered: bool,
    /// Extended CONNECT is available.
    extended_connect: bool,
    /// The fields so far, if the block contains trailers.
    trailers: Option<Box<RequestTrailers>>,
    /// The error of the stream. It is reported at the end of the block.
    error: Option<Error>,
    /// The buffer for fields that are discarded.
    spill: Vec<u8>,
}

/// The kinds of fields that the request contains so far.
#[derive(Debug, Default)]
struct Seen {
    scheme: bool,
    authority: bool,
    /// The value of `:protocol`.
    protocol: Option<Text>,
    /// A field that is not a pseudo-header.
    header: bool,
}

impl RequestBuilder {
    /// Begins a request: clears `msg` and allocates an area of the workspace.
    pub fn begin(version: Version, ws: &mut Workspace, msg: &mut Message, limits: &Limits) -> RequestBuilder {
        msg.clear();
        let proto = match version {
            Version::Http2 => fixed::HTTP_20,
            Version::Http3 => fixed::HTTP_30,
        };
        msg.put(ws, Slot::Proto, proto);
        let mark = ws.mark();
        let area = ws.alloc(limits.req_size.min(ws.free_space())).unwrap_or(Text::EMPTY);
        RequestBuilder { area, ..RequestBuilder::new(version, mark, limits) }
    }

    /// Begins a request that is refused with `error`. Its fields are discarded. The workspace and the message that are
    /// passed to the other functions are not changed.
    pub fn refused(version: Version, error: Error, limits: &Limits) -> RequestBuilder {
        let nowhere = Workspace::new(0).mark();
        RequestBuilder { error: Some(error), ..RequestBuilder::new(version, nowhere, limits) }
    }

    /// Begins trailers, which end a request whose headers were received before. They must end with
    /// [`RequestBuilder::finish_trailers`].
    pub fn trailers(version: Version, limits: &Limits) -> RequestBuilder {
        let nowhere = Workspace::new(0).mark();
        RequestBuilder { trailers: Some(Box::default()), ..RequestBuilder::new(version, nowhere, limits) }
    }

    fn new(version: Version, mark: Mark, limits: &Limits) -> RequestBuilder {
        RequestBuilder {
            version,
            mark,
            area: Text::EMPTY,
            used: 0,
            hdr_len: limits.hdr_len,
            left: limits.list_size,
            seen: Seen::default(),
            ordered: limits.ordered || version == Version::Http3,
            extended_connect: limits.extended_connect,
            trailers: None,
            error: None,
            spill: Vec::new(),
        }
    }

    /// Returns the error of the stream, if a field was faulty.
    pub fn error(&self) -> Option<Error> {
        self.error
    }

    /// Returns the buffer to which the next field must be decoded.
    #[inline]
    pub fn field_buffer<'a>(&'a mut self, ws: &'a mut Workspace) -> &'a mut [u8] {
        match self.error {
            None if self.trailers.is_none() => &mut ws.get_mut(self.area)[self.used..],
            _ => &mut self.spill[..],
        }
    }

    /// Provides a buffer of `size` bytes for a field that does not fit. A request whose fields do not fit into its
    /// workspace has an error of the stream.
    pub fn overflow(&mut self, size: usize) {
        if self.trailers.is_none() {
            self.error.get_or_insert(REQ_SIZE);
        }
        self.spill.resize(size, 0);
    }

    /// Adds the field that was just decoded. An error here ends the connection.
    #[inline]
    pub fn add(
        &mut self,
        line: Line,
        ws: &mut Workspace,
        msg: &mut Message,
        log: Log<'_>,
    ) -> Result<(), Error> {
        if self.error.is_none() {
            let taken = match &mut self.trailers {
                Some(trailers) => add_trailer(trailers, line, &self.spill[..line.len], self.hdr_len, log),
                None => self.take(line, ws, msg, log),
            };
            self.error = taken.err();
        }
        self.left = self.left.checked_sub(line.len + 1).ok_or_else(|| too_large(log))?;
        Ok(())
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
            Role::Header => {
                self.seen.header = true;
                header(whole, whole, line.name_len, ws, msg, log)
            }
            _ if self.seen.header && self.ordered => Err(late(&shown(ws.get(whole), line.name_len), log)),
            Role::Protocol if !self.extended_connect => Err(unknown(ws.get(whole), log)),
            Role::Protocol => {
                let is_second = self.seen.protocol.replace(whole.tail(line.name_len + 2)).is_some();
                if is_second { Err(duplicate(":protocol", log)) } else { Ok(()) }
            }
            Role::Method => start_line(Slot::Method, whole, line, ws, msg, log),
            Role::Path => start_line(Slot::Url, whole, line, ws, msg, log),
            Role::Scheme => {
                // VCL reads it as an ordinary header.
                header(whole.tail(1), whole, line.name_len - 1, ws, msg, log)?;
                once(&mut self.seen.scheme, ":scheme", log)
            }
            Role::Authority => {
                ws.get_mut(whole)[HOST_IN_AUTHORITY..line.name_len].copy_from_slice(b"host");
                header(whole.tail(HOST_IN_AUTHORITY), whole, "host".len(), ws, msg, log)?;
                once(&mut self.seen.authority, ":authority", log)
            }
        }
    }

    /// Ends the request. Returns the request, unless the stream has a fault.
    pub fn finish(
        self,
        ws: &mut Workspace,
        msg: &mut Message,
        end_stream: bool,
        log: Log<'_>,
    ) -> Result<RequestHead, Error> {
        match self.error {
            Some(error) => {
                if error == REQ_SIZE {
                    log(Note::new(Tag::LostHeader, "Header list too large (http_req_size)"));
                }
                return Err(error);
            }
            None if !self.seen.scheme && !self.is_plain_connect(ws, msg) => {
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
        if self.seen.authority {
            join_hosts(ws, msg);
        }
        let is_connect = connect::is_connect(ws, msg);
        if let Some(protocol) = self.seen.protocol {
            extended::become_upgrade(ws, msg, protocol, log)?;
        } else if is_connect {
            connect::set_target(ws, msg, (self.seen.scheme, self.seen.authority), log)?;
        }
        let body = request(self.version, ws, msg, end_stream, log)?;
        let is_extended = self.seen.protocol.is_some();
        // The data after a CONNECT is no body (RFC 9110 section 9.3.6).
        let body = if is_connect && body == Body::UntilEnd { Body::Tunnel } else { body };
        Ok(RequestHead { body, is_extended })
    }

    /// Returns whether the request is a CONNECT without a protocol, which has no scheme.
    #[cold]
    fn is_plain_connect(&self, ws: &Workspace, msg: &Message) -> bool {
        self.seen.protocol.is_none() && connect::is_connect(ws, msg)
    }

    /// Ends trailers. Returns the fields that may be passed on.
    pub fn finish_trailers(self) -> Result<Box<RequestTrailers>, Error> {
        self.error.map_or(Ok(self.trailers.unwrap_or_default()), Err)
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
fn request(
    version: Version,
    ws: &Workspace,
    msg: &Message,
    end_stream: bool,
    log: Log<'_>,
) -> Result<Body, Error> {
    let mut debug = |text: &'static str| {
        log(Note::new(Tag::Debug, text));
        MALFORMED
    };
    let length = content_length(msg, ws).map_err(|_| debug("Non-parseable Content-Length"))?;
    let body = match length {
        Some(1..) if end_stream && version == Version::Http3 => {
            return Err(debug("H3: rx headers at the end of the stream and content-length > 0"));
        }
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
    if version == Version::Http3 && is_without_host(ws, msg) {
        log(Note::new(Tag::Debug, "Missing :authority"));
        return Err(MALFORMED);
    }
    Ok(body)
}

/// Returns whether the request has no host, or an empty one. HTTP/3 requires one for `http` and `https` (RFC 9114
/// section 4.3.1).
fn is_without_host(ws: &Workspace, msg: &Message) -> bool {
    msg.get(ws, HOST).is_none_or(<[u8]>::is_empty)
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
fn late(name: &str, log: Log<'_>) -> Error {
    log(Note::new(Tag::BogoHeader, format!("Pseudo-header after other fields: {name}")));
    MALFORMED
}

#[cold]
pub(super) fn too_large(log: Log<'_>) -> Error {
    log(Note::new(Tag::SessError, "Header list too large (h2_max_header_list_size)"));
    Error::Connection(Reason::EnhanceYourCalm)
}
