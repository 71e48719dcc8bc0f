//! The start of a large store: its index is read from the summaries of its segments, and needs little memory.
//!
//! `RESTART_OBJECTS=10000000 RESTART_FILE=/var/tmp/store cargo test --release -p lacquer-disk --lib large_store --
//! --nocapture` prints the figures of a file. Only the headers and summaries are written, so that it is sparse.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use lacquer_testing::{Random, key};

use crate::blocks::Blocks;
use crate::file::{FileDevice, open_file};
use crate::layout::Layout;
use crate::record::Form;
use crate::segment::{self, FIRST, Summarized, Summary};
use crate::state::Phase;
use crate::store::{Options, Store};

/// The length of each record: the mean of a store of pages and pictures.
const LEN: u64 = 62 << 10;
const THREADS: usize = 32;

/// Writes a store whose segments have headers and summaries, and no records. Returns the number of objects, which is a
/// little above `count`.
fn create(path: &PathBuf, count: u64) -> u64 {
    let file = open_file(path, true).expect("the file can be created");
    let layout =
        Layout::plan(count * (LEN + 200) * 21 / 20 + (64 << 20), 7, 1.0).expect("it is large enough");
    file.set_len(layout.size()).expect("the file system supports sparse files");
    let device = FileDevice::new(file).expect("a file");
    layout.create(&device).expect("it is written");
    let (mut objects, mut epoch) = (0, 0);
    while objects < count {
        epoch += 1;
        let mut summary = Summary::new();
        let mut offset = FIRST;
        while offset + LEN <= segment::limit(&layout, summary.records.len() + 1) {
            let key = key(objects);
            let record =
                Summarized { form: Form::Object, key, offset, len: LEN, variant: 0, expires: u32::MAX };
            summary.add(record, 1);
            offset += LEN;
            objects += 1;
        }
        let at = layout.segment_at(layout.slot(epoch));
        device.write(at, segment::header(&layout, epoch, 1.0).bytes()).expect("it is written");
        let bytes = segment::encode(&layout, epoch, &summary);
        let len = bytes.bytes().len() as u64;
        device.write(at + layout.segment - len, bytes.bytes()).expect("it is written");
    }
    assert!(epoch < layout.segments);
    device.sync().expect("it is durable");
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
    let device = FileDevice::new(open_file(&path, false).expect("the file can be opened")).expect("a file");
    let store = Store::open(Box::new(device), Options::default(), || 1000.0).expect("a store");
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
