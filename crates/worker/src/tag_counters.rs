//! The counters of the cache's tags. They are visible once a VCL has imported the VMOD xkey.

use std::sync::OnceLock;

use lacquer_cache::TagStats;
use lacquer_shm::vsc::Xkey;
use lacquer_shm::{Segment, VsmDir};

// The sizes in bytes of the structures in which Varnish's VMOD keeps a tag, an object with tags, and a pair of both.
const TAG_SIZE: u64 = 96;
const OBJECT_SIZE: u64 = 72;
const PAIR_SIZE: u64 = 56;

#[derive(Default)]
pub struct TagCounters {
    shown: OnceLock<Option<Segment<Xkey>>>,
}

impl TagCounters {
    /// Creates the counters, unless they exist. Without space in shared memory, there are none.
    pub fn show(&self, vsm: &VsmDir) {
        self.shown.get_or_init(|| Segment::create(vsm, "").ok());
    }

    pub fn publish(&self, stats: &TagStats) {
        let Some(Some(to)) = self.shown.get() else { return };
        let [tags, pairs, objects] = stats.read();
        to.g_keys.set(tags);
        to.g_hashhead_bytes.set(tags * TAG_SIZE);
        to.g_ochead_bytes.set(objects * OBJECT_SIZE);
        to.g_oc_bytes.set(pairs * PAIR_SIZE);
        to.g_bytes.set(tags * TAG_SIZE + objects * OBJECT_SIZE + pairs * PAIR_SIZE);
    }
}
