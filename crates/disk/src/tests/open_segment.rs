//! The segment that was being written when the process was killed.

use std::sync::Arc;

use super::device::SimulatedDevice;
use super::page::{Page, key};
use crate::layout::Layout;
use crate::store::{Options, Store};
use crate::writer::{Step, Writer};

const NOW: f64 = 1000.0;

fn open(device: &SimulatedDevice) -> (Arc<Store>, Writer) {
    let store = Store::open(Box::new(device.clone()), Options::default(), || NOW).expect("there is a store");
    store.recover();
    while store.journal_step() {}
    (Arc::clone(&store), Writer::new(store))
}

fn write(store: &Store, writer: &mut Writer, numbers: std::ops::Range<u64>) {
    for number in numbers {
        drop(store.commit(Box::new(Page { number, head: "", len: 8000 })));
    }
    while writer.step() == Step::More {}
    writer.flush();
}

/// Returns the pages that can be read, and those that the index contains.
fn found(store: &Arc<Store>) -> (Vec<u64>, Vec<u64>) {
    let candidate = |&number: &u64| store.candidates(&key(number), NOW).pop();
    let known: Vec<u64> = (0..40).filter(|number| candidate(number).is_some()).collect();
    let is_read = |number: &u64| {
        candidate(number).is_some_and(|it| store.load(&it, &key(*number)).is_some_and(|it| it.is_sound()))
    };
    (known.iter().copied().filter(is_read).collect(), known)
}

/// The records that were durable at a flush need not be read: damage of one does not hide those behind it.
#[test]
fn a_start_does_not_read_the_records_that_were_flushed() {
    let layout = Layout { id: 9, journal: 64 << 10, segment: 1 << 20, segments: 5, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 3);
    layout.create(&device).expect("the device works");
    let (store, mut writer) = open(&device);
    write(&store, &mut writer, 0..15);
    write(&store, &mut writer, 15..30);
    // So few that there is no other summary.
    write(&store, &mut writer, 30..31);
    write(&store, &mut writer, 31..32);
    let place = store.candidates(&key(12), NOW).pop().expect("it is there").entry.place();
    let later = store.candidates(&key(30), NOW).pop().expect("it is there").entry.place();
    for (damaged, expected) in [(place, 0..32), (later, 0..30)] {
        let killed = device.restart();
        killed.flip(damaged + 4000, 1);
        for start in 0..2 {
            let (store, _) = open(&killed);
            let mut sound: Vec<u64> = expected.clone().collect();
            sound.retain(|&number| number != 12 || damaged != place);
            let (read, known) = found(&store);
            assert_eq!(
                known,
                expected.clone().filter(|&n| start == 0 || sound.contains(&n)).collect::<Vec<_>>()
            );
            assert_eq!(read, sound, "{damaged}, start {start}");
            // That it was damaged is recorded.
            while store.journal_step() {}
        }
    }
}
