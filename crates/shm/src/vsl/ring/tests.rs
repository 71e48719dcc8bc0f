//! The contents of the ring, as readers see them, after writes of the log.

use super::*;
use crate::vsl::{Field, Limits, Log, TxLog};

/// Returns the records from the log's beginning to its end, as readers walk it: tag, transaction, text.
fn walk(ring: &Ring) -> Vec<(u32, u64, Vec<u8>)> {
    let (mut at, mut records) = (0, Vec::new());
    loop {
        let first = ring.word(at).load(Relaxed);
        if first == END_MARKER || first == WRAP_MARKER {
            return records;
        }
        let len = (first & 0xffff) as usize;
        if first >> 24 != Tag::_Batch as u32 {
            let (low, high) = (ring.word(at + 1).load(Relaxed), ring.word(at + 2).load(Relaxed));
            let vxid = u64::from(high) << 32 | u64::from(low);
            records.push((first >> 24, vxid, ring.mapping.read(ring.byte(at) + RECORD_HEAD, len)));
        }
        at += (RECORD_HEAD + padded(len)) / WORD;
    }
}

fn texts(log: &Log) -> Vec<String> {
    walk(log.ring()).iter().map(|(.., text)| String::from_utf8_lossy(text).into_owned()).collect()
}

fn transaction(log: &Arc<Log>) -> TxLog {
    let mut tx = log.transaction();
    tx.begin(Vxid::backend(9));
    tx
}

#[test]
fn a_batch_contains_the_records_of_a_transaction() {
    let log = Log::detached().expect("memory");
    let mut tx = transaction(&log);
    tx.put(Tag::BereqURL, b"/");
    tx.put(Tag::Debug, b"masked");
    tx.put_fields(Tag::Debug, &[Field::Text(b"masked"), Field::Number(1)]);
    assert!(walk(log.ring()).is_empty(), "nothing before the end");
    tx.end();
    let vxid = 9 | 1 << 63;
    let expected = [(30, b"/\0".to_vec()), (75, vec![0])].map(|(tag, text)| (tag, vxid, text));
    assert_eq!(walk(log.ring()), expected);
    assert_eq!(log.ring().word(0).load(Relaxed), 0xff00_0000);
    assert_eq!(log.ring().word(1).load(Relaxed), 32, "two records of 16 bytes");
}

#[test]
fn a_link_is_written_with_the_batch_of_the_linked_transaction() {
    let log = Log::detached().expect("memory");
    let (session, own) = (Vxid::client(8), Vxid::client(9));
    let mut tx = log.transaction();
    tx.begin(own);
    tx.link_from(session, "req", "rxreq");
    assert!(walk(log.ring()).is_empty(), "nothing before the transaction's own records");
    tx.put(Tag::ReqURL, b"/");
    tx.end();
    let record = |tag: Tag, vxid: Vxid, text: &[u8]| (tag as u32, vxid.raw(), text.to_vec());
    let link = record(Tag::Link, session, b"req 9 rxreq\0");
    let mut expected = vec![link.clone(), record(Tag::ReqURL, own, b"/\0"), record(Tag::End, own, b"\0")];
    assert_eq!(walk(log.ring()), expected);
    let counted: &Main = &log.ring().counters;
    assert_eq!((counted.shm_writes.get(), counted.shm_records.get()), (1, 3));

    tx.begin(own);
    tx.link_from(session, "req", "rxreq");
    tx.flush();
    expected.push(link);
    assert_eq!(walk(log.ring()), expected, "no batch without records");
}

#[test]
fn long_texts_are_truncated_and_keep_their_nul() {
    let log = Log::detached().expect("memory");
    log.set_limits(Limits { buffer: 0, reclen: 20 });
    let text = [b'x'; 100];
    log.write(Tag::Error, Vxid::NONE, &text);
    let mut tx = transaction(&log);
    tx.put(Tag::Error, &text);
    tx.put_fields(Tag::Error, &[Field::Text(&text), Field::Number(7)]);
    tx.put_fmt(Tag::Error, format_args!("{:x<100}", 'x'));
    tx.put(Tag::Error, &text[..19]);
    tx.flush();
    assert!(texts(&log).iter().all(|cut| *cut == format!("{}\0", "x".repeat(19))));
    assert_eq!(texts(&log).len(), 5);
}

#[test]
fn a_full_buffer_is_written_early_and_loses_nothing() {
    let log = Log::detached().expect("memory");
    log.set_limits(Limits { buffer: 128, reclen: 80 });
    let mut tx = transaction(&log);
    for i in 0..20_u32 {
        let text = "y".repeat(i as usize);
        tx.put(Tag::VCL_Log, text.as_bytes());
        // Exceeds the buffer halfway through the record.
        tx.put_fields(
            Tag::VCL_Log,
            &[Field::Text(text.as_bytes()), Field::Number(7), Field::Text(text.as_bytes())],
        );
    }
    tx.flush();
    let expected: Vec<String> =
        (0..20).flat_map(|i| ["y".repeat(i), format!("{0} 7 {0}", "y".repeat(i))]).collect();
    let seen: Vec<String> = texts(&log).iter().map(|text| text.trim_end_matches('\0').into()).collect();
    assert_eq!(seen, expected);
    let stats = &log.ring().counters;
    assert_eq!(stats.shm_records.get(), 40);
    assert_eq!(stats.shm_flushes.get() + 1, stats.shm_writes.get());
}

#[test]
fn a_batch_larger_than_a_segment_is_written_record_by_record() {
    let log = Log::detached().expect("memory");
    log.set_limits(Limits { buffer: MIN_SPACE, reclen: 255 });
    let mut tx = transaction(&log);
    for i in 0..1000 {
        tx.put_fmt(Tag::VCL_Log, format_args!("{i:0200}"));
    }
    tx.end();
    assert_eq!(walk(log.ring()).len(), 1001);
}

#[test]
fn writers_do_not_disturb_each_other() {
    let log = Log::detached().expect("memory");
    std::thread::scope(|scope| {
        for writer in 1..=4_u64 {
            let mut tx = log.transaction();
            scope.spawn(move || {
                for i in 0..200 {
                    tx.begin(Vxid::client(writer));
                    tx.put_fields(Tag::VCL_Log, &[Field::Number(writer), Field::Number(i)]);
                    tx.end();
                }
            });
        }
    });
    let records = walk(log.ring());
    assert_eq!(records.len(), 4 * 200 * 2);
    for writer in 1..=4_u64 {
        let own = records.iter().filter(|(tag, vxid, _)| *tag == 70 && *vxid == writer | 1 << 62);
        let expected = (0..200).map(|i| format!("{writer} {i}\0").into_bytes());
        assert!(own.map(|(.., text)| text.clone()).eq(expected), "writer {writer}");
    }
    assert_eq!(log.ring().counters.shm_writes.get(), 800);
}

#[test]
fn segment_offsets_follow_writes_and_wraps() {
    let log = Log::detached().expect("memory");
    let ring = log.ring();
    let offset = |segment: u32| ring.offset_of(segment).load(Relaxed);
    assert_eq!((offset(0), offset(1), ring.segment_number().load(Relaxed)), (0, u64::MAX, FIRST_SEGMENT));
    let text = [b'z'; 200];
    while ring.counters.shm_cycles.get() == 0 {
        log.write(Tag::VCL_Log, Vxid::NONE, &text);
        let segment = ring.segment_number().load(Relaxed);
        let start = offset(segment) as usize;
        assert!(start / ring.segment_size >= (segment % SEGMENTS) as usize, "in its segment");
    }
    assert_eq!(ring.segment_number().load(Relaxed), 0, "overflows at the first wrap");
    assert_eq!(walk(ring).len(), 1);
}

#[test]
fn written_memory_is_released_once_per_wrap_and_keeps_its_contents() {
    let log = Log::detached().expect("memory");
    let ring = log.ring();
    assert_eq!(log.release(usize::MAX), 0, "nothing was written");
    let text = [b'r'; 200];
    while ring.counters.shm_bytes.get() < MIN_SPACE as u64 / 2 {
        log.write(Tag::VCL_Log, Vxid::NONE, &text);
    }
    let seen = walk(ring);
    let at_once = log.release(10 * PAGE);
    assert!(at_once > 9 * PAGE && at_once <= 10 * PAGE, "{at_once}");
    let rest = log.release(usize::MAX);
    assert!(rest + at_once > MIN_SPACE / 2 - 2 * PAGE && rest + at_once <= MIN_SPACE / 2 + PAGE);
    assert_eq!((log.release(usize::MAX), walk(ring)), (0, seen));
    while ring.counters.shm_cycles.get() < 3 {
        log.write(Tag::VCL_Log, Vxid::NONE, &text);
    }
    let (end, beginning) = (log.release(usize::MAX), log.release(usize::MAX));
    assert!(end + beginning > MIN_SPACE - 3 * PAGE && end + beginning <= MIN_SPACE);
}
