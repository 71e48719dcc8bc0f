//! The command `lacquer storage`: what a user does with a store, and files that are no sound store.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use lacquer_testing::Folder;

fn storage(action: &str, path: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
    command.args(["storage", action]).arg(path).args(options);
    command.output().expect("the program can be started")
}

/// Checks that the command succeeds and prints these words.
fn accepts(action: &str, path: &Path, options: &[&str], words: &[&str]) {
    let output = storage(action, path, options);
    let (path, text) = (path.display(), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{action} {path}: {output:?}");
    assert!(words.iter().all(|word| text.contains(word)), "{action} {path}: {text}");
}

/// Checks that the command fails with a message that contains these words, and does not panic.
fn refuses(action: &str, path: &Path, options: &[&str], words: &[&str]) {
    let output = storage(action, path, options);
    let (path, text) = (path.display(), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{action} {path}: {output:?}");
    assert!(!text.contains("panicked"), "{action} {path}: {text}");
    assert!(words.iter().all(|word| text.contains(word)), "{action} {path}: {text}");
}

#[test]
fn a_store_is_created_shown_and_checked() {
    let folder = Folder::new("storage-user");
    accepts("create", &folder, &["--size", "16M"], &["lacquer.store", "segments"]);
    accepts("show", &folder, &[], &["format version 1", "objects   0"]);
    accepts("check", &folder.join("lacquer.store"), &[], &["all checksums are correct"]);
    refuses("create", &folder, &["--size", "16M"], &["there is a store already", "--force"]);
    accepts("create", &folder, &["--size", "16M", "--force"], &["lacquer.store"]);
}

#[test]
fn impossible_requests_leave_no_file() {
    let folder = Folder::new("storage-requests");
    let path = folder.join("new");
    refuses("create", &path, &[], &["needs a size", "--size"]);
    refuses("create", &path, &["--size", "many"], &["--size many"]);
    refuses("show", &path, &[], &["new"]);
    refuses("check", &path, &[], &["new"]);
    assert!(!path.exists());
    refuses("create", &path, &["--size", "1M"], &["too small"]);
    assert!(!path.exists());
    refuses("create", Path::new("/dev/null"), &["--size", "16M"], &["neither a file nor a block device"]);
}

#[test]
fn other_data_is_not_overwritten() {
    let folder = Folder::new("storage-foreign");
    let mut late = vec![0; 1 << 20];
    late[1080] = 0x53;
    for (name, contents) in [("text", &b"a diary"[..]), ("short", &[1]), ("late", &late)] {
        let path = folder.file(name, contents);
        refuses("create", &path, &["--size", "16M"], &["not a Lacquer store"]);
        assert!(fs::read(&path).expect("the file is there") == contents, "{name} has changed");
        refuses("show", &path, &[], &[name]);
        refuses("check", &path, &[], &[name]);
    }
}

#[test]
fn damaged_stores_are_refused_with_the_reason() {
    let folder = Folder::new("storage-damaged");
    let path = folder.join("store");
    let damage = |places: &[u64]| {
        let file = File::options().write(true).open(&path).expect("the store is there");
        for &at in places {
            file.write_all_at(&[7], at).expect("it can be written");
        }
    };
    let create = || accepts("create", &path, &["--size", "16M", "--force"], &[]);
    create();
    damage(&[40]);
    accepts("show", &path, &[], &["format version 1"]);
    damage(&[4096 + 40]);
    refuses("show", &path, &[], &["superblock", "damaged", "--force"]);
    create();
    damage(&[8, 4096 + 8]);
    refuses("check", &path, &[], &["format version 7", "reads versions up to 2"]);
    create();
    File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 20)).expect("it can be cut");
    refuses("show", &path, &[], &["needs", "restore the size"]);
}

#[test]
fn a_store_in_use_is_refused() {
    let folder = Folder::new("storage-used");
    accepts("create", &folder, &["--size", "16M"], &[]);
    let path = folder.join("lacquer.store");
    let user = lacquer_disk::open_file(&path, false).expect("nobody uses it");
    for action in ["show", "check"] {
        refuses(action, &path, &[], &["another process uses this store"]);
    }
    refuses("create", &path, &["--force"], &["another process uses this store"]);
    drop(user);
    accepts("show", &path, &[], &[]);
}
