//! The ring and the counters in every order of the threads' steps: a reader sees whole batches in their order, and no
//! record and no count is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use loom::sync::Mutex;
use loom::thread;

use super::ring::Ring;
use super::{Log, RECORD_HEAD, Tag, Vxid, padded};
use crate::vsc::{Counter, LocalCounter};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(2));
    builder.max_branches = 20_000;
    builder.check(test);
}

/// Reads like the log's readers, from the beginning to the first empty word. Returns tag, transaction and text of each
/// record.
fn walk(ring: &Ring) -> Vec<(u32, u64, Vec<u8>)> {
    let (mut at, mut records) = (0, Vec::new());
    loop {
        let first = ring.word(at).load(Acquire);
        let (tag, len) = (first >> 24, (first & 0xffff) as usize);
        if tag == Tag::_Reserved as u32 {
            return records;
        }
        assert!(Tag::ALL.iter().any(|known| *known as u32 == tag) || tag == Tag::_Batch as u32, "{first:x}");
        if tag != Tag::_Batch as u32 {
            let (low, high) = (ring.word(at + 1).load(Relaxed), ring.word(at + 2).load(Relaxed));
            records.push((tag, u64::from(high) << 32 | u64::from(low), ring.read_text(at, len)));
        }
        at += (RECORD_HEAD + padded(len)) / 4;
    }
}

#[test]
fn a_reader_sees_whole_records() {
    model(|| {
        let log = Log::detached().expect("memory");
        let writers: Vec<_> = [b"one", b"two"]
            .into_iter()
            .enumerate()
            .map(|(i, text)| {
                let log = log.clone();
                thread::spawn(move || log.write(Tag::VCL_Log, Vxid::client(i as u64 + 1), text))
            })
            .collect();
        let whole = |(tag, vxid, text): &(u32, u64, Vec<u8>)| {
            let expected: &[u8] = if *vxid == Vxid::client(1).raw() { b"one\0" } else { b"two\0" };
            *tag == Tag::VCL_Log as u32 && text == expected
        };
        let seen = walk(log.ring());
        assert!(seen.iter().all(whole), "{seen:?}");
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        let all = walk(log.ring());
        assert!(all.starts_with(&seen) && all.len() == 2 && all.iter().all(whole), "{seen:?} {all:?}");
        assert_eq!(log.ring().counters().shm_records.get(), 2);
    });
}

#[test]
fn a_batch_becomes_visible_as_a_whole() {
    model(|| {
        let log = Log::detached().expect("memory");
        let writer = thread::spawn({
            let log = log.clone();
            move || {
                let mut tx = log.transaction();
                tx.begin(Vxid::client(7));
                tx.put(Tag::ReqURL, b"/");
                tx.end();
            }
        });
        let seen = walk(log.ring()).len();
        assert!(seen == 0 || seen == 2, "{seen} records of a batch of two");
        writer.join().expect("no panic");
        assert_eq!(walk(log.ring()).len(), 2);
    });
}

/// The segment number is raised only when the offset that it refers to is written.
#[test]
fn a_segment_number_is_raised_after_its_offset() {
    model(|| {
        let log = Log::detached().expect("memory");
        let before = log.ring().announced();
        let writer = thread::spawn({
            let log = log.clone();
            move || {
                let text = [b'x'; 60];
                (0..2).for_each(|_| log.write(Tag::VCL_Log, Vxid::NONE, &text));
            }
        });
        let (segment, offset) = log.ring().announced();
        assert!((segment, offset) == before || offset > 0 && offset != u64::MAX, "{segment}: {offset}");
        writer.join().expect("no panic");
        assert_ne!(log.ring().announced(), before, "the test writes no segment full");
    });
}

#[test]
fn no_count_is_lost() {
    model(|| {
        let counters = Arc::new((Counter::default(), Mutex::new(()), Counter::default()));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let counters = counters.clone();
                thread::spawn(move || {
                    let (shared, lock, locked) = &*counters;
                    let local = LocalCounter::default();
                    local.add(3);
                    shared.add(local.pending());
                    shared.sub(1);
                    let guard = lock.lock().expect("no panic");
                    locked.add_as_only_writer(1);
                    drop(guard);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!((counters.0.get(), counters.2.get()), (4, 2));
    });
}
