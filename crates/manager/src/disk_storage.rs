//! `-s disk`: a block store on a device or in a file, with memory in front of it. The manager opens and locks it.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lacquer_cli::link::DiskConfig;
use lacquer_disk::{
    Aligned, BLOCK, Blocks, FileDevice, LEAST_SIZE, Layout, OpenError, open_file, path_of, reserve,
};
use lacquer_params::number::parse_bytes;

use crate::complain::{Complain, Level};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::secret;
use crate::shm::now;

/// The default of `memory=`.
const MEMORY: u64 = 256 << 20;
/// The least memory.
const LEAST_MEMORY: u64 = 16 << 20;
/// The beginning of the marker's name.
const MARKER: &str = "_.disk-";
/// The length of the beginning of a device that must be empty.
const CHECKED: u64 = 1 << 20;

/// The arguments of `-s disk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskArguments {
    path: PathBuf,
    size: Option<u64>,
    min: u64,
    max: u64,
    memory: u64,
}

impl DiskArguments {
    /// Parses the words after the method.
    pub fn parse(words: &[String]) -> Outcome<Self> {
        let Some((path, options)) = words.split_first().filter(|(path, _)| !path.is_empty()) else {
            return Err(Fault::usage("(-sdisk) path is mandatory"));
        };
        let mut this = Self { path: PathBuf::from(path), size: None, min: 0, max: u64::MAX, memory: MEMORY };
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let bytes = || {
                parse_bytes(value, None)
                    .map_err(|fault| Fault::usage(format!("(-sdisk) {name} \"{value}\": {fault}")))
            };
            match name {
                "size" => this.size = Some(bytes()?),
                "min" => this.min = bytes()?,
                "max" => this.max = bytes()?,
                "memory" => this.memory = bytes()?,
                _ => {
                    return Err(Fault::usage(format!(
                        "(-sdisk) unknown argument \"{option}\"; known are size=, memory=, min= and max="
                    )));
                }
            }
        }
        if this.memory < LEAST_MEMORY {
            return Err(Fault::usage("(-sdisk) memory= is too small; the least is 16M"));
        }
        if this.min > this.max {
            return Err(Fault::usage("(-sdisk) min= is larger than max="));
        }
        if this.size.is_some_and(|size| size < LEAST_SIZE) {
            return Err(Fault::usage("(-sdisk) size= is too small; the least is 16M"));
        }
        Ok(this)
    }

    /// Returns the size of the memory in front of the store.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Opens and locks the store of the storage with this name. The marker is in the current
    /// directory. Creates the store in a file that does not exist or is empty, and on an empty device.
    pub fn open(&self, name: &str, complain: &Complain) -> Outcome<DiskFile> {
        let path = path_of(&self.path);
        let fault = |text: &dyn Display| about(&path, text);
        if self.size.is_none() && !path.exists() {
            return Err(fault(&"there is no store; add size=, such as size=100G, to create one"));
        }
        let io = |error: &std::io::Error| match error.raw_os_error() {
            Some(_) => fault(&os_error_text(error)),
            None => fault(error),
        };
        let file = open_file(&path, self.size.is_some()).map_err(|error| io(&error))?;
        let device = device(&file).map_err(|error| io(&error))?;
        match Layout::open(&device) {
            Ok(layout) => {
                let planned = self.size.and_then(|size| Layout::plan(size, 0, 0.0).ok());
                if planned.is_some_and(|planned| planned.size() != layout.size()) {
                    let text = format!(
                        "(-sdisk) {}: the store has {} bytes; size= is for new stores",
                        path.display(),
                        layout.size()
                    );
                    complain.report(Level::Info, &text);
                }
            }
            Err(OpenError::Empty) => self.create(&path, &file)?,
            Err(error) => return Err(fault(&error)),
        }
        let (min, max) = (self.min, self.max);
        let marker_name = format!("{MARKER}{name}");
        let marker = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&marker_name);
        let marker = marker.map_err(|error| {
            Fault::plain(format!("(-sdisk) cannot create the file {marker_name}: {}", os_error_text(&error)))
        })?;
        let (fd, marker_fd) = (file.as_raw_fd(), marker.as_raw_fd());
        let config = DiskConfig { path, fd, marker_fd, min, max };
        Ok(DiskFile { config, file, marker })
    }

    /// Continues with a store that is open and locked.
    pub fn adopt(&self, file: OwnedFd, marker: OwnedFd) -> DiskFile {
        let (path, file, marker) = (path_of(&self.path), File::from(file), File::from(marker));
        let (fd, marker_fd) = (file.as_raw_fd(), marker.as_raw_fd());
        DiskFile { config: DiskConfig { path, fd, marker_fd, min: self.min, max: self.max }, file, marker }
    }

    fn create(&self, path: &Path, file: &File) -> Outcome<()> {
        let fault = |text: &dyn Display| about(path, text);
        let found = device(file).map_err(|error| fault(&error))?;
        if !is_blank(&found) {
            return Err(fault(&OpenError::Foreign));
        }
        if let Some(size) = self.size.filter(|&size| found.size() < size) {
            reserve(file, size)
                .map_err(|error| fault(&format!("cannot reserve {size} bytes: {}", os_error_text(&error))))?;
        }
        let device = device(file).map_err(|error| fault(&error))?;
        let size = self.size.unwrap_or(u64::MAX).min(device.size());
        let mut id = [0; 8];
        secret::random(&mut id).map_err(|error| fault(&os_error_text(&error)))?;
        let layout = Layout::plan(size, u64::from_le_bytes(id), now()).map_err(|error| fault(&error))?;
        layout.create(&device).map_err(|error| fault(&os_error_text(&error)))
    }
}

fn about(path: &Path, text: &dyn Display) -> Fault {
    Fault::plain(format!("(-sdisk) {}: {text}", path.display()))
}

fn device(file: &File) -> std::io::Result<FileDevice> {
    FileDevice::new(file.try_clone()?)
}

/// Returns whether the beginning of a device, where file systems keep their marks, contains only zeros.
fn is_blank(device: &FileDevice) -> bool {
    let mut buffer = Aligned::new((device.size() / BLOCK * BLOCK).min(CHECKED) as usize);
    device.read(0, buffer.bytes_mut()).is_ok() && buffer.bytes().iter().all(|&byte| byte == 0)
}

/// An open store.
#[derive(Debug)]
pub struct DiskFile {
    config: DiskConfig,
    file: File,
    /// Contains the id of a store that failed and could not be made invalid.
    marker: File,
}

impl DiskFile {
    /// Returns the description for the worker.
    pub fn config(&self) -> &DiskConfig {
        &self.config
    }

    /// Returns the numbers of the descriptors of the device and of its marker.
    pub fn numbers(&self) -> (RawFd, RawFd) {
        (self.config.fd, self.config.marker_fd)
    }

    /// Returns the descriptors that the worker inherits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.file.as_fd(), self.marker.as_fd()].into_iter()
    }

    /// Drops the contents of a store that failed while it was in use: purges may have been answered that it has not
    /// recorded. Returns false if that is impossible; the store must then not be used.
    pub fn is_usable(&self, complain: &Complain) -> bool {
        let mut id = [0; 8];
        if self.marker.read_exact_at(&mut id, 0).is_err() {
            return true;
        }
        let path = self.config.path.display();
        let renewed = device(&self.file).map_err(OpenError::from).and_then(|device| {
            let layout = Layout::open(&device)?;
            let is_meant = layout.id == u64::from_le_bytes(id);
            if is_meant {
                layout.renew(&device, now())?;
            }
            self.marker.set_len(0)?;
            Ok(is_meant)
        });
        match renewed {
            Ok(is_meant) => {
                if is_meant {
                    complain.report(
                        Level::Info,
                        &format!("(-sdisk) {path}: the disk had failed; it starts empty"),
                    );
                }
                true
            }
            Err(error) => {
                let text = format!("(-sdisk) {path}: the disk has failed: {error}; only memory is used");
                complain.report(Level::Error, &text);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Outcome<DiskArguments> {
        let words: Vec<String> = words.split(',').map(str::to_owned).collect();
        DiskArguments::parse(&words)
    }

    #[test]
    fn arguments() {
        let parsed = parse("/dev/x,size=1G,min=4k,max=10m,memory=64m").unwrap();
        let expected = DiskArguments {
            path: "/dev/x".into(),
            size: Some(1 << 30),
            min: 4 << 10,
            max: 10 << 20,
            memory: 64 << 20,
        };
        assert_eq!(parsed, expected);
        for (words, text) in [
            ("", "path is mandatory"),
            ("/x,10G", "unknown argument \"10G\""),
            ("/x,size=1x", "size \"1x\""),
            ("/x,size=1m", "the least is 16M"),
            ("/x,memory=1m", "the least is 16M"),
            ("/x,min=2,max=1", "larger than max="),
        ] {
            let fault = parse(words).unwrap_err().to_string();
            assert!(fault.contains(text), "{fault}");
        }
    }
}
