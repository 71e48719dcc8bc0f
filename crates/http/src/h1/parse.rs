//! Parses a head in place: the texts of the message refer to the received bytes. Folded header lines are unfolded by
//! overwriting the line end with blanks.

use super::framing::{Framing, request_framing, response_framing};
use super::length::{ResponseLength, canonical_request_length};
use super::target::{self, Target};
use crate::ascii::{
    crlf_len, find_bad_header_char, find_blank_or_ctl, find_byte, is_ctl, is_lws, is_ows, is_tchar,
    trim_ows_end,
};
use crate::fixed_text_table::{fixed, reason_text};
use crate::header_table::{HOST, UNKNOWN, classify};
use crate::message::{Field, MAX_NAME, Message, Slot};
use crate::workspace::{Text, Workspace};
use std::ops::Range;

/// A parsed request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The length of the head in bytes, including the empty line.
    pub len: usize,
    pub framing: Framing,
    /// Set if the target was an absolute URI, whose authority became `Host`. The value is the `Host` line that it
    /// replaced, or `Text::NONE`.
    pub rehosted: Option<Text>,
    /// The target as received.
    pub target: Text,
    /// Whether the target begins with "https://". The caller decides about it: [`rehost_https`].
    pub is_https: bool,
}

/// A parsed response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub len: usize,
    /// The framing according to the headers only; see [`super::response_body`].
    pub framing: Framing,
    /// The origin responded with a later protocol version than that of the request, and the version was lowered.
    pub proto_lowered: bool,
    /// The origin sent no reason, and the standard one was set.
    pub reason_added: bool,
}

/// The error for an unacceptable head. The response has `status` (400 for requests, 503 for responses). `bogo`, if
/// any, is logged as `BogoHeader`, and then the received bytes as `HttpGarbage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHead {
    pub status: u16,
    pub bogo: Option<BogoHeader>,
}

/// An error in a header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BogoHeader {
    pub kind: BogoKind,
    /// The first bytes of the line.
    pub excerpt: Text,
}

/// The errors that are logged with an excerpt of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BogoKind {
    ControlChar(u8),
    TooLong,
    LeadingBlank,
    NoName,
    BadNameChar(u8),
    NoColon,
    TooMany,
    /// The request target has a form that is refused, for this reason.
    Target(&'static str),
}

const EXCERPT: usize = 20;

/// Returns the part of a malformed head that is logged. As in Varnish it ends where the first field was cut off, if
/// the parser got that far, and never extends beyond a NUL.
pub fn garbage(head: &[u8]) -> &[u8] {
    let start = head.iter().position(|&b| !is_lws(b)).unwrap_or(0);
    let field = find_blank_or_ctl(head, start);
    let end = if head.get(field).is_some_and(|&b| is_ows(b)) { field } else { head.len() };
    &head[..find_byte(&head[..end], 0, 0).unwrap_or(end)]
}

impl BogoHeader {
    /// Returns the parameter that the head exceeds, if that is the error. `hdr_len` is the name of the parameter that
    /// limits a line.
    pub fn limit(&self, hdr_len: &'static str) -> Option<&'static str> {
        match self.kind {
            BogoKind::TooLong => Some(hdr_len),
            BogoKind::TooMany => Some("http_max_hdr"),
            _ => None,
        }
    }

    /// Writes the text of the `BogoHeader` record. `hdr_len` is the name of the parameter that limits a line.
    pub fn write(&self, ws: &Workspace, hdr_len: &str, out: &mut Vec<u8>) {
        let (text, byte) = match self.kind {
            BogoKind::ControlChar(b) => ("Header has ctrl char 0x", Some(b)),
            BogoKind::BadNameChar(b) => ("Illegal char 0x", Some(b)),
            BogoKind::TooLong => ("Header too long: ", None),
            BogoKind::LeadingBlank => ("1st header has white space: ", None),
            BogoKind::NoName => ("Missing header name: ", None),
            BogoKind::NoColon => ("Header without ':' ", None),
            BogoKind::TooMany => ("Too many headers: ", None),
            BogoKind::Target(_) => ("Illegal request target: ", None),
        };
        out.extend_from_slice(text.as_bytes());
        match byte {
            Some(b) => out.extend([b >> 4, b & 15].map(|d| b"0123456789abcdef"[d as usize])),
            None => out.extend_from_slice(ws.get(self.excerpt)),
        }
        let why = match self.kind {
            BogoKind::BadNameChar(_) => return out.extend_from_slice(b" in header name"),
            BogoKind::TooLong => hdr_len,
            BogoKind::TooMany => "http_max_hdr",
            BogoKind::Target(why) => why,
            _ => return,
        };
        out.extend_from_slice(b" (");
        out.extend_from_slice(why.as_bytes());
        out.push(b')');
    }
}

type Fail = Option<BogoHeader>;

/// Parses the request at the start of `rx`, which must contain a complete head. `hdr_len` is the parameter
/// `http_req_hdr_len`. After an error the message contains the parts that were parsed.
pub fn parse_request(
    ws: &mut Workspace,
    rx: Text,
    msg: &mut Message,
    hdr_len: usize,
) -> Result<RequestHead, BadHead> {
    msg.clear();
    let bad = |bogo| BadHead { status: 400, bogo };
    let (start, headers_at) = split_start_line(ws.get(rx)).ok_or(bad(None))?;
    if !is_method(&ws.get(rx)[start[0].clone()]) {
        return Err(bad(None));
    }
    msg.put(ws, Slot::Method, part(rx, &start[0]));
    msg.put(ws, Slot::Url, part(rx, &start[1]));
    msg.put(ws, Slot::Proto, part(rx, &start[2]));
    let len = parse_headers(ws, rx, headers_at, msg, hdr_len).map_err(bad)?;
    if !matches!(msg.version(), 10 | 11) {
        return Err(bad(None));
    }
    let url = msg.text(Slot::Url);
    let mut is_https = false;
    let rehosted = match target::classify(msg.method(ws), ws.get(url)) {
        Ok(Target::Keep) => None,
        Ok(Target::Http(authority)) => Some(rehost(ws, msg, authority).map_err(|()| bad(None))?),
        Ok(Target::Https(_)) => {
            is_https = true;
            None
        }
        Err(why) => {
            let excerpt = url.slice(0, url.len().min(EXCERPT));
            return Err(bad(Some(BogoHeader { kind: BogoKind::Target(why), excerpt })));
        }
    };
    let framing = request_framing(msg, ws).ok_or(bad(None))?;
    canonical_request_length(msg, ws).map_err(|_| bad(None))?;
    Ok(RequestHead { len, framing, rehosted, target: url, is_https })
}

/// Parses the response to `request_version` (10 or 11) at the start of `rx`.
pub fn parse_response(
    ws: &mut Workspace,
    rx: Text,
    msg: &mut Message,
    hdr_len: usize,
    request_version: u8,
) -> Result<ResponseHead, BadHead> {
    msg.clear();
    let bad = |bogo| BadHead { status: 503, bogo };
    let (start, headers_at) = split_start_line(ws.get(rx)).ok_or(bad(None))?;
    msg.put(ws, Slot::Proto, part(rx, &start[0]));
    msg.put(ws, Slot::Status, part(rx, &start[1]));
    let reason = part(rx, &start[2]);
    let len = parse_headers(ws, rx, headers_at, msg, hdr_len).map_err(bad)?;
    if msg.version() < 10 {
        return Err(bad(None));
    }
    let status = match *msg.status_text(ws) {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => return Err(bad(None)),
    };
    msg.set_raw_status(status);
    msg.put(ws, Slot::Reason, if reason.is_empty() { reason_text(status) } else { reason });
    let length = ResponseLength::of(msg, ws);
    let framing = response_framing(msg, ws, &length);
    length.make_canonical(msg, ws).map_err(|_| bad(None))?;
    let proto_lowered = msg.version() > request_version;
    if proto_lowered {
        msg.put(ws, Slot::Proto, if request_version == 10 { fixed::HTTP_10 } else { fixed::HTTP_11 });
    }
    Ok(ResponseHead { len, framing, proto_lowered, reason_added: reason.is_empty() })
}

fn part(rx: Text, range: &Range<usize>) -> Text {
    rx.slice(range.start, range.end)
}

/// Returns the three fields of the start line and the index of the next line. The third field may be empty, but must
/// not begin with a tab.
fn split_start_line(buf: &[u8]) -> Option<([Range<usize>; 3], usize)> {
    let mut at = buf.iter().position(|&b| !is_lws(b))?;
    let first = at;
    at = find_blank_or_ctl(buf, at);
    let first = first..at;
    if !is_ows(*buf.get(at)?) {
        return None;
    }
    at = skip_spaces(buf, at + 1)?;
    let second = at;
    at = find_blank_or_ctl(buf, at);
    let end = *buf.get(at)?;
    if is_ctl(end) && !is_lws(end) || second == at {
        return None;
    }
    let second = second..at;
    at = skip_spaces(buf, at)?;
    let third = at;
    at = find_bad_header_char(buf, at);
    let line_end = crlf_len(buf, at);
    (line_end > 0 && buf[third] != b'\t').then_some(([first, second, third..at], at + line_end))
}

/// Returns whether this is a method: a token (RFC 9110 section 9.1). A leading colon is accepted, because one of
/// Varnish's public test cases has it.
#[inline]
fn is_method(method: &[u8]) -> bool {
    if matches!(method, b"GET" | b"HEAD" | b"POST") {
        return true;
    }
    let token = method.strip_prefix(b":").unwrap_or(method);
    !token.is_empty() && token.iter().all(|&b| is_tchar(b))
}

/// Returns the index after the spaces from `at` on, or `None` at the end of the input.
fn skip_spaces(buf: &[u8], mut at: usize) -> Option<usize> {
    while *buf.get(at)? == b' ' {
        at += 1;
    }
    Some(at)
}

/// Adds the header lines from `at` on. Returns the index after the head.
fn parse_headers(
    ws: &mut Workspace,
    rx: Text,
    mut at: usize,
    msg: &mut Message,
    hdr_len: usize,
) -> Result<usize, Fail> {
    let buf = ws.get_mut(rx);
    loop {
        let end = crlf_len(buf, at);
        if end > 0 {
            return Ok(at + end);
        }
        let mut line_end = find_bad_header_char(buf, at);
        let mut next = line_end + 2;
        if !matches!(buf.get(line_end..), Some([b'\r', b'\n', first, ..]) if !is_ows(*first)) {
            (line_end, next) = find_line_end(buf, at, line_end)?;
        }
        let line = &buf[at..line_end];
        let bogo = |kind| Some(BogoHeader { kind, excerpt: rx.slice(at, line_end.min(at + EXCERPT)) });
        let field = match parse_known(line, rx.offset() + at) {
            Some(field) if line.len() <= hdr_len => field,
            _ => parse_line(line, rx.offset() + at, hdr_len).map_err(bogo)?,
        };
        if !msg.has_room() {
            return Err(bogo(BogoKind::TooMany));
        }
        msg.push_unchecked(field);
        at = next;
    }
}

/// Unfolds the line at `at`, whose text does not simply end with CRLF at `end`. Returns its end and the start of the
/// next line. Fails at a control character, and at the end of the input.
#[inline(never)]
fn find_line_end(buf: &mut [u8], at: usize, mut end: usize) -> Result<(usize, usize), Fail> {
    if at >= buf.len() {
        return Err(None);
    }
    loop {
        let newline = crlf_len(buf, end);
        if newline == 0 {
            let kind = BogoKind::ControlChar(buf.get(end).copied().unwrap_or(0));
            return Err(Some(BogoHeader { kind, excerpt: Text::EMPTY }));
        }
        let next = end + newline;
        if !buf.get(next).is_some_and(|&b| is_ows(b)) {
            return Ok((end, next));
        }
        let blanks = buf[next..].iter().take_while(|&&b| is_ows(b)).count();
        buf[end..next + blanks].fill(b' ');
        end = find_bad_header_char(buf, end);
    }
}

/// Returns the field of the line at `at` if its name is known, without checking the characters of the name.
#[inline]
fn parse_known(line: &[u8], at: usize) -> Option<Field> {
    let line = trim_ows_end(line);
    let colon = find_byte(line, 0, b':')?;
    let id = classify(&line[..colon]);
    (id != UNKNOWN).then(|| Field::classified(Text::at(at, line.len()), line, colon, id))
}

#[inline(never)]
fn parse_line(line: &[u8], at: usize, hdr_len: usize) -> Result<Field, BogoKind> {
    if line.len() > hdr_len {
        return Err(BogoKind::TooLong);
    }
    match line.first() {
        Some(&b) if is_ows(b) => return Err(BogoKind::LeadingBlank),
        Some(b':') => return Err(BogoKind::NoName),
        _ => {}
    }
    let line = trim_ows_end(line);
    let colon = line.iter().position(|&b| !is_tchar(b)).ok_or(BogoKind::NoColon)?;
    if line[colon] != b':' {
        return Err(BogoKind::BadNameChar(line[colon]));
    }
    if colon > MAX_NAME {
        return Err(BogoKind::TooLong);
    }
    Ok(Field::new(Text::at(at, line.len()), line, colon))
}

/// Replaces `Host` with the authority of "GET http://host/path" (RFC 9112 section 3.2.2). Returns the line that it
/// replaced.
fn rehost(ws: &mut Workspace, msg: &mut Message, authority: Range<usize>) -> Result<Text, ()> {
    let url = msg.text(Slot::Url);
    let old = msg.fields().iter().find(|f| f.is(ws, HOST)).map_or(Text::NONE, Field::line_text);
    msg.unset(ws, HOST, |_| ());
    let prefix = ws.copy(b"Host: ").map_err(drop)?;
    let line = ws.join(&[prefix, url.slice(authority.start, authority.end)]).map_err(drop)?;
    msg.append_line(ws, line).map_err(drop)?;
    let rest = url.tail(authority.end);
    let path = match ws.get(rest).first() {
        Some(b'/') => rest,
        // An empty path means "/", or the server as a whole (RFC 9112 section 3.2.4).
        None if msg.method(ws) == b"OPTIONS" => ws.copy(b"*").map_err(drop)?,
        _ => {
            let slash = ws.copy(b"/").map_err(drop)?;
            ws.join(&[slash, rest]).map_err(drop)?
        }
    };
    msg.put(ws, Slot::Url, path);
    Ok(old)
}

/// Treats a target that begins with "https://" like one with "http://", if `is_allowed` (the feature `https_scheme`).
/// Otherwise it is refused: its host would be ignored. Must be called after [`parse_request`].
#[cold]
pub fn rehost_https(
    ws: &mut Workspace,
    msg: &mut Message,
    head: RequestHead,
    is_allowed: bool,
) -> Result<RequestHead, BadHead> {
    let bad = |bogo| BadHead { status: 400, bogo };
    match target::classify(msg.method(ws), msg.url(ws)) {
        Ok(Target::Https(authority)) if is_allowed => {
            let old = rehost(ws, msg, authority).map_err(|()| bad(None))?;
            Ok(RequestHead { rehosted: Some(old), ..head })
        }
        Ok(Target::Https(_)) => {
            let excerpt = head.target.slice(0, head.target.len().min(EXCERPT));
            let why = "https without feature https_scheme";
            Err(bad(Some(BogoHeader { kind: BogoKind::Target(why), excerpt })))
        }
        _ => Ok(head),
    }
}
