//! The block stores behind storages: opened from the descriptors that the manager has locked.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lacquer_cache::bans::PastBans;
use lacquer_cache::disk::{Disk, OpenDisks, Ring};
use lacquer_cli::link::{DiskConfig, StorageConfig, StorageKind};
use lacquer_disk::{FileDevice, Options, Running, Store};
use lacquer_sources::clock;
use parking_lot::Mutex;

use crate::disk_counters::{CountedDisk, RefusedDisk};

/// The most bytes that wait to be written, and the part of the memory that they may occupy.
const MOST_QUEUED: u64 = 64 << 20;
const QUEUED_PART: u64 = 4;

/// The file to which the ids of stores are appended that have failed. The manager reads it before it passes the stores to
/// the next worker, and at its next start.
struct Marker(Mutex<File>);

impl Marker {
    /// Ensures that the contents of a disk that has failed are not used again.
    fn add(&self, label: &str, id: u64) {
        let file = self.0.lock();
        let add = || {
            // An incomplete id is skipped.
            let at = file.metadata()?.len().next_multiple_of(8);
            file.write_all_at(&id.to_le_bytes(), at)?;
            file.sync_all()
        };
        if let Err(error) = add() {
            eprintln!(
                "{label}: the disk has failed, and this cannot be recorded ({error}): before the next start of the \
                 daemon, make a new store with `lacquer storage create --force`, or purged objects may come back"
            );
        }
    }
}

/// The number of reads that a reactor has in progress at a time. More are left to threads.
const DEPTH: u32 = 128;

/// The descriptors of the disks, and the rings that read them.
#[derive(Default)]
pub struct Devices {
    files: HashMap<RawFd, (File, u32)>,
    rings: Vec<Ring>,
}

impl Devices {
    /// Takes the descriptors of the storages' disks, and creates a ring for each reactor. In its jail, a process cannot
    /// create rings.
    pub fn prepare(storages: &[StorageConfig], reactors: usize) -> Devices {
        let disks = storages.iter().filter_map(|storage| match &storage.kind {
            StorageKind::Disk(config) => Some(&config.disks),
            _ => None,
        });
        let numbers = disks.flatten().map(|disk| disk.fd);
        let files: Vec<(RawFd, File)> =
            numbers.map(|number| (number, File::from(lacquer_system::inherit(number)))).collect();
        let mut rings = Vec::new();
        if !files.is_empty() {
            let borrowed: Vec<_> = files.iter().map(|(_, file)| file.as_fd()).collect();
            match (0..reactors).map(|_| Ring::new(&borrowed, DEPTH)).collect() {
                Ok(made) => rings = made,
                Err(error) => {
                    eprintln!("Disks are read by threads, because io_uring is not available: {error}");
                }
            }
        }
        let numbered = files.into_iter().zip(0..).map(|((number, file), index)| (number, (file, index)));
        Devices { files: numbered.collect(), rings }
    }

    pub fn has_rings(&self) -> bool {
        !self.rings.is_empty()
    }
}

/// The stores of all storages.
#[derive(Default)]
pub struct FoundDisks {
    pub open: OpenDisks,
    /// Those that cannot be used. Their storages have memory and the other stores only.
    pub refused: Vec<RefusedDisk>,
}

/// Opens the stores of the storages.
pub fn open(storages: &[StorageConfig], devices: Devices) -> FoundDisks {
    let Devices { mut files, rings } = devices;
    let mut all = OpenDisks { rings, ..OpenDisks::default() };
    let mut refused = Vec::new();
    for (index, storage) in storages.iter().enumerate() {
        let StorageKind::Disk(config) = &storage.kind else { continue };
        let marker = Arc::new(Marker(Mutex::new(File::from(lacquer_system::inherit(config.marker_fd)))));
        let memory = storage.size.unwrap_or(u64::MAX) / config.disks.len() as u64;
        for (number, disk) in config.disks.iter().enumerate() {
            let label = format!("Storage {}: {}", storage.name, disk.path.display());
            let path = disk.path.clone();
            let Some(device) = files.remove(&disk.fd) else { continue };
            if let Some(reason) = disk.refused.clone() {
                refused.push(RefusedDisk { stevedore: index as u8, number, path, reason });
                continue;
            }
            match open_one(disk, device, memory, &mut all.past_bans) {
                Ok(running) => {
                    let (id, marker) = (running.store().layout().id, Arc::clone(&marker));
                    let failed = move |is_invalid: bool| {
                        if !is_invalid {
                            marker.add(&label, id);
                        }
                    };
                    let running = Arc::new(running);
                    all.disks.push(Disk { running, path, stevedore: index as u8, failed: Box::new(failed) });
                }
                Err(error) => {
                    eprintln!("{label}: {error}; the disk is not used");
                    // Purges that are answered meanwhile are not recorded.
                    marker.add(&label, disk.id);
                    refused.push(RefusedDisk { stevedore: index as u8, number, path, reason: error });
                }
            }
        }
    }
    FoundDisks { open: all, refused }
}

fn open_one(
    config: &DiskConfig,
    (file, index): (File, u32),
    memory: u64,
    past: &mut PastBans,
) -> Result<Running, String> {
    let text = |error: io::Error| error.to_string();
    let queue = MOST_QUEUED.min(memory / QUEUED_PART);
    let options = Options { min: config.min, max: config.max, queue, ..Options::default() };
    let device = || file.try_clone().and_then(FileDevice::new).map_err(text);
    let open = || Store::open(Box::new(device()?), options, clock::real).map_err(|error| error.to_string());
    let mut store = open()?;
    if !past.add(store.past()) {
        eprintln!(
            "{}: its bans contradict those of another storage; its objects are dropped",
            config.path.display()
        );
        store.layout().renew(&device()?, clock::real()).map_err(text)?;
        store = open()?;
    }
    Running::with_readers(store, Some(index)).map_err(text)
}

/// Starts to read the index of each store, and to write.
pub fn start(disks: &[CountedDisk]) -> Result<(), String> {
    let start = |disk: &CountedDisk| disk.running().start_writers();
    disks.iter().try_for_each(start).map_err(|e| format!("cannot start a thread for a disk: {e}"))
}
