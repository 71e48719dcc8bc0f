//! How the head of a response is stored with a cached object: a small table and the header lines in
//! one block, so that delivery copies once into the workspace and fills slots from the table.
//!
//! ```text
//! u16 status | u8 version | u8 flags | u16 headers | u32 bytes of text    (little endian)
//! per header: u16 length of line, u8 length of name, u8 number of the name (narrow)
//!             u32 length of line, u16 length of name, u8 number, u8 0     (WIDE)
//! text: protocol (unless CANONICAL), status and reason (unless CANONICAL), lines; each followed by CRLF
//! ```
//!
//! A head with protocol HTTP/1.1, a known status and its usual reason is CANONICAL and stores
//! neither. Blocks do not outlive the program version that wrote them.

use crate::fixed_text_table::{fixed, reason_text, status_text};
use crate::header_table::{self, Filter, HeaderName, UNKNOWN};
use crate::message::{Field, Message, Slot, skip_blanks};
use crate::workspace::{Overflow, Text, Workspace};

const CANONICAL: u8 = 1;
const WIDE: u8 = 2;
const PREFIX: usize = 10;
const NARROW_ENTRY: usize = 4;
const WIDE_ENTRY: usize = 8;
const START_SLOTS: [Slot; 3] = [Slot::Proto, Slot::Status, Slot::Reason];
const LINE_END: &[u8] = b"\r\n";

/// Appends the packed head of `msg` to `out`, minus what `filter` drops.
pub fn pack(msg: &Message, ws: &Workspace, filter: Filter, out: &mut Vec<u8>) {
    let kept = || msg.fields().iter().filter(|f| !f.is_filtered(filter));
    let narrow = |f: &Field| u16::try_from(f.line.len()).is_ok() && u8::try_from(f.name_text().len()).is_ok();
    let mut flags = 0;
    if is_canonical(msg, ws) {
        flags |= CANONICAL;
    }
    if !kept().all(narrow) {
        flags |= WIDE;
    }
    let start = out.len();
    let count = kept().count();
    out.extend_from_slice(&msg.status().to_le_bytes());
    out.extend_from_slice(&[msg.version(), flags]);
    out.extend_from_slice(&(count as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for field in kept() {
        let (line, name) = (field.line.len(), field.name_text().len());
        if flags & WIDE != 0 {
            out.extend_from_slice(&(line as u32).to_le_bytes());
            out.extend_from_slice(&(name as u16).to_le_bytes());
            out.extend_from_slice(&[field.id(), 0]);
        } else {
            out.extend_from_slice(&(line as u16).to_le_bytes());
            out.extend_from_slice(&[name as u8, field.id()]);
        }
    }
    let text_at = out.len();
    if flags & CANONICAL == 0 {
        for slot in START_SLOTS {
            out.extend_from_slice(ws.get(msg.text(slot)));
            out.extend_from_slice(LINE_END);
        }
    }
    for field in kept() {
        out.extend_from_slice(field.line(ws));
        out.extend_from_slice(LINE_END);
    }
    let text_len = (out.len() - text_at) as u32;
    out[start + 6..start + PREFIX].copy_from_slice(&text_len.to_le_bytes());
}

fn is_canonical(msg: &Message, ws: &Workspace) -> bool {
    msg.proto(ws) == b"HTTP/1.1"
        && status_text(msg.status()).is_some()
        && msg.reason(ws) == ws.get(reason_text(msg.status()))
}

/// A header of a packed head.
#[derive(Clone, Copy, Debug)]
struct Entry {
    line: usize,
    name: usize,
    id: u8,
}

#[inline]
fn narrow_entry(&[a, b, name, id]: &[u8; NARROW_ENTRY]) -> Entry {
    Entry { line: u16::from_le_bytes([a, b]) as usize, name: name as usize, id }
}

/// A packed head, read in place.
#[derive(Clone, Copy, Debug)]
pub struct PackedHead<'a> {
    status: u16,
    flags: u8,
    entries: &'a [u8],
    text: &'a [u8],
}

impl<'a> PackedHead<'a> {
    /// `None` when the block is cut short.
    pub fn new(block: &'a [u8]) -> Option<PackedHead<'a>> {
        let (prefix, rest) = block.split_first_chunk::<PREFIX>()?;
        let [s0, s1, _, flags, n0, n1, t0, t1, t2, t3] = *prefix;
        let entry = if flags & WIDE != 0 { WIDE_ENTRY } else { NARROW_ENTRY };
        let (entries, rest) = rest.split_at_checked(u16::from_le_bytes([n0, n1]) as usize * entry)?;
        let text = rest.get(..u32::from_le_bytes([t0, t1, t2, t3]) as usize)?;
        Some(PackedHead { status: u16::from_le_bytes([s0, s1]), flags, entries, text })
    }

    /// Bytes of the whole block.
    pub fn len(&self) -> usize {
        PREFIX + self.entries.len() + self.text.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// How many headers there are.
    pub fn count(&self) -> usize {
        self.entries.len() / if self.flags & WIDE != 0 { WIDE_ENTRY } else { NARROW_ENTRY }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + use<'a> {
        let wide = self.flags & WIDE != 0;
        self.entries.chunks_exact(if wide { WIDE_ENTRY } else { NARROW_ENTRY }).map(|e| match *e {
            [a, b, c, d, n0, n1, id, _] => {
                let line = u32::from_le_bytes([a, b, c, d]) as usize;
                Entry { line, name: u16::from_le_bytes([n0, n1]) as usize, id }
            }
            [a, b, name, id] => narrow_entry(&[a, b, name, id]),
            _ => Entry { line: 0, name: 0, id: UNKNOWN },
        })
    }

    /// The three texts of the status line and where the lines begin.
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

    /// The header lines in order.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.lines_with_entries().map(|(_, line)| line)
    }

    /// The value of the first header of that name.
    pub fn header(&self, name: HeaderName<'_>) -> Option<&'a [u8]> {
        let found = self.lines_with_entries().find(|(entry, line)| {
            entry.id == name.id
                && entry.name == name.bytes.len()
                && (entry.id != UNKNOWN
                    || line.get(..entry.name).is_some_and(|n| n.eq_ignore_ascii_case(name.bytes)))
        });
        found.and_then(|(entry, line)| line.get(entry.name + 1..)).map(skip_ows)
    }

    /// Fills `msg` with the head; its texts are one copy in `ws`.
    pub fn unpack(&self, ws: &mut Workspace, msg: &mut Message) -> Result<(), Overflow> {
        msg.clear();
        if self.count() > msg.max_fields() {
            ws.set_overflowed();
            return Err(Overflow);
        }
        let text = ws.copy(self.text)?;
        let at = self.put_start_line(ws, msg, text)?;
        self.push_fields(msg, text.offset() + at);
        Ok(())
    }

    fn put_start_line(&self, ws: &mut Workspace, msg: &mut Message, text: Text) -> Result<usize, Overflow> {
        let (parts, lines_at) = self.start_line();
        if self.flags & CANONICAL != 0 {
            msg.set_response(ws, self.status)?;
            return Ok(lines_at);
        }
        let mut at = 0;
        for (slot, part) in START_SLOTS.into_iter().zip(parts) {
            msg.put(ws, slot, text.slice(at, at + part.len()));
            at += part.len() + LINE_END.len();
        }
        msg.set_raw_status(self.status);
        Ok(lines_at)
    }

    fn push_fields(&self, msg: &mut Message, at: usize) {
        msg.reserve_fields(self.count());
        // The usual form deserves a loop of its own.
        if self.flags & WIDE == 0 {
            let entries = self.entries.as_chunks().0.iter();
            self.push_each(msg, at, entries.map(narrow_entry));
        } else {
            self.push_each(msg, at, self.entries());
        }
    }

    #[inline]
    fn push_each(&self, msg: &mut Message, mut at: usize, entries: impl Iterator<Item = Entry>) {
        let mut rest = &self.text[self.start_line().1..];
        for entry in entries {
            // A damaged table ends the list.
            let Some((line, behind)) = rest.split_at_checked(entry.line) else { return };
            let value = skip_blanks(line, entry.name + 1);
            msg.push_unchecked(Field::from_parts(Text::at(at, entry.line), entry.name, value, entry.id));
            at += entry.line + LINE_END.len();
            rest = behind.get(LINE_END.len()..).unwrap_or_default();
        }
    }

    /// Completes the head of a 304 response from the object it confirms: status line and all
    /// headers that the response does not have itself.
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

fn skip_ows(mut s: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = s {
        s = rest;
    }
    s
}

/// The value of a header of a packed head, without unpacking.
pub fn packed_header<'a>(block: &'a [u8], name: HeaderName<'_>) -> Option<&'a [u8]> {
    PackedHead::new(block)?.header(name)
}

/// Unpacks a block; a block that is cut short counts as overflow, because nothing can be delivered.
pub fn unpack(block: &[u8], ws: &mut Workspace, msg: &mut Message) -> Result<(), Overflow> {
    PackedHead::new(block).ok_or(Overflow)?.unpack(ws, msg)
}

const _: () = assert!(header_table::flags_of(UNKNOWN) == 0 && fixed::HTTP_11.is_fixed());

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
    fn heads_survive_and_are_small() {
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
    fn unusual_heads_survive() {
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
    fn a_confirmation_is_completed_from_the_object() {
        let (ws, msg) = sample(&["A: old", "B: old", "B: old2", "Content-Length: 9"]);
        let (block, ..) = round_trip(&ws, &msg);
        let (mut ws, mut msg) = sample(&["b: new"]);
        msg.set_status(&mut ws, 304).unwrap();
        PackedHead::new(&block).unwrap().merge_into(&mut ws, &mut msg).unwrap();
        assert_eq!(msg.status(), 200);
        assert_eq!(msg.lines(&ws).collect::<Vec<_>>(), [&b"b: new"[..], b"A: old", b"Content-Length: 9"]);
    }
}
