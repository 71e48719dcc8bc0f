//! Devices of the system: raw devices, and files. Reads and writes go past the page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::blocks::{BLOCK, Blocks};

/// The name of the file in a directory.
const FILE_NAME: &str = "lacquer.store";
/// The number of attempts to get a device that is in use, and the pause after each.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// A file or raw device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    size: u64,
}

/// Returns the file of a store: in a directory, that with the usual name.
pub fn path_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() }
}

/// Opens the file or device of a store, and locks it for this process and those that inherit the descriptor. With
/// `create`, a missing file is created, empty.
pub fn open_file(path: &Path, create: bool) -> io::Result<File> {
    let found = path.metadata().ok().filter(|found| found.file_type().is_block_device());
    let is_device = found.is_some();
    if found.is_some_and(|found| is_read_only(found.rdev())) {
        let text = "it cannot be written: the device is read-only; make it writable (blockdev --setrw)";
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create && !is_device).mode(0o600);
    // A device is in use by one process or one file system at a time.
    let exclusive = if is_device { OFlags::EXCL } else { OFlags::empty() };
    let open = |flags: OFlags| options.clone().custom_flags(flags.bits() as i32).open(path);
    let open_once = || match open(exclusive | OFlags::DIRECT) {
        // The file system has no direct I/O.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => open(exclusive),
        other => other,
    };
    let file = patiently(open_once, |error| error.kind() == io::ErrorKind::ResourceBusy);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            io::Error::new(error.kind(), "the device is in use: it is mounted, or another process uses it")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => io::Error::new(
            error.kind(),
            format!("it cannot be written ({error}); change its permissions, or make the device writable"),
        ),
        _ => error,
    })?;
    let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
    patiently(lock, |error| *error == Errno::WOULDBLOCK).map_err(|error| match error {
        Errno::WOULDBLOCK => {
            io::Error::new(io::ErrorKind::WouldBlock, "another process uses this store; end it first")
        }
        other => other.into(),
    })?;
    Ok(file)
}

/// Tries again for five seconds while the device is in use: a process that was killed ends when its writes have ended.
fn patiently<T, E>(attempt: impl Fn() -> Result<T, E>, is_in_use: impl Fn(&E) -> bool) -> Result<T, E> {
    for _ in 0..ATTEMPTS {
        match attempt() {
            Err(error) if is_in_use(&error) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    attempt()
}

/// Returns whether the system has marked a device as read-only. Opening it for writing succeeds nevertheless.
fn is_read_only(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mark = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    mark.is_ok_and(|text| text.trim() == "1")
}

/// Gives a file this size, and reserves the space. On failure, the file keeps its size. A device keeps its size anyway.
pub fn enlarge(file: &File, size: u64) -> io::Result<()> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(());
    }
    lacquer_system::reserve(file, 0, size).and_then(|()| file.set_len(size)).inspect_err(|_| {
        // This also returns the blocks beyond the end.
        let _ = file.set_len(found.len());
    })
}

impl FileDevice {
    /// Takes an open file or device.
    pub fn new(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this is neither a file nor a block device",
            ));
        }
        let size = (&file).seek(SeekFrom::End(0))?;
        Ok(Self { file, size: size / BLOCK * BLOCK })
    }
}

impl Blocks for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
