//! The file with the process id of a daemon, which holds a lock on it while it runs.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// Its name in the working directory.
pub const FILE: &str = "_.pid";

/// Returns whether a process holds the lock of a file with a process id.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    match File::open(path)?.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether a daemon uses a working directory.
pub fn is_used(directory: &Path) -> bool {
    is_locked(&directory.join(FILE)).unwrap_or(false)
}
