//! Reads in a ring find what reads on threads find.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lacquer_rings::Ring;

use crate::file::{FileDevice, enlarge, open_file};
use crate::layout::Layout;
use crate::load::Receiver;
use crate::read::Loaded;
use crate::record::{Key, Meta, Parts};
use crate::running::Running;
use crate::state::{Content, Phase};
use crate::store::{Options, Store};

const PATIENCE: Duration = Duration::from_secs(20);

struct Page {
    key: u8,
    head: usize,
    body: usize,
}

fn key(number: u8) -> Key {
    [number; 24]
}

impl Content for Page {
    fn parts(&self) -> Parts<'_> {
        static HEAD: [u8; 300_000] = [b'h'; 300_000];
        let meta = Meta { key: key(self.key), variant: 0, expires: 5000, ban: 1 };
        Parts { meta, descriptor: b"page", head: &HEAD[..self.head], extra: &[], body_len: self.body as u64 }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let len = window.len().min(self.body - from as usize);
        window[..len].fill(self.key);
        len
    }
}

struct Awaited(Sender<Option<Loaded>>);

impl Receiver for Awaited {
    fn is_awaited(&self) -> bool {
        true
    }

    fn receive(self, loaded: Option<Loaded>) {
        self.0.send(loaded).expect("it is awaited");
    }
}

/// Returns the time since the first call, from 1000 on.
fn clock() -> f64 {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    1000.0 + BEGUN.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// A store in a file without a name, and a ring that reads it.
struct Bench {
    file: File,
    running: Running,
    ring: Ring,
}

impl Bench {
    /// Returns `None` where the kernel or the container has no rings.
    fn new(name: &str) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("lacquer-disk-{name}-{}", std::process::id()));
        let file = open_file(&path, true).expect("a file");
        std::fs::remove_file(&path).expect("it exists");
        enlarge(&file, 128 << 20).expect("it has room");
        let Ok(ring) = Ring::new(&[file.as_fd()], 8) else {
            println!("skipped: no io_uring here");
            return None;
        };
        let device = FileDevice::new(file.try_clone().expect("a descriptor")).expect("it is a file");
        Layout::plan(device_size(&device), 3, 0.0).expect("it has room").create(&device).expect("it works");
        let options = Options { flush_interval: Duration::from_millis(10), ..Options::default() };
        let store = Store::open(Box::new(device), options, clock).expect("there is a store");
        let running = Running::with_readers(store, Some(0)).expect("there are threads");
        running.start_writers().expect("there are threads");
        Some(Self { file, running, ring })
    }

    fn store(&self) -> &Arc<Store> {
        self.running.store()
    }

    /// Stores pages, and waits until they are written.
    fn fill(&self, pages: impl IntoIterator<Item = Page>) {
        let mut number = self.store().objects();
        for page in pages {
            drop(self.store().commit(Box::new(page)));
            number += 1;
        }
        let begun = Instant::now();
        while self.store().phase() != Phase::Working || self.store().objects() < number {
            assert!(begun.elapsed() < PATIENCE, "the objects are not written");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn load(&self, number: u8, wanted: Key) -> Option<Loaded> {
        let candidate = self.store().candidates(&key(number), 1000.0).pop().expect("it is in the index");
        let (sender, receiver) = channel();
        self.running.load(Some(&self.ring), candidate, wanted, Awaited(sender));
        let begun = Instant::now();
        loop {
            self.ring.complete();
            if let Ok(loaded) = receiver.try_recv() {
                return loaded;
            }
            assert!(begun.elapsed() < PATIENCE, "the read does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.running.close();
        if !std::thread::panicking() {
            assert_eq!((self.ring.in_progress(), self.store().health.operations()), (0, 0));
        }
    }
}

fn device_size(device: &FileDevice) -> u64 {
    use crate::blocks::Blocks;
    device.size()
}

#[test]
fn objects_of_all_sizes_are_read() {
    let Some(bench) = Bench::new("sizes") else { return };
    // The last one is longer than the first read, and so is its head.
    let sizes = [(10, 0), (10, 1), (500, 5000), (500, 100_000), (10, 300_000), (200_000, 10)];
    let pages = (1..).zip(sizes).map(|(key, (head, body))| Page { key, head, body });
    bench.fill(pages);
    for (number, (head, body)) in (1..).zip(sizes) {
        let loaded = bench.load(number, key(number)).expect("it is sound");
        assert_eq!((loaded.fields().head.len(), loaded.body_len()), (head, body as u64));
        let mut present = Vec::new();
        assert!(loaded.read_present(|piece| present.extend_from_slice(piece)));
        assert_eq!(present, vec![number; loaded.present() as usize]);
    }
}

#[test]
fn other_keys_and_damaged_objects_are_not_found() {
    let Some(bench) = Bench::new("damage") else { return };
    bench.fill([Page { key: 1, head: 100, body: 100 }, Page { key: 2, head: 100, body: 100 }]);
    let mut other = key(1);
    other[0] = 9;
    assert!(bench.load(1, other).is_none(), "only the fingerprint is the same");
    assert!(bench.load(1, key(1)).is_some());
    let place = bench.store().candidates(&key(1), 1000.0)[0].entry.place();
    let mut block = crate::blocks::Aligned::new(4096);
    let at = place / 4096 * 4096;
    bench.file.read_exact_at(block.bytes_mut(), at).expect("the file works");
    block.bytes_mut()[(place - at) as usize + 90] ^= 1;
    bench.file.write_all_at(block.bytes(), at).expect("the file works");
    assert!(bench.load(1, key(1)).is_none(), "its head is damaged");
    assert_eq!(bench.store().stats().damaged.load(Ordering::Relaxed), 1);
    assert!(bench.store().candidates(&key(1), 1000.0).is_empty(), "it is removed");
    assert!(bench.load(2, key(2)).is_some(), "others stay");
}

#[test]
fn objects_that_cannot_be_read_are_removed_and_counted() {
    let Some(bench) = Bench::new("short") else { return };
    bench.fill([Page { key: 1, head: 100, body: 100 }]);
    bench.file.set_len(4096).expect("the file works");
    assert!(bench.load(1, key(1)).is_none(), "the file ends before it");
    assert_eq!(bench.store().stats().read_errors.load(Ordering::Relaxed), 1);
    assert!(bench.store().candidates(&key(1), 1000.0).is_empty());
}
