//! The sample of the ages of objects.

use super::{T0, World};
use crate::ages::AGE_LIMITS;

#[test]
fn all_objects_of_a_small_cache_are_in_the_sample() {
    let w = World::new(None);
    assert_eq!(w.cache.sample_ages(T0, 7), [[0; AGE_LIMITS.len() + 1]]);
    // Ages of 1000 days, two hours, and none; one begins in the future.
    for (key, origin) in [(1, -8.64e7), (2, -7200.0), (3, -7201.0), (4, 0.0), (5, 60.0)] {
        w.fill(key, 1e9, |spec| spec.t_origin = T0 + origin);
    }
    for random in [0, 1, u32::MAX] {
        assert_eq!(w.cache.sample_ages(T0, random), [[2, 0, 0, 2, 0, 0, 1]]);
    }
    w.tick(61.0);
    assert_eq!(w.cache.sample_ages(w.now.get(), 0), [[1, 1, 0, 2, 0, 0, 1]]);
}

#[test]
#[cfg_attr(miri, ignore = "needs many objects")]
fn the_sample_of_a_large_cache_is_bounded_and_has_its_parts() {
    let w = World::new(None);
    for key in 0..40_000 {
        w.fill(key, 1e9, |spec| spec.t_origin = T0 - if key % 4 == 0 { 100.0 } else { 1000.0 });
    }
    let ages = w.cache.sample_ages(T0, 12_345)[0];
    let sum: u64 = ages.iter().sum();
    assert!((8_000..=64 * 256).contains(&sum) && sum == ages[1] + ages[2], "{ages:?}");
    assert!(ages[1].abs_diff(sum / 4) < sum / 20, "{ages:?}");
}
