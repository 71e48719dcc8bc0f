//! A store for tests that keeps bodies in a file. Its reads and writes complete when the test calls
//! [`SlowStore::step`], in an order derived from a seed. Reads are short or fail as often as the test configures. Freed
//! space is overwritten and reused at once, so that a read from a wrong position is detected.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lacquer_storage::{Committed, Device, Extent, Load, Recovered};

use crate::random::Random;

/// How often reads are short or fail, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A read returns only a part of the requested bytes.
    pub short: u64,
    /// A read fails.
    pub errors: u64,
}

/// The store. Clones refer to the same store.
#[derive(Clone, Debug)]
pub struct SlowStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    faults: Faults,
    queue: Vec<Work>,
    /// Freed ranges, as position and length.
    free: Vec<(u64, u64)>,
    end: u64,
    records: Vec<Record>,
    next: u64,
    /// True after the simulated end of the process: nothing is written or freed any more.
    is_over: bool,
    counts: Counts,
}

/// Counts of completed operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub written: u64,
    /// Reads that returned bytes.
    pub read: u64,
    pub failed: u64,
    /// Reads whose object was dropped meanwhile.
    pub unwanted: u64,
    pub freed: u64,
}

#[derive(Debug)]
enum Work {
    Write(Committed, Vec<u8>),
    Read(Load, Place),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    at: u64,
    len: u64,
}

#[derive(Clone, Debug)]
struct Record {
    place: Place,
    descriptor: Vec<u8>,
    head: Vec<u8>,
    extra: Vec<u8>,
}

#[derive(Debug)]
struct InFile {
    place: Place,
    store: SlowStore,
}

impl Extent for InFile {
    fn load(&self, load: Load) {
        self.store.state().queue.push(Work::Read(load, self.place));
    }
}

impl Drop for InFile {
    fn drop(&mut self) {
        self.store.free(self.place);
    }
}

impl Device for SlowStore {
    fn commit(&self, object: Committed, descriptor: &[u8]) {
        self.state().queue.push(Work::Write(object, descriptor.to_vec()));
    }

    fn recover(&self, found: &mut dyn FnMut(Recovered)) -> io::Result<()> {
        let records = self.state().records.clone();
        for Record { place, descriptor, head, extra } in records {
            let extent = Box::new(InFile { place, store: self.clone() });
            found(Recovered { descriptor, head, extra, body_len: place.len, extent });
        }
        Ok(())
    }
}

impl SlowStore {
    /// Creates a store over a new file.
    pub fn new(seed: u64, faults: Faults) -> io::Result<SlowStore> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("slow-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        Ok(SlowStore::over(file, Random(seed), faults, Vec::new(), 0))
    }

    fn over(file: File, random: Random, faults: Faults, records: Vec<Record>, end: u64) -> SlowStore {
        let state = State {
            random,
            faults,
            queue: Vec::new(),
            free: Vec::new(),
            end,
            next: records.len() as u64,
            records,
            is_over: false,
            counts: Counts::default(),
        };
        SlowStore(Arc::new(Shared { file, state: Mutex::new(state) }))
    }

    /// Simulates the end of the process, and returns the store that the next process opens. `spoil` may change the data
    /// that was written with each body: the descriptor of the cache, and the head.
    pub fn restart(&self, mut spoil: impl FnMut(&mut Vec<u8>, &mut Vec<u8>)) -> io::Result<SlowStore> {
        let mut state = self.state();
        state.is_over = true;
        let mut records = state.records.clone();
        for record in &mut records {
            spoil(&mut record.descriptor, &mut record.head);
        }
        let random = state.random.clone();
        Ok(SlowStore::over(self.0.file.try_clone()?, random, state.faults, records, state.end))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Returns the number of pending reads and writes.
    pub fn pending(&self) -> usize {
        self.state().queue.len()
    }

    /// Returns the number of stored objects.
    pub fn objects(&self) -> usize {
        self.state().records.len()
    }

    /// Completes one pending read or write. Returns false if there is none.
    pub fn step(&self) -> bool {
        let work = {
            let mut state = self.state();
            if state.queue.is_empty() || state.is_over {
                return false;
            }
            let State { random, queue, .. } = &mut *state;
            queue.swap_remove(random.index(queue.len()))
        };
        match work {
            Work::Write(object, descriptor) => self.write(object, descriptor),
            Work::Read(load, place) => self.read(load, place),
        }
        true
    }

    /// Completes all pending reads and writes.
    pub fn run(&self) {
        while self.step() {}
    }

    fn write(&self, object: Committed, descriptor: Vec<u8>) {
        let Some(object) = object.open() else { return };
        let place = self.allocate(object.body_len());
        let mut written = 0;
        while let Some(chunk) = object.chunk_at(written) {
            self.0.file.write_all_at(chunk.bytes(), place.at + written).expect("the disk has room");
            written += chunk.len() as u64;
        }
        assert_eq!(written, place.len, "a committed body is in memory as a whole");
        let record =
            Record { place, descriptor, head: object.head().to_vec(), extra: object.extra().to_vec() };
        {
            let mut state = self.state();
            state.counts.written += 1;
            state.records.push(record);
        }
        object.settle(Box::new(InFile { place, store: self.clone() }));
    }

    fn allocate(&self, len: u64) -> Place {
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        if let Some(found) = state.free.iter().position(|&(_, free)| free >= len) {
            let (at, free) = state.free.swap_remove(found);
            state.free.push((at + len, free - len));
            return Place { id, at, len };
        }
        let at = state.end;
        state.end += len;
        Place { id, at, len }
    }

    fn free(&self, place: Place) {
        if self.state().is_over {
            return;
        }
        let spoiled = vec![0xee; place.len as usize];
        self.0.file.write_all_at(&spoiled, place.at).expect("the range was written before");
        let mut state = self.state();
        state.counts.freed += 1;
        state.records.retain(|record| record.place.id != place.id);
        state.free.push((place.at, place.len));
    }

    fn read(&self, mut load: Load, place: Place) {
        let (most, fails, in_parts) = {
            let mut state = self.state();
            let wanted = load.window().len();
            let Faults { short, errors } = state.faults;
            let fails = state.random.below(100) < errors;
            let is_short = state.random.below(100) < short;
            let most = if is_short { 1 + state.random.index(wanted) } else { wanted };
            let outcome = match () {
                () if !load.is_wanted() => &mut state.counts.unwanted,
                () if fails => &mut state.counts.failed,
                () => &mut state.counts.read,
            };
            *outcome += 1;
            (most, fails, state.random.below(2) == 0)
        };
        if fails {
            return load.fail();
        }
        let at = place.at + load.position();
        let window = &mut load.window()[..most];
        let n = self.0.file.read_at(window, at).expect("the file can be read");
        assert_eq!(n, most, "no read goes beyond the end");
        load.advance(n);
        // After a short read, a store may continue, or leave that to the reader.
        if in_parts && !load.window().is_empty() {
            return self.state().queue.push(Work::Read(load, place));
        }
        load.finish();
    }
}
