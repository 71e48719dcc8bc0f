//! `-s file`: objects survive the end of all processes. Nothing comes back that was purged or banned, and no damage of
//! the files is served.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use lacquer_testing::Random;
use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, is_root, program, refused, signal};
use lacquer_testing::slots::shared_slot;

use crate::devices::SmallDisk;
use crate::disk::{Pages, Place, SUBS, ask, body, connect, kill_now, version};
use crate::upgrade::Upgradable;

const SIZE: u64 = 32 << 20;
const COUNT: u64 = 120;

fn file(place: &Place) -> PathBuf {
    place.0.join("cache")
}

fn beside(place: &Place, ending: &str) -> PathBuf {
    place.0.join(format!("cache.{ending}"))
}

pub(crate) fn option(place: &Place) -> String {
    format!("file,{},32m", file(place).display())
}

/// Starts a daemon. Objects are in the index when it serves.
fn start(pages: &Pages, option: &str) -> Daemon {
    pages.daemon_at_once(SUBS, &["-s", option, "-p", "nuke_limit=1000"])
}

/// Returns the number of pages that have version 1.
fn hits(client: &mut Client) -> usize {
    (0..COUNT).filter(|&n| version(client, n) == 1).count()
}

fn fill(pages: &Pages, place: &Place) -> Daemon {
    pages.version.store(1, Ordering::SeqCst);
    let daemon = start(pages, &option(place));
    assert_eq!(hits(&mut connect(&daemon)), COUNT as usize);
    pages.version.store(2, Ordering::SeqCst);
    daemon
}

/// Ends the daemon as an operator does.
fn end(mut daemon: Daemon) {
    signal(daemon.manager(), "-TERM");
    assert_eq!(daemon.end(), Some(0), "{}", daemon.stderr());
}

fn invalidate(daemon: &mut Daemon) {
    let mut client = connect(daemon);
    for n in (0..COUNT).step_by(11) {
        assert_eq!(ask(&mut client, "PURGE", &format!("/{n}"), "").status, 200);
    }
    assert_eq!(ask(&mut client, "BAN", "/17", "").status, 200);
    daemon.ok("ban obj.http.X-Seventh == 2");
}

fn is_gone(n: u64) -> bool {
    n.is_multiple_of(11) || n % 7 == 2 || n == 17
}

/// Checks that all pages are hits except those that were invalidated.
fn check_invalidated(client: &mut Client) {
    for n in 0..COUNT {
        assert_eq!(version(client, n) == 1, !is_gone(n), "page {n}");
    }
}

#[test]
fn objects_survive_kills_and_clean_ends_until_the_worker_is_stopped() {
    let (pages, place) = (Pages::start(), Place::new("file"));
    let mut daemon = fill(&pages, &place);
    for variant in ["a", "b"] {
        ask(&mut connect(&daemon), "GET", &format!("/5/{variant}"), &format!("X-V: {variant}\r\n"));
    }
    invalidate(&mut daemon);
    kill_now(daemon);

    let mut daemon = start(&pages, &option(&place));
    let listed = daemon.ok("ban.list");
    assert!(listed.contains("obj.http.X-Seventh == 2"), "{listed}");
    let mut client = connect(&daemon);
    check_invalidated(&mut client);
    for variant in ["a", "b"] {
        let before = pages.requests();
        let response = ask(&mut client, "GET", &format!("/5/{variant}"), &format!("X-V: {variant}\r\n"));
        assert!(response.body == body(5, 2, variant) && pages.requests() == before, "variant {variant}");
    }
    // New bans have higher numbers, and apply to old objects.
    daemon.ok("ban obj.http.X-Seventh == 3");
    drop(client);
    end(daemon);

    pages.version.store(3, Ordering::SeqCst);
    let daemon = start(&pages, &option(&place));
    assert!(!daemon.stderr().contains("starts empty"), "{}", daemon.stderr());
    let mut client = connect(&daemon);
    for n in 0..COUNT {
        let expected = if n % 7 == 3 { 3 } else { 1 + usize::from(is_gone(n)) };
        assert_eq!(version(&mut client, n), expected, "page {n}");
    }
    // The next start takes over what the last one was about to change.
    kill_now(daemon);
    let mut daemon = start(&pages, &option(&place));
    assert!(hits(&mut connect(&daemon)) > 60);

    // Objects that an operator has dropped stay away.
    daemon.ok("stop");
    kill_manager(daemon);
    let daemon = start(&pages, &option(&place));
    assert_eq!(hits(&mut connect(&daemon)), 0);
}

/// Kills a daemon without a worker.
fn kill_manager(daemon: Daemon) {
    let manager = daemon.manager();
    signal(manager, "-KILL");
    drop(daemon);
}

#[test]
fn nothing_survives_without_keep_memory_or_with_another_file() {
    let (pages, place) = (Pages::start(), Place::new("file-off"));
    kill_now(fill(&pages, &place));
    let off = ["-s", &option(&place), "-p", "keep_memory=off"];
    for _ in 0..2 {
        let daemon = pages.daemon_at_once(SUBS, &off);
        assert_eq!(hits(&mut connect(&daemon)), 0);
        kill_now(daemon);
        pages.version.fetch_add(1, Ordering::SeqCst);
    }
    let daemon = start(&pages, &option(&place));
    assert_eq!(hits(&mut connect(&daemon)), 0);
    end(daemon);

    // Bans are in the first file: the second one is of no use alone, nor the first beside another one.
    let other = format!("s1=file,{},16m", place.0.join("other").display());
    let both = ["-s", &option(&place), "-s", &other];
    pages.version.store(1, Ordering::SeqCst);
    let daemon = pages.daemon_at_once(SUBS, &both);
    assert!(daemon.stderr().contains("together with other files"), "{}", daemon.stderr());
    assert_eq!(hits(&mut connect(&daemon)), COUNT as usize);
    pages.version.store(2, Ordering::SeqCst);
    kill_now(daemon);
    let daemon = pages.daemon_at_once(SUBS, &both);
    assert_eq!(hits(&mut connect(&daemon)), COUNT as usize);
    end(daemon);
    let daemon = start(&pages, &option(&place));
    assert!(daemon.stderr().contains("together with other files"), "{}", daemon.stderr());
    assert_eq!(hits(&mut connect(&daemon)), 0);
}

#[test]
fn bans_survive_beside_memory_that_does_not() {
    let (pages, place) = (Pages::start(), Place::new("file-beside"));
    let options = ["-s", "memory=malloc,16m", "-s", &format!("s0={}", option(&place))];
    let mut daemon = pages.daemon_at_once(SUBS, &options);
    assert_eq!(hits(&mut connect(&daemon)), COUNT as usize);
    pages.version.store(2, Ordering::SeqCst);
    invalidate(&mut daemon);
    kill_now(daemon);
    let daemon = pages.daemon_at_once(SUBS, &options);
    check_invalidated(&mut connect(&daemon));
}

fn change(path: &Path, change: impl FnOnce(&fs::File)) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    change(&file.expect("the file can be opened"));
}

fn flip(file: &fs::File, at: u64, bit: u32) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is within the file");
    file.write_all_at(&[byte[0] ^ 1 << bit], at).expect("it can be written");
}

/// Asks for all pages: those that are damaged are misses. None is cut off, because none is longer than what is compared
/// before the first byte is sent. Returns the number of old pages.
fn checked_hits(daemon: &Daemon) -> usize {
    let mut client = connect(daemon);
    let mut hits = 0;
    for n in 0..COUNT {
        let response = client.ask(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let response = response.unwrap_or_else(|error| panic!("page {n}: {error}"));
        let version = response.header("X-Version").and_then(|text| text.parse().ok()).expect("a version");
        assert_eq!(response.status, 200);
        assert!(response.body == body(n, version, ""), "the body of {n}, version {version}");
        hits += usize::from(version == 1);
    }
    hits
}

/// The line that a start prints after damage, the possible numbers of hits, and the damage.
type Damage<'a> = (&'a str, std::ops::RangeInclusive<usize>, Box<dyn FnOnce() + 'a>);

#[test]
fn no_damage_is_served() {
    let (pages, place) = (Pages::start(), Place::new("file-damage"));
    let mut random = Random(17);
    let (records, state) = (beside(&place, "records"), beside(&place, "state"));
    let mut flips = |path: PathBuf, until: u64, count: usize| {
        let all: Vec<(u64, u32)> =
            (0..count).map(|_| (random.below(until), random.below(8) as u32)).collect();
        move || change(&path, |file| all.iter().for_each(|&(at, bit)| flip(file, at, bit)))
    };
    let (some, most, all) = (1..=119, 20..=119, 0..=0);
    let damages: Vec<Damage> = vec![
        // The pages occupy about 4 MB at the beginning, and 120 records and their lists 20 kB.
        ("", some, Box::new(flips(file(&place), 4 << 20, 60))),
        ("", 0..=119, Box::new(flips(records.clone(), 20_000, 60))),
        ("", most, Box::new(flips(records.clone(), 20_000, 2))),
        ("its state is damaged", all.clone(), Box::new(|| change(&state, |file| flip(file, 50, 3)))),
        ("its state is damaged", all.clone(), Box::new(|| change(&state, |file| flip(file, 0, 3)))),
        ("it has version 3", all.clone(), Box::new(|| change(&state, |file| flip(file, 8, 1)))),
        ("", all.clone(), Box::new(|| fs::remove_file(&state).expect("it exists"))),
        ("was replaced", all.clone(), Box::new(|| fs::remove_file(&records).expect("it exists"))),
        ("", all.clone(), Box::new(|| change(&records, |file| file.set_len(0).expect("it is a file")))),
        (
            "its size",
            all.clone(),
            Box::new(|| change(&file(&place), |f| f.set_len(1 << 20).expect("a file"))),
        ),
        ("its size", all, Box::new(|| change(&file(&place), |f| f.set_len(64 << 20).expect("a file")))),
        (
            "was replaced",
            0..=0,
            Box::new(|| {
                let bytes = fs::read(file(&place)).expect("it can be read");
                fs::remove_file(file(&place)).expect("it exists");
                fs::write(file(&place), bytes).expect("it can be written");
            }),
        ),
    ];
    for (number, (text, expected, damage)) in damages.into_iter().enumerate() {
        kill_now(fill(&pages, &place));
        damage();
        let daemon = start(&pages, &option(&place));
        let found = checked_hits(&daemon);
        assert!(expected.contains(&found), "{found} hits after damage {number}: {}", daemon.stderr());
        assert!(daemon.stderr().contains(text), "{text}: {}", daemon.stderr());
        assert_eq!(daemon.stderr().contains("starts empty"), !text.is_empty(), "{}", daemon.stderr());
        // The new contents survive again.
        kill_now(daemon);
        let (daemon, before) = (start(&pages, &option(&place)), pages.requests());
        checked_hits(&daemon);
        assert_eq!(pages.requests(), before, "after damage {number}");
        // An empty file for the next damage.
        kill_now(daemon);
        fs::remove_file(&state).expect("it exists");
    }
}

/// The memory of an object that is removed while clients receive it is not used for others before they have it.
#[test]
fn slow_clients_receive_what_was_removed_meanwhile() {
    let (pages, place) = (Pages::start(), Place::new("file-slow"));
    let Some(disk) = SmallDisk::with_large_pages(&place, 64) else { return };
    let daemon = start(&pages, &format!("file,{}/cache,32m", disk.0.display()));
    let mut client = connect(&daemon);
    for round in 0..6 {
        let long = |n: u64| 50 * (20 * round + n) + n % 5;
        let purge = |client: &mut Client, pages: std::ops::Range<u64>| {
            for n in pages {
                assert_eq!(ask(client, "PURGE", &format!("/{}", long(n)), "").status, 200);
            }
        };
        for n in (0..8).chain(0..8) {
            version(&mut client, long(n));
        }
        let mut slow: Vec<Client> = (0..8).map(|_| connect(&daemon)).collect();
        for (n, client) in slow.iter_mut().enumerate() {
            client.send(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", long(n as u64))).expect("connected");
        }
        std::thread::sleep(Duration::from_millis(200));
        purge(&mut client, 0..8);
        for n in 8..20 {
            version(&mut client, long(n));
        }
        purge(&mut client, 8..20);
        for (n, client) in slow.iter_mut().enumerate() {
            let got = client.response_to("GET").expect("a response").body;
            assert!(got == body(long(n as u64), 1, ""), "round {round}, client {n}");
        }
    }
}

#[test]
fn another_program_that_writes_to_the_file_ends_its_contents() {
    let (pages, place) = (Pages::start(), Place::new("file-written"));
    end(fill(&pages, &place));
    change(&file(&place), |file| flip(file, SIZE - 1, 0));
    let daemon = start(&pages, &option(&place));
    assert!(daemon.stderr().contains("another program has written to it"), "{}", daemon.stderr());
    assert_eq!(hits(&mut connect(&daemon)), 0);
}

/// Returns the line with which a start fails.
fn refusal(option: &str) -> String {
    let text = refused(&["-s", option], "exec \"$@\"");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("(-sfile)")).collect();
    assert!(lines.len() == 1 && !text.contains("panicked"), "{text}");
    lines[0].to_owned()
}

#[test]
fn files_in_use_and_files_of_others_are_refused() {
    let (pages, place) = (Pages::start(), Place::new("file-refused"));
    let daemon = fill(&pages, &place);
    let line = refusal(&option(&place));
    assert!(line.contains("is in use by another process"), "{line}");
    // A check of a configuration neither waits for the file nor changes it.
    let checked = Command::new(program())
        .args(["-C", "-j", "none", "-b", "none", "-s", &option(&place)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(checked.is_ok_and(|status| status.success()));
    assert_eq!(hits(&mut connect(&daemon)), COUNT as usize);
    kill_now(daemon);

    for ending in ["records", "state"] {
        let path = beside(&place, ending);
        let bytes = fs::read(&path).expect("it can be read");
        fs::write(&path, "somebody's text").expect("it can be written");
        let line = refusal(&option(&place));
        assert!(line.contains("is not a file of this program"), "{line}");
        assert_eq!(fs::read(&path).expect("it can be read"), b"somebody's text");
        fs::remove_file(&path).expect("it exists");
        std::os::unix::fs::symlink("/dev/null", &path).expect("a link can be made");
        let line = refusal(&option(&place));
        assert!(line.contains("could not open"), "{line}");
        fs::remove_file(&path).expect("it exists");
        fs::write(&path, bytes).expect("it can be written");
    }
    // As in Varnish, a file with other contents is used.
    let other = place.0.join("other");
    fs::write(&other, vec![b'x'; 4 << 20]).expect("it can be written");
    let daemon = start(&pages, &format!("file,{}", other.display()));
    assert_eq!(hits(&mut connect(&daemon)), 0);
    kill_now(daemon);
    assert_eq!(fs::metadata(&other).map_or(0, |found| found.len()), 4 << 20);

    // A file in a directory has no name.
    let daemon = start(&pages, &format!("file,{},8m", place.0.display()));
    assert_eq!(hits(&mut connect(&daemon)), 0);
    drop(daemon);
    let left = fs::read_dir(&place.0).expect("it can be read").count();
    assert_eq!(left, 6, "a file and two beside it, twice");
}

#[test]
fn full_and_read_only_disks_are_refused_in_one_line() {
    let (pages, place) = (Pages::start(), Place::new("file-full"));
    let Some(disk) = SmallDisk::new(&place, 16) else { return };
    fs::write(disk.0.join("ballast"), vec![0; 10 << 20]).expect("there is room");
    let path = disk.0.join("cache");
    let line = refusal(&format!("file,{},12m", path.display()));
    assert!(line.contains("allocation error: No space left on device"), "{line}");
    assert!(!path.exists());
    let daemon = start(&pages, &format!("file,{},4m", path.display()));
    drop(daemon);
    if is_root() {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
        assert!(status.is_ok_and(|status| status.success()));
        let line = refusal(&format!("file,{},4m", path.display()));
        assert!(line.contains("could not open (Read-only file system)"), "{line}");
    }
}

#[test]
fn upgrades_keep_what_survives() {
    let _slot = shared_slot();
    let place = Place::new("file-upgrade");
    let (origin, _gate) = crate::upgrade::origin();
    let option = option(&place);
    let ask = |daemon: &Daemon| {
        let mut client = connect(daemon);
        let hits = |client: &mut Client, n: u64| {
            let response = client.get(&format!("/{n}")).expect("it responds");
            assert!(response.body == crate::upgrade::body(n), "the body of {n}");
            response.header("hits") != Some("0")
        };
        (0..COUNT).filter(|&n| hits(&mut client, n)).count()
    };
    let mut upgradable = Upgradable::start_jailed("file", &origin, &["-s", &option]);
    assert_eq!(ask(&upgradable.daemon), 0);
    for _ in 0..2 {
        upgradable.upgrade();
        upgradable.settle();
    }
    assert_eq!(ask(&upgradable.daemon), COUNT as usize);
    upgradable.daemon.ok("ban req.url == /5");
    let (manager, worker) = (upgradable.daemon.manager(), upgradable.daemon.worker());
    signal(worker, "-KILL");
    signal(manager, "-KILL");
    drop(upgradable);
    let upgradable = Upgradable::start_jailed("file", &origin, &["-s", &option]);
    let stderr = upgradable.daemon.stderr();
    assert_eq!(ask(&upgradable.daemon), COUNT as usize - 1, "{stderr}");
    let left = fs::read_dir(&place.0).expect("it can be read").count();
    assert_eq!(left, 3, "no table of an upgrade is left");
}
