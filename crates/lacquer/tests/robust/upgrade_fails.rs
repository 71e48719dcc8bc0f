//! Upgrades whose last step fails, and upgrades in states that a new daemon would refuse.

use std::fs;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{children, signal};
use lacquer_testing::slots::shared_slot;
use lacquer_testing::{LONGEST_POLL, until};

use crate::upgrade::{Upgradable, body, origin};

const PAGES: u64 = 60;

/// Kills the new worker as soon as it exists. Returns whether the upgrade has failed; otherwise the worker was ready before.
fn fails(it: &mut Upgradable) -> bool {
    let manager = it.daemon.manager();
    let before = children(manager);
    let is_new_worker = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        !before.contains(pid) && command.windows(14).any(|part| part == b"--worker-link=")
    };
    signal(manager, "-USR2");
    let start = Instant::now();
    let worker = loop {
        if let Some(worker) = children(manager).into_iter().find(is_new_worker) {
            break worker;
        }
        assert!(start.elapsed() < LONGEST_POLL, "{}", it.daemon.stderr());
        std::thread::sleep(Duration::from_micros(200));
    };
    signal(worker, "-KILL");
    it.daemon.banner();
    let shown = it.daemon.ok("upgrade.show");
    assert!(shown.starts_with("Upgraded") || shown.contains("but not the worker"), "{shown}");
    !shown.starts_with("Upgraded")
}

/// The old worker serves hits from memory, purges are answered, and no purged page comes back.
#[test]
fn a_new_worker_that_dies_leaves_the_old_one_without_its_disk() {
    let _slot = shared_slot();
    for min in ["0", "1M"] {
        let (origin, _gate) = origin();
        let store = std::env::temp_dir().join(format!("lacquer-upgrade-fails-{}.store", std::process::id()));
        let storage = format!("disk,{},size=64M,memory=16M,min={min}", store.display());
        let mut it = Upgradable::start("fails", &origin, &["-s", &storage]);
        let address = it.daemon.address;
        let fetched = |n: u64| {
            let before = origin.requests();
            assert!(get(address, &format!("/{n}")).expect("a response").body == body(n), "page {n}");
            origin.requests() - before
        };
        let mut worker = it.daemon.worker();
        (0..PAGES).for_each(|n| assert_eq!(fetched(n), 1));
        while !fails(&mut it) {
            assert!(until(|| it.daemon.ok("status").contains("running") && it.daemon.worker() != worker));
            it.settle();
            worker = it.daemon.worker();
            (0..PAGES).for_each(|n| {
                fetched(n);
            });
        }
        assert_eq!(it.daemon.worker(), worker);
        let misses: usize = (0..PAGES).map(fetched).sum();
        assert!(misses == 0 || min == "0" && misses < PAGES as usize, "{misses}: {}", it.daemon.stderr());
        it.daemon.ok("ban req.url == /5");
        assert_eq!((fetched(5), fetched(5), fetched(6)), (1, 0, 0));
        it.daemon.ok("ban req.url == /6");
        it.daemon.ok("stop");
        it.daemon.ok("start");
        assert_eq!((fetched(6), fetched(6)), (1, 0), "it was banned");
        it.upgrade();
        assert_eq!(fetched(6), 0);
        drop(it);
        let _ = fs::remove_file(&store);
    }
}

/// The parameter may have been set after the programs were loaded, which an upgrade loads again.
#[test]
fn more_programs_than_max_vcl_are_kept() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let mut it = Upgradable::start("max-vcl", &origin, &[]);
    for name in ["a", "b", "c"] {
        it.daemon.ok(&format!("vcl.inline {name} \"vcl 4.1; backend default none;\""));
    }
    it.daemon.ok("param.set max_vcl_handling 2");
    it.daemon.ok("param.set max_vcl 2");
    assert_eq!(it.daemon.cli("vcl.inline d \"vcl 4.1; backend default none;\"").0, 300);
    it.upgrade();
    let list = it.daemon.ok("vcl.list");
    assert!(
        ["a", "b", "c"].iter().all(|name| list.lines().any(|line| line.ends_with(&format!(" {name}")))),
        "{list}"
    );
    assert_eq!(it.daemon.cli("vcl.inline d \"vcl 4.1; backend default none;\"").0, 300);
}
