//! Damage of the journal: purged objects do not come back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::device::SimulatedDevice;
use super::page::{Page, key};
use crate::blocks::{Aligned, BLOCK, Blocks};
use crate::health::{Cause, Event};
use crate::journal::Mark;
use crate::layout::Layout;
use crate::report::report;
use crate::running::Running;
use crate::store::{Options, Store};
use crate::writer::{Step, Writer};

const JOURNAL: u64 = 64 << 10;

fn layout() -> Layout {
    Layout { id: 9, journal: JOURNAL, segment: 256 << 10, segments: 5, created: 1.0, version: 1 }
}

fn open(device: &SimulatedDevice) -> Arc<Store> {
    let options = Options { queue: u64::MAX, ..Options::default() };
    let store = Store::open(Box::new(device.clone()), options, || 1000.0).expect("there is a store");
    store.recover();
    store
}

fn write_journal(store: &Store) {
    while store.journal_step() {}
}

/// Returns a device with the objects 0 to 9, of which 0 to 4 were purged one after the other.
fn purged() -> SimulatedDevice {
    let device = SimulatedDevice::new(layout().size(), 3);
    layout().create(&device).expect("the device works");
    let store = open(&device);
    write_journal(&store);
    for number in 0..10 {
        drop(store.commit(Box::new(Page { number, head: "", len: 1000 })));
    }
    let mut writer = Writer::new(Arc::clone(&store));
    while writer.step() == Step::More {}
    writer.close();
    for number in 0..5 {
        drop(store.purge(&key(number), None));
        write_journal(&store);
    }
    device
}

fn found(store: &Store) -> Vec<u64> {
    (0..10).filter(|&number| !store.candidates(&key(number), 1000.0).is_empty()).collect()
}

fn is_cleared(store: &Store) -> bool {
    store.take_events().0.iter().any(|event| matches!(event, Event::Cleared(Cause::JournalDamaged { .. })))
}

/// Returns the positions of the groups of the half in use.
fn groups(device: &SimulatedDevice) -> Vec<u64> {
    let mut all = Vec::new();
    for half in 0..2 {
        let mut block = Aligned::new(BLOCK as usize);
        for at in (layout().journal_half(half)..).step_by(BLOCK as usize).take((JOURNAL / BLOCK) as usize) {
            device.read(at, block.bytes_mut()).expect("the device works");
            if block.bytes().starts_with(b"LQjn") {
                all.push(at);
            }
        }
    }
    all
}

#[test]
fn a_changed_bit_brings_nothing_back() {
    let sound = purged();
    let groups = groups(&sound);
    // A checkpoint, the proof that it was durable, and the purges: each with its copy.
    assert_eq!(groups.len(), 2 * 7, "{groups:?}");
    for &at in &groups {
        for byte in (0..80).step_by(3) {
            let device = sound.restart();
            device.flip(at + byte, byte as u8);
            let store = open(&device);
            assert_eq!((found(&store), is_cleared(&store)), ((5..10).collect(), false), "{at} {byte}");
            write_journal(&store);
            assert_eq!(found(&open(&device)), (5..10).collect::<Vec<_>>(), "{at} {byte}");
        }
    }
}

#[test]
fn lost_records_drop_all_objects() {
    let sound = purged();
    let groups = groups(&sound);
    let last = groups.len() - 2;
    for pair in groups[..last].chunks(2) {
        let device = sound.restart();
        for at in pair {
            device.flip(at + 20, 1);
        }
        let checked = report(&device, true, 1000.0, &mut |_, _| {}).expect("a store");
        assert_eq!((checked.journal.lost, checked.objects), (Some(pair[0]), 0));
        let store = open(&device);
        assert_eq!((found(&store), is_cleared(&store)), (Vec::new(), true), "{pair:?}");
        // The store works, and the next start finds it in order.
        drop(store.commit(Box::new(Page { number: 3, head: "", len: 1000 })));
        Writer::new(Arc::clone(&store)).close();
        write_journal(&store);
        let store = open(&device);
        assert_eq!((found(&store), is_cleared(&store)), (vec![3], false), "{pair:?}");
    }
}

#[test]
fn a_damaged_beginning_does_not_bring_the_older_half_back() {
    let device = purged();
    // The next start writes a checkpoint to the other half, and older records stay in this one.
    let before = groups(&device).len();
    write_journal(&open(&device));
    let all = groups(&device);
    assert!(all.len() >= before + 4, "both halves are in use");
    let first = layout().journal_half(0);
    let newest = all.iter().copied().filter(|&at| at < first + JOURNAL);
    let beginning: Vec<u64> = newest.take(2).collect();
    for at in &beginning {
        device.flip(at + 50, 1);
    }
    let store = open(&device);
    assert_eq!((found(&store), is_cleared(&store)), (Vec::new(), true));
}

#[test]
fn a_write_that_was_interrupted_is_no_damage() {
    let sound = purged();
    let groups = groups(&sound);
    let checked = report(&sound, true, 1000.0, &mut |_, _| {}).expect("a store");
    assert_eq!((checked.journal.lost, checked.journal.mended, checked.objects), (None, Vec::new(), 5));
    // The last purge, as if its write had not ended.
    let device = sound.restart();
    for at in &groups[groups.len() - 2..] {
        device.flip(at + 20, 1);
    }
    let store = open(&device);
    assert_eq!((found(&store), is_cleared(&store)), ((4..10).collect(), false));
}

#[test]
fn damage_of_the_last_groups_after_a_clean_end_drops_all_objects() {
    let sound = purged();
    let groups = groups(&sound);
    let ended = sound.restart();
    {
        let store = open(&ended);
        write_journal(&store);
        store.mark_journal().expect("the device works");
    }
    let newest: Vec<u64> = self::groups(&ended).into_iter().filter(|at| !groups.contains(at)).collect();
    assert!(newest.len() >= 4, "{newest:?}");
    assert_eq!(found(&open(&ended.restart())), (5..10).collect::<Vec<_>>());
    for lost in 1..=newest.len() {
        let device = ended.restart();
        for at in newest.iter().rev().take(lost) {
            device.flip(at + 20, 1);
        }
        let checked = report(&device, true, 1000.0, &mut |_, _| {}).expect("a store");
        let store = open(&device);
        if lost == 1 {
            assert_eq!((checked.journal.lost, checked.journal.mended.len()), (None, 1));
            assert_eq!((found(&store), is_cleared(&store)), ((5..10).collect(), false));
        } else {
            assert!(checked.journal.lost.is_some() && checked.objects == 0, "{lost}");
            assert_eq!((found(&store), is_cleared(&store)), (Vec::new(), true), "{lost}");
        }
    }
}

/// After a kill, only what was written since the mark may be torn.
#[test]
fn damage_of_marked_groups_after_a_kill_drops_all_objects() {
    let sound = purged();
    let known = groups(&sound);
    let marked = sound.restart();
    {
        let store = open(&marked);
        write_journal(&store);
        drop(store.purge(&key(5), None));
        write_journal(&store);
        store.mark_journal().expect("the device works");
        drop(store.purge(&key(6), None));
        write_journal(&store);
        // Killed.
    }
    let newest: Vec<u64> = groups(&marked).into_iter().filter(|at| !known.contains(at)).collect();
    // A checkpoint, the proof that it was durable, and two purges: each with its copy.
    assert_eq!(newest.len(), 8);
    for lost in 0..=newest.len() {
        let device = marked.restart();
        for at in newest.iter().rev().take(lost) {
            device.flip(at + 20, 1);
        }
        let expected: Vec<u64> = match lost {
            0 | 1 => (7..10).collect(),
            2 | 3 => (6..10).collect(),
            _ => Vec::new(),
        };
        let checked = report(&device, true, 1000.0, &mut |_, _| {}).expect("a store");
        assert_eq!((checked.objects, checked.journal.lost.is_some()), (expected.len() as u64, lost > 3));
        let store = open(&device);
        assert_eq!((found(&store), is_cleared(&store)), (expected, lost > 3), "{lost}");
    }
}

/// A store at work writes the mark without being asked.
#[test]
fn a_store_at_work_marks_its_journal() {
    let device = purged();
    let known = groups(&device);
    let options = Options { queue: u64::MAX, ..Options::default() };
    let clock = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64())
    };
    let store = Store::open(Box::new(device.clone()), options, clock).expect("there is a store");
    let running = Running::start(Arc::clone(&store)).expect("threads");
    let mark = || Mark::read(store.layout(), &device).expect("the device works");
    let waits_for = |is_reached: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !is_reached() {
            assert!(begun.elapsed().as_secs() < 20, "no mark");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    waits_for(&|| mark() > Mark::default());
    let before = mark();
    drop(store.purge(&key(5), None));
    waits_for(&|| mark() > before);
    let killed = device.restart();
    drop(running);
    let newest = groups(&killed).into_iter().filter(|at| !known.contains(at));
    newest.for_each(|at| killed.flip(at + 20, 1));
    let store = open(&killed);
    assert_eq!((found(&store), is_cleared(&store)), (Vec::new(), true));
}

#[test]
fn segments_without_a_journal_are_dropped() {
    let device = purged();
    for at in groups(&device) {
        device.flip(at + 20, 1);
    }
    let checked = report(&device, true, 1000.0, &mut |_, _| {}).expect("a store");
    assert!(checked.journal.lost.is_some() && checked.objects == 0);
    let store = open(&device);
    assert_eq!((found(&store), is_cleared(&store)), (Vec::new(), true));
    drop(store.commit(Box::new(Page { number: 3, head: "", len: 1000 })));
    let mut writer = Writer::new(Arc::clone(&store));
    while writer.step() == Step::More {}
    writer.close();
    write_journal(&store);
    let store = open(&device);
    assert_eq!((found(&store), is_cleared(&store)), (vec![3], false));
}

#[test]
fn impossible_numbers_with_correct_checksums_are_damage() {
    let magic = u32::from_le_bytes(*b"LQjn");
    let layout = layout();
    for (generation, number) in [(u64::MAX, 0), (u64::MAX - 1, 0), (1 << 62, 0), (0, 0), (9, u32::MAX)] {
        let device = purged();
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&u64::from(magic).to_le_bytes());
        bytes.extend_from_slice(&generation.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&[0; 16]);
        let checksum = layout.checksum(layout.checksum(u64::from(magic), &bytes), &[]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        let at = layout.journal_half(generation);
        device.write(at, Aligned::copy_of(&bytes).bytes()).expect("the device works");
        let store = open(&device);
        assert!(found(&store).iter().all(|&number| number >= 5), "{generation}");
        drop(store.purge(&key(7), None));
        write_journal(&store);
        assert!(!found(&open(&device)).contains(&7), "{generation}");
    }
}

/// Each block claims to be the beginning of a group that is almost as long as the journal.
#[test]
fn a_journal_of_false_groups_does_not_delay_the_start() {
    const LONG: u64 = 16 << 20;
    let layout = Layout { journal: LONG, ..layout() };
    let device = SimulatedDevice::new(layout.size(), 3);
    layout.create(&device).expect("the device works");
    let mut blocks = Aligned::new(LONG as usize / 2);
    for block in blocks.bytes_mut().chunks_mut(BLOCK as usize) {
        block[..4].copy_from_slice(b"LQjn");
        block[4..8].copy_from_slice(&(7_u32 << 20).to_le_bytes());
    }
    for half in 0..2 {
        device.write(layout.journal_half(half), blocks.bytes()).expect("the device works");
    }
    let began = Instant::now();
    let store = open(&device);
    assert!(is_cleared(&store) && began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
