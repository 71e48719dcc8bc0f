//! The folder of an engine's shared memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lacquer_shm::vsm::CHILD_DIRNAME;

const PREFIX: &str = "lacquer-test-";

/// A new folder, which is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> io::Result<Folder> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent().join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir_all(path.join(CHILD_DIRNAME))?;
        Ok(Folder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next start removes what remains.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the folder for the folders of engines. Files on tmpfs are faster.
fn parent() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Removes the folders of processes that were killed.
pub fn remove_leftovers() {
    remove(|process| !Path::new("/proc").join(process).exists());
}

/// Removes the folders of this process, whose engines cannot be stopped.
pub fn remove_own() {
    let own = std::process::id().to_string();
    remove(|process| process == own);
}

fn remove(is_unused: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(parent()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_number = |process: &&str| !process.is_empty() && process.bytes().all(|b| b.is_ascii_digit());
        if process.filter(is_number).is_some_and(&is_unused) {
            // Folders of other users remain.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
