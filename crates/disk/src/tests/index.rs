//! The index against a model, and its memory.

use std::collections::HashMap;

use lacquer_testing::Random;

use crate::index::{Entry, Index};

#[test]
fn the_index_equals_its_model() {
    let mut random = Random(7);
    let index = Index::default();
    let mut model: HashMap<(u64, u32), u64> = HashMap::new();
    // Few shards and equal high bits, so that runs of entries are long.
    let fingerprints: Vec<u64> =
        (0..300).map(|i| (random.below(2) << 56) | (random.below(40) << 40) | i).collect();
    for round in 1..20_000 {
        let (fingerprint, variant) = (random.one(&fingerprints), random.below(3) as u32);
        match random.below(4) {
            0 | 1 => {
                index.insert(Entry::new(fingerprint, round * 64, 1000, variant, 5), |_| true);
                model.insert((fingerprint, variant), round * 64);
            }
            2 => {
                let expected = model.get(&(fingerprint, variant)).copied();
                let removed = expected.is_some_and(|place| index.remove(fingerprint, place));
                assert_eq!(removed, model.remove(&(fingerprint, variant)).is_some());
            }
            _ => {
                let mut found: Vec<_> =
                    index.get(fingerprint).iter().map(|entry| (entry.variant, entry.place())).collect();
                found.sort_unstable();
                let of_key = |v: u32| model.get(&(fingerprint, v)).map(|&place| (v, place));
                assert_eq!(found, (0..3).filter_map(of_key).collect::<Vec<_>>());
            }
        }
        assert_eq!(index.len(), model.len() as u64);
    }
    index.sweep(|entry| entry.variant == 1);
    model.retain(|&(_, variant), _| variant != 1);
    assert_eq!(index.len(), model.len() as u64);
    for (&(fingerprint, _), &place) in &model {
        assert!(index.at(fingerprint, place).is_some());
    }
}

#[test]
fn an_object_takes_at_most_40_bytes() {
    let mut random = Random(1);
    let index = Index::default();
    for round in 1..=400_000u64 {
        index.insert(Entry::new(random.number(), round * 64, 60_000, 0, 5), |_| true);
        if round >= 20_000 && round % 10_000 == 0 {
            let each = index.bytes() as f64 / index.len() as f64;
            assert!(each <= 40.0, "{each} bytes for each of {round}");
        }
    }
}

#[test]
fn entries_keep_their_fields() {
    let entry = Entry::new(u64::MAX, (1 << 45) + 64, 70_000, 3, 4);
    assert_eq!((entry.place(), entry.read_len()), ((1 << 45) + 64, 70_144));
    assert!(!entry.is_hit());
}
