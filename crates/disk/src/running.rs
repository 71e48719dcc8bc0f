//! The threads of a store: one writes objects, one writes the journal, one observes the device, and several read.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, park_timeout, sleep};
use std::time::Duration;

use parking_lot::Mutex;

use lacquer_rings::Ring;

use crate::commit::FULL;
use crate::health::{Reason, TICK};
use crate::load::{Load, Receiver};
use crate::readers::Readers;
use crate::record::Key;
use crate::state::Phase;
use crate::store::{Candidate, Store};
use crate::writer::{Step, Writer};

/// The number of threads that read, and thus the depth of the device's queue.
const READERS: usize = 32;
const STACK: usize = 256 << 10;
/// The time for which the writer waits until the objects that wait fill a write.
const LONGEST_GATHERING: Duration = Duration::from_millis(20);
/// The time after which the writer tries again to begin a segment.
const NEXT_ATTEMPT: Duration = Duration::from_secs(1);
/// The time after which the length of the journal is recorded.
const MARK_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two checks whether a thread that writes has ended.
const END_CHECK: Duration = Duration::from_millis(1);

/// A store at work.
pub struct Running {
    store: Arc<Store>,
    readers: Arc<Readers>,
    /// The threads that write.
    threads: Mutex<Vec<JoinHandle<()>>>,
    watcher: Mutex<Option<Watcher>>,
    /// The index of the device among the files of each [`Ring`].
    file: Option<u32>,
}

/// The thread that observes how long reads and writes take. It ends after those that write.
struct Watcher {
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Starts all threads.
    pub fn start(store: Arc<Store>) -> io::Result<Self> {
        let this = Self::with_readers(store, None)?;
        this.start_writers()?;
        Ok(this)
    }

    /// Starts the threads that read, and one that observes how long they take. The index stays empty until
    /// [`start_writers`](Self::start_writers) is called. `file` is the index of the device among the files of each ring.
    pub fn with_readers(store: Arc<Store>, file: Option<u32>) -> io::Result<Self> {
        let readers = Arc::new(Readers::default());
        for _ in 0..READERS {
            let readers = Arc::clone(&readers);
            thread("disk-read").spawn(move || readers.run())?;
        }
        let watcher = Mutex::new(Some(Watcher::start(&store)?));
        Ok(Self { store, readers, threads: Mutex::default(), watcher, file })
    }

    /// Prepares a store without threads. The caller performs their work: [`Store::recover`], [`Writer`],
    /// [`Store::journal_step`] and [`read_step`](Self::read_step).
    pub fn without_threads(store: Arc<Store>) -> Self {
        let (threads, watcher) = (Mutex::default(), Mutex::default());
        Self { store, readers: Arc::default(), threads, watcher, file: None }
    }

    /// Performs the reads that wait, on this thread.
    pub fn read_step(&self) {
        self.readers.run_waiting();
    }

    /// Starts the threads that write. One of them first reads the index.
    pub fn start_writers(&self) -> io::Result<()> {
        let store = Arc::clone(&self.store);
        let writer = thread("disk-write").spawn(move || write(&store))?;
        self.threads.lock().push(writer);
        let store = Arc::clone(&self.store);
        let journal = thread("disk-journal").spawn(move || keep_journal(&store))?;
        self.threads.lock().push(journal);
        Ok(())
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Runs a function that reads on one of the threads for that.
    pub fn read(&self, task: impl FnOnce() + Send + 'static) {
        self.readers.add(task);
    }

    /// Reads a candidate with a key: in the ring of this thread, which passes it to the receiver later, or on another
    /// thread.
    pub fn load(&self, ring: Option<&Ring>, candidate: Candidate, key: Key, receiver: impl Receiver) {
        let task = Load {
            store: Arc::clone(&self.store),
            readers: Arc::clone(&self.readers),
            candidate,
            key,
            receiver,
        };
        match ring.zip(self.file) {
            Some((ring, file)) if ring.has_room() => task.in_ring(ring, file),
            _ => task.on_thread(),
        }
    }

    /// Writes everything, and ends the threads that write. If the index is still being read, that ends, and what waits for it
    /// is not written. A thread that waits for a device without an end is left behind when that is taken out of use.
    pub fn close(&self) {
        self.store.begin_end();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The lock orders this with a thread that is about to wait.
            drop(self.store.state.lock());
            self.store.has_objects.notify_all();
            self.store.has_records.notify_all();
            self.await_end(thread);
        }
        let Some(watcher) = self.watcher.lock().take() else { return };
        if !self.store.phase().is_out() {
            let store = Arc::clone(&self.store);
            match thread("disk-end").spawn(move || end_journal(&store)) {
                Ok(thread) => self.await_end(thread),
                Err(_) => end_journal(&self.store),
            }
        }
        watcher.end();
    }

    /// Waits for the end of a thread that writes, or of the use of the device.
    fn await_end(&self, thread: JoinHandle<()>) {
        while !thread.is_finished() {
            if matches!(self.store.phase(), Phase::Failed | Phase::Retired) {
                return;
            }
            sleep(END_CHECK);
        }
        let _ = thread.join();
    }

    /// Writes everything, and leaves the device to another process. Its objects are misses from now on. Reads that have
    /// begun may continue: the other process may overwrite what they read, which their checksums show.
    pub fn retire(&self) {
        self.close();
        self.store.retire();
    }

    /// Makes the contents invalid if the device was [left](Self::retire) to another process that has failed to start and
    /// has ended. Must be called before this process answers purges and bans on its own again.
    pub fn disown(&self) {
        self.store.disown();
    }
}

fn thread(name: &str) -> Builder {
    Builder::new().name(name.to_owned()).stack_size(STACK)
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Running({:?})", self.store)
    }
}

fn write(store: &Arc<Store>) {
    store.recover_on(READERS);
    let mut writer = Writer::new(Arc::clone(store));
    let mut flushed = store.now();
    loop {
        let step = writer.step();
        let rest = rest_of(store.flush_interval(), store.now() - flushed);
        if writer.is_dirty() && rest.is_zero() {
            writer.flush();
            flushed = store.now();
        }
        if step == Step::More {
            continue;
        }
        if store.is_ending() {
            return writer.close();
        }
        let mut state = store.state.lock();
        if store.is_ending() {
            continue;
        }
        if state.queue.is_empty() {
            if writer.is_dirty() {
                store.has_objects.wait_for(&mut state, rest);
            } else {
                store.has_objects.wait(&mut state);
                flushed = store.now();
            }
            if (1..FULL).contains(&state.queue.bytes()) && !store.is_ending() {
                store.has_objects.wait_for(&mut state, LONGEST_GATHERING.min(store.flush_interval()));
            }
        } else if step == Step::NoRoom || state.queue.first().is_none() {
            store.has_objects.wait_for(&mut state, NEXT_ATTEMPT);
        }
    }
}

/// Returns the rest of an interval of which some seconds have passed. A clock that was set back ends it.
fn rest_of(interval: Duration, passed: f64) -> Duration {
    Duration::try_from_secs_f64(passed).map_or(Duration::ZERO, |passed| interval.saturating_sub(passed))
}

/// Writes what the journal has to record at the end.
fn end_journal(store: &Store) {
    // The writer may have recorded purges at its end.
    while store.journal_step() {}
    // Without the mark, the next start finds the objects as after a kill.
    let _ = store.mark_journal();
}

impl Watcher {
    fn start(store: &Arc<Store>) -> io::Result<Self> {
        let (store, is_ending) = (Arc::clone(store), Arc::<AtomicBool>::default());
        let ends = Arc::clone(&is_ending);
        let watch = move || {
            while !ends.load(Ordering::SeqCst) {
                park_timeout(TICK);
                store.watch_step();
            }
        };
        Ok(Self { is_ending, thread: thread("disk-watch").spawn(watch)? })
    }

    fn end(self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

fn keep_journal(store: &Arc<Store>) {
    let mut marked = store.now();
    loop {
        if rest_of(MARK_INTERVAL, store.now() - marked).is_zero() {
            if store.mark_journal().is_err() {
                store.fail(Vec::new(), Reason::Write);
            }
            marked = store.now();
        }
        if store.journal_step() {
            continue;
        }
        let mut state = store.state.lock();
        let has_work = state.pending.count > 0 || state.pending.wants_checkpoint;
        // Records that have no room before the index is read would wait without end.
        if store.is_ending() && (!has_work || state.phase == Phase::Recovering) {
            return;
        }
        // After a failed attempt, as before the index was read, the next is made later.
        store.has_records.wait_for(&mut state, Duration::from_millis(if has_work { 10 } else { 1000 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_clock_does_not_delay_a_flush() {
        let interval = Duration::from_secs(10);
        assert_eq!(rest_of(interval, 0.0), interval);
        assert_eq!(rest_of(interval, 4.0), Duration::from_secs(6));
        for passed in [10.0, 11.0, 1e300, -0.5, -1e300, f64::NAN, f64::INFINITY] {
            assert_eq!(rest_of(interval, passed), Duration::ZERO, "{passed}");
        }
        assert!(rest_of(Duration::MAX, 5.0) > interval);
    }
}
