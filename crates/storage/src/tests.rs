//! The arena compared with a simple model, streaming across threads, and the proof that pages in a socket are not
//! rewritten.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Wake, Waker};
use std::thread::Thread;

use lacquer_testing::Random;

use crate::span::{Span, SpanWriter};
use crate::*;

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    if cfg!(miri) {
        let block: [u8; 8] = random.number().to_le_bytes();
        return block.repeat(len.div_ceil(8))[..len].to_vec();
    }
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.number().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Random spans of all sizes with distinct contents, freed in random order: no span disturbs another, the counters
/// agree, and at the end all memory is free and contiguous.
#[test]
fn the_arena_agrees_with_a_model() {
    let (cases, steps): (&[(u64, u64)], _) = if cfg!(miri) {
        (&[(1, 64 << 10)], 100)
    } else {
        (&[(1, 1 << 20), (2, 8 << 20), (3, 64 << 20)], 10_000)
    };
    for &(seed, size) in cases {
        println!("seed {seed}, size {size}");
        let arena = Arena::anonymous(Some(size)).expect("memfd");
        let mut random = Random(seed);
        let mut live: Vec<(Span, Vec<u8>)> = Vec::new();
        let (mut refused, mut used) = (0, 0);
        for step in 0..steps {
            if random.below(100) < 55 {
                let len = match random.below(10) {
                    0..7 => random.below(2000),
                    7..9 => random.below(50_000),
                    _ => random.below(size / 8),
                } as usize;
                let bytes = pattern(step, len);
                match Span::with_contents(&arena, &[&bytes]) {
                    Ok(span) => {
                        used += span.capacity() as u64;
                        live.push((span, bytes));
                    }
                    Err(Full) => refused += 1,
                }
            } else if !live.is_empty() {
                let at = random.index(live.len());
                let (span, bytes) = live.swap_remove(at);
                assert!(span.bytes() == bytes);
                used -= span.capacity() as u64;
            }
            assert_eq!(arena.used(), used);
            assert!(used <= size);
        }
        assert!(cfg!(miri) || refused > 0 && live.len() > 10, "the test does not fill the arena");
        for (span, bytes) in live.drain(..) {
            assert!(span.bytes() == bytes);
        }
        assert_eq!(arena.used(), 0);
        assert_eq!(arena.longest_free(), size, "memory is lost or in pieces");
        let c = arena.counters();
        assert_eq!(c.c_bytes.load(Ordering::Relaxed), c.c_freed.load(Ordering::Relaxed));
        assert_eq!(c.g_space.load(Ordering::Relaxed), size);
    }
}

/// An arena of one megabyte can contain a body of nearly that size and its head.
#[test]
fn one_object_may_fill_the_arena() {
    let arena = Arena::anonymous(Some(1 << 20)).expect("memfd");
    let parts = Parts { head: &[&[7; 200]], extra: &[] };
    let sizes = ChunkSizes { first: 16 << 10, max: 256 << 20 };
    let (stored, mut writer) = Stored::begin(&arena, parts, Some(1_048_292), sizes, false).expect("fits");
    let bytes = pattern(1, 1_048_292);
    let mut written = 0;
    while written < bytes.len() {
        written += writer.write(&bytes[written..]).expect("reserved");
    }
    writer.finish();
    assert_eq!(stored.chunk_at(0).expect("there").bytes(), bytes);
    assert_eq!(stored.head(), [7; 200]);
    assert_eq!(arena.counters().g_space.load(Ordering::Relaxed), 0);
}

/// Of the memory that is freed in an unlimited arena, a few megabytes stay resident, and none after an explicit
/// release.
#[test]
#[cfg_attr(miri, ignore = "asks the system for memory in use")]
fn an_unlimited_arena_returns_memory_to_the_system() {
    let arena = Arena::anonymous(None).expect("memfd");
    let blocks = || rustix::fs::fstat(arena.mapping().fd()).expect("fstat").st_blocks * 512;
    let spans: Vec<_> =
        (0..64).map(|i| Span::with_contents(&arena, &[&pattern(i, 1 << 20)]).expect("no limit")).collect();
    let small: Vec<_> =
        (0..10_000).map(|i| Span::with_contents(&arena, &[&pattern(i, 300)]).expect("no limit")).collect();
    assert!(blocks() > 66 << 20);
    drop((spans, small));
    assert_eq!(arena.used(), 0);
    assert!(blocks() < 12 << 20, "{} bytes still resident", blocks());
    arena.return_free_pages();
    assert!(blocks() < 1 << 20, "{} bytes still resident", blocks());
    assert!(arena.surplus() < 1 << 20);
}

/// Returning free pages to the system does not change those in use, wherever the free ones are, and all free pages
/// can be allocated again.
#[test]
#[cfg_attr(miri, ignore = "asks the system for memory in use")]
fn give_back_does_not_change_pages_in_use() {
    let arena = Arena::anonymous(Some(32 << 20)).expect("memfd");
    let blocks = || rustix::fs::fstat(arena.mapping().fd()).expect("fstat").st_blocks * 512;
    let span = |i: usize| Span::with_contents(&arena, &[&pattern(i as u64, 1000 * (i % 100))]).expect("fits");
    let mut spans: Vec<_> = (0..500).map(|i| Some(span(i))).collect();
    let full = blocks();
    for round in 0..10 {
        spans.iter_mut().skip(round % 3).step_by(3).for_each(|s| *s = None);
        arena.return_free_pages();
        for (i, span) in spans.iter().enumerate() {
            let Some(span) = span else { continue };
            assert!(span.bytes() == pattern(i as u64, 1000 * (i % 100)), "{i} in round {round}");
        }
        assert!(blocks() < full * 3 / 4, "{} of {full} bytes still resident", blocks());
        spans.iter_mut().enumerate().filter(|(_, s)| s.is_none()).for_each(|(i, s)| *s = Some(span(i)));
    }
}

/// A megabyte that `sendfile` has queued in a socket is freed, allocated again and overwritten; it must arrive
/// unchanged.
#[test]
#[cfg_attr(miri, ignore = "sends over a socket")]
fn pages_in_a_socket_are_not_rewritten() {
    let len = 1 << 20;
    let arena = Arena::anonymous(Some(len as u64)).expect("memfd");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let sender = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    sender.set_nonblocking(true).expect("nonblocking");
    let (mut receiver, _) = listener.accept().expect("accept");

    let old = pattern(1, len);
    let span = Span::with_contents(&arena, &[&old]).expect("fits");
    let mut range = span.file_range(0, len).expect("pages of its own");
    let mut sent = 0;
    while let Ok(n) = range.send(sender.as_fd()) {
        sent += n;
        if n == 0 || sent == len {
            break;
        }
    }
    assert!(sent > 64 << 10, "the socket took only {sent} bytes");
    let at = span.bytes().as_ptr();
    drop(span);
    let new = vec![0xee; len];
    let again = Span::with_contents(&arena, &[&new]).expect("free again");
    assert_eq!(again.bytes().as_ptr(), at, "the test needs the same memory");

    drop(sender);
    let mut got = Vec::new();
    receiver.read_to_end(&mut got).expect("read");
    assert_eq!(got.len(), sent);
    assert!(got == old[..sent], "the socket's pages were rewritten");
    assert_eq!(again.bytes(), new);
}

/// Memory of a file system may be in units larger than a page, which sockets would send with later contents.
#[test]
#[cfg(not(miri))]
fn pages_of_named_files_are_not_lent_to_sockets() {
    let folder = lacquer_testing::Folder::new("named");
    for at in [
        folder.join("arena"),
        std::path::PathBuf::from(format!("/dev/shm/lacquer-arena-{}", std::process::id())),
    ] {
        let file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&at).expect("a new file");
        std::fs::remove_file(&at).expect("just made");
        // SAFETY: the file has no name, and nothing else uses its descriptor.
        let arena = unsafe { Arena::from_fd(file.into(), Some(8 << 20), 8 << 20) }.expect("mapped");
        let span = Span::with_contents(&arena, &[&vec![1; 300_000]]).expect("fits");
        assert!(span.file_range(0, 300_000).is_none(), "{}", at.display());
    }
}

/// With `shmem_enabled` set to `always`, the kernel gives a file in memory large pages where the mapping does not refuse
/// them.
#[test]
#[cfg(not(miri))]
fn arenas_refuse_large_pages() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage/shmem_enabled").exists() {
        return eprintln!("skipped: this kernel has no large pages");
    }
    let _arena = Arena::anonymous(Some(3 << 20)).expect("memfd");
    // Arenas of other tests are mapped a moment before the kernel is told.
    let refuse = || {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
        let arenas = maps.split("memfd:lacquer-arena").skip(1);
        let mut flags =
            arenas.filter_map(|map| map.lines().find(|line| line.starts_with("VmFlags:"))).peekable();
        flags.peek().is_some() && flags.all(|flags| flags.contains(" nh"))
    };
    assert!(lacquer_testing::until(refuse));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn read_all(stored: &Stored) -> (Vec<u8>, BodyState) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    test_reader::read_all(stored, &waker, std::thread::park)
}

#[test]
fn readers_on_other_threads_follow_the_writer() {
    let arena = Arena::anonymous(Some(32 << 20)).expect("memfd");
    let sizes = ChunkSizes { first: 16 << 10, max: 256 << 10 };
    for (expected, fail) in [(None, false), (Some(3_000_000), false), (Some(100_000), false), (None, true)] {
        let shorter = if cfg!(miri) { 50 } else { 1 };
        let expected = expected.map(|n: u64| n / shorter);
        let len = expected.unwrap_or(1_234_567 / shorter) as usize;
        let bytes = pattern(len as u64, len);
        let parts = Parts { head: &[b"head"], extra: &[] };
        let (stored, mut writer) = Stored::begin(&arena, parts, expected, sizes, true).expect("fits");
        let stored = Arc::new(stored);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| read_all(&stored))).collect();
            let mut random = Random(7);
            let mut written = 0;
            while written < len {
                let end = len.min(written + 1 + random.index(9000));
                written += writer.write(&bytes[written..end]).expect("room");
            }
            if fail {
                writer.fail();
            } else {
                writer.finish();
            }
            for reader in readers {
                let (got, state) = reader.join().expect("reader");
                assert!(got == bytes);
                assert_eq!(state, if fail { BodyState::Failed } else { BodyState::Complete });
            }
        });
        assert_eq!(stored.head(), b"head");
    }
    assert_eq!(arena.used(), 0);
}

/// A short body of unknown length does not keep the whole chunk that was reserved for it.
#[test]
fn the_end_is_trimmed_and_delivered_parts_are_freed() {
    let arena = Arena::anonymous(Some(8 << 20)).expect("memfd");
    let sizes = ChunkSizes { first: 16 << 10, max: 64 << 10 };
    let parts = Parts { head: &[b"head"], extra: &[] };
    let (stored, mut writer) = Stored::begin(&arena, parts, None, sizes, true).expect("fits");
    writer.write(&[1; 100]).expect("room");
    let chunk = stored.chunk_at(0).expect("there");
    assert!(arena.used() > 16 << 10);
    writer.finish();
    assert_eq!(chunk.bytes(), [1; 100], "a chunk outlives the trimming");
    drop(chunk);
    assert!(arena.used() < 1000, "{} bytes used", arena.used());
    let whole = stored.compacted(1000).expect("short and complete");
    assert_eq!(whole.chunk_at(1).expect("there").bytes(), [1; 99]);
    assert_eq!(whole.head(), b"head");
    drop((stored, whole));

    let (stored, mut writer) = Stored::begin(&arena, parts, None, sizes, true).expect("fits");
    let mut most = 0;
    for _ in 0..if cfg!(miri) { 100 } else { 1000 } {
        let mut n = 0;
        while n < 1000 {
            n += writer.write(&[2; 1000][n..]).expect("room");
        }
        stored.delivered(stored.body_len(), true);
        most = most.max(arena.used());
    }
    writer.finish();
    assert!(most <= 200 << 10, "{most} bytes held for one reader");
    stored.delivered(1_000_000, true);
    assert!(arena.used() < 1000);
}

/// The writer waits for a slow reader, and the reader wakes it.
#[test]
fn the_transit_limit_stops_the_writer() {
    let arena = Arena::anonymous(Some(1 << 20)).expect("memfd");
    let parts = Parts { head: &[], extra: &[] };
    let sizes = ChunkSizes { first: 4096, max: 4096 };
    let (stored, mut writer) = Stored::begin(&arena, parts, None, sizes, true).expect("fits");
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    writer.write(&[0; 1000]).expect("room");
    assert!(writer.poll_transit(1001, &mut cx).is_ready());
    assert!(writer.poll_transit(1000, &mut cx).is_pending());
    stored.delivered(1, true);
    std::thread::park();
    assert!(writer.poll_transit(1000, &mut cx).is_ready());
}

/// A full arena allocates nothing, and small requests use free larger slots.
#[test]
fn a_full_arena_refuses_allocations() {
    let size: u32 = if cfg!(miri) { 1 << 16 } else { 1 << 20 };
    let arena = Arena::anonymous(Some(size.into())).expect("memfd");
    let mut spans = Vec::new();
    while let Ok(span) = Span::with_contents(&arena, &[&[1; 1000]]) {
        spans.push(span);
    }
    assert!(spans.len() >= size as usize / 1049);
    assert!(SpanWriter::new(&arena, 1 << 20).is_err());
    assert!(SpanWriter::new(&arena, usize::MAX).is_err());
    spans.pop();
    let small = Span::with_contents(&arena, &[&[2; 100]]).expect("fits the slot just freed");
    assert_eq!(small.bytes(), [2; 100]);
}
