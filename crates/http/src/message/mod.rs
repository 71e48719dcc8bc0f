//! An HTTP message: the fields of the start line and a list of header lines. All of them are texts in one
//! [`Workspace`]. A header is its whole line ("Name: value"), so the log and the wire need a single slice. A message
//! does not own its workspace: a request, its unmodified copy and the response share one. The list of slots is reused
//! from request to request.

mod edit;
mod tokens;
mod transfer;

use crate::ascii::is_ows;
use crate::fixed_text_table::{self, fixed};
use crate::header_table::{self, Filter, HeaderName, UNKNOWN, bit};
use crate::workspace::{Overflow, Text, Workspace};

pub use tokens::split_list;
pub(crate) use transfer::{LINE_END, write_lines};

/// The fields of the start line, with the numbers of the corresponding log tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Method = 0,
    Url = 1,
    Proto = 2,
    Status = 3,
    Reason = 4,
}

impl Slot {
    pub const ALL: [Slot; FIRST_HEADER] = [Slot::Method, Slot::Url, Slot::Proto, Slot::Status, Slot::Reason];
}

/// The number of slots of `http_max_hdr` that the start line uses.
pub const FIRST_HEADER: usize = 5;

/// One header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The whole line: "Name: value".
    pub line: Text,
    value_off: u32,
    name_len: u16,
    id: u8,
    /// The message's `Connection` header names it, so it is not forwarded.
    pub dropped: bool,
}

/// The maximum length of a header name.
pub(crate) const MAX_NAME: usize = u16::MAX as usize;

impl Field {
    /// Creates a field from a line and the index of its colon. The value begins after the blanks.
    pub(crate) fn new(line: Text, bytes: &[u8], colon: usize) -> Field {
        Field::classified(line, bytes, colon, header_table::classify(&bytes[..colon]))
    }

    /// Creates a field like [`Field::new`], from a line whose name is already classified.
    #[inline]
    pub(crate) fn classified(line: Text, bytes: &[u8], colon: usize, id: u8) -> Field {
        Field::from_parts(line, colon, skip_blanks(bytes, colon + 1), id)
    }

    /// Parses a line. Returns `None` if it has no name.
    pub(crate) fn parse(line: Text, bytes: &[u8]) -> Option<Field> {
        let colon = bytes.iter().take(MAX_NAME + 1).position(|&b| b == b':')?;
        (colon > 0).then(|| Field::new(line, bytes, colon))
    }

    #[inline]
    pub(crate) fn from_parts(line: Text, name_len: usize, value_off: usize, id: u8) -> Field {
        Field { line, value_off: value_off as u32, name_len: name_len as u16, id, dropped: false }
    }

    /// Returns whether exactly one blank separates the colon and the value.
    pub(crate) fn is_plain(&self) -> bool {
        self.value_off as usize == self.name_len as usize + 2
    }

    pub(crate) fn id(&self) -> u8 {
        self.id
    }

    #[inline]
    pub fn line<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.line)
    }

    pub fn line_text(&self) -> Text {
        self.line
    }

    pub fn name_text(&self) -> Text {
        self.line.slice(0, self.name_len as usize)
    }

    pub fn name<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.name_text())
    }

    #[inline]
    pub fn value_text(&self) -> Text {
        self.line.tail(self.value_off as usize)
    }

    #[inline]
    pub fn value<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.value_text())
    }

    #[inline]
    pub fn is(&self, ws: &Workspace, name: HeaderName<'_>) -> bool {
        if name.id != UNKNOWN || self.id != UNKNOWN {
            return self.id == name.id;
        }
        // Custom header names often have a common prefix and differ at the end.
        let last = |name: &[u8]| name.last().map(|b| b | 0x20);
        self.name_len as usize == name.bytes.len()
            && last(self.name(ws)) == last(name.bytes)
            && self.name(ws).eq_ignore_ascii_case(name.bytes)
    }

    /// Returns whether `filter` drops the header.
    #[inline]
    pub fn is_filtered(&self, filter: Filter) -> bool {
        self.dropped || filter.has(self.id)
    }
}

/// A request or a response.
#[derive(Debug)]
pub struct Message {
    start: [Text; FIRST_HEADER],
    status: u16,
    version: u8,
    max_fields: u16,
    /// The set of known headers that may be present, by number. Bit 0 represents the unknown ones. A header that is
    /// not in the set need not be searched.
    seen: u64,
    fields: Vec<Field>,
}

/// Returns the index of the first non-blank from `at` on.
#[inline]
pub(crate) fn skip_blanks(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|&b| is_ows(b)) {
        at += 1;
    }
    at.min(line.len())
}

impl Clone for Message {
    fn clone(&self) -> Message {
        Message { fields: self.fields.clone(), ..*self }
    }

    /// Copies into the existing slots. The copy shares the texts, so it belongs to the same workspace.
    fn clone_from(&mut self, source: &Message) {
        self.start = source.start;
        self.status = source.status;
        self.version = source.version;
        self.max_fields = source.max_fields;
        self.seen = source.seen;
        self.fields.clone_from(&source.fields);
    }
}

impl Default for Message {
    /// Creates a message without room for headers.
    fn default() -> Message {
        Message {
            start: [Text::NONE; FIRST_HEADER],
            status: 0,
            version: 0,
            max_fields: 0,
            seen: 0,
            fields: Vec::new(),
        }
    }
}

impl Message {
    /// Creates a message. `max_hdr` is the parameter `http_max_hdr`, which includes the five slots of the start line.
    pub fn new(max_hdr: usize) -> Message {
        let mut message = Message::default();
        message.set_max_hdr(max_hdr);
        message
    }

    pub fn set_max_hdr(&mut self, max_hdr: usize) {
        self.max_fields = max_hdr.saturating_sub(FIRST_HEADER).min(u16::MAX as usize) as u16;
    }

    pub fn clear(&mut self) {
        self.start = [Text::NONE; FIRST_HEADER];
        self.status = 0;
        self.version = 0;
        self.seen = 0;
        self.fields.clear();
    }

    /// Returns the maximum number of headers.
    pub(crate) fn max_fields(&self) -> usize {
        self.max_fields as usize
    }

    // The start line

    pub fn text(&self, slot: Slot) -> Text {
        self.start[slot as usize]
    }

    pub fn method<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.text(Slot::Method))
    }

    pub fn url<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.text(Slot::Url))
    }

    pub fn proto<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.text(Slot::Proto))
    }

    pub fn status_text<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.text(Slot::Status))
    }

    pub fn reason<'w>(&self, ws: &'w Workspace) -> &'w [u8] {
        ws.get(self.text(Slot::Reason))
    }

    /// Returns the status as in VCL, which may exceed 999.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns ten times the protocol version: 10, 11, 20, or 0 if the protocol is not an HTTP version.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Sets a field of the start line to a text of the message's workspace or a fixed text. `Slot::Status` should be
    /// set with [`Message::set_status`].
    #[inline]
    pub fn put(&mut self, ws: &Workspace, slot: Slot, text: Text) {
        self.start[slot as usize] = text;
        if slot == Slot::Proto {
            self.put_protocol(ws, text);
        }
    }

    #[inline]
    fn put_protocol(&mut self, ws: &Workspace, text: Text) {
        if text == fixed::HTTP_11 || ws.get(text) == b"HTTP/1.1" {
            self.start[Slot::Proto as usize] = fixed::HTTP_11;
            self.version = 11;
        } else {
            self.version = version_of(ws.get(text));
        }
    }

    /// Sets a field of the start line to `bytes`, which are copied into the workspace unless they are in it.
    pub fn put_copy(&mut self, ws: &mut Workspace, slot: Slot, bytes: &[u8]) -> Result<Text, Overflow> {
        let text = match ws.place_of(bytes) {
            Some(text) => text,
            None => ws.copy(bytes)?,
        };
        self.put(ws, slot, text);
        Ok(text)
    }

    /// Sets the status and its standard reason. The digits on the wire are `status` modulo 1000.
    pub fn set_status(&mut self, ws: &mut Workspace, status: u16) -> Result<(), Overflow> {
        self.set_status_reason(ws, status, fixed_text_table::reason_text(status))
    }

    pub fn set_status_reason(
        &mut self,
        ws: &mut Workspace,
        status: u16,
        reason: Text,
    ) -> Result<(), Overflow> {
        self.start[Slot::Reason as usize] = reason;
        let digits = match fixed_text_table::status_text(status) {
            Some(text) => text,
            None => {
                let n = status % 1000;
                ws.copy(&[n / 100, n / 10 % 10, n % 10].map(|d| b'0' + d as u8))?
            }
        };
        self.status = status;
        self.start[Slot::Status as usize] = digits;
        Ok(())
    }

    /// Sets protocol HTTP/1.1, `status` and its reason.
    pub fn set_response(&mut self, ws: &mut Workspace, status: u16) -> Result<(), Overflow> {
        self.put(ws, Slot::Proto, fixed::HTTP_11);
        self.set_status(ws, status)
    }

    /// Sets a response like [`Message::set_response`], for a known status. Returns false if the status is unknown.
    #[inline]
    pub(crate) fn set_known_response(&mut self, status: u16) -> bool {
        let Some((digits, reason)) = fixed_text_table::known_status(status) else { return false };
        self.start[Slot::Proto as usize..].copy_from_slice(&[fixed::HTTP_11, digits, reason]);
        (self.status, self.version) = (status, 11);
        true
    }

    pub(crate) fn set_raw_status(&mut self, status: u16) {
        self.status = status;
    }

    // Headers

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the header lines in order.
    pub fn lines<'w>(&self, ws: &'w Workspace) -> impl Iterator<Item = &'w [u8]> {
        self.fields.iter().map(|f| ws.get(f.line))
    }

    /// Returns false only if there is certainly no such header.
    #[inline]
    fn may_have(&self, name: HeaderName<'_>) -> bool {
        self.seen & bit(name.id) != 0
    }

    #[inline]
    pub fn find(&self, ws: &Workspace, name: HeaderName<'_>) -> Option<&Field> {
        if self.may_have(name) { self.search(ws, name) } else { None }
    }

    #[inline(never)]
    fn search(&self, ws: &Workspace, name: HeaderName<'_>) -> Option<&Field> {
        if name.id == UNKNOWN {
            self.search_unknown(ws, name)
        } else {
            self.fields.iter().find(|f| f.id == name.id)
        }
    }

    /// Separate from `search`, because a search by number needs only few registers.
    #[inline(never)]
    fn search_unknown(&self, ws: &Workspace, name: HeaderName<'_>) -> Option<&Field> {
        self.fields.iter().find(|f| f.is(ws, name))
    }

    /// Returns the value of the first header of this name, without leading blanks.
    #[inline]
    pub fn get<'w>(&self, ws: &'w Workspace, name: HeaderName<'_>) -> Option<&'w [u8]> {
        self.find(ws, name).map(|f| f.value(ws))
    }

    /// Returns the value like [`Message::get`], as a text; [`Text::NONE`] without such a header.
    #[inline]
    pub(crate) fn get_text(&self, ws: &Workspace, name: HeaderName<'_>) -> Text {
        self.find(ws, name).map_or(Text::NONE, Field::value_text)
    }

    pub fn get_all<'w>(&self, ws: &'w Workspace, name: HeaderName<'_>) -> impl Iterator<Item = &'w [u8]> {
        let fields = if self.may_have(name) { &self.fields[..] } else { &[] };
        fields.iter().filter(move |f| f.is(ws, name)).map(|f| f.value(ws))
    }

    #[inline]
    pub fn has(&self, ws: &Workspace, name: HeaderName<'_>) -> bool {
        self.find(ws, name).is_some()
    }

    #[inline]
    pub fn count(&self, ws: &Workspace, name: HeaderName<'_>) -> usize {
        if !self.may_have(name) {
            return 0;
        }
        self.fields.iter().filter(|f| f.is(ws, name)).count()
    }

    /// Returns whether the first header of this name has exactly this value, ignoring case.
    #[inline]
    pub fn value_is(&self, ws: &Workspace, name: HeaderName<'_>, value: &[u8]) -> bool {
        self.get(ws, name).is_some_and(|v| v.eq_ignore_ascii_case(value))
    }
}

/// Returns 11 for "HTTP/1.1", and 0 for anything other than HTTP/d.d.
fn version_of(proto: &[u8]) -> u8 {
    match proto {
        [name @ .., b'/', major, b'.', minor]
            if name.eq_ignore_ascii_case(b"HTTP") && major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            10 * (major - b'0') + (minor - b'0')
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
