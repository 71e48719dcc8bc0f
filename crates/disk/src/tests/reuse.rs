//! A full store whose objects are all in use: the newest find room, and little is written beside them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::SimulatedDevice;
use super::page::{Page, key};
use crate::layout::Layout;
use crate::record::Key;
use crate::store::{Options, Owner, Store};
use crate::writer::{Step, Writer};

const SEGMENT: u64 = 256 << 10;

/// All objects are in use.
struct AllUsed;

impl Owner for AllUsed {
    fn is_used(&self, _: &Key) -> bool {
        true
    }

    fn tags(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> bool {
        true
    }

    fn forget(&self, _: &Key) {}

    fn failed(&self, _: bool) {}
}

/// Fills a store several times over with objects, of which object `n` has `len(n)` bytes, `waiting` at a time. Returns
/// how many of the newest 50 it has, and the bytes written to the device for each byte of objects.
fn fill(len: &dyn Fn(u64) -> u64, waiting: u64) -> (usize, f64) {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: SEGMENT, segments: 60, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let options = Options { queue: u64::MAX, ..Options::default() };
    let store = Store::open(Box::new(device), options, || 1000.0).expect("there is a store");
    store.set_owner(Box::new(AllUsed));
    store.recover();
    let mut writer = Writer::new(Arc::clone(&store));
    let (mut numbers, mut bytes) = (0, 0);
    while bytes < 3 * layout.size() {
        for _ in 0..waiting {
            drop(store.commit(Box::new(Page { number: numbers, head: "head", len: len(numbers) })));
            bytes += len(numbers);
            numbers += 1;
        }
        while writer.step() == Step::More {}
    }
    writer.close();
    let newest = (numbers - 50..numbers).filter(|&number| store.may_have(&key(number))).count();
    (newest, store.stats().device_written_bytes.load(Ordering::Relaxed) as f64 / bytes as f64)
}

#[test]
fn the_newest_objects_find_room() {
    let mixed = |n: u64| match n % 50 {
        0..6 => 30_000 + 97 * (n % 1500),
        _ => 131 * n % 9000,
    };
    let lengths: [(&str, &dyn Fn(u64) -> u64); 5] = [
        ("short", &|_| 3000),
        ("half a segment", &|_| 125_000),
        ("two thirds", &|_| 171_000),
        ("one fitting, one large", &|n| if n % 2 == 0 { 120_000 } else { 150_000 }),
        ("mixed", &mixed),
    ];
    for (name, len) in lengths {
        for waiting in [1, 1000] {
            let (found, amplification) = fill(len, waiting);
            assert_eq!(found, 50, "{name}, {waiting} waiting");
            assert!(amplification < 2.6, "{name}, {waiting} waiting: {amplification:.2} times the bytes");
        }
    }
}
