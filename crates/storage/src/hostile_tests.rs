//! Takes over memory that an attacker has written: the checksums are right, and all else may be wrong.

use std::os::fd::AsFd;
use std::time::Duration;

use lacquer_testing::Random;
use rustix::time::{ClockId, clock_gettime};

use crate::kept_tests::{SIZE, arena, body, bytes, keep, object, take};
use crate::record::{Kind, Place, Sealed, check};
use crate::*;

/// The time that recovery may take. Without bounds, these tables take minutes.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the processor time that this thread has used: other programs may slow the tests.
fn work() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Checks the processor time since `begun`.
fn check_limit(begun: Duration) {
    let used = work().saturating_sub(begun);
    assert!(used < LIMIT, "{used:?}");
}

/// A table that an attacker has written: random and copied records whose checksums are right, spans that overlap or lie
/// outside of the arena, lists in circles, and files that are cut short. Nothing panics, no span is used twice.
#[test]
fn hostile_tables_are_harmless() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let arena = arena();
        let mut length = || {
            let most = if random.below(3) == 0 { 90_000 } else { 900 };
            random.below(most) as usize
        };
        let lengths: Vec<usize> = (0..12).map(|_| length()).collect();
        let objects: Vec<Stored> = (0..)
            .zip(&lengths)
            .map(|(n, &length)| object(&arena, n + 1, length).expect("there is room"))
            .collect();
        for (n, stored) in (1..).zip(&objects) {
            keep(stored, n);
        }
        for _ in 0..random.below(6) {
            // The attacker seals a record again with a place, a length or a list of another object.
            let (one, other) = (random.index(objects.len()), random.index(objects.len()));
            let record = objects[one].record();
            let (Some(mut sealed), Some(from)) = (record.sealed(), objects[other].record().sealed()) else {
                continue;
            };
            match random.below(8) {
                6 => record.begin(one as u64 + 1, f64::NAN, [1.0; 3]),
                7 => record.begin(one as u64 + 1, 1000.0, [f32::INFINITY, 1.0, 1.0]),
                0 => sealed.place = from.place,
                1 => sealed.place.at = random.below(SIZE * 2) & !15,
                2 => sealed.filled = random.number() as u32,
                3 => sealed.more = random.below(60) as u32,
                4 => sealed.place.slot = (random.below(1 << 12) * 16) as u32,
                _ => sealed = from,
            }
            let from = crate::first::body_from(objects[one].first());
            record.seal(sealed, crate::record::check(&objects[one].first().bytes()[..from]));
        }
        let files = arena.copy_files().expect("memory");
        if random.below(4) == 0 {
            let length = random.below(3 << 20);
            system::resize(files.records.as_fd(), length).expect("resizable");
        }
        if random.below(4) == 0 {
            system::resize(files.arena.as_fd(), random.below(SIZE)).expect("resizable");
        }
        let next = files.open(SIZE).expect("memory");
        let found = take(&next);
        for kept in found.values() {
            drop(body(&kept.stored));
            let record = kept.stored.record();
            assert!(record.origin().is_finite() && record.timers().iter().all(|seconds| seconds.is_finite()));
        }
        let more: Vec<Stored> = (100..200).filter_map(|n| object(&next, n, 20_000).ok()).collect();
        for (n, stored) in (100..).zip(&more) {
            assert!(body(stored) == bytes(n, 20_000));
        }
        drop(more);
        drop(found);
        assert_eq!((next.used(), next.longest_free()), (0, SIZE));
        std::mem::forget(objects);
    }
}

/// Many objects have the same long list: it is read once.
#[test]
fn a_list_is_read_once() {
    let arena = arena();
    let stored = object(&arena, 1, 100).expect("there is room");
    keep(&stored, 1);
    let (record, from) = (stored.record(), crate::first::body_from(stored.first()));
    let head = check(&stored.first().bytes()[..from]);
    let whole = record.sealed().expect("it is kept");
    let words: Vec<u64> = std::iter::once(1_400_000).chain(0..1_400_001).collect();
    let list = arena.records().write_list(&words, record.identity()).expect("there is memory");
    for _ in 0..3000 {
        let copy = arena.records().take().expect("there is memory");
        // SAFETY: the table exists.
        let copy = unsafe { copy.get() };
        copy.copy_from(record);
        copy.seal(Sealed { kind: Kind::Listed, more: list, ..whole }, head);
    }
    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    let begun = work();
    let mut found = Vec::new();
    let taken = next.take_over(&mut |_| true, &mut |kept| {
        found.push(kept);
        true
    });
    check_limit(begun);
    assert!(found.len() <= 1 && taken.expect("memory").refused >= 3000);
    drop(found);
    assert_eq!((next.used(), next.longest_free()), (0, SIZE));
}

/// Many objects have the same long head: no more bytes are read than the arena has.
#[test]
fn heads_are_read_up_to_a_limit() {
    let arena = arena();
    let long = vec![7; SIZE as usize / 2];
    let first = Stored::complete(&arena, Parts { head: &[b"a"], extra: &long }, b"").expect("there is room");
    first.record().begin(1, 1000.0, [1.0; 3]);
    let place = first.first().place().expect("its size is exact");
    let filled = first.first().len() as u32;
    for n in 0..100_000 {
        let copy = arena.records().take().expect("there is memory");
        // SAFETY: the table exists.
        let copy = unsafe { copy.get() };
        copy.begin(n, 1000.0, [1.0; 3]);
        copy.seal(Sealed { kind: Kind::Whole, flags: 0, place, filled, more: 0 }, 0);
    }
    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    let begun = work();
    assert_eq!(take(&next).len(), 0);
    check_limit(begun);
    assert_eq!((next.used(), next.longest_free()), (0, SIZE));
}

/// Files that are longer than any process of this configuration makes them occupy no memory.
#[test]
fn files_that_are_too_long_are_shortened() {
    let arena = arena();
    let stored = object(&arena, 3, 100).expect("there is room");
    keep(&stored, 3);
    let files = arena.copy_files().expect("memory");
    system::resize(files.arena.as_fd(), SIZE * 4).expect("resizable");
    system::write(files.arena.as_fd(), &[1; 4096], SIZE * 3).expect("writable");
    let next = files.open(SIZE).expect("memory");
    assert_eq!((system::length(next.mapping().fd()), take(&next).len()), (SIZE, 1));
    let files = arena.copy_files().expect("memory");
    system::resize(files.records.as_fd(), 1 << 40).expect("resizable");
    let next = files.open(SIZE).expect("memory");
    assert_eq!(take(&next).len(), 0);
    assert!(system::resident(next.records().fd()) < 4 << 20);
}

/// A body in one span is compared as a whole, so it is short.
#[test]
fn a_long_body_in_one_span_is_refused() {
    let arena = arena();
    let text = bytes(1, crate::blocks::BLOCK + 1);
    let stored = Stored::complete(&arena, Parts { head: &[b"a"], extra: &[] }, &text).expect("there is room");
    stored.record().begin(1, 1000.0, [1.0; 3]);
    stored.keep(0, &[]);
    assert!(!stored.record().is_sealed());
    let from = crate::first::body_from(stored.first());
    let (head, place) = (check(&stored.first().bytes()[..from]), stored.first().place());
    let filled = stored.first().len() as u32;
    let more = check(&text);
    let place: Place = place.expect("its size is exact");
    assert!(stored.record().seal(Sealed { kind: Kind::Whole, flags: 0, place, filled, more }, head));
    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    assert_eq!(take(&next).len(), 0);
}
