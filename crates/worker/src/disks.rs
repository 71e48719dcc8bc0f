//! The block stores behind storages: opened from the descriptors that the manager has locked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use lacquer_cache::bans::PastBans;
use lacquer_cache::disk::{Disk, OpenDisks};
use lacquer_cli::link::{DiskConfig, StorageConfig, StorageKind};
use lacquer_disk::{FileDevice, Options, Running, Store};
use lacquer_sources::clock;

use crate::disk_counters::CountedDisk;

/// The time within which written objects are made durable.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes that wait to be written, and the part of the memory that they may occupy.
const MOST_QUEUED: u64 = 64 << 20;
const QUEUED_PART: u64 = 4;

/// Opens the stores of the storages. A store that cannot be opened is reported and not used: its storage has memory
/// only.
pub fn open(storages: &[StorageConfig]) -> OpenDisks {
    let mut all = OpenDisks::default();
    for (index, storage) in storages.iter().enumerate() {
        let StorageKind::Disk(config) = &storage.kind else { continue };
        let memory = storage.size.unwrap_or(u64::MAX);
        match open_one(config, memory, &mut all.past_bans) {
            Ok(running) => {
                let name = storage.name.clone();
                let marker = File::from(lacquer_system::inherit(config.marker_fd));
                let id = running.store().layout().id;
                let failed = Box::new(move |is_invalid| record_failure(&name, is_invalid, &marker, id));
                all.disks.push(Disk { running: Arc::new(running), stevedore: index as u8, failed });
            }
            Err(error) => {
                eprintln!(
                    "Storage {}: {}: {error}; only memory is used",
                    storage.name,
                    config.path.display()
                );
            }
        }
    }
    all
}

fn open_one(config: &DiskConfig, memory: u64, past: &mut PastBans) -> Result<Running, String> {
    let text = |error: io::Error| error.to_string();
    let file = File::from(lacquer_system::inherit(config.fd));
    let options = Options { min: config.min, max: config.max, queue: MOST_QUEUED.min(memory / QUEUED_PART) };
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
    Running::with_readers(store).map_err(text)
}

/// Ensures that the contents of a disk that has failed are not used again, and reports the failure.
fn record_failure(name: &str, is_invalid: bool, marker: &File, id: u64) {
    let text = "the disk has failed and is not used until the next start, which finds it empty";
    if is_invalid {
        return eprintln!("Storage {name}: {text}");
    }
    // The manager compares the id before it opens the store for the next worker, and at its next start.
    match marker.write_all_at(&id.to_le_bytes(), 0).and_then(|()| marker.sync_all()) {
        Ok(()) => eprintln!("Storage {name}: {text}"),
        Err(error) => eprintln!(
            "Storage {name}: the disk has failed, and this cannot be recorded ({error}): before the next start of the \
             daemon, make a new store with `lacquer storage create --force`, or purged objects may come back"
        ),
    }
}

/// Starts to read the index of each store, and to write.
pub fn start(disks: &[CountedDisk]) -> Result<(), String> {
    let start = |disk: &CountedDisk| disk.running().start_writers(FLUSH_INTERVAL);
    disks.iter().try_for_each(start).map_err(|e| format!("cannot start a thread for a disk: {e}"))
}
