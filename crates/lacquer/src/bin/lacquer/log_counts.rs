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
        let before = if is_first { None } else { fs::read_to_string(&path).ok() };
        let published = before.and_then(|text| Counts::parse(&text)).unwrap_or_default();
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
    use super::*;

    #[test]
    fn later_writers_continue_the_counts() {
        let folder = std::env::temp_dir().join(format!("lacquer-counts-{}", std::process::id()));
        fs::create_dir(&folder).expect("the name is free");
        let read = || fs::read_to_string(folder.join(FILE)).ok().and_then(|text| Counts::parse(&text));
        let mut first = LogCounts::open(&folder, true).expect("it is writable");
        let counts = Counts { written: 12, dropped: 3, missed: 4, earlier: 0 };
        first.publish(counts);
        assert_eq!(read(), Some(counts));
        // A killed process removes nothing.
        std::mem::forget(first);
        let later = LogCounts::open(&folder, false).expect("it is writable");
        assert_eq!((later.counts(), read()), (counts, Some(counts)));
        drop(later);
        assert_eq!(read(), None);
        fs::remove_dir(&folder).expect("it is empty");
    }
}
