//! The counters of stores on disks in shared memory, and their events in the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lacquer_cache::disk::Disk as OpenDisk;
use lacquer_cli::link::StorageConfig;
use lacquer_disk::{Event, Phase, Running, Store};
use lacquer_shm::vsc::Disk;
use lacquer_shm::{Log, Segment, Tag, VsmDir, Vxid};
use lacquer_sources::clock;
use parking_lot::Mutex;

/// The time in seconds after which a failed or slow operation or a damaged object is printed again. The log contains all.
const PRINT_EVERY: f64 = 60.0;
/// The state of a disk that is not used.
const FAILED: u64 = 3;

/// The events that were printed.
struct Printed {
    /// The time of the last one that is repeated only after a while.
    at: f64,
    /// Whether the disk was said to be slow, and not that it responds again.
    has_stall: bool,
}

/// A store, and its counters. Without space in shared memory, there are none.
pub struct CountedDisk {
    running: Arc<Running>,
    stevedore: u8,
    /// The name of its storage.
    name: String,
    path: PathBuf,
    counters: Option<Segment<Disk>>,
    printed: Mutex<Printed>,
}

/// A disk that cannot be used by this worker.
pub struct RefusedDisk {
    pub stevedore: u8,
    /// Its number among the disks of its storage.
    pub number: usize,
    pub path: PathBuf,
    pub reason: String,
}

/// A disk that cannot be used, and its counters, which say so.
pub struct CountedRefusal {
    disk: RefusedDisk,
    /// The name of its storage.
    name: String,
    _counters: Option<Segment<Disk>>,
    is_logged: AtomicBool,
}

/// All disks.
#[derive(Default)]
pub struct CountedDisks {
    pub used: Vec<CountedDisk>,
    pub refused: Vec<CountedRefusal>,
}

/// Creates the counters of all disks. Those of several disks of one storage have the storage's name and a number.
pub fn count(
    used: &[OpenDisk],
    refused: Vec<RefusedDisk>,
    storages: &[StorageConfig],
    vsm: &VsmDir,
) -> CountedDisks {
    let mut all = CountedDisks::default();
    let mut refused = refused.into_iter().peekable();
    let mut used = used.iter().peekable();
    for stevedore in 0..=u8::MAX {
        // A simulated process has no configuration of its storages.
        let name = storages.get(usize::from(stevedore)).map_or("", |storage| &storage.name);
        let mut own = Vec::new();
        own.extend(std::iter::from_fn(|| used.next_if(|disk| disk.stevedore == stevedore)).map(Ok));
        while let Some(disk) = refused.next_if(|disk| disk.stevedore == stevedore) {
            own.insert(disk.number.min(own.len()), Err(disk));
        }
        let is_alone = own.len() == 1;
        for (number, disk) in own.into_iter().enumerate() {
            let label = if is_alone { name.to_owned() } else { format!("{name}.{number}") };
            let counters = Segment::create(vsm, &label).ok();
            match disk {
                Ok(disk) => all.used.push(CountedDisk::new(disk, name, counters)),
                Err(disk) => all.refused.push(CountedRefusal::new(disk, name, counters)),
            }
        }
    }
    all
}

impl CountedDisks {
    /// Copies the counters of all stores into shared memory, and their events into the log.
    pub fn publish(&self, log: &Log) {
        self.used.iter().for_each(|disk| disk.publish(log));
        self.refused.iter().for_each(|disk| disk.publish(log));
    }
}

impl CountedRefusal {
    fn new(disk: RefusedDisk, name: &str, counters: Option<Segment<Disk>>) -> Self {
        if let Some(to) = &counters {
            to.g_failed.set(1);
            to.g_state.set(FAILED);
        }
        Self { disk, name: name.to_owned(), _counters: counters, is_logged: AtomicBool::new(false) }
    }

    /// Returns the number of its storage.
    pub fn stevedore(&self) -> u8 {
        self.disk.stevedore
    }

    pub fn path(&self) -> &Path {
        &self.disk.path
    }

    pub fn reason(&self) -> &str {
        &self.disk.reason
    }

    /// Writes the reason to the log once.
    fn publish(&self, log: &Log) {
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            let text = format_args!(
                "Storage {}: {}: the disk is not used: {}; its objects are misses; check or replace it, then run the \
                 commands `stop` and `start`: it begins empty",
                self.name,
                self.path().display(),
                self.reason()
            );
            log.write_fmt(Tag::Error, Vxid::NONE, text);
        }
    }
}

impl CountedDisk {
    fn new(disk: &OpenDisk, name: &str, counters: Option<Segment<Disk>>) -> Self {
        Self {
            running: Arc::clone(&disk.running),
            stevedore: disk.stevedore,
            name: name.to_owned(),
            path: disk.path.clone(),
            counters,
            printed: Mutex::new(Printed { at: f64::NEG_INFINITY, has_stall: false }),
        }
    }

    pub fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Returns the number of its storage.
    pub fn stevedore(&self) -> u8 {
        self.stevedore
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Copies the store's counters into shared memory, and its events into the log.
    fn publish(&self, log: &Log) {
        let store = self.running.store();
        if let Some(to) = &self.counters {
            copy(store, to);
        }
        let (events, lost) = store.take_events();
        for event in events {
            self.report(log, &event);
        }
        if lost > 0 {
            let text = format_args!("Storage {}: {}: {lost} more events", self.name, self.path.display());
            log.write_fmt(Tag::Error, Vxid::NONE, text);
        }
    }

    /// Writes an event to the log. Prints changes of the disk's state, and other events from time to time.
    fn report(&self, log: &Log, event: &Event) {
        let text = format!("Storage {}: {}: {event}", self.name, self.path.display());
        log.write(Tag::Error, Vxid::NONE, text.as_bytes());
        if self.printed.lock().is_due(event, clock::monotonic()) {
            eprintln!("{text}");
        }
    }
}

impl Printed {
    /// Returns whether an event is printed now.
    fn is_due(&mut self, event: &Event, now: f64) -> bool {
        match event {
            Event::TakenOut(_) | Event::Cleared(_) => return true,
            Event::Responds => return std::mem::take(&mut self.has_stall),
            Event::Failed { .. }
            | Event::Damaged { .. }
            | Event::Lost { .. }
            | Event::Slow { .. }
            | Event::Mended { .. } => {}
        }
        let is_due = now - self.at >= PRINT_EVERY;
        if is_due {
            self.at = now;
            self.has_stall |= matches!(event, Event::Slow { .. });
        }
        is_due
    }
}

fn copy(store: &Store, to: &Disk) {
    let stats = store.stats();
    macro_rules! copy {
        ($($from:ident $to:ident)*) => {
            $(to.$to.set(stats.$from.load(Ordering::Relaxed));)*
        };
    }
    copy!(recovered c_recovered written c_written written_bytes c_written_bytes moved c_moved);
    copy!(device_written_bytes c_device_bytes evicted c_evicted refused c_refused postponed c_postponed reads c_reads);
    copy!(read_bytes c_read_bytes damaged c_damaged journaled c_journaled pinned c_pinned);
    copy!(lost c_segments_lost lent c_lent);
    copy!(cleared c_cleared read_errors c_read_errors write_errors c_write_errors slow c_slow);
    to.c_errors.set(stats.read_errors.load(Ordering::Relaxed) + stats.write_errors.load(Ordering::Relaxed));
    let (used, all) = store.segments();
    to.g_objects.set(store.objects());
    to.g_index_bytes.set(store.index_bytes());
    to.g_segments.set(used);
    to.g_segments_free.set(all - used);
    to.g_queued_bytes.set(store.queued_bytes());
    let figures = store.figures();
    to.g_failed.set(u64::from(figures.phase.is_out()));
    to.g_state.set(match figures.phase {
        Phase::Failing | Phase::Failed | Phase::Retired => FAILED,
        _ if figures.is_stalled => 2,
        Phase::Recovering => 0,
        Phase::Working => 1,
    });
}
