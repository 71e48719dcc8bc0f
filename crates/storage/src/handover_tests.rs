//! Handing over an arena to a process that uses it while the old one reads and writes: no byte that one of them uses is
//! changed by the other, and no page is lost.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use lacquer_testing::Random;

use crate::kept_tests::{SIZE, SIZES, body, bytes, head, keep, object, take};
use crate::*;

fn copy(fd: BorrowedFd<'_>) -> OwnedFd {
    fd.try_clone_to_owned().expect("descriptor")
}

fn memory() -> OwnedFd {
    crate::system::memory_file().expect("memory")
}

fn arena() -> Arc<Arena> {
    let arena = UnusedFiles::new().and_then(|files| files.open(SIZE)).expect("memory");
    assert_eq!(take(&arena).len(), 0);
    arena
}

/// Creates the arena of the next process over the files of one that is frozen.
fn next(old: &Arena, pins: &OwnedFd, is_alive: bool) -> Arc<Arena> {
    let table = copy(old.records().fd());
    let (records, predecessor) = if is_alive { (memory(), Some(table)) } else { (table, None) };
    let files = KeptFiles {
        arena: copy(old.mapping().fd()),
        records,
        take_over: true,
        predecessor,
        pins: Some(copy(pins.as_fd())),
    };
    // SAFETY: the other arena over the first file is frozen, and the pins contain its use.
    unsafe { Arena::kept(files, Some(SIZE), SIZE) }.expect("memory")
}

/// The objects of one process.
type Objects = BTreeMap<u64, (Stored, usize)>;

fn assert_all(objects: &Objects, who: &str) {
    for (n, (stored, length)) in objects {
        assert_eq!(stored.head(), head(*n), "{who}: the head of {n}");
        assert!(body(stored) == bytes(*n, *length), "{who}: the body of {n}");
    }
}

fn length(random: &mut Random) -> usize {
    let most = [1500, 1500, 40_000, 700_000][random.index(4)];
    random.below(most) as usize
}

/// Adds and drops objects at random.
fn live(arena: &Arc<Arena>, objects: &mut Objects, numbers: &mut u64, random: &mut Random) {
    *numbers += 1;
    let (n, length) = (*numbers, length(random));
    if let Ok(stored) = object(arena, n, length) {
        keep(&stored, n);
        objects.insert(n, (stored, length));
    }
    if random.below(2) == 0
        && let Some(n) = objects.keys().copied().nth(random.index(objects.len().max(1)))
    {
        objects.remove(&n);
    }
}

/// Writes the next bytes of a body. As a fetch does, it evicts objects if no memory is free: the newest, because memory of
/// those before the handover is not used again.
fn write(writer: &mut BodyWriter, bytes: &[u8], objects: &mut Objects) -> usize {
    loop {
        match writer.write(bytes) {
            Ok(n) => return n,
            Err(_) => assert!(objects.pop_last().is_some(), "memory"),
        }
    }
}

fn taken(arena: &Arc<Arena>, lengths: &HashMap<u64, usize>) -> Objects {
    take(arena).into_iter().map(|(n, kept)| (n, (kept.stored, lengths[&n]))).collect()
}

/// Fills the arena, and returns the number of bytes that found room in it.
fn room(arena: &Arc<Arena>) -> u64 {
    let before = arena.used();
    let held: Vec<Stored> = (1_000_000..).map_while(|n| object(arena, n, 30_000).ok()).collect();
    let room = arena.used() - before;
    drop(held);
    room
}

#[test]
fn both_processes_keep_their_bytes_and_no_page_is_lost() {
    for seed in 0..5 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let (old, pins, mut numbers) = (arena(), memory(), 0);
        let mut olds = Objects::new();
        for _ in 0..200 + random.below(300) {
            live(&old, &mut olds, &mut numbers, &mut random);
        }
        // A fetch that has begun, and continues after the handover.
        let parts = Parts { head: &[&head(7)], extra: &[] };
        let (fetched, mut writer) = Stored::begin(&old, parts, None, SIZES, true).expect("memory");
        let content = bytes(77, 400_000);
        let mut rest = &content[..];
        rest = &rest[write(&mut writer, &rest[..3000], &mut olds)..];

        old.freeze(pins.as_fd()).expect("memory");
        let lengths: HashMap<u64, usize> = olds.iter().map(|(n, (_, length))| (*n, *length)).collect();
        // The new process does not find objects that the old one drops before the table is copied.
        olds.retain(|_, _| random.below(20) > 0);
        let new = next(&old, &pins, true);
        let mut news = taken(&new, &lengths);
        assert_eq!(news.len(), olds.len(), "all hits are kept");

        for round in 0..600 {
            live(&old, &mut olds, &mut numbers, &mut random);
            live(&new, &mut news, &mut numbers, &mut random);
            if !rest.is_empty() && round % 3 == 0 {
                rest = &rest[write(&mut writer, &rest[..rest.len().min(9000)], &mut olds)..];
            }
            if round % 100 == 99 {
                old.report_use(pins.as_fd()).expect("memory");
                new.release_pins(Some(pins.as_fd())).expect("memory");
            }
            if round % 60 == 0 {
                assert_all(&olds, "old");
                assert_all(&news, "new");
            }
        }
        writer.finish();
        assert!(body(&fetched) == content, "the fetch in progress");
        assert_all(&olds, "old");
        drop((olds, fetched, old));
        new.release_pins(None).expect("memory");
        assert_all(&news, "new");
        // Also as what a third process finds.
        let lengths = news.iter().map(|(n, (_, length))| (*n, *length)).collect();
        let third = new.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
        assert_all(&taken(&third, &lengths), "third");
        news.clear();
        assert_eq!((new.used(), room(&new)), (0, room(&arena())), "no page is lost");
    }
}

#[test]
fn a_process_that_dies_leaves_pages_of_its_predecessor_alone() {
    let (old, pins, mut random, mut numbers) = (arena(), memory(), Random(5), 0);
    let mut olds = Objects::new();
    for _ in 0..300 {
        live(&old, &mut olds, &mut numbers, &mut random);
    }
    old.freeze(pins.as_fd()).expect("memory");
    let mut lengths: HashMap<u64, usize> = olds.iter().map(|(n, (_, length))| (*n, *length)).collect();
    let second = next(&old, &pins, true);
    let mut seconds = taken(&second, &lengths);
    for _ in 0..200 {
        live(&second, &mut seconds, &mut numbers, &mut random);
    }
    lengths.extend(seconds.iter().map(|(n, (_, length))| (*n, *length)));
    // The second one is killed: its files stay as they are.
    let third = next(&second, &pins, false);
    std::mem::forget((seconds, second));
    let mut thirds = taken(&third, &lengths);
    for _ in 0..300 {
        live(&third, &mut thirds, &mut numbers, &mut random);
    }
    assert_all(&olds, "old");
    assert_all(&thirds, "third");
}

#[test]
fn an_arena_continues_after_a_handover_that_failed() {
    let (old, pins, mut random, mut numbers) = (arena(), memory(), Random(9), 0);
    let mut olds = Objects::new();
    for round in 0..600 {
        if round == 300 {
            old.freeze(pins.as_fd()).expect("memory");
        }
        if round == 400 {
            old.thaw();
        }
        live(&old, &mut olds, &mut numbers, &mut random);
    }
    assert_all(&olds, "old");
    olds.clear();
    assert_eq!(room(&old), room(&arena()), "no page is lost");
}

#[test]
fn a_frozen_arena_changes_no_page() {
    let (old, pins) = (arena(), memory());
    let objects: Vec<Stored> = (1..60).map(|n| object(&old, n, 50_000).expect("memory")).collect();
    // A socket may hold these pages: they would be punched when they are freed.
    for stored in &objects {
        stored.chunk_at(1000).and_then(|chunk| chunk.file_range().map(drop));
    }
    old.freeze(pins.as_fd()).expect("memory");
    let before = old.copy_files().expect("memory");
    drop(objects);
    old.return_free_pages();
    let more: Vec<Stored> = (100..150).map(|n| object(&old, n, 50_000).expect("overflow")).collect();
    assert!(more.iter().all(|stored| !Arc::ptr_eq(stored.arena(), &old)));
    let after = old.copy_files().expect("memory");
    let content = |fd: &OwnedFd| {
        let mut bytes = vec![0; SIZE as usize];
        crate::system::read(fd.as_fd(), &mut bytes, 0).expect("memory");
        bytes
    };
    assert!(content(&before.arena) == content(&after.arena));
}

#[test]
fn pins_that_are_damaged_pin_everything() {
    let (old, pins) = (arena(), memory());
    let stored = object(&old, 1, 5000).expect("memory");
    keep(&stored, 1);
    old.freeze(pins.as_fd()).expect("memory");
    crate::system::resize(pins.as_fd(), 3).expect("memory");
    let new = next(&old, &pins, true);
    assert_eq!(take(&new).len(), 1);
    assert!(Arc::ptr_eq(object(&new, 2, 100).expect("overflow").arena(), new.overflow().expect("overflow")));
    assert!(new.freeze(pins.as_fd()).is_err(), "two handovers at once");
    new.release_pins(None).expect("memory");
    assert!(Arc::ptr_eq(object(&new, 3, 100).expect("memory").arena(), &new));
}

/// Returns the numbers of the notes that the next process finds.
fn notes(arena: &Arc<Arena>) -> Vec<u32> {
    let mut numbers = Vec::new();
    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    let mut note = |found: Vec<KeptNote>| {
        numbers.extend(found.iter().map(|note| note.number));
        true
    };
    next.take_over(&mut note, &mut |_| true).expect("memory");
    numbers.sort_unstable();
    numbers
}

#[test]
fn notes_that_are_removed_during_a_handover_that_fails_do_not_come_back() {
    let (old, pins) = (arena(), memory());
    let written: Vec<Note> =
        (1..=4).map(|number| old.write_note(number, 1.0, b"a ban").expect("memory")).collect();
    old.remove_note(written[0]);
    old.freeze(pins.as_fd()).expect("memory");
    old.remove_note(written[1]);
    assert_eq!(notes(&old), [2, 3, 4], "objects may refer to it");
    old.thaw();
    assert_eq!(notes(&old), [3, 4]);
    old.remove_note(written[2]);
    assert_eq!(notes(&old), [4]);
}
