//! Reads of files that do not block their thread, by the kernel's io_uring.
//!
//! io_uring has had many vulnerabilities, so a ring can do only one thing: read the files that were named when it was
//! created. The kernel refuses every other operation on it, and a process that may not create rings anymore can use
//! those that it has.

mod memory;

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::{Builder, IoUring, opcode, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Sleep, sleep};

pub use memory::{ALIGNMENT, Block};

/// Reads that the kernel has not got yet are passed to it together, at the latest when there are this many.
const BATCH: usize = 8;
/// The pause between two looks at the reads in progress, if the kernel does not report their ends, and before reads that it
/// refused are passed to it again.
const PAUSE: Duration = Duration::from_millis(1);

/// Receives the result of a read and its memory.
pub type Done = Box<dyn FnOnce(io::Result<()>, Block) + Send>;

/// A queue of reads, of one thread. Its descriptor is readable when reads have ended.
pub struct Ring(RefCell<Inner>);

/// A read of a file, whose descriptor is not passed because the ring knows it.
pub struct Read {
    /// The index of the file.
    pub file: u32,
    /// The position in the file.
    pub at: u64,
    /// The memory, and the part of it that is to be filled.
    pub memory: Block,
    pub range: Range<usize>,
    pub done: Done,
}

struct Inner {
    ring: IoUring,
    depth: usize,
    /// Whether the thread does not learn of the ends of reads any more, so that no read may begin.
    is_closed: bool,
    /// The reads in progress, by number. The kernel writes to their memory.
    reads: Vec<Option<Read>>,
    /// The numbers that no read has.
    free: Vec<usize>,
    /// The number of reads that the kernel has not got yet.
    waiting: usize,
    /// The task that passes them to the kernel.
    driver: Option<Waker>,
    /// The number of times that the kernel will refuse all reads.
    #[cfg(test)]
    refusals: usize,
}

impl Ring {
    /// Creates a ring that reads these files, `depth` at a time.
    pub fn new(files: &[BorrowedFd<'_>], depth: u32) -> io::Result<Self> {
        // Without interrupts of the thread, if the kernel can do that.
        let ring = builder().setup_coop_taskrun().build(depth).or_else(|_| builder().build(depth))?;
        let files: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let submitter = ring.submitter();
        submitter.register_files(&files)?;
        submitter.register_restrictions(&mut [
            Restriction::sqe_op(opcode::Read::CODE),
            Restriction::sqe_flags_required(Flags::FIXED_FILE.bits()),
        ])?;
        submitter.register_enable_rings()?;
        let inner = Inner {
            depth: depth as usize,
            is_closed: false,
            reads: Vec::new(),
            free: Vec::new(),
            waiting: 0,
            driver: None,
            #[cfg(test)]
            refusals: 0,
            ring,
        };
        Ok(Self(RefCell::new(inner)))
    }

    /// Returns whether another read can be started.
    pub fn has_room(&self) -> bool {
        self.0.borrow().has_room()
    }

    /// Starts a read. Returns it if its range is wrong or there is no room. While others are in progress, the kernel
    /// may get it a little later, together with those that the thread starts until [`run`](Self::run) has its turn.
    pub fn read(&self, read: Read) -> Result<(), Read> {
        self.0.borrow_mut().start(read)
    }

    /// Ends the reads that the kernel has completed.
    pub fn complete(&self) {
        let ended = self.0.borrow_mut().take_ended();
        for (read, result) in ended {
            (read.done)(result, read.memory);
        }
    }

    /// Ends reads whenever the kernel has completed some. Runs until it is canceled, in a runtime of tokio. If the runtime
    /// cannot watch the ring, this returns when the reads in progress have ended, and the ring never has room again.
    pub async fn run(self: Rc<Self>) {
        Rc::clone(&self).watch().await;
        self.0.borrow_mut().is_closed = true;
        while self.in_progress() > 0 {
            self.complete();
            sleep(PAUSE).await;
        }
    }

    async fn watch(self: Rc<Self>) {
        // SAFETY: the ring has one descriptor, and keeps it open until its end.
        let watched = unsafe { AsyncFd::register_with_interest(Rc::clone(&self), Interest::READABLE) };
        let Ok(watched) = watched else { return };
        let mut pause: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            let is_refused = !self.0.borrow_mut().drive(cx);
            while let Poll::Ready(ready) = watched.poll_read_ready(cx) {
                let Ok(mut ready) = ready else { return Poll::Ready(()) };
                // Before the reads: those that end meanwhile make the descriptor ready again.
                ready.clear_ready();
                self.complete();
            }
            // If no other reads are in progress, no end of one wakes this task.
            if is_refused && pause.get_or_insert_with(|| Box::pin(sleep(PAUSE))).as_mut().poll(cx).is_ready()
            {
                pause = None;
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
        self.0.borrow_mut().driver = None;
    }

    /// Returns the number of reads in progress.
    pub fn in_progress(&self) -> usize {
        self.0.borrow().in_progress()
    }
}

fn builder() -> Builder {
    let mut builder = IoUring::builder();
    builder.setup_r_disabled();
    builder
}

impl Inner {
    fn in_progress(&self) -> usize {
        self.reads.len() - self.free.len()
    }

    fn has_room(&self) -> bool {
        !self.is_closed && self.in_progress() < self.depth
    }

    fn start(&mut self, mut read: Read) -> Result<(), Read> {
        let is_valid = read.range.start <= read.range.end && read.range.end <= read.memory.len();
        let length = u32::try_from(read.range.len());
        let (true, Ok(length)) = (is_valid && self.has_room(), length) else {
            return Err(read);
        };
        let to = read.memory[read.range.clone()].as_mut_ptr();
        let number = self.free.pop().unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() - 1
        });
        let entry = opcode::Read::new(types::Fixed(read.file), to, length).offset(read.at).build();
        let entry = entry.user_data(number as u64);
        // SAFETY: the kernel writes to the range of the memory, until it reports the end of the read. The memory stays in
        // `reads` for so long, or is leaked; its address does not change when the block is moved, and nobody accesses it.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.free.push(number);
            return Err(read);
        }
        self.reads[number] = Some(read);
        self.waiting += 1;
        let is_idle = self.waiting == self.in_progress();
        if is_idle || self.waiting >= BATCH || self.driver.is_none() {
            self.pass_all();
        }
        if self.waiting > 0
            && let Some(driver) = &self.driver
        {
            driver.wake_by_ref();
        }
        Ok(())
    }

    /// Registers the task that passes reads to the kernel, which it does now and when it is woken. Returns whether the
    /// kernel has got all.
    fn drive(&mut self, cx: &Context<'_>) -> bool {
        if self.driver.as_ref().is_none_or(|driver| !driver.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
        self.pass_all();
        self.waiting == 0
    }

    /// Passes the reads that wait to the kernel. If it has no memory for them now, the next call does.
    fn pass_all(&mut self) {
        if self.waiting > 0
            && let Ok(passed) = self.submit()
        {
            self.waiting = self.waiting.saturating_sub(passed);
        }
    }

    fn submit(&mut self) -> io::Result<usize> {
        #[cfg(test)]
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        self.ring.submit()
    }

    fn take_ended(&mut self) -> Vec<(Read, io::Result<()>)> {
        self.pass_all();
        let Self { reads, free, ring, .. } = self;
        let ended = ring.completion().filter_map(|entry| {
            let number = usize::try_from(entry.user_data()).ok()?;
            let read = reads.get_mut(number)?.take()?;
            free.push(number);
            let result = match usize::try_from(entry.result()) {
                Ok(n) if n == read.range.len() => Ok(()),
                Ok(_) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "fewer bytes than expected")),
                Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            };
            Some((read, result))
        });
        ended.collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The kernel may write to this memory even after the end of the ring.
        for read in self.reads.drain(..).flatten() {
            mem::forget(read.memory);
        }
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.0.borrow().ring.as_raw_fd()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} reads)", self.in_progress())
    }
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Read({} bytes at {} of file {})", self.range.len(), self.at, self.file)
    }
}

#[cfg(test)]
mod tests;
