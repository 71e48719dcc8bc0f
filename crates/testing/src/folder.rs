//! A temporary folder for the files of a test.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of its own, which is removed at the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder. Its path contains the name.
    pub fn new(name: &str) -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lacquer-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder can be created");
        Folder(path)
    }

    /// Writes a file, and the folders of its path. Returns the whole path.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("it can be created");
        fs::write(&path, contents).expect("the file can be written");
        path
    }

    /// Returns the text of a file, which is empty if there is no such file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.join(name)).unwrap_or_default()
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a program, and creates the folders of its path. The copy can be started at once.
///
/// Another process writes it: a process that another test starts meanwhile would inherit our open file for a moment,
/// and the kernel starts no program that is open for writing.
pub fn copy_program(from: &Path, to: &Path) {
    let mut install = Command::new("install");
    let done =
        install.args(["-D", "-m", "755", "--"]).args([from, to]).status().expect("install can be started");
    assert!(done.success(), "{} cannot be copied to {}", from.display(), to.display());
}

/// Writes a program, which can be started at once as a copy can.
pub fn write_program(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).expect("a file can be written");
    copy_program(&draft, path);
    fs::remove_file(draft).expect("it is ours");
}
