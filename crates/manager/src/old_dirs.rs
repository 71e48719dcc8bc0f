//! The segment directories of workers that have ended. They are renamed at once, and a thread removes them: on a busy file
//! system each of their files can take milliseconds, for which the next worker would wait.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::{SystemTime, UNIX_EPOCH};

use lacquer_shm::vsm;

/// The beginning of the names of renamed directories. The rest is a time.
const PREFIX: &str = "_.vsm_old.";

/// Returns the directories of the working directory, which is the current one, that were renamed and still exist.
pub(crate) fn all() -> Vec<PathBuf> {
    let entries = fs::read_dir(".").into_iter().flatten().flatten();
    let is_old = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(PREFIX));
    entries.map(|entry| entry.file_name()).filter(|name| is_old(name)).map(PathBuf::from).collect()
}

/// Renames a directory, if it exists, and removes it: at once if `is_urgent`, because the room that it occupies is needed,
/// and otherwise soon. Must be called with the rights for that.
pub(crate) fn retire(path: &Path, is_urgent: bool) {
    if !is_urgent {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        match fs::rename(path, format!("{PREFIX}{now:x}")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            _ if all().is_empty() => return,
            // The thread keeps the rights of this one.
            _ if Builder::new().name("remove-old".to_owned()).spawn(remove_all).is_ok() => return,
            _ => {}
        }
    }
    let _ = vsm::remove_dir(path);
    remove_all();
}

/// Removes what was renamed.
pub(crate) fn remove_all() {
    for path in all() {
        // Another thread may remove it at the same time.
        let _ = vsm::remove_dir(&path);
    }
}
