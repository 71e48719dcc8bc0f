//! The stored form of a response head: a small table and the header lines in one block. Delivery copies the lines
//! into the workspace at once and fills the slots from the table.
//!
//! ```text
//! u16 status | u8 format | u8 flags | u16 headers | u32 bytes of text    (little endian)
//! per header: u16 length of line, u8 length of name, u8 number of the name (narrow)
//!             u32 length of line, u16 length of name, u8 number, u8 0     (WIDE)
//! text: protocol (unless CANONICAL), status and reason (unless CANONICAL), lines; each followed by CRLF
//! f32 seconds for which the object may be used if its origin fails (FOR_ERRORS)
//! ```
//!
//! A head with protocol HTTP/1.1, a known status and its standard reason is CANONICAL and stores none of them as
//! text. The format is a number that changes with this layout and with the numbers of the names; a block of another
//! format is rejected. A block that this process did not create must pass [`PackedHead::check`] before it is used.

use std::fmt;

use crate::ascii::is_ows;
use crate::fixed_text_table::{fixed, reason_text, status_text};
use crate::header_table::{Filter, HeaderName, UNKNOWN};
use crate::message::{Field, LINE_END, Message, Slot, skip_blanks, write_lines};
use crate::workspace::{Overflow, Text, Workspace};

/// The format that is written. No other format is read.
pub const FORMAT: u8 = 1;

const CANONICAL: u8 = 1;
const WIDE: u8 = 2;
/// Exactly one blank separates each colon and value, and the table is narrow.
const PLAIN: u8 = 4;
/// The seconds of `stale-if-error` follow.
const FOR_ERRORS: u8 = 8;
const FLAGS_AT: usize = 3;
const PREFIX: usize = 10;
const NARROW_ENTRY: usize = 4;
const WIDE_ENTRY: usize = 8;
const START_SLOTS: [Slot; 3] = [Slot::Proto, Slot::Status, Slot::Reason];

/// Appends the packed head of `msg` to `out`, without headers that `filter` drops.
pub fn pack(msg: &Message, ws: &Workspace, filter: Filter, out: &mut Vec<u8>) {
    let kept = || msg.fields().iter().filter(|f| !f.is_filtered(filter));
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    let mut flags = if is_canonical(msg, ws) { CANONICAL } else { 0 };
    let narrow = put_narrow_table(kept(), out);
    flags |= narrow.unwrap_or_else(|| {
        out.truncate(start + PREFIX);
        put_wide_table(kept(), out)
    });
    let text_at = out.len();
    if flags & CANONICAL == 0 {
        for slot in START_SLOTS {
            out.extend_from_slice(ws.get(msg.text(slot)));
            out.extend_from_slice(LINE_END);
        }
    }
    write_lines(kept(), ws, out);
    let count = (text_at - start - PREFIX) / entry_size(flags);
    let [s0, s1] = msg.status().to_le_bytes();
    let [n0, n1] = (count as u16).to_le_bytes();
    let [t0, t1, t2, t3] = ((out.len() - text_at) as u32).to_le_bytes();
    out[start..start + PREFIX].copy_from_slice(&[s0, s1, FORMAT, flags, n0, n1, t0, t1, t2, t3]);
}

/// Writes the table. Returns its flags, or `None` if a length does not fit.
fn put_narrow_table<'f>(fields: impl Iterator<Item = &'f Field>, out: &mut Vec<u8>) -> Option<u8> {
    let mut flags = PLAIN;
    for field in fields {
        let [a, b] = u16::try_from(field.line.len()).ok()?.to_le_bytes();
        let name = u8::try_from(field.name_text().len()).ok()?;
        if !field.is_plain() {
            flags = 0;
        }
        out.extend_from_slice(&[a, b, name, field.id()]);
    }
    Some(flags)
}

#[cold]
fn put_wide_table<'f>(fields: impl Iterator<Item = &'f Field>, out: &mut Vec<u8>) -> u8 {
    for field in fields {
        out.extend_from_slice(&(field.line.len() as u32).to_le_bytes());
        out.extend_from_slice(&(field.name_text().len() as u16).to_le_bytes());
        out.extend_from_slice(&[field.id(), 0]);
    }
    WIDE
}

const fn entry_size(flags: u8) -> usize {
    if flags & WIDE != 0 { WIDE_ENTRY } else { NARROW_ENTRY }
}

fn is_canonical(msg: &Message, ws: &Workspace) -> bool {
    msg.proto(ws) == b"HTTP/1.1"
        && status_text(msg.status()).is_some()
        && msg.reason(ws) == ws.get(reason_text(msg.status()))
}

/// The table entry of a header.
#[derive(Clone, Copy, Debug)]
struct Entry {
    line: usize,
    name: usize,
    id: u8,
}

impl Entry {
    /// Returns whether its line has a header of this name.
    #[inline]
    fn is_of(self, name: HeaderName<'_>, line: &[u8]) -> bool {
        self.id == name.id
            && self.name == name.bytes.len()
            && (self.id != UNKNOWN
                || line.get(..self.name).is_some_and(|n| n.eq_ignore_ascii_case(name.bytes)))
    }

    /// Returns the value in its line.
    #[inline]
    fn value((entry, line): (Self, &[u8])) -> Option<&[u8]> {
        line.get(entry.name + 1..).map(|rest| &rest[skip_blanks(rest, 0)..])
    }
}

#[inline]
fn narrow_entry([a, b, name, id]: [u8; NARROW_ENTRY]) -> Entry {
    Entry { line: u16::from_le_bytes([a, b]) as usize, name: name as usize, id }
}

/// The reason why a block is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// It is shorter than its lengths require.
    CutShort,
    /// A different program version wrote it.
    UnknownFormat(u8),
    /// Its parts are inconsistent.
    Damaged,
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeadError::CutShort => f.write_str("the stored head is cut short"),
            HeadError::UnknownFormat(found) => {
                write!(f, "the stored head has format {found}, and only format {FORMAT} can be read")
            }
            HeadError::Damaged => f.write_str("the stored head is damaged"),
        }
    }
}

impl std::error::Error for HeadError {}

/// A packed head that is read in place.
#[derive(Clone, Copy, Debug)]
pub struct PackedHead<'a> {
    status: u16,
    flags: u8,
    entries: &'a [u8],
    text: &'a [u8],
}

impl<'a> PackedHead<'a> {
    /// Reads a block. Returns `None` if it is truncated or has another format.
    pub fn new(block: &'a [u8]) -> Option<PackedHead<'a>> {
        PackedHead::read(block).ok()
    }

    /// Reads a block. Fails if it is truncated or has another format.
    #[inline]
    pub fn read(block: &'a [u8]) -> Result<PackedHead<'a>, HeadError> {
        let (prefix, rest) = block.split_first_chunk::<PREFIX>().ok_or(HeadError::CutShort)?;
        let [s0, s1, format, flags, n0, n1, t0, t1, t2, t3] = *prefix;
        if format != FORMAT {
            return Err(HeadError::UnknownFormat(format));
        }
        let count = u16::from_le_bytes([n0, n1]) as usize;
        let (entries, rest) = rest.split_at_checked(count * entry_size(flags)).ok_or(HeadError::CutShort)?;
        let text = rest.get(..u32::from_le_bytes([t0, t1, t2, t3]) as usize).ok_or(HeadError::CutShort)?;
        Ok(PackedHead { status: u16::from_le_bytes([s0, s1]), flags, entries, text })
    }

    /// Checks a block that comes from outside this process. Succeeds only if [`pack`] could have written it.
    pub fn check(block: &'a [u8]) -> Result<(), HeadError> {
        let head = PackedHead::read(block)?;
        let is_sound = head.len() == block.len()
            && head.flags & !(CANONICAL | WIDE | PLAIN | FOR_ERRORS) == 0
            && (head.flags & FOR_ERRORS == 0
                || stale_if_error(block).is_some_and(|s| s.is_finite() && s > 0.0))
            && head.flags & (WIDE | PLAIN) != WIDE | PLAIN
            && (head.flags & CANONICAL == 0 || status_text(head.status).is_some())
            && head.has_sound_lines();
        if is_sound { Ok(()) } else { Err(HeadError::Damaged) }
    }

    /// Returns whether status line and table match the text completely.
    fn has_sound_lines(&self) -> bool {
        let (parts, mut at) = self.start_line();
        let start: usize = parts.iter().map(|part| part.len() + LINE_END.len()).sum();
        if self.flags & CANONICAL == 0 && at != start {
            return false;
        }
        for entry in self.entries() {
            let Some(line) = self.text.get(at..).and_then(|rest| rest.get(..entry.line)) else {
                return false;
            };
            at += entry.line;
            if self.text.get(at..at + LINE_END.len()) != Some(LINE_END) || !self.is_sound(entry, line) {
                return false;
            }
            at += LINE_END.len();
        }
        at == self.text.len()
    }

    fn is_sound(&self, entry: Entry, line: &[u8]) -> bool {
        let name = line.get(..entry.name).filter(|_| line.get(entry.name) == Some(&b':'));
        let has_blank = self.flags & PLAIN == 0 || line.get(entry.name + 1).is_some_and(|byte| is_ows(*byte));
        has_blank
            && name.is_some_and(|name| HeaderName::new(name).id == entry.id)
            && !line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
    }

    /// Returns the length of the whole block.
    pub fn len(&self) -> usize {
        let seconds = if self.flags & FOR_ERRORS == 0 { 0 } else { size_of::<f32>() };
        PREFIX + self.entries.len() + self.text.len() + seconds
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the number of headers.
    pub fn count(&self) -> usize {
        self.entries.len() / entry_size(self.flags)
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + use<'a> {
        self.entries.chunks_exact(entry_size(self.flags)).map(|e| match *e {
            [a, b, c, d, n0, n1, id, _] => {
                let line = u32::from_le_bytes([a, b, c, d]) as usize;
                Entry { line, name: u16::from_le_bytes([n0, n1]) as usize, id }
            }
            [a, b, name, id] => narrow_entry([a, b, name, id]),
            _ => Entry { line: 0, name: 0, id: UNKNOWN },
        })
    }

    /// Returns the three texts of the status line and the index of the first line.
    fn start_line(&self) -> ([&'a [u8]; 3], usize) {
        let mut parts: [&[u8]; 3] = [b""; 3];
        if self.flags & CANONICAL != 0 {
            return (parts, 0);
        }
        let mut at = 0;
        for part in &mut parts {
            let rest = &self.text[at..];
            let len = rest.windows(2).position(|w| w == LINE_END).unwrap_or(rest.len());
            *part = &rest[..len];
            at = (at + len + LINE_END.len()).min(self.text.len());
        }
        (parts, at)
    }

    pub fn reason(&self) -> &'a [u8] {
        if self.flags & CANONICAL != 0 {
            crate::fixed_text_table::reason_of(self.status).as_bytes()
        } else {
            self.start_line().0[2]
        }
    }

    fn lines_with_entries(&self) -> impl Iterator<Item = (Entry, &'a [u8])> + use<'a> {
        let text = self.text;
        let mut at = self.start_line().1;
        self.entries().map(move |entry| {
            let line = text.get(at..at + entry.line).unwrap_or_default();
            at += entry.line + LINE_END.len();
            (entry, line)
        })
    }

    /// Returns the header lines in order.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.lines_with_entries().map(|(_, line)| line)
    }

    /// Returns the value of the first header of this name.
    pub fn header(&self, name: HeaderName<'_>) -> Option<&'a [u8]> {
        self.lines_with_entries().find(|(entry, line)| entry.is_of(name, line)).and_then(Entry::value)
    }

    /// Returns the values of all headers of this name.
    pub fn all_headers(&self, name: HeaderName<'_>) -> impl Iterator<Item = &'a [u8]> {
        let found = self.lines_with_entries().filter(move |(entry, line)| entry.is_of(name, line));
        found.filter_map(Entry::value)
    }

    /// Fills `msg` with the head. Its texts are copied into `ws` at once. As in Varnish, a message without room for
    /// another header cannot be delivered. That alone does not mark the workspace as overflowed.
    pub fn unpack(&self, ws: &mut Workspace, msg: &mut Message) -> Result<(), Overflow> {
        msg.clear();
        if self.count() >= msg.max_fields() {
            return Err(Overflow);
        }
        let text = ws.copy(self.text)?;
        let lines_at = self.put_start_line(ws, msg, text)?;
        if !self.push_fields(msg, text, lines_at) {
            msg.clear();
            return Err(Overflow);
        }
        Ok(())
    }

    fn put_start_line(&self, ws: &mut Workspace, msg: &mut Message, text: Text) -> Result<usize, Overflow> {
        if self.flags & CANONICAL != 0 && msg.set_known_response(self.status) {
            return Ok(0);
        }
        let (parts, lines_at) = self.start_line();
        let mut at = 0;
        for (slot, part) in START_SLOTS.into_iter().zip(parts) {
            msg.put(ws, slot, text.slice(at, at + part.len()));
            at += part.len() + LINE_END.len();
        }
        msg.set_raw_status(self.status);
        Ok(lines_at)
    }

    /// Adds the fields of the table. Returns false if the table is damaged and does not match the text.
    fn push_fields(&self, msg: &mut Message, text: Text, at: usize) -> bool {
        if self.flags & PLAIN != 0 {
            let entries = self.entries.as_chunks().0.iter().copied().map(narrow_entry);
            return msg.push_lines(text.tail(at), entries.map(|e| (e.line, e.name, e.name + 2, e.id)));
        }
        let lines =
            self.lines_with_entries().map(|(e, line)| (e.line, e.name, skip_blanks(line, e.name + 1), e.id));
        msg.push_lines(text.tail(at), lines)
    }

    /// Completes the head of a 304 response from the object that it confirms: adds the status line, and all headers
    /// that the response does not have.
    pub fn merge_into(&self, ws: &mut Workspace, msg: &mut Message) -> Result<(), Overflow> {
        let text = ws.copy(self.text)?;
        let mut at = text.offset() + self.put_start_line(ws, msg, text)?;
        let own = msg.fields().len();
        for (entry, line) in self.lines_with_entries() {
            if line.len() != entry.line {
                break; // a damaged table
            }
            let name = HeaderName { bytes: &line[..entry.name.min(line.len())], id: entry.id };
            if !msg.fields()[..own].iter().any(|f| f.is(ws, name)) {
                msg.append_line(ws, Text::at(at, line.len()))?;
            }
            at += entry.line + LINE_END.len();
        }
        Ok(())
    }
}

/// Returns the value of a header of a packed head, without unpacking.
pub fn packed_header<'a>(block: &'a [u8], name: HeaderName<'_>) -> Option<&'a [u8]> {
    PackedHead::new(block)?.header(name)
}

/// Adds the seconds for which an object may be used if its origin fails, to a block that was just packed.
pub fn add_stale_if_error(block: &mut Vec<u8>, seconds: f32) {
    if let Some(flags) = block.get_mut(FLAGS_AT) {
        *flags |= FOR_ERRORS;
        block.extend_from_slice(&seconds.to_le_bytes());
    }
}

/// Returns the seconds that [`add_stale_if_error`] has added, if it has.
pub fn stale_if_error(block: &[u8]) -> Option<f32> {
    let head = PackedHead::new(block).filter(|head| head.flags & FOR_ERRORS != 0)?;
    block.get(..head.len())?.last_chunk().copied().map(f32::from_le_bytes)
}

/// Unpacks a block. A truncated block counts as overflow, because nothing can be delivered.
pub fn unpack(block: &[u8], ws: &mut Workspace, msg: &mut Message) -> Result<(), Overflow> {
    PackedHead::new(block).ok_or(Overflow)?.unpack(ws, msg)
}

const _: () = assert!(fixed::HTTP_11.is_fixed());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header_table::*;

    fn sample(lines: &[&str]) -> (Workspace, Message) {
        let mut ws = Workspace::new(1 << 20);
        let mut msg = Message::new(64);
        msg.set_response(&mut ws, 200).unwrap();
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        (ws, msg)
    }

    fn round_trip(ws: &Workspace, msg: &Message) -> (Vec<u8>, Workspace, Message) {
        let mut block = Vec::new();
        pack(msg, ws, Filter::INSERT, &mut block);
        let (mut to_ws, mut to) = (Workspace::new(1 << 20), Message::new(64));
        unpack(&block, &mut to_ws, &mut to).unwrap();
        (block, to_ws, to)
    }

    #[test]
    fn heads_round_trip_and_are_small() {
        let lines = ["Date: now", "ETag:  \"x\"", "X-Foo:bar", "Connection: close", "Age: 3", "Empty:"];
        let (ws, msg) = sample(&lines);
        let (block, to_ws, to) = round_trip(&ws, &msg);
        assert_eq!(
            to.lines(&to_ws).collect::<Vec<_>>(),
            [&b"Date: now"[..], b"ETag:  \"x\"", b"X-Foo:bar", b"Empty:"]
        );
        assert_eq!((to.status(), to.reason(&to_ws), to.version()), (200, &b"OK"[..], 11));
        assert_eq!(to.get(&to_ws, ETAG), Some(&b"\"x\""[..]));
        assert_eq!(to.get(&to_ws, HeaderName::new(b"x-foo")), Some(&b"bar"[..]));
        assert_eq!(to.get(&to_ws, HeaderName::new(b"empty")), Some(&b""[..]));
        assert_eq!(block.len(), PREFIX + 4 * 4 + (9 + 10 + 9 + 6) + 4 * 2);
        assert_eq!(packed_header(&block, ETAG), Some(&b"\"x\""[..]));
        assert_eq!(packed_header(&block, HeaderName::new(b"X-FOO")), Some(&b"bar"[..]));
        assert_eq!(packed_header(&block, AGE), None);
        for n in 0..block.len() {
            assert!(PackedHead::new(&block[..n]).is_none());
        }
        let mut wire = Vec::new();
        crate::h1::write_response_head(&to, &to_ws, &mut wire);
        assert_eq!(wire, b"HTTP/1.1 200 OK\r\nDate: now\r\nETag:  \"x\"\r\nX-Foo:bar\r\nEmpty:\r\n\r\n");
    }

    #[test]
    fn the_time_for_errors_follows_the_lines() {
        let (ws, msg) = sample(&["ETag: x"]);
        let (plain, ..) = round_trip(&ws, &msg);
        let mut block = plain.clone();
        add_stale_if_error(&mut block, 60.5);
        assert_eq!((stale_if_error(&plain), stale_if_error(&block)), (None, Some(60.5)));
        assert_eq!(packed_header(&block, ETAG), Some(&b"x"[..]));
        assert_eq!((PackedHead::check(&plain), PackedHead::check(&block)), (Ok(()), Ok(())));
        let cut = &block[..block.len() - 1];
        assert_eq!((stale_if_error(cut), PackedHead::check(cut)), (None, Err(HeadError::Damaged)));
        for damaged in [f32::NAN, f32::INFINITY, -1.0, 0.0] {
            let mut block = plain.clone();
            add_stale_if_error(&mut block, damaged);
            assert_eq!(PackedHead::check(&block), Err(HeadError::Damaged), "{damaged}");
        }
        add_stale_if_error(&mut Vec::new(), 1.0);
    }

    #[test]
    fn unusual_heads_round_trip() {
        let long = format!("Long: {}", "y".repeat(70000));
        let (mut ws, mut msg) = sample(&[&long, "Vary: x"]);
        let reason = ws.copy(b"Fine by me").unwrap();
        msg.set_status_reason(&mut ws, 1777, reason).unwrap();
        msg.put(&ws, Slot::Proto, fixed::HTTP_10);
        let (block, to_ws, to) = round_trip(&ws, &msg);
        assert_eq!((to.status(), to.status_text(&to_ws), to.version()), (1777, &b"777"[..], 10));
        assert_eq!(to.reason(&to_ws), b"Fine by me");
        assert_eq!(PackedHead::new(&block).unwrap().reason(), b"Fine by me");
        assert_eq!(to.get(&to_ws, HeaderName::new(b"long")).unwrap().len(), 70000);
        assert_eq!(packed_header(&block, VARY), Some(&b"x"[..]));
    }

    #[test]
    fn a_tab_before_a_value_is_no_damage() {
        let (ws, msg) = sample(&["Date: now", "X-Foo:\tbar", "Empty:\t"]);
        let (block, to_ws, to) = round_trip(&ws, &msg);
        assert_eq!(PackedHead::check(&block), Ok(()));
        assert_eq!(to.get(&to_ws, HeaderName::new(b"x-foo")), Some(&b"bar"[..]));
        assert_eq!(packed_header(&block, HeaderName::new(b"x-foo")), Some(&b"bar"[..]));
    }

    /// Each kind of damage to a block, and its error.
    #[test]
    fn damaged_blocks_are_rejected() {
        type Spoil = fn(&mut Vec<u8>);
        let (ws, msg) = sample(&["Date: now", "X-Foo: bar"]);
        let (block, ..) = round_trip(&ws, &msg);
        assert_eq!(PackedHead::check(&block), Ok(()));
        let last = block.len() - 1;
        let text = PREFIX + 2 * NARROW_ENTRY;
        assert_eq!(&block[text..text + 11], b"Date: now\r\n");
        let cases: &[(&str, Spoil, HeadError)] = &[
            ("nothing at all", |b| b.clear(), HeadError::CutShort),
            ("half a prefix", |b| b.truncate(PREFIX - 1), HeadError::CutShort),
            ("no table", |b| b.truncate(PREFIX), HeadError::CutShort),
            ("no last byte", |b| b.truncate(b.len() - 1), HeadError::CutShort),
            ("more headers than there are", |b| b[5] = 0xff, HeadError::CutShort),
            ("more text than there is", |b| b[9] = 0xff, HeadError::CutShort),
            ("no format yet", |b| b[2] = 0, HeadError::UnknownFormat(0)),
            ("the next format", |b| b[2] = FORMAT + 1, HeadError::UnknownFormat(FORMAT + 1)),
            (
                "a format without the rest",
                |b| *b = vec![0, 0, 99, 0, 0, 0, 9, 9, 9, 9],
                HeadError::UnknownFormat(99),
            ),
            ("a byte too many", |b| b.push(0), HeadError::Damaged),
            ("an unknown flag", |b| b[3] |= 0x80, HeadError::Damaged),
            ("an unknown status", |b| b[1] = 0xff, HeadError::Damaged),
            ("not canonical without a status line", |b| b[3] &= !CANONICAL, HeadError::Damaged),
            ("fewer headers than there are", |b| b[4] -= 1, HeadError::Damaged),
            ("a longer line", |b| b[PREFIX] += 1, HeadError::Damaged),
            ("a shorter name", |b| b[PREFIX + 2] -= 1, HeadError::Damaged),
            ("a name's number of another name", |b| b[PREFIX + 3] ^= 1, HeadError::Damaged),
            ("no colon", |b| b[PREFIX + 2 * NARROW_ENTRY + 4] = b'-', HeadError::Damaged),
            ("a line end within a line", |b| b[PREFIX + 2 * NARROW_ENTRY + 7] = b'\n', HeadError::Damaged),
            ("no line end", |b| b[PREFIX + 2 * NARROW_ENTRY + 9] = b' ', HeadError::Damaged),
        ];
        assert_eq!(block[last], b'\n');
        for (what, spoil, error) in cases {
            let mut spoiled = block.clone();
            spoil(&mut spoiled);
            assert_eq!(PackedHead::check(&spoiled), Err(*error), "{what}");
        }
        assert_eq!(
            HeadError::UnknownFormat(9).to_string(),
            "the stored head has format 9, and only format 1 can be read"
        );
    }

    /// Each byte of each kind of block is changed to many values. A block that passes the check can be unpacked.
    #[test]
    fn blocks_that_pass_the_check_can_be_unpacked() {
        let long = format!("Long: {}", "y".repeat(400));
        let (mut ws, mut unusual) = sample(&[&long, "Vary:  x", "Empty:"]);
        let reason = ws.copy(b"Fine by me").unwrap();
        unusual.set_status_reason(&mut ws, 777, reason).unwrap();
        let wide = format!("{}: x", "n".repeat(300));
        let samples = [sample(&["Date: now", "Vary: x"]), (ws, unusual), sample(&[&wide, "ETag: y"])];
        let (step, least) = if cfg!(miri) { (31, 10) } else { (1, 100) };
        let (mut passed, mut refused) = (0, 0);
        for (ws, msg) in &samples {
            let (block, mut to_ws, mut to) = round_trip(ws, msg);
            assert_eq!(PackedHead::check(&block), Ok(()));
            for at in (0..block.len()).step_by(step) {
                for change in [1, 2, 4, 0x20, 0x80, 0xff] {
                    let mut changed = block.clone();
                    changed[at] ^= change;
                    let mark = to_ws.mark();
                    let unpacked = unpack(&changed, &mut to_ws, &mut to);
                    to_ws.roll_back(mark);
                    let checked = PackedHead::check(&changed);
                    assert!(checked.is_err() || unpacked.is_ok(), "byte {at} by {change:#x}");
                    if checked.is_ok() { passed += 1 } else { refused += 1 }
                }
            }
        }
        assert!(passed > least && refused > least, "{passed} passed, {refused} were refused");
    }

    #[test]
    fn a_table_that_does_not_match_the_text_is_rejected() {
        let (ws, msg) = sample(&["Date: now", "Vary: x"]);
        let (mut block, mut to_ws, mut to) = round_trip(&ws, &msg);
        assert_ne!(block[3] & PLAIN, 0);
        block[PREFIX] += 1;
        assert_eq!(unpack(&block, &mut to_ws, &mut to), Err(Overflow));
        assert!(to.fields().is_empty());
    }

    #[test]
    fn a_head_that_leaves_no_room_is_not_delivered() {
        let (ws, msg) = sample(&["Date: now", "Vary: x"]);
        let (block, mut to_ws, _) = round_trip(&ws, &msg);
        let unpacked = |ws: &mut Workspace, max_hdr| unpack(&block, ws, &mut Message::new(max_hdr));
        assert_eq!(unpacked(&mut to_ws, 5 + 2), Err(Overflow));
        assert!(!to_ws.overflowed());
        assert_eq!(unpacked(&mut to_ws, 5 + 3), Ok(()));
        assert_eq!(unpacked(&mut Workspace::new(8), 64), Err(Overflow));
    }

    #[test]
    fn a_304_is_completed_from_the_object() {
        let (ws, msg) = sample(&["A: old", "B: old", "B: old2", "Content-Length: 9"]);
        let (block, ..) = round_trip(&ws, &msg);
        let (mut ws, mut msg) = sample(&["b: new"]);
        msg.set_status(&mut ws, 304).unwrap();
        PackedHead::new(&block).unwrap().merge_into(&mut ws, &mut msg).unwrap();
        assert_eq!(msg.status(), 200);
        assert_eq!(msg.lines(&ws).collect::<Vec<_>>(), [&b"b: new"[..], b"A: old", b"Content-Length: 9"]);
    }
}
