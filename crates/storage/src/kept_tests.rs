//! Taking over the objects of a process that was killed: random histories against a model, and damage of every kind.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use lacquer_testing::Random;

use crate::blocks::BLOCK;
use crate::record::RECORD;
use crate::*;

pub(crate) const SIZE: u64 = 8 << 20;
pub(crate) const SIZES: ChunkSizes = ChunkSizes { first: 4096, max: 1 << 20 };

pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.number().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

pub(crate) fn key(n: u64) -> [u8; 24] {
    bytes(n, 24).try_into().expect("24 bytes")
}

pub(crate) fn arena() -> Arc<Arena> {
    let arena = UnusedFiles::new().and_then(|files| files.open(SIZE)).expect("memory");
    assert_eq!(take(&arena).len(), 0);
    arena
}

pub(crate) fn head(n: u64) -> Vec<u8> {
    bytes(n ^ 0x4ead, 40 + (n as usize * 37) % 300)
}

/// Creates a complete object; in several pieces if its length requires it.
pub(crate) fn object(arena: &Arc<Arena>, n: u64, length: usize) -> Result<Stored, Full> {
    let (head, body) = (head(n), bytes(n, length));
    let parts = Parts { head: &[&head], extra: &[] };
    let stored = if length < 2000 {
        Stored::complete(arena, parts, &body)?
    } else {
        let (stored, mut writer) = Stored::begin(arena, parts, None, SIZES, true)?;
        let mut rest = &body[..];
        while !rest.is_empty() {
            rest = &rest[writer.write(rest)?..];
        }
        if n.is_multiple_of(3) {
            stored.set_extra(&n.to_le_bytes());
        }
        writer.finish();
        stored
    };
    stored.record().begin(n, 1000.0 + n as f64, [60.0, 10.0, n as f32]);
    stored.record().set_ban(7);
    Ok(stored)
}

pub(crate) fn body(stored: &Stored) -> Vec<u8> {
    let mut all = Vec::new();
    if stored.state() == BodyState::Failed {
        return all;
    }
    while let Some(chunk) = stored.chunk_at(all.len() as u64) {
        all.extend_from_slice(chunk.bytes());
    }
    all
}

/// Takes over all objects, by VXID.
pub(crate) fn take(arena: &Arc<Arena>) -> HashMap<u64, KeptObject> {
    let mut all = HashMap::new();
    arena
        .take_over(&mut |_| true, &mut |kept| {
            assert!(all.insert(kept.stored.record().vxid(), kept).is_none(), "found twice");
            true
        })
        .expect("memory");
    all
}

fn assert_is(kept: &KeptObject, n: u64, length: usize) {
    assert_eq!(kept.key, key(n));
    assert_eq!((kept.flags, &kept.tags), (n as u8 & 15, &(0..n % 20).collect()));
    let record = kept.stored.record();
    assert_eq!(
        (record.origin(), record.timers(), record.ban()),
        (1000.0 + n as f64, [60.0, 10.0, n as f32], 7)
    );
    assert_eq!(kept.stored.head(), head(n));
    let has_extra = length >= 2000 && n.is_multiple_of(3);
    let extra = if has_extra { n.to_le_bytes().to_vec() } else { Vec::new() };
    assert_eq!(kept.stored.extra(), extra);
    assert!(body(&kept.stored) == bytes(n, length), "the body of {n}");
}

pub(crate) fn keep(stored: &Stored, n: u64) {
    stored.record().set_key(&key(n));
    stored.keep(n as u8 & 15, &(0..n % 20).collect::<Vec<u64>>());
}

#[test]
fn empty_bodies_are_kept() {
    let arena = arena();
    let mut objects = Vec::new();
    for n in 1..=12 {
        let head = head(n);
        let parts = Parts { head: &[&head], extra: &[] };
        let expected = [None, Some(0), Some(900)][n as usize % 3];
        let (stored, mut writer) =
            Stored::begin(&arena, parts, expected, SIZES, n % 2 == 0).expect("there is room");
        if n > 6 {
            writer.write(&[]).expect("there is room");
        }
        if n.is_multiple_of(4) {
            stored.set_extra(&n.to_le_bytes());
        }
        writer.finish();
        stored.record().begin(n, 1000.0, [60.0, 10.0, 0.0]);
        keep(&stored, n);
        objects.push(stored);
    }
    let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
    let found = take(&next);
    assert_eq!(found.len(), objects.len());
    for kept in found.values() {
        assert_eq!((kept.stored.state(), body(&kept.stored)), (BodyState::Complete, Vec::new()));
    }
}

/// A random history of objects that are stored, kept, changed, shared and dropped. At random moments the process is
/// killed: the next one finds exactly the objects that were kept and not dropped, and continues.
#[test]
fn histories_agree_with_a_model() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut arena = arena();
        let mut live: HashMap<u64, (Stored, usize, bool)> = HashMap::new();
        for n in 1..1500 {
            let length = match random.below(10) {
                0..6 => random.below(1500),
                6..9 => random.below(40_000),
                _ => random.below(700_000),
            } as usize;
            if let Ok(stored) = object(&arena, n, length) {
                let is_kept = random.below(4) > 0;
                if is_kept {
                    keep(&stored, n);
                }
                live.insert(n, (stored, length, is_kept));
            }
            if random.below(3) > 0 || live.len() > 300 {
                let chosen = live.keys().copied().nth(random.index(live.len()));
                if let Some((stored, _, is_kept)) = chosen.as_ref().and_then(|n| live.get_mut(n)) {
                    stored.forget();
                    *is_kept = false;
                }
                if random.below(2) == 0 {
                    chosen.and_then(|n| live.remove(&n));
                }
            }
            if random.below(100) > 0 {
                continue;
            }
            let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
            let found = take(&next);
            let expected = live.iter().filter(|(_, (_, _, is_kept))| *is_kept);
            assert_eq!(found.len(), expected.clone().count());
            for (&n, &(_, length, _)) in expected {
                assert_is(&found[&n], n, length);
            }
            let used: u64 = live.values().filter(|(.., is_kept)| *is_kept).map(|(s, ..)| capacity(s)).sum();
            assert_eq!(next.used(), used, "memory is lost");
            let lengths: HashMap<u64, usize> = live.iter().map(|(&n, &(_, length, _))| (n, length)).collect();
            live = found.into_iter().map(|(n, kept)| (n, (kept.stored, lengths[&n], true))).collect();
            arena = next;
        }
        live.clear();
        assert_eq!(arena.used(), 0);
        assert_eq!(arena.longest_free(), SIZE);
    }
}

fn capacity(stored: &Stored) -> u64 {
    match stored.spans() {
        crate::stored::Spans::Whole(span) => span.capacity() as u64,
        crate::stored::Spans::Streamed(body) => body.capacity() as u64 + body.extra_capacity() as u64,
    }
}

/// Objects that share a body after a 304 share it in the next process too.
#[test]
fn shared_bodies_are_shared_again() {
    let arena = arena();
    let first = object(&arena, 30, 300_000).expect("there is room");
    let second_head = head(31);
    let parts = Parts { head: &[&second_head], extra: &30_u64.to_le_bytes() };
    let second = Stored::sharing(&arena, parts, &first).expect("there is room").expect("it can be shared");
    second.record().begin(31, 1031.0, [60.0, 10.0, 31.0]);
    second.keep(0, &[]);
    first.keep(0, &[]);
    for both in [true, false] {
        if !both {
            first.forget();
        }
        let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
        let found = take(&next);
        assert_eq!(found.len(), 1 + usize::from(both));
        assert!(found.values().all(|kept| body(&kept.stored) == bytes(30, 300_000)));
        assert_eq!(found[&31].stored.is_shared(), both);
        let spare = if both { 0 } else { 2 << 20 };
        assert!(next.used() < 600_000 + spare, "{}", next.used());
    }
}

/// Every bit of every record in use, and of the heads and bodies, is flipped. The object is refused, or, if the bit
/// belongs to the body, fails before a wrong byte is read. Hits may change: they have no checksum.
#[test]
fn flipped_bits_are_found() {
    let arena = arena();
    let lengths = [(2, 0), (3, 1000), (22, 500), (24, 5000), (45, 100_000), (25, 600_000)];
    let objects = lengths.map(|(n, length)| object(&arena, n, length).expect("there is room"));
    for (stored, (n, _)) in objects.iter().zip(lengths) {
        keep(stored, n);
    }
    let files = || arena.copy_files().expect("memory");
    let records = rustix::fs::fstat(&files().records).expect("a file").st_size as usize;
    let mut table = vec![0; records];
    system::read(files().records.as_fd(), &mut table, 0).expect("readable");
    let in_use =
        (0..table.len() / RECORD).filter(|&i| table[i * RECORD..(i + 1) * RECORD].iter().any(|&b| b != 0));
    let in_use: Vec<usize> = in_use.collect();
    assert!(in_use.len() > 15);
    for bit in in_use.iter().flat_map(|i| i * RECORD * 8..(i + 1) * RECORD * 8).step_by(31) {
        let damaged = files();
        let byte = [table[bit / 8] ^ 1 << (bit % 8)];
        system::write(damaged.records.as_fd(), &byte, bit as u64 / 8).expect("writable");
        let next = damaged.open(SIZE).expect("memory");
        for kept in take(&next).values() {
            let n = kept.stored.record().vxid();
            let &(_, length) =
                lengths.iter().find(|(m, _)| *m == n).unwrap_or_else(|| panic!("bit {bit}: {n}"));
            assert_is(kept, n, length);
        }
    }
    let mut random = Random(9);
    for _ in 0..100 {
        let damaged = files();
        let at = random.below(arena.used());
        let mut byte = [0];
        system::read(damaged.arena.as_fd(), &mut byte, at).expect("readable");
        system::write(damaged.arena.as_fd(), &[byte[0] ^ 4], at).expect("writable");
        let next = damaged.open(SIZE).expect("memory");
        for kept in take(&next).values() {
            let n = kept.stored.record().vxid();
            let &(_, length) = lengths.iter().find(|(m, _)| *m == n).expect("one of them");
            let (found, right) = (body(&kept.stored), bytes(n, length));
            assert_eq!(kept.stored.head(), head(n));
            assert!(found == right || kept.stored.state() == BodyState::Failed && right.starts_with(&found));
        }
    }
}

/// Damage in the beginning of a body is known before its first byte is used, and damage behind it before the damaged block
/// is.
#[test]
fn damage_of_the_beginning_is_found_at_once() {
    let arena = arena();
    let (n, length) = (25, BLOCK * 6 + 1000);
    let stored = object(&arena, n, length).expect("there is room");
    keep(&stored, n);
    let whole = bytes(n, length);
    let mut all = vec![0; SIZE as usize];
    system::read(arena.copy_files().expect("memory").arena.as_fd(), &mut all, 0).expect("readable");
    let address = |at: usize| stored.chunk_at(at as u64).expect("it is in memory").bytes().as_ptr() as usize;
    let base = all.windows(32).position(|window| window == &whole[..32]).expect("it is in the file");
    for (at, is_found_at_once) in [
        (0, true),
        (1, true),
        (BLOCK - 1, true),
        (BLOCK, true),
        (BLOCK * 4 - 1, true),
        (BLOCK * 5 + 9, false),
        (BLOCK * 6, false),
        (length - 1, false),
    ] {
        let place = base + address(at) - address(0);
        assert_eq!(all[place], whole[at]);
        let damaged = arena.copy_files().expect("memory");
        system::write(damaged.arena.as_fd(), &[all[place] ^ 4], place as u64).expect("writable");
        let next = damaged.open(SIZE).expect("memory");
        let found = take(&next);
        let stored = &found[&n].stored;
        let expected = if is_found_at_once { BodyState::Failed } else { BodyState::Complete };
        assert_eq!(stored.state(), expected, "{at}");
        let read = body(stored);
        assert!(
            whole[..at].starts_with(&read) && read.is_empty() == is_found_at_once,
            "{at}: {}",
            read.len()
        );
        assert_eq!(stored.state(), BodyState::Failed, "{at}");
    }
}

#[test]
fn notes_survive_and_a_damaged_one_empties_the_store() {
    let arena = arena();
    let stored = object(&arena, 5, 100).expect("there is room");
    keep(&stored, 5);
    let text = bytes(1, 1000);
    let [a, b, c] = [(1, &b""[..]), (2, &text), (3, b"short")]
        .map(|(number, text)| arena.write_note(number, f64::from(number), text).expect("there is room"));
    arena.complete_note(c);
    arena.remove_note(a);
    let open = |spoil: Option<u64>| {
        let files = arena.copy_files().expect("memory");
        if let Some(at) = spoil {
            system::write(files.records.as_fd(), &[0x55], at).expect("writable");
        }
        let next = files.open(SIZE).expect("memory");
        let (mut notes, mut objects) = (Vec::new(), 0);
        let taken = next.take_over(
            &mut |found| {
                notes = found;
                true
            },
            &mut |_| {
                objects += 1;
                true
            },
        );
        assert_eq!(taken.expect("memory").accepted, objects);
        notes.sort_by_key(|note| note.number);
        (notes, objects)
    };
    let (notes, objects) = open(None);
    assert_eq!(objects, 1);
    assert_eq!(notes.iter().map(|note| (note.number, note.time)).collect::<Vec<_>>(), [(2, 2.0), (3, 3.0)]);
    assert_eq!((&notes[0].text, notes[0].is_completed, &notes[0].note), (&text, false, &b));
    assert_eq!((&notes[1].text[..], notes[1].is_completed), (&b"short"[..], true));
    // The records of the object, of the first note and of the second note are the first ones of the table.
    for byte in [41, 72] {
        assert_eq!(open(Some(5 * RECORD as u64 + byte)), (Vec::new(), 0));
    }
    arena.records().spoil();
    assert_eq!(open(None).1, 0);
}

/// Reads beyond the end of a body whose blocks are not compared yet do no harm.
#[test]
fn the_end_of_a_body_can_be_read_first() {
    let arena = arena();
    for (n, length) in [(50, BLOCK), (51, BLOCK * 2), (52, BLOCK * 2 + 5)] {
        let stored = object(&arena, n, length).expect("there is room");
        keep(&stored, n);
        let next = arena.copy_files().and_then(|files| files.open(SIZE)).expect("memory");
        let found = take(&next);
        for beyond in [length, length + 1, BLOCK * 9] {
            assert!(found[&n].stored.chunk_at(beyond as u64).is_none());
        }
        assert_eq!(found[&n].stored.state(), BodyState::Complete);
        assert_is(&found[&n], n, length);
    }
}
