//! Several disks as one storage: objects are distributed by size, purges and bans reach all of them, and one that fails
//! leaves the others.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use lacquer_testing::daemon::{Daemon, program, refused};
use lacquer_testing::until;

use crate::disk::{Pages, Place, ask, connect, kill_all, read_all, store_all, version};
use crate::disk_waits::{counter, wait_for_index, wait_for_writes};

fn start(pages: &Pages, small: &Place, large: &Place) -> Daemon {
    let option = |place: &Place, size| format!("s0=disk,{},size={size}m,memory=16m", place.0.display());
    let (small, large) = (option(small, 64), option(large, 128));
    pages.daemon_with(&["-s", &small, "-s", &large])
}

/// Returns the numbers of objects on the disks in these folders.
pub(crate) fn objects(daemon: &mut Daemon, places: [&Place; 2]) -> [u64; 2] {
    let list = daemon.ok("storage.list");
    places.map(|place| {
        let line = list.lines().find(|line| line.contains(&*place.0.to_string_lossy())).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with("objects")).expect("the number of objects");
        words[at - 1].parse().expect("a number")
    })
}

#[test]
fn objects_are_on_all_disks_and_purges_reach_them() {
    let (pages, small, large) = (Pages::start(), Place::new("small"), Place::new("large"));
    let mut daemon = start(&pages, &small, &large);
    let mut client = connect(&daemon);
    store_all(&daemon, &mut client, 0..600);
    let mut found = [0; 2];
    assert!(
        until(|| {
            found = objects(&mut daemon, [&small, &large]);
            found[0] + found[1] >= 595
        }),
        "{found:?}"
    );
    assert!((130..270).contains(&found[0]), "a third is on the small disk: {found:?}");
    kill_all(daemon);
    pages.version.store(2, Ordering::SeqCst);
    let mut daemon = start(&pages, &small, &large);
    let mut client = connect(&daemon);
    let hits = (0..600).filter(|&n| version(&mut client, n) == 1).count();
    assert!(hits >= 595, "{hits} hits: {}", daemon.stderr());
    for n in (0..600).step_by(10) {
        assert_eq!(ask(&mut client, "PURGE", &format!("/{n}"), "").status, 200);
    }
    daemon.ok("ban obj.http.X-Seventh == 2");
    kill_all(daemon);
    let daemon = start(&pages, &small, &large);
    let mut client = connect(&daemon);
    let mut stayed = 0;
    for n in 0..600 {
        let (is_gone, version) = (n % 10 == 0 || n % 7 == 2, version(&mut client, n));
        assert!(version == 2 || !is_gone, "{n} came back");
        stayed += usize::from(version == 1);
    }
    let expected = (0..600).filter(|n| n % 10 != 0 && n % 7 != 2).count();
    assert!(stayed >= expected - 10, "{stayed} of {expected}: {}", daemon.stderr());
}

fn set_size(store: &Path, size: u64) {
    let set = File::options().write(true).open(store).and_then(|file| file.set_len(size));
    set.expect("its size can be changed");
}

#[test]
fn a_disk_that_fails_leaves_the_others() {
    let (pages, small, large) = (Pages::start(), Place::new("fails"), Place::new("stays"));
    let mut daemon = start(&pages, &small, &large);
    let mut client = connect(&daemon);
    store_all(&daemon, &mut client, 0..600);
    daemon.ok("stop");
    daemon.ok("start");
    wait_for_index(&mut daemon);
    let [on_small, on_large] = objects(&mut daemon, [&small, &large]).map(|count| count as usize);
    assert!(on_small > 100 && on_large > 200, "{on_small} {on_large}");
    let before = pages.requests();
    let mut client = connect(&daemon);
    for n in 0..600 {
        // Reads fail. A write makes the file longer again.
        set_size(&small.store(), 1 << 20);
        // A long response may be cut off.
        if client.ask(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).is_err() {
            client = connect(&daemon);
        }
    }
    let fetched = pages.requests() - before;
    assert!(fetched <= on_small + 10, "{fetched} of {on_small}: {}", daemon.ok("storage.list"));
    assert!(until(|| daemon.stderr().contains("the disk is out of use: too many reads failed")));
    assert!(daemon.ok("storage.list").contains("failed"), "{}", daemon.ok("storage.list"));
    assert!(daemon.logs("read at byte"), "{}", daemon.stderr());
    // All objects go to the other disk now, and survive there.
    store_all(&daemon, &mut client, (0..600).chain(1000..1200));
    kill_all(daemon);
    pages.version.store(2, Ordering::SeqCst);
    set_size(&small.store(), 64 << 20);
    let daemon = start(&pages, &small, &large);
    let mut client = connect(&daemon);
    let hits = (1000..1200).filter(|&n| version(&mut client, n) == 1).count();
    assert!(hits >= 195, "{hits}: {}", daemon.stderr());
    assert!((0..600).filter(|&n| version(&mut client, n) == 1).count() >= on_large - 10);
}

#[test]
fn one_disk_that_cannot_be_used_is_reported() {
    let (place, other) = (Place::new("one"), Place::new("other"));
    let option = |place: &Place| format!("s0=disk,{},size=32m", place.0.display());
    std::fs::write(other.store(), vec![b'x'; 32 << 20]).expect("written");
    let text = refused(&["-s", &option(&place), "-s", &option(&other)], "exec \"$@\"");
    assert!(
        text.contains(&*other.store().to_string_lossy()) && text.contains("not a Lacquer store"),
        "{text}"
    );
    let text = refused(&["-s", &option(&place), "-s", &option(&place)], "exec \"$@\"");
    assert!(text.contains("another process uses this store"), "{text}");
}

/// Returns the value of a counter.
/// Replaces the numbers of the format's version in both superblocks.
fn set_format(store: &Path, version: u8) {
    let file = File::options().write(true).open(store).expect("it is there");
    for at in [8, 4096 + 8] {
        file.write_all_at(&[version], at).expect("it can be written");
    }
}

#[test]
fn a_disk_that_the_next_worker_cannot_use_is_shown_with_the_reason() {
    let (pages, small, large) = (Pages::start(), Place::new("refused"), Place::new("used"));
    let mut daemon = start(&pages, &small, &large);
    let mut client = connect(&daemon);
    read_all(&mut client, 0..100);
    wait_for_writes(&daemon);
    daemon.ok("stop");
    // The worker's last write is over.
    set_format(&small.store(), 9);
    daemon.ok("start");
    wait_for_index(&mut daemon);
    let (list, path) = (daemon.ok("storage.list"), small.store().display().to_string());
    let line = list.lines().find(|line| line.contains(&path)).unwrap_or_default();
    assert!(line.contains("failed") && line.contains("format version 9"), "{list}\n{}", daemon.stderr());
    let json = daemon.ok("storage.list -j");
    assert!(json.contains("\"state\": \"failed\"") && json.contains("\"reason\": "), "{json}");
    let states = ["DISK.s0.0.g_failed", "DISK.s0.0.g_state", "DISK.s0.1.g_failed"];
    assert_eq!(states.map(|name| counter(&daemon, name)), [Some(1), Some(3), Some(0)]);
    assert!(daemon.logs("the disk is not used"), "{}", daemon.stderr());
    // The other one has its objects, and purges are answered.
    pages.version.store(2, Ordering::SeqCst);
    let mut client = connect(&daemon);
    let hits = (0..100).filter(|&n| version(&mut client, n) == 1).count();
    assert!((40..=80).contains(&hits), "{hits}: {}", daemon.stderr());
    assert_eq!(ask(&mut client, "PURGE", "/0", "").status, 200);
    // It is put back, and is empty: the purge may have concerned it.
    set_format(&small.store(), 1);
    pages.version.store(3, Ordering::SeqCst);
    daemon.ok("stop");
    daemon.ok("start");
    assert!(until(|| counter(&daemon, "DISK.s0.0.g_state") == Some(1)), "{}", daemon.ok("storage.list"));
    assert_eq!(objects(&mut daemon, [&small, &large])[0], 0);
    let mut client = connect(&daemon);
    let old = (0..100).filter(|&n| version(&mut client, n) == 1).count();
    assert!(old <= hits && !daemon.ok("storage.list").contains("failed"), "{old} of {hits}");
}

#[test]
fn the_only_disk_that_cannot_be_used_is_shown_and_may_be_replaced() {
    let (pages, place) = (Pages::start(), Place::new("only"));
    let mut daemon = pages.daemon(&place.option(",size=32m,memory=16m"));
    let mut client = connect(&daemon);
    read_all(&mut client, 0..20);
    // The device is gone: nothing can be read.
    set_size(&place.store(), 0);
    daemon.ok("stop");
    daemon.ok("start");
    let list = daemon.ok("storage.list");
    assert!(list.contains("failed: "), "{list}\n{}", daemon.stderr());
    assert_eq!(counter(&daemon, "DISK.s0.g_failed"), Some(1));
    let mut client = connect(&daemon);
    read_all(&mut client, 0..20);
    // Another one takes its place.
    std::fs::rename(place.store(), place.0.join("gone")).expect("it can be moved");
    let mut command = Command::new(program().with_file_name("lacquer"));
    let made = command.args(["storage", "create", "--size", "32M"]).arg(place.store()).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    daemon.ok("stop");
    daemon.ok("start");
    assert!(until(|| counter(&daemon, "DISK.s0.g_state") == Some(1)), "{}", daemon.ok("storage.list"));
    let mut client = connect(&daemon);
    read_all(&mut client, 0..20);
    assert!(until(|| objects(&mut daemon, [&place, &place])[0] >= 19), "{}", daemon.ok("storage.list"));
}
