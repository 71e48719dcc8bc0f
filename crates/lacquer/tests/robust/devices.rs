//! `-s disk` on raw devices: loop devices over files that are full, shortened, read-only or in use. These tests need root
//! and loop devices; without them, they print the reason and do nothing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;
use std::thread;

use lacquer_testing::daemon::{Daemon, is_root, program, refused};
use lacquer_testing::until;

use crate::disk::{Pages, Place, ask, connect, kill_all, read_all, store_all, version};
use crate::disk_waits::disk_counters;

const DEVICE: u64 = 64 << 20;

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A loop device, which is removed at the end.
pub(crate) struct LoopDevice(String);

impl LoopDevice {
    /// Returns `None` after printing the reason if there are no loop devices.
    pub(crate) fn over(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        if !is_root() {
            eprintln!("skipped: only root can use loop devices");
            return None;
        }
        let file = file.display().to_string();
        let made = run("losetup", &[options, &["--find", "--show", &file]].concat());
        made.map_err(|error| eprintln!("skipped: there are no loop devices: {error}")).ok().map(LoopDevice)
    }

    fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    pub(crate) fn option(&self) -> String {
        format!("disk,{},memory=16m", self.0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A process that has just ended may still be on the list of users.
        let detached = until(|| run("losetup", &["-d", &self.0]).is_ok());
        assert!(detached || thread::panicking(), "{} stays in use", self.0);
    }
}

/// A file system of a few megabytes, which is removed at the end.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    pub(crate) fn new(place: &Place, megabytes: u32) -> Option<SmallDisk> {
        SmallDisk::with(place, &format!("size={megabytes}m"))
    }

    /// Makes one whose memory is in units of 2 MB. A file system on a disk has large units only sometimes.
    pub(crate) fn with_large_pages(place: &Place, megabytes: u32) -> Option<SmallDisk> {
        SmallDisk::with(place, &format!("size={megabytes}m,huge=always"))
    }

    fn with(place: &Place, options: &str) -> Option<SmallDisk> {
        let path = place.0.join("small");
        fs::create_dir_all(&path).expect("a directory can be created");
        let target = path.display().to_string();
        if !is_root() {
            eprintln!("skipped: only root can mount a file system");
            return None;
        }
        let mounted = run("mount", &["-t", "tmpfs", "-o", options, "lacquer-test", &target]);
        mounted.map_err(|error| eprintln!("skipped: tmpfs cannot be mounted: {error}")).ok()?;
        Some(SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", &self.0.display().to_string()]);
    }
}

/// Creates a file of zeros without space.
pub(crate) fn sparse(path: &Path, size: u64) -> PathBuf {
    File::create(path).and_then(|file| file.set_len(size)).expect("a file can be created");
    path.to_owned()
}

fn storage(action: &str, path: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(program().with_file_name("lacquer"));
    command.args(["storage", action]).arg(path).args(options);
    command.output().expect("the program can be started")
}

pub(crate) fn create(device: &LoopDevice) {
    let output = storage("create", device.path(), &[]);
    assert!(output.status.success(), "{output:?}");
}

/// Starts a daemon that must refuse the store. Returns its line about that.
fn refusal(device: &LoopDevice) -> String {
    let text = refused(&["-s", &device.option()], "exec \"$@\"");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(&device.0)).collect();
    assert!(lines.len() == 1 && !text.contains("panicked"), "{text}");
    lines[0].to_owned()
}

/// Waits until the storage has a state. Returns its line of `storage.list`.
fn line_with(daemon: &mut Daemon, state: &str) -> String {
    let mut line = String::new();
    let has_state = until(|| {
        let list = daemon.ok("storage.list");
        list.lines().find(|line| line.contains(state)).unwrap_or_default().clone_into(&mut line);
        !line.is_empty()
    });
    assert!(has_state, "{}\n{}", daemon.ok("storage.list"), daemon.stderr());
    line
}

#[test]
fn a_raw_device_keeps_objects_over_the_end_of_all_processes() {
    let (pages, place) = (Pages::start(), Place::new("raw"));
    let Some(device) = LoopDevice::over(&sparse(&place.store(), DEVICE), &[]) else { return };
    create(&device);
    let mut daemon = pages.daemon(&device.option());
    let mut client = connect(&daemon);
    store_all(&daemon, &mut client, 0..300);
    let line = line_with(&mut daemon, "working");
    assert!(line.contains(&device.0), "{line}");
    kill_all(daemon);
    pages.version.store(2, Ordering::SeqCst);
    let mut daemon = pages.daemon(&device.option());
    let mut client = connect(&daemon);
    let hits = (0..300).filter(|&n| version(&mut client, n) == 1).count();
    assert!(hits >= 295, "{hits} hits: {}{}", daemon.stderr(), disk_counters(&daemon));
    for n in 0..20 {
        assert_eq!(ask(&mut client, "PURGE", &format!("/{n}"), "").status, 200);
    }
    let line = line_with(&mut daemon, "the oldest");
    assert!(!line.contains("errors"), "{line}");
    kill_all(daemon);
    let daemon = pages.daemon(&device.option());
    let mut client = connect(&daemon);
    (0..20).for_each(|n| assert_eq!(version(&mut client, n), 2, "{n} came back"));
    drop(daemon);
    let output = storage("check", device.path(), &[]);
    assert!(output.status.success(), "{output:?}");
}

/// The file behind the device has no room: writes fail.
#[test]
fn a_device_that_cannot_be_written_is_taken_out() {
    let (pages, place) = (Pages::start(), Place::new("written"));
    let Some(small) = SmallDisk::new(&place, 20) else { return };
    let Some(device) = LoopDevice::over(&sparse(&small.0.join("backing"), DEVICE), &[]) else { return };
    create(&device);
    let mut daemon = pages.daemon(&device.option());
    let mut client = connect(&daemon);
    let mut next = 0;
    let has_failed = until(|| {
        read_all(&mut client, next..next + 100);
        next += 100;
        daemon.stderr().contains("the disk is out of use")
    });
    assert!(has_failed, "after {next} pages: {}\n{}", daemon.ok("storage.list"), daemon.stderr());
    let line = line_with(&mut daemon, "failed");
    assert!(line.contains("write errors"), "{line}");
    assert!(daemon.logs(&format!("Storage s0: {}: the write at byte", device.0)), "{}", daemon.stderr());
    let json = daemon.ok("storage.list -j");
    assert!(json.contains("\"state\": \"failed\""), "{json}");
    // Memory serves, and purges are answered.
    read_all(&mut client, next..next + 50);
    assert_eq!(ask(&mut client, "PURGE", "/1", "").status, 200);
    // With room, the next worker uses the disk again, empty.
    run("mount", &["-o", "remount,size=100m", &small.0.display().to_string()]).expect("it can grow");
    pages.version.store(2, Ordering::SeqCst);
    daemon.ok("stop");
    daemon.ok("start");
    line_with(&mut daemon, "working");
    let mut client = connect(&daemon);
    (0..50).for_each(|n| assert_eq!(version(&mut client, n), 2, "{n} came back"));
}

/// The file behind the device becomes shorter: reads and writes fail.
#[test]
fn a_device_that_cannot_be_read_is_taken_out() {
    let (pages, place) = (Pages::start(), Place::new("read"));
    let backing = sparse(&place.store(), DEVICE);
    let Some(device) = LoopDevice::over(&backing, &[]) else { return };
    create(&device);
    let mut daemon = pages.daemon(&device.option());
    let mut client = connect(&daemon);
    for n in (0..900).filter(|n| n % 50 != 0) {
        version(&mut client, n);
    }
    // The memory begins empty.
    daemon.ok("stop");
    daemon.ok("start");
    line_with(&mut daemon, "working");
    let mut client = connect(&daemon);
    let cut = || File::options().write(true).open(&backing).and_then(|file| file.set_len(1 << 20));
    let has_failed = until(|| {
        for n in 0..200 {
            // A write makes the file longer again.
            cut().expect("it can be cut");
            // A long response may be cut off.
            if client.ask(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).is_err() {
                client = connect(&daemon);
            }
        }
        daemon.stderr().contains("the disk is out of use")
    });
    assert!(has_failed, "{}\n{}", daemon.ok("storage.list"), daemon.stderr());
    let line = line_with(&mut daemon, "failed");
    assert!(line.contains("read errors") || line.contains("write errors"), "{line}");
    assert!(daemon.logs("Storage s0: "), "{}", daemon.stderr());
    read_all(&mut client, 0..200);
}

#[test]
fn devices_that_cannot_be_used_are_refused_in_one_line() {
    let place = Place::new("devices");
    let backing = sparse(&place.store(), DEVICE);
    let Some(device) = LoopDevice::over(&backing, &["-r"]) else { return };
    let text = refusal(&device);
    assert!(text.contains("cannot be written"), "{text}");
    drop(device);

    let device = LoopDevice::over(&backing, &[]).expect("there was one");
    let output = storage("show", device.path(), &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no store"), "{output:?}");
    create(&device);
    let pages = Pages::start();
    let daemon = pages.daemon(&device.option());
    for text in [refusal(&device), message("check", &device, &[]), message("create", &device, &["--force"])] {
        assert!(text.contains("in use"), "{text}");
    }
    drop(daemon);
    drop(device);

    // It shrank.
    let device = LoopDevice::over(&backing, &["--sizelimit", "20971520"]).expect("there was one");
    let text = refusal(&device);
    assert!(text.contains("the device has 20971520 bytes") && text.contains("restore the size"), "{text}");
    drop(device);

    let file = File::options().write(true).open(&backing).expect("it is there");
    for at in [8, 4096 + 8] {
        file.write_all_at(&[9], at).expect("it can be written");
    }
    let device = LoopDevice::over(&backing, &[]).expect("there was one");
    let text = refusal(&device);
    assert!(text.contains("format version 9"), "{text}");
}

/// Returns the error of a command that must fail.
fn message(action: &str, device: &LoopDevice, options: &[&str]) -> String {
    let output = storage(action, device.path(), options);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_mounted_device_is_not_overwritten() {
    let place = Place::new("mounted");
    let Some(device) = LoopDevice::over(&sparse(&place.store(), DEVICE), &[]) else { return };
    if let Err(error) = run("mkfs.ext4", &["-q", &device.0]) {
        return eprintln!("skipped: there is no mkfs.ext4: {error}");
    }
    let text = message("create", &device, &[]);
    assert!(text.contains("not a Lacquer store"), "{text}");
    let target = place.0.join("mounted");
    fs::create_dir(&target).expect("a directory can be created");
    let target = target.display().to_string();
    if let Err(error) = run("mount", &[&device.0, &target]) {
        return eprintln!("skipped: it cannot be mounted: {error}");
    }
    let text = message("create", &device, &["--force"]);
    run("umount", &[&target]).expect("it was mounted");
    assert!(text.contains("in use"), "{text}");
}

#[test]
fn a_store_does_not_fit_into_a_full_file_system() {
    let place = Place::new("nospace");
    let Some(small) = SmallDisk::new(&place, 20) else { return };
    let option = format!("disk,{},size=64m", small.0.display());
    let text = refused(&["-s", &option], "exec \"$@\"");
    assert!(text.contains("cannot reserve 67108864 bytes"), "{text}");
    let output = storage("create", &small.0, &["--size", "64M"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("No space left"), "{text}");
    // A store that fits can be made afterwards.
    let output = storage("create", &small.0, &["--size", "16M"]);
    assert!(output.status.success(), "{output:?}");
}
