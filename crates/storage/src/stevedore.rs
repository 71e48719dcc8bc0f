//! A storage that `-s` configured and that `storage.<name>` and `beresp.storage` refer to. All objects are created
//! here, and the cache uses a store only through these operations. `docs/seams/store.md` states what each guarantees.
//!
//! Every store has an arena. A store without a device keeps whole objects in it. A store with a device keeps heads in
//! it, bodies until the device has written them, and parts of bodies that are being read.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Arena, Counters, Full};
use crate::body::{BodyState, BodyWriter, ChunkSizes};
use crate::device::{Committed, Device, Recovered};
use crate::first::Parts;
use crate::kept::{KeptNote, KeptObject, Note, Taken};
use crate::load::Extent;
use crate::stored::{Spans, Stored};

/// The kind of a storage, by its name in `-s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Malloc,
    File,
    /// Memory in front of a block store.
    Disk,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::File => "file",
            Self::Disk => "disk",
        }
    }
}

/// The arrangement of head and body in spans, for a body that is written by a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One span with the head, if head and body may fit into one; otherwise like `Pieces`.
    OneSpan,
    /// Any number of spans.
    Pieces,
    /// Separate spans for head and body, because the head outlives the body.
    Apart,
}

/// A configured storage.
#[derive(Clone, Debug)]
pub struct Stevedore {
    /// The name in VCL: `storage.NAME`.
    vcl_name: Box<str>,
    kind: Kind,
    index: u8,
    arena: Arc<Arena>,
    device: Option<Arc<dyn Device>>,
}

impl Stevedore {
    /// Creates a storage. `index` is its number in the worker's table; objects record it.
    pub fn new(name: &str, kind: Kind, index: u8, arena: Arc<Arena>) -> Self {
        Self { vcl_name: format!("storage.{name}").into(), kind, index, arena, device: None }
    }

    /// Adds the device that stores the bodies of objects.
    #[must_use]
    pub fn with_device(mut self, device: Arc<dyn Device>) -> Self {
        self.device = Some(device);
        self
    }

    /// Returns its configured name ("s0", "Transient").
    pub fn name(&self) -> &str {
        &self.vcl_name["storage.".len()..]
    }

    /// Returns the name as a value of VCL.
    pub fn vcl_name(&self) -> &str {
        &self.vcl_name
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its number in the worker's table.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// Returns whether bodies may be moved out of memory. If so, [`commit`](Self::commit) must be called for complete
    /// objects.
    pub fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Sets the function that evicts an object of this store to make room for a part of a body that is read from the
    /// device. Only the first call has an effect. The function is called on threads that read, with no lock held, and
    /// returns false if no object could be evicted.
    pub fn on_full(&self, evict: impl Fn() -> bool + Send + Sync + 'static) {
        self.arena.set_evict(Box::new(evict));
    }

    /// Stores an object whose body is in memory. It may fail with `Full` for bodies that are not
    /// [small](Self::is_small), even if they would fit in pieces.
    pub fn complete(&self, parts: Parts<'_>, body: &[u8]) -> Result<Stored, Full> {
        if self.device.is_none() {
            return Stored::complete(&self.arena, parts, body);
        }
        let (length, most) = (body.len(), parts.stored_len() + body.len());
        let sizes = ChunkSizes { first: length, max: most };
        let (stored, mut writer) = Stored::begin(&self.arena, parts, Some(length as u64), sizes, false)?;
        writer.write(body)?;
        writer.finish();
        Ok(stored)
    }

    /// Stores the head of an object whose body will be written through the writer. `expected` is the length of the
    /// body, if known.
    pub fn begin(
        &self,
        parts: Parts<'_>,
        expected: Option<u64>,
        sizes: ChunkSizes,
        layout: Layout,
    ) -> Result<(Stored, BodyWriter), Full> {
        // A body that shares a span with its head could not be moved out of memory.
        if layout == Layout::Apart || self.device.is_some() {
            return Stored::begin_apart(&self.arena, parts, expected, sizes);
        }
        Stored::begin(&self.arena, parts, expected, sizes, layout == Layout::Pieces)
    }

    /// Creates an object that shares the body of another one, without a copy. Returns `None` if `body` is in another
    /// store, was stored whole in one span, is incomplete, or is not in memory.
    pub fn share(&self, parts: Parts<'_>, body: &Stored) -> Result<Option<Stored>, Full> {
        Stored::sharing(&self.arena, parts, body)
    }

    /// Stores the head of a complete object whose body is at `extent`.
    pub fn on_device(
        &self,
        parts: Parts<'_>,
        body_len: u64,
        extent: Box<dyn Extent>,
    ) -> Result<Stored, Full> {
        Stored::on_device(&self.arena, parts, body_len, extent)
    }

    /// Passes a complete object to the device, if there is one and the object is not on it already. `descriptor` is the
    /// data with which the cache can index the object again.
    pub fn commit(&self, stored: &Stored, descriptor: &[u8]) {
        if let (Some(device), Spans::Streamed(body)) = (&self.device, stored.spans())
            && body.state() == BodyState::Complete
            && !body.is_settled()
        {
            device.commit(Committed::new(body), descriptor);
        }
    }

    /// Passes the objects of a previous process to `found`, with the data that [`commit`](Self::commit) received for
    /// them. A store in memory has none: the arena discards what an earlier process left in its file. An object is
    /// freed if there is no room for its head. Called once, before any other operation. May wait for a device.
    pub fn recover(&self, found: &mut dyn FnMut(Stored, &[u8])) -> io::Result<()> {
        let Some(device) = &self.device else { return Ok(()) };
        device.recover(&mut |object: Recovered| {
            let Recovered { descriptor, head, extra, body_len, extent } = object;
            let parts = Parts { head: &[&head], extra: &extra };
            if let Ok(stored) = Stored::on_device(&self.arena, parts, body_len, extent) {
                found(stored, &descriptor);
            }
        })
    }

    /// Returns whether the next process may take over its objects. If so, [`Stored::keep`] must be called for complete
    /// objects, and [`Stored::forget`] before an object is removed from the index.
    pub fn is_kept(&self) -> bool {
        self.arena.is_kept()
    }

    /// Returns the store with the bans and the numbers for the next process: the first that is kept, of those in files if
    /// there is one, because these may outlive the others.
    pub fn keeper(all: &[Self]) -> Option<&Self> {
        let kept = || all.iter().filter(|one| one.is_kept());
        kept().find(|one| one.kind == Kind::File).or_else(|| kept().next())
    }

    /// Returns a random number that does not change as long as objects are taken over.
    pub fn secret(&self) -> u64 {
        self.arena.records().secret()
    }

    /// Returns the largest number that [`raise_serial`](Self::raise_serial) was called with, in this process or in those
    /// whose objects it takes over. The number is not protected against damage.
    pub fn serial(&self) -> u32 {
        self.arena.records().serial()
    }

    /// Records a number for the next process, unless a larger one is recorded.
    pub fn raise_serial(&self, serial: u32) {
        self.arena.records().raise_serial(serial);
    }

    /// Takes over the notes and objects of the previous process; see [`Arena::take_over`]. Called once, before any other
    /// operation.
    pub fn take_over(
        &self,
        notes: &mut dyn FnMut(Vec<KeptNote>) -> bool,
        found: &mut dyn FnMut(KeptObject) -> bool,
    ) -> io::Result<Taken> {
        self.arena.take_over(notes, found)
    }

    /// Ends the allocation and the reuse of its memory, for a process that takes it over while this one lives; see
    /// [`Arena::freeze`].
    pub fn freeze(&self, pins: BorrowedFd<'_>) -> io::Result<()> {
        self.arena.freeze(pins)
    }

    /// Writes the pages that this process still uses, after [`freeze`](Self::freeze).
    pub fn report_use(&self, pins: BorrowedFd<'_>) -> io::Result<()> {
        self.arena.report_use(pins)
    }

    /// Continues to use the memory after [`freeze`](Self::freeze). The other process must have ended.
    pub fn thaw(&self) {
        self.arena.thaw();
    }

    /// Releases the pages that the previous process does not use anymore; see [`Arena::release_pins`].
    pub fn release_pins(&self, pins: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.arena.release_pins(pins)
    }

    /// Writes a note for the next process. If that is impossible, the next process will take over nothing.
    pub fn write_note(&self, number: u32, time: f64, text: &[u8]) -> Option<Note> {
        self.arena.write_note(number, time, text)
    }

    /// Marks a note as completed.
    pub fn complete_note(&self, note: Note) {
        self.arena.complete_note(note);
    }

    pub fn remove_note(&self, note: Note) {
        self.arena.remove_note(note);
    }

    /// Returns whether an object of `bytes` bytes may share pages with others.
    pub fn is_small(&self, bytes: u64) -> bool {
        bytes <= self.arena.max_small() as u64
    }

    /// Returns whether `bytes` bytes are free, though not necessarily contiguous.
    pub fn has_free(&self, bytes: u64) -> bool {
        self.arena.has_free(bytes)
    }

    /// Returns the length of the largest span that could be allocated now.
    pub fn longest_free(&self) -> u64 {
        self.arena.longest_free()
    }

    /// Returns the number of bytes of memory that are resident but not in use.
    pub fn surplus(&self) -> u64 {
        self.arena.surplus()
    }

    /// Returns free memory to the system.
    pub fn return_free_pages(&self) {
        self.arena.return_free_pages();
    }

    /// Returns the configured size, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.arena.limit()
    }

    pub fn counters(&self) -> &Counters {
        self.arena.counters()
    }

    /// Returns the number of bytes that objects occupy.
    pub fn used_space(&self) -> u64 {
        self.arena.used()
    }

    /// Returns the number of free bytes; without a limit, computed from the maximum of a VCL INTEGER.
    pub fn free_space(&self) -> u64 {
        match self.arena.limit() {
            Some(_) => self.counters().g_space.load(Ordering::Relaxed),
            None => (i64::MAX as u64) - self.arena.used(),
        }
    }

    /// Returns the value of `storage.NAME.happy` in VCL, which is always true for memory.
    pub fn happy(&self) -> bool {
        true
    }
}
