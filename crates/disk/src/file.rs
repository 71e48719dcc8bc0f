//! Devices of the system: raw devices, and files. Reads and writes go past the page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};

use crate::blocks::{BLOCK, Blocks};

/// The name of the file in a directory.
const FILE_NAME: &str = "lacquer.store";

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
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600);
    let direct = options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    let file = match direct {
        // The file system has no direct I/O.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => options.open(path)?,
        other => other?,
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => {
            io::Error::new(io::ErrorKind::WouldBlock, "another process uses this store; end it first")
        }
        other => other.into(),
    })?;
    Ok(file)
}

/// Gives a file this size, and reserves the space. On failure, the file keeps its size. A device keeps its size anyway.
pub fn reserve(file: &File, size: u64) -> io::Result<()> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(());
    }
    let reserved = match fallocate(file, FallocateFlags::empty(), 0, size) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size),
        Err(error) => Err(error.into()),
    };
    reserved.inspect_err(|_| {
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
