//! Working directories that are damaged, or written by somebody else: every read ends, with an error or without.

use std::fs;
use std::path::Path;

use lacquer_inspect::counters;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::follow::{Follower, Sink};
use lacquer_inspect::ring::{LogReader, Record};
use lacquer_inspect::transaction::Grouping;
use lacquer_testing::{Folder, Random};
use rustix::fs::{FlockOperation, flock};

/// Creates a working directory.
fn working_directory(name: &str) -> Folder {
    let folder = Folder::new(&format!("inspect-{name}"));
    for part in ["_.vsm_mgt", "_.vsm_child"] {
        fs::create_dir_all(folder.join(part)).expect("it can be created");
    }
    folder
}

/// Offers these bytes as the log.
fn offer_log(folder: &Folder, bytes: &[u8]) {
    let pid = std::process::id();
    folder.file("_.vsm_mgt/_.index", format!("# {pid} 1\n+ _.Arg 0 8 Arg -i\n"));
    folder.file("_.vsm_child/_.index", format!("# {pid} 1\n+ _.Log 0 {} Log Log\n", bytes.len()));
    folder.file("_.vsm_child/_.Log", bytes);
}

fn find(folder: &Path) -> Result<Directory, String> {
    Directory::find(folder.to_str()).map_err(|fault| fault.what)
}

/// Reads a log as the commands do. Returns the number of records, or the error.
fn read(folder: &Folder) -> Result<usize, String> {
    let directory = find(folder)?;
    let _ = LogReader::at_end(&directory);
    let mut reader = LogReader::at_start(&directory).map_err(|fault| fault.what)?;
    let (mut grouping, mut records) = (Grouping::default(), 0);
    for _ in 0..2 {
        let read = reader.read(&mut |record| {
            records += 1;
            let _ = record.shown();
            let _ = grouping.add(&record);
        });
        read.map_err(|error| error.to_string())?;
    }
    Ok(records)
}

const WORDS: u32 = 64;

/// Returns a log with eight segments of 64 words and this content, of which only the first one was begun.
fn log(segment: u32, content: &[u32]) -> Vec<u8> {
    let mut bytes = b"VSLHEAD2".to_vec();
    bytes.extend(u64::from(WORDS).to_ne_bytes());
    bytes.extend(u64::from(segment).to_ne_bytes());
    for start in 0..8u64 {
        bytes.extend(if start == 0 { 0 } else { u64::MAX }.to_ne_bytes());
    }
    for at in 0..WORDS * 8 {
        bytes.extend(content.get(at as usize).copied().unwrap_or(0xfe45_4545).to_ne_bytes());
    }
    bytes
}

#[test]
fn damaged_logs_end() {
    let folder = working_directory("logs");
    // A record: its tag, version and length, the transaction in two words, and a text of four bytes.
    let record = [13 << 24 | 1 << 16 | 4, 7, 0, u32::from_ne_bytes(*b"GET\0")];
    offer_log(&folder, &log(0, &record.repeat(3)));
    assert_eq!(read(&folder), Ok(3));
    // A wrap that leads to itself; records without an end; a length that exceeds the log; an old format; no format.
    offer_log(&folder, &log(0, &[0xfe57_5757]));
    assert_eq!(read(&folder), Ok(0));
    offer_log(&folder, &log(0, &record.repeat(128)));
    assert!(read(&folder).is_ok());
    offer_log(&folder, &log(0, &[13 << 24 | 1 << 16 | 0xffff]));
    assert_eq!(read(&folder), Ok(0));
    offer_log(&folder, &log(0, &[13 << 24 | 4, 7, 0, 0]));
    assert!(read(&folder).is_err_and(|why| why.contains("unknown format")));
    offer_log(&folder, b"VSLHEAD1 and an older format of a log");
    assert!(read(&folder).is_err_and(|why| why.contains("another format")));
    for bytes in [&b""[..], b"VSLHEAD2", &log(u32::MAX, &[])[..70], &[0xff; 5000]] {
        offer_log(&folder, bytes);
        let _ = read(&folder);
    }
}

#[test]
fn logs_of_random_words_end() {
    let folder = working_directory("random");
    let mut random = Random(21);
    for _ in 0..300 {
        let words: Vec<u32> = (0..WORDS * 8)
            .map(|_| match random.below(5) {
                0 => 0xfe57_5757,
                1 => (random.below(256) as u32) << 24 | 1 << 16 | random.below(40) as u32,
                _ => random.number() as u32,
            })
            .collect();
        offer_log(&folder, &log(random.number() as u32, &words));
        let _ = read(&folder);
    }
}

#[test]
fn directories_without_a_daemon_have_clear_errors() {
    let folder = working_directory("gone");
    assert!(find(&folder).is_err_and(|why| why.contains("no daemon runs")));
    for text in ["", "#", "# x 1\n", "\u{0}\u{1}"] {
        folder.file("_.vsm_mgt/_.index", text.as_bytes());
        assert!(find(&folder).is_err(), "{text:?}");
    }
    folder.file("_.vsm_mgt/_.index", b"# 4294967294 1\n");
    assert!(find(&folder).is_err_and(|why| why.contains("has ended")));
    // A manager without a worker.
    folder.file("_.vsm_mgt/_.index", format!("# {} 1\n", std::process::id()).as_bytes());
    let directory = find(&folder).expect("its manager runs");
    assert!(LogReader::at_end(&directory).is_err_and(|fault| fault.what.contains("its worker does not")));
    assert!(counters::read(&directory).is_err());
}

/// Counts records.
struct Count(u64);

impl Sink for Count {
    fn record(&mut self, _record: Record<'_>) {
        self.0 += 1;
    }

    fn gap(&mut self, _overruns: u64) {}
}

/// The process of the manager may be hidden from others (`ProtectProc=`), or be in another container.
#[test]
fn a_daemon_runs_though_its_process_is_not_shown() {
    let folder = working_directory("hidden");
    offer_log(&folder, &log(0, &[13 << 24 | 1 << 16 | 4, 7, 0, u32::from_ne_bytes(*b"GET\0")]));
    folder.file("_.vsm_mgt/_.index", b"# 4294967294 1\n");
    assert!(find(&folder).is_err_and(|why| why.contains("has ended")));
    let (mut follower, mut count) = (Follower::waiting(Directory::at(&folder)), Count(0));
    for _ in 0..2 {
        follower.look_again();
        assert!(follower.read(None, &mut count).is_ok());
    }
    let mut follower = Follower::at_start(Directory::at(&folder)).expect("there is a log");
    follower.look_again();
    assert!(follower.read(None, &mut count).is_ok());
    assert_eq!(count.0, 1);
    let pid_file = folder.file("_.pid", "4294967294");
    assert!(find(&folder).is_err());
    let lock = fs::File::open(pid_file).expect("it exists");
    flock(&lock, FlockOperation::LockExclusive).expect("nobody has it");
    assert!(find(&folder).is_ok());
}

/// Programs that are not in use keep the lines of their backends, which hide their counters.
#[test]
fn an_index_of_very_many_sets_is_read_to_its_end() {
    let folder = working_directory("many");
    let pid = std::process::id();
    let mut index = format!("# {pid} 1\n");
    for number in 0..100_000 {
        let line = format!("_.sets 0 32 Stat VBE.program_that_is_cold.backend_{number:08}\n");
        index += "+ ";
        index += &line;
        if number % 3 == 0 {
            index += "- ";
            index += &line;
        }
    }
    index.push_str("+ _.sets 32 32 Stat VBE.new.last\n");
    assert!(index.len() > 6 << 20);
    // Each set has one counter. The first set is hidden.
    let set = |ready: u64, value: u64| [ready, 24, 0xd0c, value].map(u64::to_ne_bytes).concat();
    folder.file("_.vsm_child/_.sets", [set(2, 7), set(1, 8)].concat());
    let text = b"{\"elem\": {\"req\": {\"index\": 0, \"type\": \"counter\"}}}\0";
    folder.file("_.vsm_mgt/_.text", [&[0; 24][..], text].concat());
    folder.file("_.vsm_mgt/_.index", format!("# {pid} 1\n+ _.text 0 {} StatDoc d0c\n", 24 + text.len()));
    folder.file("_.vsm_child/_.index", index);
    let all = counters::read(&Directory::at(&folder)).expect("there are counters");
    let found: Vec<_> = all.iter().map(|counter| (counter.name.as_str(), counter.value)).collect();
    assert_eq!(found, [("VBE.new.last.req", 8)]);
}
