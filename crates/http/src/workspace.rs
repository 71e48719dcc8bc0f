//! The arena of one transaction, which contains everything that its VCL can access: the bytes from the socket, header
//! lines, and strings made by VCL. Its capacity is fixed, because `workspace_client` and `workspace_backend`
//! guarantee a limit. It uses bump allocation and `reset`, because a request must not cost a heap allocation.
//! Allocations are rounded up to eight bytes and texts get a terminating NUL, so that a limit that was tuned for
//! Varnish has the same effect here.

use crate::fixed_text_table;
pub use crate::text::Text;
use std::fmt;

const ALIGN: usize = 8;

/// The workspace (or the header table of a message) is full. The workspace records this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of workspace")
    }
}

impl std::error::Error for Overflow {}

/// A fill level of a workspace; see [`Workspace::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

/// The arena. Its memory is allocated at first use and is not moved. The default workspace has no room.
#[derive(Debug, Default)]
pub struct Workspace {
    bytes: Box<[u8]>,
    capacity: usize,
    free: usize,
    reserved: usize,
    overflowed: bool,
    /// Memory that [`Workspace::roll_back`] has replaced. VCL may still refer to its bytes.
    replaced: Vec<Box<[u8]>>,
}

impl Workspace {
    /// Creates a workspace of `size` bytes, as the parameters count them: one byte and the remainder to a multiple of
    /// eight are not usable.
    pub fn new(size: usize) -> Workspace {
        let capacity = size.min(Text::MAX_WORKSPACE).saturating_sub(1) & !(ALIGN - 1);
        Workspace {
            bytes: Box::default(),
            capacity,
            free: 0,
            reserved: 0,
            overflowed: false,
            replaced: Vec::new(),
        }
    }

    /// Removes all texts and clears the overflow mark. Keeps the memory.
    pub fn reset(&mut self) {
        self.free = 0;
        self.reserved = 0;
        self.overflowed = false;
        self.replaced.clear();
    }

    /// Resets the workspace with another size. Frees the memory if the size differs.
    pub fn resize(&mut self, size: usize) {
        let fresh = Workspace::new(size);
        if fresh.capacity == self.capacity { self.reset() } else { *self = fresh }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn used(&self) -> usize {
        self.free
    }

    pub fn free_space(&self) -> usize {
        self.capacity - self.free
    }

    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub fn set_overflowed(&mut self) {
        self.overflowed = true;
    }

    /// Clears the overflow mark. Only for tests and for rollback in VCL.
    pub fn clear_overflowed(&mut self) {
        self.overflowed = false;
    }

    pub fn mark(&self) -> Mark {
        Mark(self.free as u32)
    }

    /// Frees everything allocated since `mark`. Keeps the overflow mark.
    pub fn release(&mut self, mark: Mark) {
        debug_assert!(mark.0 as usize <= self.free);
        self.free = self.free.min(mark.0 as usize);
        self.reserved = 0;
    }

    /// Frees everything allocated since `mark`, like [`Workspace::release`], but keeps the bytes unchanged until the
    /// next [`Workspace::reset`], because VCL may still hold values during a rollback. So the workspace continues in
    /// other memory, with a copy of the allocations before `mark`.
    #[cold]
    pub fn roll_back(&mut self, mark: Mark) {
        let kept = self.free.min(mark.0 as usize);
        if kept < self.free {
            let mut fresh = vec![0; self.capacity].into_boxed_slice();
            fresh[..kept].copy_from_slice(&self.bytes[..kept]);
            self.replaced.push(std::mem::replace(&mut self.bytes, fresh));
        }
        self.release(mark);
    }

    /// Returns the bytes of `text`; empty for [`Text::NONE`].
    #[inline]
    pub fn get(&self, text: Text) -> &[u8] {
        if text.is_fixed() {
            fixed_text_table::bytes(text)
        } else {
            &self.bytes[text.offset()..text.offset() + text.len()]
        }
    }

    /// Returns whether `next` directly follows `line` in this workspace, with a line end between them.
    #[inline]
    pub(crate) fn follows(&self, line: Text, next: Text) -> bool {
        let end = line.offset() + line.len();
        next.offset() == end + 2
            && !line.is_fixed()
            && self.bytes.get(end..end + 2).is_some_and(|between| between == b"\r\n")
    }

    /// Returns the bytes of `text`, or `None` for [`Text::NONE`].
    #[inline]
    pub fn get_opt(&self, text: Text) -> Option<&[u8]> {
        text.is_some().then(|| self.get(text))
    }

    /// Returns the bytes of a text of this workspace for changes in place; empty for fixed texts.
    #[inline]
    pub fn get_mut(&mut self, text: Text) -> &mut [u8] {
        if text.is_fixed() {
            return &mut [];
        }
        &mut self.bytes[text.offset()..text.offset() + text.len()]
    }

    #[inline]
    fn ensure_memory(&mut self) {
        if self.bytes.is_empty() {
            self.take_memory();
        }
    }

    #[cold]
    fn take_memory(&mut self) {
        self.bytes = vec![0; self.capacity].into_boxed_slice();
    }

    /// Allocates `len` bytes of unspecified content.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Text, Overflow> {
        // Both lengths are multiples of the alignment, so the rounded length fits if `len` does.
        if len > self.bytes.len() - self.free {
            self.provide_memory(len)?;
        }
        let text = Text::at(self.free, len);
        self.free += round_up(len);
        Ok(text)
    }

    /// Allocates the memory, if that has not happened yet. Fails if there is no room.
    #[cold]
    fn provide_memory(&mut self, len: usize) -> Result<(), Overflow> {
        if len > self.free_space() {
            self.overflowed = true;
            return Err(Overflow);
        }
        self.ensure_memory();
        Ok(())
    }

    /// Allocates a text of `len` bytes and its NUL.
    #[inline]
    pub(crate) fn alloc_text(&mut self, len: usize) -> Result<Text, Overflow> {
        let at = self.alloc(len + 1)?.offset();
        self.bytes[at + len] = 0;
        Ok(Text::at(at, len))
    }

    /// Returns the text for bytes that are already in this workspace.
    pub fn place_of(&self, bytes: &[u8]) -> Option<Text> {
        let from = (bytes.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        let within = from.checked_add(bytes.len())? <= self.free;
        within.then(|| Text::at(from, bytes.len()))
    }

    pub fn copy(&mut self, bytes: &[u8]) -> Result<Text, Overflow> {
        let text = self.alloc_text(bytes.len())?;
        self.get_mut(text).copy_from_slice(bytes);
        Ok(text)
    }

    /// Writes "name: value" as a text.
    #[inline]
    pub(crate) fn write_line(&mut self, name: &[u8], value: &[u8]) -> Result<Text, Overflow> {
        let len = name.len() + 2 + value.len();
        let text = self.alloc(len + 1)?.slice(0, len);
        let line = &mut self.bytes[text.offset()..][..=len];
        let (name_place, tail) = line.split_at_mut(name.len());
        copy_short(name, name_place);
        let (colon, tail) = tail.split_at_mut(2);
        colon.copy_from_slice(b": ");
        let (value_place, nul) = tail.split_at_mut(value.len());
        copy_short(value, value_place);
        nul[0] = 0;
        Ok(text)
    }

    /// Creates a text from the parts, in order.
    pub fn copy_parts(&mut self, parts: &[&[u8]]) -> Result<Text, Overflow> {
        let text = self.alloc_text(parts.iter().map(|p| p.len()).sum())?;
        parts.iter().fold(self.get_mut(text), |out, part| put(out, part));
        Ok(text)
    }

    /// Creates a text from texts of this workspace or fixed texts.
    pub fn join(&mut self, texts: &[Text]) -> Result<Text, Overflow> {
        let joined = self.alloc_text(texts.iter().map(|t| t.len()).sum())?;
        let mut at = joined.offset();
        for &text in texts {
            self.move_into(text, at);
            at += text.len();
        }
        Ok(joined)
    }

    /// Copies a text to an offset in an allocation.
    pub(crate) fn move_into(&mut self, text: Text, at: usize) {
        if text.is_fixed() {
            self.bytes[at..at + text.len()].copy_from_slice(fixed_text_table::bytes(text));
        } else {
            self.bytes.copy_within(text.offset()..text.offset() + text.len(), at);
        }
    }

    pub(crate) fn write_at(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Reserves `len` bytes for writing. [`Workspace::commit`] makes a text of the bytes written.
    pub fn reserve(&mut self, len: usize) -> Result<&mut [u8], Overflow> {
        if len > self.free_space() {
            self.overflowed = true;
            return Err(Overflow);
        }
        self.ensure_memory();
        self.reserved = len;
        Ok(&mut self.bytes[self.free..self.free + len])
    }

    /// Reserves all free bytes for writing.
    pub fn reserve_all(&mut self) -> &mut [u8] {
        self.ensure_memory();
        self.reserved = self.free_space();
        &mut self.bytes[self.free..]
    }

    /// Returns the first `len` bytes of the reservation, which the caller has written.
    pub fn reserved(&self, len: usize) -> &[u8] {
        &self.bytes[self.free..self.free + len.min(self.reserved)]
    }

    /// Removes the first `skip` of the `len` bytes written so far. Returns the number of bytes that are left.
    pub fn skip_reserved(&mut self, len: usize, skip: usize) -> usize {
        let len = len.min(self.reserved);
        let skip = skip.min(len);
        self.bytes.copy_within(self.free + skip..self.free + len, self.free);
        len - skip
    }

    /// Makes a text of the first `len` bytes of the reservation, and ends it.
    pub fn commit(&mut self, len: usize) -> Text {
        let len = len.min(self.reserved);
        let text = Text::at(self.free, len);
        self.free = (self.free + round_up(len)).min(self.capacity);
        self.reserved = 0;
        text
    }
}

/// Writes `part` to the beginning of `out`. Returns the rest of `out`.
#[inline(always)]
pub(crate) fn put<'o>(out: &'o mut [u8], part: &[u8]) -> &'o mut [u8] {
    let (place, tail) = out.split_at_mut(part.len());
    place.copy_from_slice(part);
    tail
}

/// Copies between slices of equal length. A text of 2 to 32 bytes is copied as two pieces of a fixed size that may
/// overlap, without a call.
#[inline(always)]
fn copy_short(from: &[u8], to: &mut [u8]) {
    match from.len() {
        16..=32 => copy_ends::<16>(from, to),
        8..16 => copy_ends::<8>(from, to),
        4..8 => copy_ends::<4>(from, to),
        2..4 => copy_ends::<2>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `N` bytes.
#[inline(always)]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        if let Some(place) = to.first_chunk_mut() {
            *place = *first;
        }
        if let Some(place) = to.last_chunk_mut() {
            *place = *last;
        }
    }
}

const fn round_up(len: usize) -> usize {
    (len + ALIGN - 1) & !(ALIGN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_as_in_varnish() {
        let mut ws = Workspace::new(64);
        assert_eq!(ws.capacity(), 56);
        let t = ws.copy(b"1234567").unwrap();
        assert_eq!(ws.used(), 8);
        assert_eq!(ws.get(t), b"1234567");
        ws.copy(b"12345678").unwrap();
        assert_eq!(ws.used(), 24);
        assert_eq!(ws.copy(&[b'x'; 32]), Err(Overflow));
        assert!(ws.overflowed());
        ws.copy(&[b'x'; 31]).unwrap();
        assert_eq!(ws.free_space(), 0);
        ws.reset();
        assert!(!ws.overflowed());
        assert_eq!(ws.free_space(), 56);
    }

    #[test]
    fn texts_can_be_reserved_joined_and_released() {
        let mut ws = Workspace::new(256);
        let a = ws.copy(b"Host: ").unwrap();
        let mark = ws.mark();
        ws.reserve(100).unwrap()[..7].copy_from_slice(b"example");
        assert_eq!(ws.reserved(7), b"example");
        ws.reserve(100).unwrap()[..10].copy_from_slice(b"no example");
        assert_eq!(ws.skip_reserved(10, 3), 7);
        let b = ws.commit(7);
        let joined = ws.join(&[a, b, crate::fixed::HTTP_11]).unwrap();
        assert_eq!(ws.get(joined), b"Host: exampleHTTP/1.1");
        assert_eq!(ws.get(joined.slice(6, 13)), b"example");
        ws.release(mark);
        assert_eq!(ws.used(), 8);
        assert_eq!(ws.get(Text::NONE), b"");
        assert_eq!(ws.get_opt(Text::NONE), None);
    }

    #[test]
    fn a_rollback_does_not_change_bytes_in_use() {
        let mut ws = Workspace::new(256);
        let before = ws.copy(b"before").unwrap();
        let mark = ws.mark();
        let after = ws.copy(b"after").unwrap();
        let in_hand = ws.get(after).as_ptr();
        ws.roll_back(mark);
        let used = ws.used();
        let next = ws.copy(b"other").unwrap();
        assert_eq!((ws.get(before), ws.get(next), used), (&b"before"[..], &b"other"[..], 8));
        assert_ne!(ws.get(next).as_ptr(), in_hand);
        assert_eq!(&*ws.replaced[0], [b"before\0\0after\0\0\0".as_slice(), &[0; 232]].concat());
        ws.reset();
        assert!(ws.replaced.is_empty());
    }
}
