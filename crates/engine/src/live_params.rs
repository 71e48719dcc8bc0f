//! The current parameters, and the settings derived from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lacquer_cache::Cache;
use lacquer_params::Params;
use lacquer_params::bits::{DebugBits as Debug, FeatureBits as Feature};
use lacquer_shm::vsl::{Limits, Mask};
use lacquer_shm::{Log, Tag};
use parking_lot::RwLock;

/// The parameters that the manager sent last.
pub struct LiveParams {
    now: RwLock<Arc<Params>>,
    generation: AtomicU64,
}

impl LiveParams {
    pub fn new(params: Params) -> LiveParams {
        LiveParams { now: RwLock::new(Arc::new(params)), generation: AtomicU64::new(1) }
    }

    pub fn now(&self) -> Arc<Params> {
        self.now.read().clone()
    }

    pub fn set(&self, params: Params) {
        *self.now.write() = Arc::new(params);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that changes whenever a parameter changes. Cheap to read.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// Applies the parameters of storages on disks.
pub fn apply_to_disks(cache: &Cache, params: &Params) {
    cache.set_disk_admission(params.disk_admission);
    cache.set_disk_flush_interval(params.disk_flush_interval);
}

/// Applies the parameters that are not read at each use.
pub fn apply_settings(log: &Log, params: &Params) {
    let mut mask = Mask::default();
    for tag in Tag::ALL {
        mask.set(*tag, params.vsl_mask.hides(*tag as u8));
    }
    log.set_mask(&mask);
    log.set_limits(Limits { buffer: params.vsl_buffer as usize, reclen: params.vsl_reclen as usize });
    log.set_unbuffered(params.debug.has(Debug::SYNCVSL));
    lacquer_http::date::set_tolerant(params.feature.has(Feature::HTTP_DATE_POSTEL));
}
