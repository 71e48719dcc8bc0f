//! Objects as they are stored: a head that describes the object, and a body in blocks with a checksum each, so that
//! any part of a body can be read and verified alone.
//!
//! A large object has several records: its body in parts of equal length, except for the last, and after all of them a
//! record with its head and the list of the parts.
//!
//! ```text
//! u32 "LQob" | u32 length in units of 64 bytes | u64 log position | 24 bytes key | u32 variant | u32 expires
//! | u32 newest ban tested | u32 descriptor length | u32 head length | u32 extra length | u64 body length
//! | u64 checksum of the preceding fields, and of descriptor, head and extra
//! | descriptor | head | extra
//! | body blocks: up to 16,376 bytes and their u64 checksum                                       (little endian)
//!
//! "LQpt": a part. It has no descriptor, head or extra.
//! "LQlg": a large object. Instead of the blocks, it has the u64 log position of each part, which the checksum of the
//!         fields contains.
//! ```

use crate::blocks::Reader;
use crate::layout::{Layout, UNIT};

/// The number of blocks in a part of a large body: its record fits in one write.
const PART_BLOCKS: u64 = 63;
/// The length of the log position of a part.
const PART_ENTRY: usize = 8;
/// The length of the fixed part.
pub const FIXED: usize = 80;
/// The length of a block of a body with its checksum.
pub(crate) const BODY_BLOCK: u64 = 16 << 10;
pub(crate) const CHECKSUM: u64 = 8;
/// The number of bytes of a body in one block.
pub(crate) const BODY_DATA: u64 = BODY_BLOCK - CHECKSUM;

/// The part of a digest that identifies an object's key.
pub type Key = [u8; 24];

/// Returns the number by which the index finds a key.
pub fn fingerprint(key: &Key) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| key[8 + i]))
}

/// The properties of an object that the store needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meta {
    pub key: Key,
    /// A number that distinguishes the variants of a key.
    pub variant: u32,
    /// The time at which the object has no more use, in seconds since the epoch.
    pub expires: u32,
    /// The number of the newest ban that the object was tested against.
    pub ban: u32,
}

/// An object to be stored.
#[derive(Debug)]
pub struct Parts<'a> {
    pub meta: Meta,
    pub descriptor: &'a [u8],
    pub head: &'a [u8],
    pub extra: &'a [u8],
    pub body_len: u64,
}

/// The contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object with its body.
    Object,
    /// A part of the body of a large object.
    Part,
    /// A large object without its body.
    Large,
}

impl Form {
    fn magic(self) -> u32 {
        u32::from_le_bytes(match self {
            Self::Object => *b"LQob",
            Self::Part => *b"LQpt",
            Self::Large => *b"LQlg",
        })
    }

    fn of(magic: u32) -> Option<Self> {
        [Self::Object, Self::Part, Self::Large].into_iter().find(|form| form.magic() == magic)
    }
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    pub form: Form,
    pub meta: Meta,
    /// The length of the record in bytes.
    pub len: u64,
    pub log: u64,
    pub descriptor: u32,
    pub head: u32,
    pub extra: u32,
    pub body: u64,
    /// The number of parts of a large object.
    parts: u64,
    checksum: u64,
}

/// The parts of a record before its body.
#[derive(Debug)]
pub struct Fields<'a> {
    pub descriptor: &'a [u8],
    pub head: &'a [u8],
    pub extra: &'a [u8],
    /// The log positions of the parts of a large object.
    pub(crate) parts: &'a [u8],
}

impl Fields<'_> {
    /// Returns the log positions of the parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = u64> {
        self.parts.as_chunks::<PART_ENTRY>().0.iter().map(|part| u64::from_le_bytes(*part))
    }
}

/// Returns the number of bytes of a large body in each of its parts, except for the last.
pub(crate) fn part_len(layout: &Layout) -> u64 {
    (layout.segment / BODY_BLOCK / 4).clamp(1, PART_BLOCKS) * BODY_DATA
}

/// Returns the length of the record of a part with `len` bytes of a body.
pub(crate) fn part_record_len(len: u64) -> u64 {
    (FIXED as u64 + stored_body(len)).next_multiple_of(UNIT)
}

/// Returns the length of the record with the head of a large object.
pub(crate) fn large_record_len(layout: &Layout, parts: &Parts<'_>) -> u64 {
    let list = parts.body_len.div_ceil(part_len(layout)).saturating_mul(PART_ENTRY as u64);
    ((FIXED + fields_len(parts)) as u64).saturating_add(list).min(u64::MAX - UNIT).next_multiple_of(UNIT)
}

/// Returns whether an object, whose record has `len` bytes if it is not large, can be stored.
pub(crate) fn fits(layout: &Layout, parts: &Parts<'_>, len: u64) -> bool {
    let has_parts = (1..=layout.largest_body()).contains(&parts.body_len);
    let fits = |len| len <= layout.largest_record();
    fits(len) || (has_parts && fits(large_record_len(layout, parts)))
}

fn fields_len(parts: &Parts<'_>) -> usize {
    parts.descriptor.len() + parts.head.len() + parts.extra.len()
}

/// Returns the length of a stored body.
pub(crate) fn stored_body(len: u64) -> u64 {
    len.saturating_add(len.div_ceil(BODY_DATA) * CHECKSUM)
}

/// Returns the length of the record of an object.
pub fn record_len(parts: &Parts<'_>) -> u64 {
    let len = stored_body(parts.body_len).saturating_add((FIXED + fields_len(parts)) as u64);
    len.min(u64::MAX - UNIT).next_multiple_of(UNIT)
}

impl Header {
    /// Returns the offset of the body in the record, which is the end of a record without one.
    pub(crate) fn body_at(&self) -> u64 {
        let fields = u64::from(self.descriptor) + u64::from(self.head) + u64::from(self.extra);
        FIXED as u64 + fields + self.parts * PART_ENTRY as u64
    }

    /// Returns the length of the body in the record, with its checksums.
    fn stored_body(&self) -> u64 {
        if self.form == Form::Large { 0 } else { stored_body(self.body) }
    }

    /// Reads the fixed part of the record at a log position. The checksum is not verified.
    pub(crate) fn decode(layout: &Layout, log: u64, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (magic, units, at) = (reader.u32(), reader.u32(), reader.u64());
        let key = reader.array();
        let [variant, expires, ban, descriptor, head, extra] = std::array::from_fn(|_| reader.u32());
        let (body, checksum) = (reader.u64(), reader.u64());
        let meta = Meta { key, variant, expires, ban };
        let (form, len) = (Form::of(magic)?, u64::from(units) * UNIT);
        let (parts, longest) = match form {
            Form::Object => (0, len),
            Form::Part => (0, part_len(layout)),
            Form::Large => (body.div_ceil(part_len(layout)), layout.largest_body()),
        };
        if reader.is_short || at != log || len > layout.largest_record() || body > longest {
            return None;
        }
        let header = Self { form, meta, len, log: at, descriptor, head, extra, body, parts, checksum };
        let needs = (header.body_at() + header.stored_body()).next_multiple_of(UNIT);
        (needs == len && (form != Form::Part || header.body_at() == FIXED as u64)).then_some(header)
    }

    /// Verifies the record's fixed part and its fields, which `bytes` begins with.
    pub(crate) fn fields<'a>(&self, layout: &Layout, bytes: &'a [u8]) -> Option<Fields<'a>> {
        let end = usize::try_from(self.body_at()).ok()?;
        let is_sound = checksum_of_fields(layout, self.log, bytes.get(..end)?) == self.checksum;
        if is_sound { self.verified_fields(bytes) } else { None }
    }

    /// Returns the fields of a record, which `bytes` begins with and which were verified before.
    pub(crate) fn verified_fields<'a>(&self, bytes: &'a [u8]) -> Option<Fields<'a>> {
        let bytes = bytes.get(..usize::try_from(self.body_at()).ok()?)?;
        let mut reader = Reader::new(&bytes[FIXED..]);
        let descriptor = reader.bytes(self.descriptor as usize);
        let head = reader.bytes(self.head as usize);
        let extra = reader.bytes(self.extra as usize);
        let parts = reader.rest();
        (!reader.is_short).then_some(Fields { descriptor, head, extra, parts })
    }

    /// Returns the part of the record, as offset and length, that contains the bytes `from..to` of the body.
    pub(crate) fn blocks_of(&self, from: u64, to: u64) -> (u64, u64) {
        blocks_of(self.body_at(), self.body, from, to)
    }

    /// Verifies the whole record. Returns whether it is sound.
    pub(crate) fn is_sound(&self, layout: &Layout, bytes: &[u8]) -> bool {
        let Some(body) = bytes.get(self.body_at() as usize..) else { return false };
        let is_body_sound = || read_body(layout, self.log, self.body, body, 0, self.body, |_| {}).is_some();
        self.fields(layout, bytes).is_some() && (self.form == Form::Large || is_body_sound())
    }
}

/// Returns the offset from the beginning of the record, and the length, of the blocks that contain the bytes `from..to`
/// of a body that begins at `body_at`.
pub(crate) fn blocks_of(body_at: u64, body: u64, from: u64, to: u64) -> (u64, u64) {
    let first = from / BODY_DATA;
    let end = to.min(body).div_ceil(BODY_DATA);
    let stop = (end * BODY_BLOCK).min(stored_body(body));
    (body_at + first * BODY_BLOCK, stop.saturating_sub(first * BODY_BLOCK))
}

fn checksum_of_fields(layout: &Layout, log: u64, bytes: &[u8]) -> u64 {
    // The checksum's own place is skipped.
    let fixed = layout.checksum(log, &bytes[..FIXED - 8]);
    layout.checksum(log ^ fixed, &bytes[FIXED..])
}

fn checksum_of_block(layout: &Layout, log: u64, number: u64, bytes: &[u8]) -> u64 {
    layout.checksum(log ^ (number + 1).rotate_left(40), bytes)
}

/// Verifies the bytes `from..to` of a body of `body` bytes and passes them to `take`, in pieces. `blocks` begins with
/// the first block of that range ([`blocks_of`]). Returns `None` if a checksum differs; `take` has then received only
/// verified pieces.
pub(crate) fn read_body(
    layout: &Layout,
    log: u64,
    body: u64,
    blocks: &[u8],
    from: u64,
    to: u64,
    mut take: impl FnMut(&[u8]),
) -> Option<()> {
    let (mut at, to) = (from, to.min(body));
    let mut rest = blocks;
    while at < to {
        let number = at / BODY_DATA;
        let start = number * BODY_DATA;
        let len = BODY_DATA.min(body - start) as usize;
        let (data, after) = rest.split_at_checked(len)?;
        let (checksum, after) = after.split_first_chunk()?;
        if u64::from_le_bytes(*checksum) != checksum_of_block(layout, log, number, data) {
            return None;
        }
        let end = (to - start).min(len as u64);
        take(&data[(at - start) as usize..end as usize]);
        at = start + end;
        rest = after;
    }
    Some(())
}

/// Writes the record of an object at a log position to the beginning of `out`, which has its length. `body` returns the
/// bytes of the body from an offset on, as long a piece as there is. Returns `None` if the body ends early.
pub(crate) fn encode(
    layout: &Layout,
    log: u64,
    parts: &Parts<'_>,
    out: &mut [u8],
    body: &mut dyn FnMut(u64, &mut [u8]) -> usize,
) -> Option<()> {
    let at = put_fields(layout, log, Form::Object, parts, &[], out);
    put_body(layout, log, parts.body_len, &mut out[at..], body)
}

/// Writes the record of a part of a large object, with `len` bytes, as [`encode`] does.
pub(crate) fn encode_part(
    layout: &Layout,
    log: u64,
    meta: Meta,
    len: u64,
    out: &mut [u8],
    body: &mut dyn FnMut(u64, &mut [u8]) -> usize,
) -> Option<()> {
    let parts = Parts { meta, descriptor: &[], head: &[], extra: &[], body_len: len };
    let at = put_fields(layout, log, Form::Part, &parts, &[], out);
    put_body(layout, log, len, &mut out[at..], body)
}

/// Writes the record of a large object whose parts are at these log positions.
pub(crate) fn encode_large(layout: &Layout, log: u64, parts: &Parts<'_>, places: &[u64], out: &mut [u8]) {
    let at = put_fields(layout, log, Form::Large, parts, places, out);
    out[at..].fill(0);
}

/// Writes the part of a record that precedes the body. Returns its length.
fn put_fields(
    layout: &Layout,
    log: u64,
    form: Form,
    parts: &Parts<'_>,
    places: &[u64],
    out: &mut [u8],
) -> usize {
    let mut fixed = Vec::with_capacity(FIXED);
    let Meta { key, variant, expires, ban } = parts.meta;
    fixed.extend_from_slice(&form.magic().to_le_bytes());
    fixed.extend_from_slice(&((out.len() as u64 / UNIT) as u32).to_le_bytes());
    fixed.extend_from_slice(&log.to_le_bytes());
    fixed.extend_from_slice(&key);
    let lengths = [parts.descriptor.len(), parts.head.len(), parts.extra.len()].map(|len| len as u32);
    for number in [variant, expires, ban].into_iter().chain(lengths) {
        fixed.extend_from_slice(&number.to_le_bytes());
    }
    fixed.extend_from_slice(&parts.body_len.to_le_bytes());
    let mut at = FIXED;
    out[..FIXED - 8].copy_from_slice(&fixed);
    let list: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    for field in [parts.descriptor, parts.head, parts.extra, &list] {
        out[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    let checksum = checksum_of_fields(layout, log, &out[..at]);
    out[FIXED - 8..FIXED].copy_from_slice(&checksum.to_le_bytes());
    at
}

/// Writes a body of `len` bytes in blocks to `rest`, and zeros after it.
fn put_body(
    layout: &Layout,
    log: u64,
    len: u64,
    mut rest: &mut [u8],
    body: &mut dyn FnMut(u64, &mut [u8]) -> usize,
) -> Option<()> {
    let mut done = 0;
    while done < len {
        let block = BODY_DATA.min(len - done) as usize;
        let mut filled = 0;
        while filled < block {
            let n = body(done + filled as u64, &mut rest[filled..block]);
            if n == 0 {
                return None;
            }
            filled += n;
        }
        let checksum = checksum_of_block(layout, log, done / BODY_DATA, &rest[..block]);
        rest[block..block + 8].copy_from_slice(&checksum.to_le_bytes());
        rest = &mut rest[block + 8..];
        done += block as u64;
    }
    rest.fill(0);
    Some(())
}

/// Moves a verified record to another log position: writes the record to the beginning of `out`. Returns `None` if the
/// record is damaged.
pub(crate) fn relocate(
    layout: &Layout,
    header: &Header,
    bytes: &[u8],
    log: u64,
    out: &mut [u8],
) -> Option<()> {
    let fields = header.fields(layout, bytes)?;
    let parts = Parts {
        meta: header.meta,
        descriptor: fields.descriptor,
        head: fields.head,
        extra: fields.extra,
        body_len: header.body,
    };
    let mut is_sound = true;
    encode(layout, log, &parts, out, &mut |from, window| {
        let (at, len) = header.blocks_of(from, from + window.len() as u64);
        let Some(blocks) = bytes.get(at as usize..(at + len) as usize) else { return 0 };
        let mut filled = 0;
        let to = from + window.len() as u64;
        let copied = read_body(layout, header.log, header.body, blocks, from, to, |piece| {
            window[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        });
        is_sound &= copied.is_some();
        if copied.is_some() { filled } else { 0 }
    })
    .filter(|()| is_sound)
}
