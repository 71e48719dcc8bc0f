//! Purges by tags (module xkey) concern objects on disks: those that are not in memory, and also after the end of all
//! processes.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, signal};
use lacquer_testing::until;

use crate::disk::{Pages, Place, ask, connect, kill_all, kill_now, read_all, store_all, version};
use crate::disk_waits::{wait_for_index, wait_for_writes};

const PAGES: u64 = 280;

const SUBS: &str = r#"
import xkey;
sub vcl_recv {
    if (req.method == "PURGE") { return (synth(xkey.purge(req.http.tags) + 200)); }
    if (req.method == "SOFT") { return (synth(xkey.softpurge(req.http.tags) + 200)); }
    if (req.http.refresh) { set req.hash_always_miss = true; }
}
sub vcl_backend_response {
    set beresp.ttl = 1h;
    set beresp.grace = 1h;
    set beresp.storage = storage.s0;
    set beresp.http.xkey = "all, seventh" + beresp.http.X-Seventh;
    set beresp.http.X-HashTwo = "page" + bereq.url;
    if (bereq.http.many) { set beresp.http.xkey = bereq.http.many; }
}
sub vcl_deliver { set resp.http.hits = obj.hits; }
"#;

fn start(pages: &Pages, option: &str) -> Daemon {
    pages.daemon_by(SUBS, &["-s", option, "-p", "nuke_limit=1000"])
}

/// Purges by tags. Returns the number of objects in memory that it has found.
fn purge(client: &mut Client, method: &str, tags: &str) -> u16 {
    ask(client, method, "/", &format!("tags: {tags}\r\n")).status - 200
}

/// Returns the versions of all pages. Those that are gone have the newest.
fn check(client: &mut Client, newest: usize, is_gone: impl Fn(u64) -> bool) {
    let mut stayed = 0;
    for n in 0..PAGES {
        let found = version(client, n);
        assert!(!is_gone(n) || found == newest, "{n} came back as {found}");
        stayed += u64::from(found != newest && !is_gone(n));
    }
    let expected = (0..PAGES).filter(|&n| !is_gone(n)).count() as u64;
    assert!(stayed * 100 >= expected * 98, "{stayed} of {expected} have stayed");
}

#[test]
fn purges_by_tags_survive_the_end_of_all_processes() {
    let (pages, place) = (Pages::start(), Place::new("tags"));
    let option = place.option(",size=128m,memory=32m");
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    read_all(&mut client, 0..PAGES);
    kill_all(daemon);

    // All objects have survived, and are on the disk alone. The purge is answered, and everything ends.
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    assert_eq!(purge(&mut client, "PURGE", "seventh3"), 0);
    assert_eq!(purge(&mut client, "PURGE", "page/8, page/9"), 0);
    kill_now(daemon);
    pages.version.store(2, Ordering::SeqCst);
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    let is_gone = |n: u64| n % 7 == 3 || n == 8 || n == 9;
    check(&mut client, 2, is_gone);
    // In memory, and on the disk: the tags were read from there.
    thread::sleep(Duration::from_millis(2500));
    pages.version.store(3, Ordering::SeqCst);
    assert_eq!(purge(&mut client, "PURGE", "seventh4"), PAGES as u16 / 7);
    assert_eq!(purge(&mut client, "SOFT", "seventh5"), PAGES as u16 / 7);
    kill_now(daemon);
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    for n in 0..PAGES {
        let found = version(&mut client, n);
        let expected = if [4, 5].contains(&(n % 7)) { 3 } else { 1 + usize::from(is_gone(n)) };
        assert!(found == expected || found == 3, "{n}: {found} instead of {expected}");
    }
    // New versions with purged tags stay.
    kill_all(daemon);
    pages.version.store(4, Ordering::SeqCst);
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    check(&mut client, 4, |_| false);
    assert_eq!(purge(&mut client, "PURGE", "all"), PAGES as u16);
    kill_now(daemon);
    let daemon = start(&pages, &option);
    check(&mut connect(&daemon), 4, |_| true);
}

#[test]
fn purges_while_the_index_is_read_and_when_memory_is_short_hold() {
    let (pages, place) = (Pages::start(), Place::new("short-tags"));
    let option = place.option(",size=256m,memory=16m");
    let mut daemon = start(&pages, &option);
    store_all(&daemon, &mut connect(&daemon), 0..PAGES);
    for round in 2..6 {
        kill_all(daemon);
        pages.version.store(round, Ordering::SeqCst);
        daemon = pages.daemon_at_once(SUBS, &["-s", &option, "-p", "nuke_limit=1000"]);
        let mut client = connect(&daemon);
        purge(&mut client, "PURGE", &format!("seventh{round}"));
        assert_eq!(version(&mut client, round as u64), round);
        wait_for_index(&mut daemon);
        let before = pages.requests();
        for n in (0..PAGES).filter(|&n| n % 7 == round as u64) {
            assert_eq!(version(&mut client, n), round, "{n} came back");
        }
        assert!(pages.requests() - before >= PAGES as usize / 7 - 1);
        // The others pass through the memory.
        let lost = (0..PAGES).filter(|&n| n % 7 > round as u64 && version(&mut client, n) != 1).count();
        assert!(lost <= 2, "{lost} others were lost in round {round}");
    }
}

/// A worker that is replaced during purges: both apply them.
#[test]
fn purges_by_tags_reach_the_disk_of_the_next_worker() {
    let (pages, place) = (Pages::start(), Place::new("next-tags"));
    let option = place.option(",size=64m,memory=32m");
    let mut daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    read_all(&mut client, 0..50);
    wait_for_writes(&daemon);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(purge(&mut client, "PURGE", "seventh2"), 7);
    let worker = daemon.worker();
    signal(worker, "-KILL");
    assert!(until(|| daemon.worker() != worker && Client::connect(daemon.address).is_ok()));
    wait_for_index(&mut daemon);
    pages.version.store(2, Ordering::SeqCst);
    let mut client = connect(&daemon);
    for n in 0..50 {
        assert_eq!(version(&mut client, n), if n % 7 == 2 { 2 } else { 1 }, "{n}");
    }
}

#[test]
fn objects_with_many_tags_and_long_tags_are_purged_by_each() {
    let (pages, place) = (Pages::start(), Place::new("many-tags"));
    let option = place.option(",size=64m,memory=32m");
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    let many: Vec<String> = (0..1100).map(|n| format!("t{n}")).collect();
    let long = |end: &str| format!("{}{end}", "x".repeat(7000));
    let lists = [many.join(" "), many.join(","), long("a"), long("b"), format!(",, {} ,", "y".repeat(6000))];
    for (n, list) in (10..).zip(&lists) {
        assert_eq!(ask(&mut client, "GET", &format!("/{n}"), &format!("many: {list}\r\n")).status, 200);
    }
    kill_all(daemon);
    pages.version.store(2, Ordering::SeqCst);
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    for tags in ["t1100", "t", "x", "y", &long(""), &long("aa"), "all"] {
        purge(&mut client, "PURGE", tags);
    }
    assert!((10..15).all(|n| version(&mut client, n) == 1), "none of these tags is theirs");
    kill_now(daemon);
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    purge(&mut client, "PURGE", "t1099");
    purge(&mut client, "PURGE", &long("a"));
    kill_now(daemon);
    let daemon = start(&pages, &option);
    let mut client = connect(&daemon);
    let versions: Vec<usize> = (10..15).map(|n| version(&mut client, n)).collect();
    assert_eq!(versions, [2, 2, 2, 1, 1]);
}
