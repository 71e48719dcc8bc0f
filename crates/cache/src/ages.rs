//! The ages of the objects in the storages, from a sample: to count all would hold the locks of the index for too long.

use crate::cache::Cache;

/// The upper limits of the classes of ages, in seconds. The last class has none.
pub const AGE_LIMITS: [f64; 6] = [60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 604_800.0];

/// The number of objects in each class.
pub type Ages = [u64; AGE_LIMITS.len() + 1];

/// The maximum number of slots of each shard that are visited.
const VISITS: u32 = 256;

impl Cache {
    /// Returns the ages of a sample of the objects in memory, for each storage: of all objects in a small cache, else of about
    /// 16,000. `random` is any number.
    pub fn sample_ages(&self, now: f64, random: u32) -> Vec<Ages> {
        let mut all = vec![Ages::default(); self.stevedores().len()];
        for shard in &self.shards {
            let shard = shard.lock();
            let step = shard.slab.end().div_ceil(VISITS).max(1);
            for slot in (random % step..shard.slab.end()).step_by(step as usize) {
                let Some(object) = &shard.slab.get(slot).object else { continue };
                let age = now - object.t_origin();
                if let Some(ages) = all.get_mut(usize::from(object.stevedore())) {
                    ages[AGE_LIMITS.partition_point(|limit| *limit < age)] += 1;
                }
            }
        }
        all
    }
}
