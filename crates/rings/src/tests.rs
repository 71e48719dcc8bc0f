//! Rings over files of the test.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::*;

const LENGTH: usize = 100_000;

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Returns a file of `LENGTH` bytes, without a name.
fn file() -> File {
    let path = std::env::temp_dir().join(format!("lacquer-ring-{}-{:?}", std::process::id(), Instant::now()));
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("it exists");
    let bytes: Vec<u8> = (0..LENGTH).map(byte).collect();
    file.write_all(&bytes).expect("it has room");
    file
}

/// Returns a ring, or `None` where the kernel or the container has none.
fn ring(files: &[&File], depth: u32) -> Option<Ring> {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    match Ring::new(&files, depth) {
        Ok(ring) => Some(ring),
        Err(error) => {
            println!("skipped: no io_uring here: {error}");
            None
        }
    }
}

type Ended = (io::Result<()>, Block);

/// Returns memory of several pages.
fn memory(pages: usize) -> Block {
    Block::several(1, pages * ALIGNMENT).expect("there is memory").remove(0)
}

fn read(at: u64, range: Range<usize>) -> (Read, Receiver<Ended>) {
    let (sender, receiver) = channel();
    let done = Box::new(move |result, memory| sender.send((result, memory)).expect("it is awaited"));
    let mut memory = memory(1);
    memory.fill(9);
    (Read { file: 0, at, memory, range, done }, receiver)
}

fn wait(ring: &Ring, ended: &Receiver<Ended>) -> Ended {
    let begun = Instant::now();
    loop {
        ring.complete();
        if let Ok(ended) = ended.try_recv() {
            return ended;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the read does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn reads_fill_their_range_only() {
    let file = file();
    let Some(ring) = ring(&[&file], 8) else { return };
    let (request, ended) = read(1000, 100..300);
    ring.read(request).expect("there is room");
    let (result, memory) = wait(&ring, &ended);
    result.expect("the file can be read");
    let expected = |at: usize| if (100..300).contains(&at) { byte(1000 + at - 100) } else { 9 };
    assert_eq!(*memory, (0..ALIGNMENT).map(expected).collect::<Vec<u8>>());
    assert_eq!(ring.in_progress(), 0);
}

#[test]
fn reads_beyond_the_end_and_of_unknown_files_fail() {
    let file = file();
    let Some(ring) = ring(&[&file], 8) else { return };
    for (file, at) in [(0, LENGTH as u64 - 10), (0, 1 << 40), (1, 0), (u32::MAX, 0)] {
        let (mut request, ended) = read(at, 0..50);
        request.file = file;
        ring.read(request).expect("there is room");
        wait(&ring, &ended).0.expect_err("there are no such bytes");
    }
}

#[test]
fn wrong_ranges_and_reads_beyond_the_depth_are_refused() {
    let file = file();
    let Some(ring) = ring(&[&file], 2) else { return };
    for range in [0..ALIGNMENT + 1, ALIGNMENT + 1..ALIGNMENT + 1, 5000..5010] {
        let (request, _) = read(0, range);
        ring.read(request).expect_err("the range exceeds the memory");
    }
    let reversed = Range { start: 2, end: 1 };
    ring.read(read(0, reversed).0).expect_err("the range is reversed");
    let (first, first_ended) = read(0, 0..50);
    let (second, second_ended) = read(0, 0..0);
    ring.read(first).expect("there is room");
    ring.read(second).expect("there is room");
    ring.read(read(0, 0..50).0).expect_err("two are in progress");
    for ended in [first_ended, second_ended] {
        wait(&ring, &ended).0.expect("the file can be read");
    }
    let (again, ended) = read(7, 0..50);
    ring.read(again).expect("there is room again");
    assert_eq!(wait(&ring, &ended).1[0], byte(7));
}

#[test]
fn a_read_may_start_the_next_one() {
    let file = file();
    let Some(ring) = ring(&[&file], 1).map(std::sync::Arc::new) else { return };
    let (next, ended) = read(5, 0..10);
    let (sender, receiver) = channel();
    let first = Read {
        file: 0,
        at: 0,
        memory: memory(1),
        range: 0..10,
        done: Box::new(move |_, _| sender.send(()).expect("it is awaited")),
    };
    ring.read(first).expect("there is room");
    let begun = Instant::now();
    while receiver.try_recv().is_err() {
        ring.complete();
        assert!(begun.elapsed() < Duration::from_secs(20), "the read does not end");
    }
    ring.read(next).expect("the first has ended");
    assert_eq!(wait(&ring, &ended).1[0], byte(5));
}

#[test]
fn a_ring_may_end_before_its_reads() {
    let file = file();
    let Some(ring) = ring(&[&file], 64) else { return };
    let ended: Vec<_> = (0..64)
        .map(|number| {
            let (request, ended) = read(number * 1000, 0..1000);
            ring.read(request).expect("there is room");
            ended
        })
        .collect();
    drop(ring);
    // Their functions are dropped.
    assert!(ended.iter().all(|ended| ended.recv_timeout(Duration::from_secs(20)).is_err()));
}

#[test]
fn other_operations_are_refused() {
    let file = file();
    let Some(ring) = ring(&[&file], 8) else { return };
    let mut inner = ring.0.borrow_mut();
    let write = opcode::Write::new(types::Fixed(0), [1].as_ptr(), 1).build().user_data(1);
    let by_descriptor = opcode::Nop::new().build().user_data(2);
    for entry in [write, by_descriptor] {
        // SAFETY: the kernel refuses the operation, and does not read the memory.
        unsafe { inner.ring.submission().push(&entry) }.expect("there is room");
        inner.ring.submit_and_wait(1).expect("the ring works");
        let entry = inner.ring.completion().next().expect("it has ended");
        assert_eq!(entry.result(), -13, "EACCES");
    }
    inner.ring.submitter().register_files(&[0]).expect_err("nothing can be registered");
}

/// Runs a test in a runtime of one thread.
fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default());
    runtime.expect("there is memory").block_on(test);
}

fn start_read(ring: &Ring, at: u64) -> tokio::sync::oneshot::Receiver<u8> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let done = Box::new(move |result: io::Result<()>, memory: Block| {
        result.expect("the file can be read");
        sender.send(memory[0]).expect("it is awaited");
    });
    ring.read(Read { file: 0, at, memory: memory(1), range: 0..4096, done }).expect("there is room");
    receiver
}

async fn assert_ends(read: tokio::sync::oneshot::Receiver<u8>, at: u64) {
    let read = tokio::time::timeout(Duration::from_secs(20), read).await;
    assert_eq!(read.expect("it ends").expect("it succeeds"), byte(at as usize));
}

#[test]
fn a_runtime_ends_reads() {
    let file = file();
    let Some(ring) = ring(&[&file], 8).map(Rc::new) else { return };
    block_on(async {
        let running = tokio::task::spawn_local(Rc::clone(&ring).run());
        for at in 0..50 {
            assert_ends(start_read(&ring, at), at).await;
        }
        running.abort();
    });
}

#[test]
fn a_ring_that_cannot_be_watched_ends_its_reads_and_has_no_room() {
    let file = file();
    let Some(ring) = ring(&[&file], 8).map(Rc::new) else { return };
    block_on(async {
        // A descriptor can be registered once.
        // SAFETY: the ring has one descriptor, and keeps it open until its end.
        let first = unsafe { AsyncFd::register_with_interest(Rc::clone(&ring), Interest::READABLE) };
        let first = first.expect("it is the first");
        let reads: Vec<_> = (0..8).map(|at| (start_read(&ring, at), at)).collect();
        let running = tokio::task::spawn_local(Rc::clone(&ring).run());
        for (read, at) in reads {
            assert_ends(read, at).await;
        }
        let ended = tokio::time::timeout(Duration::from_secs(20), running).await;
        ended.expect("it returns").expect("it does not panic");
        assert!(!ring.has_room() && ring.in_progress() == 0);
        let (request, _ended) = read(0, 0..10);
        ring.read(request).expect_err("no read may begin");
        drop(first);
    });
}

#[test]
fn reads_that_are_started_together_reach_the_kernel_together() {
    let file = file();
    let Some(ring) = ring(&[&file], 64).map(Rc::new) else { return };
    block_on(async {
        let running = tokio::task::spawn_local(Rc::clone(&ring).run());
        tokio::task::yield_now().await;
        let reads: Vec<_> = (0..BATCH as u64).map(|at| (start_read(&ring, at), at)).collect();
        assert_eq!(ring.0.borrow().waiting, BATCH - 1, "the first one was alone");
        let full = start_read(&ring, 50);
        assert_eq!(ring.0.borrow().waiting, 0, "so many are not delayed");
        for (read, at) in reads {
            assert_ends(read, at).await;
        }
        assert_ends(full, 50).await;
        running.abort();
    });
}

#[test]
fn reads_that_the_kernel_refuses_are_passed_to_it_again() {
    let file = file();
    let Some(ring) = ring(&[&file], 64).map(Rc::new) else { return };
    block_on(async {
        let running = tokio::task::spawn_local(Rc::clone(&ring).run());
        tokio::task::yield_now().await;
        for refusals in [1, 2, 20] {
            for count in [1, 3, BATCH as u64 + 1] {
                ring.0.borrow_mut().refusals = refusals;
                let reads: Vec<_> = (0..count).map(|at| (start_read(&ring, at), at)).collect();
                for (read, at) in reads {
                    assert_ends(read, at).await;
                }
                assert_eq!(ring.0.borrow().refusals, 0);
            }
        }
        running.abort();
    });
}

#[test]
fn blocks_are_separate_aligned_and_zeroed() {
    let mut blocks = Block::several(20, 300_000).expect("there is memory");
    for (number, block) in (1..).zip(&mut blocks) {
        assert_eq!((block.len(), block.as_ptr().addr() % ALIGNMENT), (303_104, 0));
        assert!(block.iter().all(|&byte| byte == 0));
        block.fill(number);
    }
    // Each one keeps the memory.
    let last = blocks.pop().expect("there are twenty");
    let first = blocks.remove(0);
    drop(blocks);
    assert!(first.iter().all(|&byte| byte == 1) && last.iter().all(|&byte| byte == 20));
    assert!(Block::several(usize::MAX, 4096).is_err());
}
