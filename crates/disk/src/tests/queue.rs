//! The queue of the objects that wait to be written.

use std::time::{Duration, Instant};

use super::device::SimulatedDevice;
use super::page::{Page, key};
use crate::index::{are_rivals, variant};
use crate::layout::Layout;
use crate::record::{Meta, Parts, fingerprint};
use crate::state::{Content, Meant, Queue, Queued, Source};
use crate::store::{Options, Store};

/// A variant of a page.
struct Variant(Page, u32);

impl Content for Variant {
    fn parts(&self) -> Parts<'_> {
        let Parts { meta, .. } = self.0.parts();
        Parts { meta: Meta { variant: self.1, ..meta }, ..self.0.parts() }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        self.0.read(from, window)
    }
}

fn page(number: u64, variant: u32) -> Box<dyn Content> {
    Box::new(Variant(Page { number, head: "", len: 100 }, variant))
}

fn queued(number: u64, variant: u32) -> Queued {
    let content = page(number, variant);
    let meta = content.parts().meta;
    Queued { meta, tags: Box::default(), tag_purges: 0, len: 1000, source: Source::Content(content) }
}

fn pop_all(queue: &mut Queue) -> Vec<(u32, u64)> {
    let number = |queued: &Queued| u64::from_le_bytes(std::array::from_fn(|i| queued.meta.key[i]));
    std::iter::from_fn(|| queue.pop()).map(|queued| (queued.meta.variant, number(&queued))).collect()
}

#[test]
fn rivals_leave_the_queue_and_others_keep_their_order() {
    const LAST: u32 = (1 << 20) - 1;
    let families = [0, 1, 2, u32::MAX >> 20];
    let variants: Vec<u32> =
        families.iter().flat_map(|names| [0, 1, LAST].map(|values| names << 20 | values)).collect();
    for &new in &variants {
        let mut queue = Queue::default();
        for number in [1, 2, 3] {
            for &variant in &variants {
                queue.push_back(queued(number, variant));
            }
        }
        queue.push_front(queued(2, new));
        let taken = queue.take(fingerprint(&key(2)), Meant::Rivals(new));
        let rivals = variants.iter().filter(|&&variant| are_rivals(variant, new)).count();
        assert_eq!(taken.len(), rivals + 1);
        assert!(taken.iter().all(|it| it.meta.key == key(2) && are_rivals(it.meta.variant, new)));
        assert_eq!(queue.bytes(), (3 * variants.len() - rivals) as u64 * 1000);
        let of_key = |number| variants.iter().map(move |&variant| (variant, number));
        let rest = of_key(2).filter(|&(variant, _)| !are_rivals(variant, new));
        assert_eq!(pop_all(&mut queue), of_key(1).chain(rest).chain(of_key(3)).collect::<Vec<_>>());
        assert!(queue.is_empty() && queue.bytes() == 0);
        assert!(queue.take(fingerprint(&key(1)), Meant::All).is_empty());
    }
}

#[test]
fn thousands_of_variants_of_a_key_wait_without_a_scan_for_each_commit_and_purge() {
    let layout =
        Layout { id: 9, journal: 64 << 10, segment: 256 << 10, segments: 5, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 3);
    layout.create(&device).expect("the device works");
    let options = Options { queue: u64::MAX, ..Options::default() };
    let store = Store::open(Box::new(device), options, || 1000.0).expect("there is a store");
    store.recover();
    let begun = Instant::now();
    let in_time = || assert!(begun.elapsed() < Duration::from_secs(30), "it takes too long");
    for values in 0..100_000 {
        let committed = store.commit(page(0, variant(7, values)));
        assert!(!committed.is_refused && committed.dropped.0.is_empty());
        in_time();
    }
    for number in 1..=10_000 {
        assert!(!store.commit(page(number, 0)).is_refused);
    }
    for number in 1..=10_000 {
        assert_eq!(store.purge(&key(number), None).0.len(), 1);
        in_time();
    }
    // One with other names replaces them all.
    assert_eq!(store.commit(page(0, variant(8, 1))).dropped.0.len(), 100_000);
    assert_eq!(store.purge(&key(0), None).0.len(), 1);
    assert!(store.state.lock().queue.is_empty());
    in_time();
}
