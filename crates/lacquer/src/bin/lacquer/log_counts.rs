//! The file with the counts of the access log, from which metrics are made.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lacquer_cli::access_log::{Counts, FILE};

/// The file. It is removed with the value.
pub struct LogCounts {
    path: PathBuf,
    file: File,
    published: Counts,
}

impl LogCounts {
    /// Makes the file in a working directory. Unless this is the first writer of the log, it continues the counts of the one
    /// before.
    pub fn open(directory: &Path, is_first: bool) -> io::Result<LogCounts> {
        let path = directory.join(FILE);
        let before = if is_first { None } else { Counts::read(directory) };
        let published = before.unwrap_or_default();
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        // The process that serves metrics may be another user's.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all_at(published.text().as_bytes(), 0)?;
        Ok(LogCounts { path, file, published })
    }

    pub fn counts(&self) -> Counts {
        self.published
    }

    /// Writes the counts if they have changed.
    pub fn publish(&mut self, counts: Counts) {
        if counts != self.published && self.file.write_all_at(counts.text().as_bytes(), 0).is_ok() {
            self.published = counts;
        }
    }
}

impl Drop for LogCounts {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use lacquer_testing::Folder;

    use super::*;

    #[test]
    fn later_writers_continue_the_counts() {
        let folder = Folder::new("counts");
        let read = || Counts::read(&folder);
        let mut first = LogCounts::open(&folder, true).expect("it is writable");
        let counts = Counts { written: 12, dropped: 3, missed: 4, earlier: 0 };
        first.publish(counts);
        assert_eq!(read(), Some(counts));
        // A killed process removes nothing.
        std::mem::forget(first);
        let later = LogCounts::open(&folder, false).expect("it is writable");
        assert_eq!((later.counts(), read()), (counts, Some(counts)));
        drop(later);
        assert_eq!((read(), folder.join(FILE).exists()), (None, false));
        // Another process may write there.
        for strange in ["1 2 3 4".repeat(1 << 20), "\u{0}".repeat(80), String::new()] {
            folder.file(FILE, &strange);
            assert_eq!(read(), None);
            let anew = LogCounts::open(&folder, false).expect("it is writable");
            assert_eq!(anew.counts(), Counts::default());
        }
    }
}
