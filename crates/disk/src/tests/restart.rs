//! The start of a large store: its index is read from the summaries of its segments, and needs little memory.
//!
//! `RESTART_OBJECTS=10000000 RESTART_FILE=/var/tmp/store cargo test --release -p lacquer-disk --lib large_store --
//! --nocapture` prints the figures of a file. Only the headers and summaries are written, so that it is sparse.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use lacquer_testing::{Random, key};

use super::device::SimulatedDevice;
use super::fetch::FetchedMemory;
use super::page::{Page, key as page_key};
use crate::blocks::{BLOCK, Blocks};
use crate::file::{FileDevice, open_file};
use crate::journal::Ban;
use crate::layout::Layout;
use crate::record::Form;
use crate::running::Running;
use crate::segment::{self, Extent, FIRST, Summarized, Summary};
use crate::state::{Content, Phase};
use crate::store::{Options, Store};
use crate::writer::{Step, Writer};

/// The length of each record: the mean of a store of pages and pictures.
const LEN: u64 = 62 << 10;
const THREADS: usize = 32;

/// Writes a store whose segments have headers and summaries, and no records. Returns the number of objects, which is a
/// little above `count`.
fn create(path: &Path, count: u64) -> u64 {
    let file = open_file(path, true).expect("the file can be created");
    let layout =
        Layout::plan(count * (LEN + 200) * 21 / 20 + (64 << 20), 7, 1.0).expect("it is large enough");
    file.set_len(layout.size()).expect("the file system supports sparse files");
    let device = FileDevice::new(file).expect("a file");
    layout.create(&device).expect("it is written");
    let empty = open(device);
    empty.recover_on(THREADS);
    let device = &*empty.blocks;
    let (mut objects, mut epoch) = (0, 0);
    while objects < count {
        epoch += 1;
        let mut summary = Summary::new();
        let mut offset = FIRST;
        while offset + LEN <= segment::limit(&layout, summary.records.len() + 1, 0) {
            let key = key(objects);
            let record =
                Summarized { form: Form::Object, key, offset, len: LEN, variant: 0, expires: u32::MAX };
            summary.add(record, 1);
            offset += LEN;
            objects += 1;
        }
        let at = layout.segment_at(layout.slot(epoch));
        device.write(at, segment::header(&layout, epoch, 1.0).bytes()).expect("it is written");
        let bytes = segment::encode(&layout, epoch, &summary, Extent::Whole);
        let len = bytes.bytes().len() as u64;
        device.write(at + layout.segment - len, bytes.bytes()).expect("it is written");
    }
    assert!(epoch < layout.segments);
    device.sync().expect("it is durable");
    {
        // Segments without a journal would be no store.
        let mut state = empty.state.lock();
        state.live.limit = epoch;
        state.pending.wants_checkpoint = true;
    }
    while empty.journal_step() {}
    drop(empty);
    // The journal then states which segments are the newest.
    let store =
        open(FileDevice::new(open_file(path, false).expect("the file can be opened")).expect("a file"));
    store.recover_on(THREADS);
    while store.journal_step() {}
    objects
}

#[test]
fn a_large_store_needs_little_memory_and_is_known_soon() {
    let variable = |name| std::env::var(name).ok();
    let count = variable("RESTART_OBJECTS").and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let usual = std::env::temp_dir().join(format!("lacquer-restart-{}", std::process::id()));
    let path = variable("RESTART_FILE").map_or(usual, PathBuf::from);
    let objects = create(&path, count);

    let began = Instant::now();
    let store =
        open(FileDevice::new(open_file(&path, false).expect("the file can be opened")).expect("a file"));
    let _ = std::fs::remove_file(&path);
    let opened = began.elapsed();
    let reader = Arc::clone(&store);
    let recovery = spawn(move || reader.recover_on(THREADS));
    while store.objects() == 0 {
        sleep(Duration::from_micros(200));
    }
    let first = began.elapsed();
    recovery.join().expect("no panic");
    let all = began.elapsed();

    assert_eq!((store.phase(), store.objects()), (Phase::Working, objects));
    let each = store.index_bytes() as f64 / objects as f64;
    println!(
        "{objects} objects: opened after {opened:.1?}, first {first:.1?}, all {all:.1?}; {each:.1} bytes each"
    );
    assert!(each < 40.0);
    let mut random = Random(1);
    for _ in 0..1000 {
        assert!(store.may_have(&key(random.below(objects))));
    }
    assert!(!store.may_have(&key(objects)));
}

/// A device that does not return the headers of the oldest segments before it is open.
#[derive(Clone)]
struct Gate {
    device: SimulatedDevice,
    layout: Layout,
    oldest: u64,
    is_open: Arc<AtomicBool>,
}

impl Blocks for Gate {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let is_header = |slot: u64| (at..at + BLOCK).contains(&self.layout.segment_at(slot));
        while (0..self.oldest).any(is_header) && !self.is_open.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(1));
        }
        self.device.read(at, buffer)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }
}

fn open(blocks: impl Blocks + 'static) -> Arc<Store> {
    Store::open(Box::new(blocks), Options { queue: u64::MAX, ..Options::default() }, || 1000.0)
        .expect("a store")
}

#[test]
fn the_newest_objects_are_known_before_the_headers_of_the_others_are_read() {
    let segment = 256 << 10;
    let layout = Layout { id: 5, journal: 64 << 10, segment, segments: 200, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let store = open(device.clone());
    store.recover();
    let mut writer = Writer::new(Arc::clone(&store));
    // Object 0 is written again at the end.
    let numbers = (0..300).chain([0]);
    for number in numbers.clone() {
        drop(store.commit(Box::new(Page { number, head: "head", len: 100_000 })));
        while writer.step() == Step::More {}
    }
    writer.flush();
    while store.journal_step() {}
    let used = store.segments().0;
    assert!((150..190).contains(&used));

    let is_open = Arc::<AtomicBool>::default();
    let store = open(Gate { device, layout, oldest: 80, is_open: Arc::clone(&is_open) });
    let reader = Arc::clone(&store);
    let recovery = spawn(move || reader.recover_on(4));
    let newest = [0, 299, 298, 250, 200];
    let is_known = |number: &u64| store.may_have(&page_key(*number));
    let began = Instant::now();
    while !newest.iter().all(is_known) {
        assert!(began.elapsed() < Duration::from_secs(20), "the newest are not known");
        sleep(Duration::from_millis(1));
    }
    assert_eq!((store.phase(), is_known(&1)), (Phase::Recovering, false));
    let rewritten = store.candidates(&page_key(0), 1000.0);
    assert_eq!((rewritten.len(), layout.slot(rewritten[0].log / segment)), (1, used));

    is_open.store(true, Ordering::Relaxed);
    recovery.join().expect("no panic");
    assert_eq!((store.phase(), store.objects()), (Phase::Working, 300));
    assert!(numbers.clone().all(|number| is_known(&number)));
    assert_eq!(store.candidates(&page_key(0), 1000.0)[0].log, rewritten[0].log);
}

#[test]
fn an_object_that_is_older_than_a_forgotten_ban_is_refused() {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 20, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let store = open(device.clone());
    store.recover();
    while store.journal_step() {}
    // While a body is fetched, there is a ban, which no object on the disk needs.
    let ban = |number| store.ban(Ban { number, time: 1.0, words: vec![b"obj.status".to_vec()] }, None);
    (1..=2).for_each(ban);
    store.state.lock().pending.wants_checkpoint = true;
    while store.journal_step() {}
    let page = |number| Page { number, head: "head", len: 1000 };
    assert_eq!(page(7).parts().meta.ban, 1);
    drop(store.commit(Box::new(page(7))));
    let mut writer = Writer::new(Arc::clone(&store));
    writer.close();
    assert_eq!((store.objects(), store.stats().refused.load(Ordering::Relaxed)), (0, 1));

    // The next start knows how the objects of its time were tested.
    let store = open(device.clone());
    store.recover();
    drop(store.commit(Box::new(page(7))));
    Writer::new(Arc::clone(&store)).close();
    assert_eq!(store.objects(), 1);
}

/// Returns the ban that a page was last tested against, according to the store.
fn ban_of(store: &Arc<Store>, number: u64) -> Option<u32> {
    let candidate = store.candidates(&page_key(number), 1000.0).into_iter().next()?;
    Some(store.load(&candidate, &page_key(number))?.ban())
}

#[test]
fn an_object_is_tested_against_a_ban_that_has_the_number_of_a_lost_one() {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 20, created: 1.0, version: 1 };
    for (len, is_closed) in [(1000, false), (1000, true), (600_000, false), (600_000, true)] {
        let device = SimulatedDevice::new(layout.size(), 1);
        layout.create(&device).expect("the device works");
        let store = open(device.clone());
        store.recover();
        while store.journal_step() {}
        let ban = |word: &str| Ban { number: 1, time: 1.0, words: vec![word.into()] };
        store.ban(ban("lost"), None);
        drop(store.commit(Box::new(Page { number: 7, head: "head", len })));
        let mut writer = Writer::new(Arc::clone(&store));
        while writer.step() == Step::More {}
        if is_closed {
            writer.close();
        } else {
            writer.flush();
        }
        // It is killed before the ban is durable, and another ban gets the number.
        let device = device.restart();
        let store = open(device.clone());
        store.recover();
        assert_eq!((store.past().last_ban, ban_of(&store, 7)), (0, Some(0)));
        store.ban(ban("answered"), None);
        while store.journal_step() {}
        let store = open(device.restart());
        store.recover();
        assert_eq!((store.past().last_ban, ban_of(&store, 7), store.oldest_ban()), (1, Some(0), 0));
    }
}

#[test]
fn an_object_keeps_the_number_of_a_ban_that_only_the_cache_knows() {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 20, created: 1.0, version: 1 };
    for is_late in [false, true] {
        let device = SimulatedDevice::new(layout.size(), 1);
        layout.create(&device).expect("the device works");
        let store = open(device.clone());
        if !is_late {
            store.count_bans(1);
        }
        store.recover();
        while store.journal_step() {}
        if is_late {
            store.count_bans(1);
        }
        while store.journal_step() {}
        drop(store.commit(Box::new(Page { number: 7, head: "head", len: 1000 })));
        Writer::new(Arc::clone(&store)).close();
        assert_eq!(ban_of(&store, 7), Some(1));
        let store = open(device.restart());
        store.recover();
        assert_eq!((store.past().last_ban, ban_of(&store, 7)), (1, Some(1)));
    }
}

#[test]
fn an_object_that_comes_while_the_index_is_read_hides_the_older_one() {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 20, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let page = |number, len| Box::new(Page { number, head: "head", len });
    let store = open(device.clone());
    store.recover();
    (0..10).for_each(|number| drop(store.commit(page(number, 1000))));
    Writer::new(Arc::clone(&store)).close();
    let store = open(device.clone());
    drop(store.commit(page(3, 2000)));
    drop(store.commit(page(50, 2000)));
    store.recover();
    let lengths = |store: &Arc<Store>, number| -> Vec<u64> {
        let found = store.candidates(&page_key(number), 1000.0);
        let loaded = found.iter().filter_map(|candidate| store.load(candidate, &page_key(number)));
        loaded.map(|loaded| loaded.body_len()).collect()
    };
    assert_eq!((lengths(&store, 2), lengths(&store, 3), store.objects()), (vec![1000], vec![], 9));
    Writer::new(Arc::clone(&store)).close();
    assert_eq!((lengths(&store, 3), lengths(&store, 50), store.objects()), (vec![2000], vec![2000], 11));
}

/// A device whose reads take half a second.
struct Slow(SimulatedDevice);

impl Blocks for Slow {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        // The superblocks and the journal are read by one thread.
        if at >= 8192 + 2 * (64 << 10) {
            sleep(Duration::from_millis(500));
        }
        self.0.read(at, buffer)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

struct Answer(Arc<AtomicBool>);

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The worker is replaced while it reads the index.
#[test]
fn a_store_can_be_closed_while_its_index_is_read() {
    let (segment, segments) = (256 << 10, 640);
    let layout = Layout { id: 5, journal: 64 << 10, segment, segments, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let page = |number, len| Box::new(Page { number, head: "head", len });
    let store = open(device.clone());
    store.recover();
    (0..40).for_each(|number| drop(store.commit(page(number, 1000))));
    Writer::new(Arc::clone(&store)).close();
    while store.journal_step() {}

    let store = open(Slow(device.clone()));
    let running = Running::start(Arc::clone(&store)).expect("threads can be started");
    let answered = Arc::<AtomicBool>::default();
    drop(store.purge(&page_key(3), Some(Box::new(Answer(Arc::clone(&answered))))));
    drop(store.commit(page(5, 2000)));
    sleep(Duration::from_millis(100));
    let began = Instant::now();
    running.close();
    // With all reads, it takes more than ten seconds.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!((store.phase(), store.take_events().0.len()), (Phase::Recovering, 0));
    assert!(answered.load(Ordering::Relaxed), "the purge is recorded");
    running.retire();
    assert_eq!(store.phase(), Phase::Retired);

    // The next worker finds all objects but the one that was purged, and the one that was replaced.
    let store = open(device);
    store.recover();
    let found: Vec<u64> = (0..40).filter(|&number| store.may_have(&page_key(number))).collect();
    assert_eq!(found, (0..40).filter(|&number| number != 3 && number != 5).collect::<Vec<u64>>());
}

#[test]
fn a_purge_that_has_no_room_before_the_index_is_read_is_not_answered_at_the_end() {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 640, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    // The journal has no groups, and none can be appended before the first checkpoint.
    let store = open(Slow(device));
    let running = Running::start(Arc::clone(&store)).expect("threads can be started");
    let answered = Arc::<AtomicBool>::default();
    drop(store.purge(&page_key(3), Some(Box::new(Answer(Arc::clone(&answered))))));
    running.retire();
    assert_eq!((store.phase(), answered.load(Ordering::Relaxed)), (Phase::Retired, false));
}

#[test]
fn no_body_is_written_in_parts_before_the_index_is_read() {
    let layout =
        Layout { id: 5, journal: 64 << 10, segment: 256 << 10, segments: 20, created: 1.0, version: 1 };
    let device = SimulatedDevice::new(layout.size(), 1);
    layout.create(&device).expect("the device works");
    let store = open(device);
    let meta = Page { number: 7, head: "head", len: 1000 }.parts().meta;
    let begin = || store.begin_stream(meta, Box::new(Arc::new(FetchedMemory::new(vec![0; 1000]))));
    assert!(begin().is_none());
    store.recover();
    assert!(begin().is_some());
}
