//! The counters of stores on disks in shared memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_disk::{Phase, Running, Store};
use lacquer_shm::vsc::Disk;
use lacquer_shm::{Segment, VsmDir};

/// A store, and its counters. Without space in shared memory, there are none.
pub struct CountedDisk {
    running: Arc<Running>,
    counters: Option<Segment<Disk>>,
}

impl CountedDisk {
    pub fn new(running: Arc<Running>, name: &str, vsm: &VsmDir) -> Self {
        Self { running, counters: Segment::create(vsm, name).ok() }
    }

    pub fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Copies the store's counters into shared memory.
    pub fn publish(&self) {
        if let Some(to) = &self.counters {
            copy(self.running.store(), to);
        }
    }
}

fn copy(store: &Store, to: &Disk) {
    macro_rules! copy {
        ($($from:ident $to:ident)*) => {
            $(to.$to.set(store.stats().$from.load(Ordering::Relaxed));)*
        };
    }
    copy!(recovered c_recovered written c_written written_bytes c_written_bytes moved c_moved);
    copy!(device_written_bytes c_device_bytes evicted c_evicted refused c_refused reads c_reads);
    copy!(read_bytes c_read_bytes damaged c_damaged errors c_errors journaled c_journaled);
    copy!(pinned c_pinned cleared c_cleared);
    let (used, all) = store.segments();
    to.g_objects.set(store.objects());
    to.g_index_bytes.set(store.index_bytes());
    to.g_segments.set(used);
    to.g_segments_free.set(all - used);
    to.g_queued_bytes.set(store.queued_bytes());
    to.g_failed.set(u64::from(matches!(store.phase(), Phase::Failing | Phase::Failed)));
}
