//! The identity of a file, by which an open file is recognized at its path.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, statat};

/// The device and the inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns that of an open file.
    pub(crate) fn of(file: &File) -> Option<Self> {
        file.metadata().ok().map(|found| Self::from(&found))
    }

    /// Returns that of the file at a path, or of the target if it is a link.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self::from(&found))
    }

    /// Returns that of the current directory, also without the right to search it.
    pub(crate) fn of_current_directory() -> Option<Self> {
        let found = statat(CWD, "", AtFlags::EMPTY_PATH).ok()?;
        Some(Self { device: found.st_dev, inode: found.st_ino })
    }

    /// Returns whether the file is at a path.
    pub(crate) fn is_at(self, path: &Path) -> bool {
        Self::at(path) == Some(self)
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}
