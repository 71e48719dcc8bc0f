//! A disk of a world: a store over a device in memory, which outlives the worker. A task of the world does the work of its
//! threads.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lacquer_cache::disk::{Disk, OpenDisks};
use lacquer_disk::{Blocks, Layout, Options, Running, Step, Store, Writer};
use lacquer_sources::clock;
use lacquer_sources::random::Random;
use tokio::time::sleep;

use crate::wire::{Chance, below, percent};

/// The length of a segment. Some pages are longer.
const SEGMENT: u64 = 256 << 10;
const JOURNAL: u64 = 64 << 10;

/// A device in memory. Clones refer to the same device.
#[derive(Clone)]
pub struct MemoryDevice(Arc<Mutex<Contents>>);

struct Contents {
    bytes: Vec<u8>,
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
        let device = Self(Arc::new(Mutex::new(Contents { bytes, random, read_errors })));
        layout.create(&device)?;
        Ok(device)
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
        disks.disks.push(Disk {
            running,
            path: PathBuf::from("device"),
            stevedore: 0,
            failed: Box::new(|_| {}),
        });
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
        let Contents { bytes, random, read_errors } = &mut *self.contents();
        if random.percent(*read_errors) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let at = at as usize;
        buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = at as usize;
        self.contents().bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
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

/// Does the work of a store's threads at intervals, without end.
pub async fn work(running: Arc<Running>, chance: Chance) {
    let (store, reads) = (Arc::clone(running.store()), Reads(running));
    let pause = 1 + below(&chance, 20);
    // Until then, purges are recorded and everything is a miss.
    sleep(Duration::from_millis(below(&chance, 200))).await;
    store.recover();
    let mut writer = Writer::new(Arc::clone(&store));
    loop {
        sleep(Duration::from_millis(1 + below(&chance, pause))).await;
        reads.0.read_step();
        for _ in 0..below(&chance, 12) {
            if writer.step() == Step::Idle {
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
