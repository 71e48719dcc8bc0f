//! Measures a store: fills it, reads objects at random, and reads the index after a restart. For comparison with fio on
//! the same file.
//!
//! `cargo run --release -p lacquer-disk --example speed -- PATH GIGABYTES THREADS`

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lacquer_disk::{
    Content, FileDevice, Key, Layout, Meta, Options, Parts, Running, Store, enlarge, open_file,
};
use lacquer_testing::{Random, key};

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

struct Sample {
    key: Key,
    body: Arc<Vec<u8>>,
    len: usize,
}

impl Content for Sample {
    fn parts(&self) -> Parts<'_> {
        let meta = Meta { key: self.key, variant: 0, expires: u32::MAX, ban: 0 };
        Parts { meta, descriptor: &[1; 60], head: &[2; 400], extra: &[], body_len: self.len as u64 }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let n = window.len().min(self.len - from as usize);
        window[..n].copy_from_slice(&self.body[from as usize..from as usize + n]);
        n
    }
}

fn open(path: &Path) -> Arc<Store> {
    let device = FileDevice::new(open_file(path, false).expect("the file can be opened")).expect("a file");
    Store::open(Box::new(device), Options::default(), now).expect("a store")
}

/// Returns the length of an object: 4 to 256 kB, 62 kB on average.
fn length(number: u64) -> usize {
    let share = (Random(number).number() >> 11) as f64 / (1_u64 << 53) as f64;
    (4096.0 * 64_f64.powf(share)) as usize
}

fn cpu() -> f64 {
    process_time().as_secs_f64()
}

fn process_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<i64> =
        text.rsplit(')').next().unwrap_or("").split(' ').filter_map(|f| f.parse().ok()).collect();
    // Ticks of a hundredth of a second in user and system mode.
    Duration::from_millis(fields.get(10..12).map_or(0, |both| both.iter().sum::<i64>() as u64) * 10)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("PATH GIGABYTES THREADS"));
    let size = arguments.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(4) << 30;
    let threads = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(32);
    {
        let file = open_file(&path, true).expect("the file can be created");
        enlarge(&file, size).expect("there is room");
        let layout = Layout::plan(size, 1, now()).expect("the size is sufficient");
        layout.create(&FileDevice::new(file).expect("a file")).expect("it is written");
    }
    let count = fill(&path, size);
    let began = Instant::now();
    let store = open(&path);
    store.recover();
    let (objects, took) = (store.objects(), began.elapsed().as_secs_f64());
    println!("restart: {objects} objects of {count} after {:.0} ms", took * 1000.0);
    println!("index:   {:.1} bytes for each object", store.index_bytes() as f64 / objects as f64);
    read(&store, count, threads);
    let _ = std::fs::remove_file(&path);
}

/// Fills nine tenths of the store. Returns the number of objects.
fn fill(path: &Path, size: u64) -> u64 {
    let running = Running::start(open(path)).expect("threads");
    let body = Arc::new(Random(3).bytes(256 << 10));
    let (began, cpu_before) = (Instant::now(), cpu());
    let (mut count, mut bytes) = (0, 0);
    while bytes < size / 10 * 9 {
        let len = length(count);
        let sample = Sample { key: key(count), body: Arc::clone(&body), len };
        while running.store().queued_bytes() > running.store().queue_limit() / 2 {
            thread::sleep(Duration::from_micros(200));
        }
        drop(running.store().commit(Box::new(sample)));
        count += 1;
        bytes += len as u64;
    }
    running.close();
    let (took, used) = (began.elapsed().as_secs_f64(), cpu() - cpu_before);
    let written = running.store().stats().device_written_bytes.load(Ordering::Relaxed);
    let (rate, each) = (bytes as f64 / took / 1e6, used / count as f64 * 1e6);
    println!("fill:    {rate:.0} MB/s, {each:.0} µs of CPU for each of {count} objects");
    println!("         {:.3} bytes written for each stored", written as f64 / bytes as f64);
    count
}

fn read(store: &Arc<Store>, count: u64, threads: u64) {
    let (bytes, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    let (began, cpu_before) = (Instant::now(), cpu());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (bytes, reads) = (&bytes, &reads);
            scope.spawn(move || {
                let mut random = Random(thread);
                while began.elapsed() < Duration::from_secs(8) {
                    let key = key(random.below(count));
                    let Some(candidate) = store.candidates(&key, now()).pop() else { continue };
                    let Some(loaded) = store.load(&candidate, &key) else { continue };
                    let mut n = 0;
                    loaded.read_present(|piece| n += black_box(piece).len() as u64);
                    let mut window = vec![0; (loaded.body_len() - n) as usize];
                    n += loaded.body().read(n, &mut window).unwrap_or(0) as u64;
                    bytes.fetch_add(n, Ordering::Relaxed);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let took = began.elapsed().as_secs_f64();
    let (bytes, reads) = (bytes.into_inner() as f64, reads.into_inner() as f64);
    let each = (cpu() - cpu_before) / reads * 1e6;
    println!(
        "read:    {:.0} objects/s, {:.0} MB/s, {each:.0} µs of CPU each",
        reads / took,
        bytes / took / 1e6
    );
}
