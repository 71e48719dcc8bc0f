//! Kills a process that uses a store, again and again, and checks what the next one finds: no wrong byte, and nothing
//! that was purged. The test starts itself as that process.
//!
//! `DISK_KILLS=1000 cargo test -p lacquer-disk --test kill` kills more often.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use lacquer_disk::{Content, FileDevice, Layout, Meta, Options, Parts, Running, Store, enlarge, open_file};
use lacquer_testing::{Random, key};

const PATH: &str = "DISK_KILL_PATH";
const FROM: &str = "DISK_KILL_FROM";
const KEYS: u64 = 300;
const SIZE: u64 = 32 << 20;

fn now() -> f64 {
    1000.0
}

/// A version of the object with a key. Its bytes follow from the version.
struct Sample {
    key: u64,
    version: [u8; 8],
    body: Vec<u8>,
}

fn body(version: u64) -> Vec<u8> {
    let mut random = Random(version);
    let most = if version.is_multiple_of(7) { 200_000 } else { 10_000 };
    let len = random.index(most);
    random.bytes(len)
}

impl Content for Sample {
    fn parts(&self) -> Parts<'_> {
        let meta = Meta { key: key(self.key), variant: 0, expires: 5000, ban: 0 };
        Parts { meta, descriptor: &self.version, head: b"head", extra: &[], body_len: self.body.len() as u64 }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let rest = &self.body[from as usize..];
        let n = rest.len().min(window.len());
        window[..n].copy_from_slice(&rest[..n]);
        n
    }
}

/// Reports a purge when it is durable: the answer.
struct Answer(u64, u64);

impl Drop for Answer {
    fn drop(&mut self) {
        let line = format!("\npurged {} {}\n", self.0, self.1);
        let _ = std::io::stdout().write_all(line.as_bytes());
    }
}

fn open(path: &Path) -> Arc<Store> {
    let file = open_file(path, false).expect("nobody else uses the store");
    let device = FileDevice::new(file).expect("it is a file");
    let options = Options { flush_interval: Duration::from_millis(50), ..Options::default() };
    Store::open(Box::new(device), options, now).expect("the store can be opened")
}

/// The process that is killed.
#[test]
fn uses_a_store_until_killed() {
    let (Ok(path), Ok(from)) = (env::var(PATH), env::var(FROM)) else { return };
    let mut version: u64 = from.parse().expect("a number");
    let running = Running::start(open(Path::new(&path))).expect("threads");
    loop {
        version += 1;
        let key_number = version.wrapping_mul(0x9e37_79b9) % KEYS;
        let sample = Sample { key: key_number, version: version.to_le_bytes(), body: body(version) };
        drop(running.store().commit(Box::new(sample)));
        if version.is_multiple_of(5) {
            let purged = version / 5 % KEYS;
            drop(running.store().purge(&key(purged), Some(Box::new(Answer(purged, version)))));
        }
        if version.is_multiple_of(50) {
            let line = format!("\nversion {version}\n");
            std::io::stdout().write_all(line.as_bytes()).expect("the test reads");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// When a process is killed.
#[derive(Clone, Copy)]
enum Moment {
    /// At any time after its start.
    Any,
    /// At any time after its first purge is durable, however slow the machine is.
    AfterPurge,
}

/// Runs the process for a while. Returns the last version that it may have stored.
fn run_and_kill(
    path: &Path,
    from: u64,
    moment: Moment,
    random: &mut Random,
    purged: &mut BTreeMap<u64, u64>,
) -> u64 {
    let this = env::current_exe().expect("the test has a path");
    let mut child = Command::new(this)
        .args(["uses_a_store_until_killed", "--exact", "--nocapture"])
        .env(PATH, path)
        .env(FROM, from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test can be started");
    let output = child.stdout.take().expect("a pipe");
    let (reports, received) = mpsc::channel();
    let reader = thread::spawn(move || {
        let complete = BufReader::new(output).split(b'\n').map_while(Result::ok);
        let lines = complete.filter_map(|line| String::from_utf8(line).ok());
        let report = |line: &String| {
            if line.starts_with("purged ") {
                let _ = reports.send(());
            }
        };
        lines.inspect(report).collect::<Vec<_>>()
    });
    match moment {
        Moment::Any => thread::sleep(Duration::from_millis(40 + random.below(300))),
        Moment::AfterPurge => {
            received.recv_timeout(Duration::from_mins(1)).expect("a purge becomes durable");
            thread::sleep(Duration::from_millis(random.below(200)));
        }
    }
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    let mut last = from;
    for line in reader.join().expect("the reader ends") {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match (words.first(), number(1), number(2)) {
            (Some(&"purged"), Some(key), Some(version)) => {
                let known = purged.entry(key).or_default();
                *known = version.max(*known);
            }
            (Some(&"version"), Some(version), _) => last = version.max(last),
            _ => {}
        }
    }
    last
}

/// Reads all objects. Returns their number.
fn check(path: &Path, purged: &BTreeMap<u64, u64>) -> usize {
    let store = open(path);
    store.recover();
    let mut found = 0;
    for number in 0..KEYS {
        for candidate in store.candidates(&key(number), now()) {
            let loaded = store.load(&candidate, &key(number)).expect("an object in the index can be read");
            let version = loaded.fields().descriptor.try_into().map(u64::from_le_bytes).expect("eight bytes");
            let expected = body(version);
            let mut window = vec![0; expected.len()];
            assert_eq!(loaded.body_len(), expected.len() as u64);
            assert_eq!(loaded.body().read(0, &mut window), Some(expected.len()));
            assert!(window == expected, "wrong bytes in version {version}");
            let gone = purged.get(&number).copied().unwrap_or(0);
            assert!(version > gone, "version {version} of {number} was purged at {gone}");
            found += 1;
        }
    }
    while store.journal_step() {}
    found
}

#[test]
fn a_killed_process_leaves_a_sound_store() {
    if env::var(PATH).is_ok() {
        return;
    }
    let kills = env::var("DISK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let path: PathBuf = env::temp_dir().join(format!("lacquer-disk-kill-{}", std::process::id()));
    {
        let file = open_file(&path, true).expect("the file is new");
        enlarge(&file, SIZE).expect("there is room");
        let device = FileDevice::new(file).expect("it is a file");
        Layout::plan(SIZE, 77, now())
            .expect("the size is sufficient")
            .create(&device)
            .expect("it is written");
    }
    let (mut random, mut purged, mut from, mut found) = (Random(5), BTreeMap::new(), 0, 0);
    for kill in 0..kills {
        let moment = if kill % 3 == 0 { Moment::Any } else { Moment::AfterPurge };
        // The numbers of versions that the process did not report are not used again.
        from = run_and_kill(&path, from, moment, &mut random, &mut purged) + 100_000;
        found += check(&path, &purged);
    }
    let _ = std::fs::remove_file(&path);
    println!("{kills} kills, {found} objects read, {} keys purged", purged.len());
    assert!(found > kills * 20 && purged.len() > 20, "the store stayed empty: {found} objects");
}
