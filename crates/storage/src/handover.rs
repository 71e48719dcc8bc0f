//! The handover of an arena to another process while this one still reads and writes parts of it, in an upgrade.
//!
//! 1. The old process *freezes* the arena. From then on it allocates in another arena, the overflow, and neither frees
//!    nor punches a page. It writes the set of pages that it uses to a file, the *pins*.
//! 2. The new process copies the table of records and takes over the objects in it, as those of a process that was killed
//!    at this moment. Pages that are pinned and belong to no object are *orphans*: the old process may write to them. The
//!    new process uses neither them nor free slots of slabs that are pinned. If it frees a pinned page, that becomes an
//!    orphan. If no other page is free, it uses an overflow, too.
//! 3. The old process writes the pins again when it uses fewer pages, and the new one *releases* the others. At the end
//!    of the old process, it releases all.
//!
//! Nobody writes to pages that another process may read: the old process writes only to spans that are not sealed, whose
//! pages are pinned and have no owner in the new one, and the new process only to pages that are not pinned. If the new
//! process fails to start, the old one *thaws* the arena and continues.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::Arena;
use crate::bits::Bits;
use crate::pins::{Handover, Held, read};
use crate::slabs::PAGE;
use crate::system;

/// The size of the overflow of an arena without a limit, and its maximum, in bytes.
const LARGEST_OVERFLOW: u64 = 1 << 30;
const LEAST_OVERFLOW: u64 = 16 << 20;

impl Arena {
    /// Ends the allocation and the reuse of memory, and writes the pages in use to a file. The descriptor is that of an
    /// arena with [`pins`](crate::KeptFiles) in the next process.
    pub fn freeze(&self, pins: BorrowedFd<'_>) -> io::Result<()> {
        self.make_overflow()?;
        {
            let mut allocator = self.allocator();
            if matches!(allocator.handover, Handover::Pinned(_)) {
                return Err(io::Error::other("the process before this one still uses the memory"));
            }
            if !allocator.handover.is_frozen() {
                allocator.handover = Handover::Frozen(Held::default());
            }
        }
        self.report_use(pins)
    }

    /// Writes the pages that are still in use, of an arena that is frozen.
    pub fn report_use(&self, pins: BorrowedFd<'_>) -> io::Result<()> {
        let mut used = Bits::all(self.pages());
        {
            let allocator = self.allocator();
            let Handover::Frozen(held) = &allocator.handover else { return Ok(()) };
            let held = held.pages.iter().map(|&(start, n, _)| (start, n));
            for (start, n) in allocator.runs.all().chain(held) {
                used.remove(start, n);
            }
        }
        system::write(pins, &used.to_bytes(), 0)
    }

    /// Continues to use an arena that is frozen, because the next process has failed to start, and has ended.
    pub fn thaw(&self) {
        let Held { pages, notes } = {
            let mut allocator = self.allocator();
            match std::mem::take(&mut allocator.handover) {
                Handover::Frozen(held) => held,
                other => {
                    allocator.handover = other;
                    return;
                }
            }
        };
        self.end_overflow();
        for (start, n, sent) in pages {
            self.release_pages(u64::from(start) * u64::from(PAGE), n * PAGE, sent);
        }
        for note in notes {
            self.records().remove(note);
        }
    }

    /// Releases the pages that the previous process does not use anymore: those that are not in the file, or all if it
    /// has ended.
    pub fn release_pins(&self, pins: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut still = Bits::all(self.pages());
        match pins {
            Some(pins) => still = read(self.pages(), pins)?,
            None => still.remove(0, u32::MAX),
        }
        let free = {
            let mut guard = self.allocator();
            let allocator = &mut *guard;
            allocator.handover.release(&mut allocator.slabs, &still)
        };
        if pins.is_none() {
            self.end_overflow();
        }
        for (start, n) in free {
            let (at, bytes) = (u64::from(start) * u64::from(PAGE), u64::from(n) * u64::from(PAGE));
            // Pages that cannot be punched are lost: a socket of the other process may still hold them.
            if self.mapping().punch(at, bytes).is_ok() {
                self.allocator().runs.give(start, n);
            }
        }
        Ok(())
    }

    /// Creates the arena for allocations during the handover. It ends with this process.
    pub(crate) fn make_overflow(&self) -> io::Result<()> {
        let size = self.limit().map_or(LARGEST_OVERFLOW, |limit| limit / 4);
        if self.overflow_slot().get().is_none() {
            let arena = Arena::anonymous(Some(size.clamp(LEAST_OVERFLOW, LARGEST_OVERFLOW)))?;
            let _ = self.overflow_slot().set(arena);
        }
        self.uses_overflow().store(true, Ordering::Release);
        Ok(())
    }

    /// The objects in the overflow stay there.
    fn end_overflow(&self) {
        self.uses_overflow().store(false, Ordering::Release);
    }

    /// Returns the arena for allocations for which this one has no room, during a handover.
    pub(crate) fn overflow(&self) -> Option<&Arc<Arena>> {
        if self.uses_overflow().load(Ordering::Acquire) { self.overflow_slot().get() } else { None }
    }
}
