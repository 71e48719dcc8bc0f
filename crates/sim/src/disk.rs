//! A disk of a world: a store over a device in memory, which outlives the worker. A task of the world does the work of its
//! threads.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lacquer_cache::disk::{Disk, OpenDisks};
use lacquer_disk::{Blocks, Layout, Options, Phase, Running, Step, Store, Writer};
use lacquer_sources::clock;
use lacquer_sources::random::Random;
use tokio::time::sleep;

use crate::wire::{Chance, below, percent};

/// The length of a segment. Some pages are longer.
const SEGMENT: u64 = 256 << 10;
const JOURNAL: u64 = 64 << 10;
/// The unit in which writes are torn.
const SECTOR: usize = 512;

/// A device in memory. Clones refer to the same device.
#[derive(Clone)]
pub struct MemoryDevice(Arc<Mutex<Contents>>);

struct Contents {
    bytes: Vec<u8>,
    /// The contents that a cut of power leaves, and the writes since, of which it leaves some.
    durable: Vec<u8>,
    writes: Vec<(usize, Vec<u8>)>,
    random: Random,
    /// The share of reads that fail, in percent.
    read_errors: u64,
}

impl MemoryDevice {
    /// Creates a device with an empty store.
    pub fn new(chance: &Chance, read_errors: u64) -> io::Result<Self> {
        let segments = 8 + below(chance, 24);
        let (id, created) = (below(chance, u64::MAX), clock::real());
        let layout = Layout { id, journal: JOURNAL, segment: SEGMENT, segments, created, version: 1 };
        let random = Random::new(below(chance, u64::MAX));
        let bytes = vec![0; layout.size() as usize];
        let (durable, writes) = (bytes.clone(), Vec::new());
        let device = Self(Arc::new(Mutex::new(Contents { bytes, durable, writes, random, read_errors })));
        layout.create(&device)?;
        Ok(device)
    }

    /// Returns the device after a cut of power: writes that were not flushed are lost, torn or reordered.
    pub fn cut_power(self) -> Self {
        let Contents { durable, writes, random, read_errors, .. } = &mut *self.contents();
        let (mut bytes, mut writes) = (std::mem::take(durable), std::mem::take(writes));
        for last in (1..writes.len()).rev() {
            writes.swap(last, random.below(last as u64 + 1) as usize);
        }
        let kept = 33 * random.below(4);
        for (at, written) in writes {
            let (is_kept, is_torn) = (random.percent(kept), random.percent(25));
            for (number, sector) in written.chunks(SECTOR).enumerate() {
                if if is_torn { random.percent(50) } else { is_kept } {
                    let at = at + number * SECTOR;
                    bytes[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        let random = Random::new(random.below(u64::MAX));
        let (durable, read_errors) = (bytes.clone(), *read_errors);
        Self(Arc::new(Mutex::new(Contents { bytes, durable, writes: Vec::new(), random, read_errors })))
    }

    /// Opens the store for a worker. Its index is read by [`work`].
    pub fn open(&self) -> io::Result<OpenDisks> {
        let options = Options { queue: 4 * SEGMENT, ..Options::default() };
        // A store that cannot be opened is not used.
        let errors = std::mem::take(&mut self.contents().read_errors);
        let store = Store::open(Box::new(self.clone()), options, clock::real).map_err(io::Error::other)?;
        self.contents().read_errors = errors;
        let mut disks = OpenDisks::default();
        if !disks.past_bans.add(store.past()) {
            return Err(io::Error::other("the bans of the store contradict themselves"));
        }
        let running = Arc::new(Running::without_threads(store));
        let path = PathBuf::from("device");
        disks.disks.push(Disk { running, path, stevedore: 0, failed: Box::new(|_| {}) });
        Ok(disks)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks for MemoryDevice {
    fn size(&self) -> u64 {
        self.contents().bytes.len() as u64
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Contents { bytes, random, read_errors, .. } = &mut *self.contents();
        if random.percent(*read_errors) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let at = at as usize;
        buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
        Ok(())
    }

    fn write(&self, at: u64, written: &[u8]) -> io::Result<()> {
        let (Contents { bytes, writes, .. }, at) = (&mut *self.contents(), at as usize);
        bytes[at..at + written.len()].copy_from_slice(written);
        writes.push((at, written.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let Contents { durable, writes, .. } = &mut *self.contents();
        for (at, written) in writes.drain(..) {
            durable[at..at + written.len()].copy_from_slice(&written);
        }
        Ok(())
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryDevice")
    }
}

/// The reads that wait. They end when this is dropped, because they refer to the cache.
struct Reads(Arc<Running>);

impl Drop for Reads {
    fn drop(&mut self) {
        self.0.read_step();
    }
}

/// Does the work of a store's threads at intervals, without end. Sometimes the device does not respond for a while.
pub async fn work(running: Arc<Running>, chance: Chance) {
    let (store, reads) = (Arc::clone(running.store()), Reads(running));
    // It drops what waits to be written, in whatever state the store is.
    let mut writer = Writer::new(Arc::clone(&store));
    let (pause, stalls) = (1 + below(&chance, 20), percent(&chance, 20));
    // Until then, purges are recorded and everything is a miss.
    sleep(Duration::from_millis(below(&chance, 200))).await;
    if store.phase() == Phase::Recovering {
        store.recover();
    }
    loop {
        let stalled = if stalls && percent(&chance, 1) { below(&chance, 5000) } else { 0 };
        sleep(Duration::from_millis(1 + stalled + below(&chance, pause))).await;
        reads.0.read_step();
        for _ in 0..below(&chance, 12) {
            if writer.step() != Step::More {
                break;
            }
        }
        if percent(&chance, 20) {
            writer.flush();
        }
        if percent(&chance, 50) {
            store.journal_step();
        }
    }
}
