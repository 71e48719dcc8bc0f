//! `-s file`: memory over a file. The manager opens and locks the file, and reserves its blocks.

mod state;
mod survival;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lacquer_params::number::parse_bytes;
use rustix::fs::{FlockOperation, OFlags, flock, fstatfs, fstatvfs};
use rustix::io::Errno;

use crate::complain::{Complain, Level};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::workdir::is_tmpfs;

pub use survival::{Survival, join};

/// The smallest size of a storage.
const SMALLEST: u64 = 1 << 20;
/// The number of attempts to lock a file, and the pause after each: processes that were killed need some time to end.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// The arguments of `-s file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileArguments {
    pub path: PathBuf,
    /// The requested size. Without it, an existing file keeps its size.
    size: Option<u64>,
    size_text: String,
}

/// An open file, with its size.
#[derive(Debug)]
pub struct Opened {
    pub file: OwnedFd,
    pub size: u64,
    /// The files with which its objects survive the end of the daemon, and the table of records.
    pub survival: Option<(Survival, OwnedFd)>,
}

impl FileArguments {
    /// Parses the words after the method.
    pub fn parse(words: &[String]) -> Outcome<Self> {
        let field = |at: usize| words.get(at).map(String::as_str).filter(|text| !text.is_empty());
        if words.len() > 4 {
            return Err(Fault::usage("(-sfile) too many arguments"));
        }
        let path = field(0).ok_or_else(|| Fault::usage("(-sfile) path is mandatory"))?;
        if let Some(granularity) = field(2) {
            parse_bytes(granularity, None)
                .map_err(|fault| Fault::usage(format!("(-sfile) granularity \"{granularity}\": {fault}")))?;
        }
        if let Some(advice) = field(3)
            && !["normal", "random", "sequential"].contains(&advice)
        {
            return Err(Fault::usage(format!("(-s file) invalid advice: \"{advice}\"")));
        }
        let size = field(1).map(|text| size_of(text, "-sfile")).transpose()?;
        Ok(Self { path: PathBuf::from(path), size, size_text: field(1).unwrap_or_default().to_owned() })
    }

    /// Returns the requested size, or the smallest.
    pub fn least_size(&self) -> u64 {
        self.size.unwrap_or(SMALLEST)
    }

    /// Returns the files that the storage may make.
    pub fn files(&self) -> Vec<PathBuf> {
        if self.path.is_dir() { Vec::new() } else { survival::files(&self.path) }
    }

    /// Opens, locks and allocates the file, or creates it. With `survives`, a file with a name keeps its objects.
    pub fn open(&self, survives: bool, jail: &Jail, complain: &Complain) -> Outcome<Opened> {
        let _root = jail.raise();
        let (file, is_new) = open_file(&self.path)?;
        let opened = self.open_locked(file, survives, complain);
        if is_new && opened.is_err() {
            let _ = fs::remove_file(&self.path);
        }
        let opened = opened?;
        jail.give_to_worker(&opened.file, complain);
        Ok(opened)
    }

    fn open_locked(&self, file: File, survives: bool, complain: &Complain) -> Outcome<Opened> {
        let has_name = !self.path.is_dir();
        let is_locked = has_name && lock(&file, &self.path, complain)?;
        let size = self.file_size(&file)?;
        let fault = |e| Fault::plain(format!("(-sfile) allocation error: {}", os_error_text(&e)));
        let before = file.metadata().map_err(fault)?;
        allocate(&file, size).map_err(fault)?;
        let survival = if is_locked && survives {
            Some(Survival::open(&self.path, &before, size, complain)?)
        } else {
            None
        };
        Ok(Opened { file: file.into(), size, survival })
    }

    /// Returns the requested size or the size of the file, rounded down to blocks.
    fn file_size(&self, file: &File) -> Outcome<u64> {
        let found = file.metadata().map_or(0, |meta| meta.len());
        let system = fstatvfs(file).ok();
        let size = match self.size {
            None if found != 0 => found,
            None => return Err(Fault::usage("(-sfile) no size specified")),
            Some(size) => {
                if system.as_ref().is_some_and(|fs| size > fs.f_blocks.saturating_mul(fs.f_frsize)) {
                    let text = &self.size_text;
                    let fault = format!("(-sfile) size \"{text}\": larger than file system");
                    return Err(Fault::usage(fault));
                }
                size
            }
        };
        let block = system.map_or(4096, |fs| fs.f_bsize).max(4096);
        Ok(size - size % block)
    }

    /// Continues with the file of a storage that a worker uses. Returns the files beside it, unless it has no name.
    pub fn adopt(&self, file: &OwnedFd, size: u64, jail: &Jail, complain: &Complain) -> Option<Survival> {
        let _root = jail.raise();
        let inode = rustix::fs::fstat(file).ok()?.st_ino;
        let has_name = self.path.metadata().is_ok_and(|found| found.is_file() && found.ino() == inode);
        // An earlier program has not locked it.
        if !has_name || flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return None;
        }
        let adopted = Survival::adopt(&self.path, size);
        adopted.inspect_err(|fault| complain.report(Level::Error, fault.text())).ok()
    }
}

/// Parses a size. `context` names the option.
pub fn size_of(text: &str, context: &str) -> Outcome<u64> {
    let size = parse_bytes(text, None)
        .map_err(|fault| Fault::usage(format!("({context}) size \"{text}\": {fault}")))?;
    if size < SMALLEST {
        return Err(Fault::usage(format!(
            "({context}) size \"{text}\": too small, did you forget to specify M or G?"
        )));
    }
    Ok(size)
}

/// Opens or creates a file; in a directory, creates one without a name. Also returns whether a file with a name is new.
fn open_file(path: &Path) -> Outcome<(File, bool)> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    if let Ok(file) = options.clone().create_new(true).open(path) {
        return Ok((file, true));
    }
    let Ok(found) = fs::metadata(path) else {
        return Err(Fault::usage(format!("(-sfile) \"{shown}\" does not exist and could not be created")));
    };
    let opened = if found.is_dir() {
        options.custom_flags(OFlags::TMPFILE.bits() as i32).open(path)
    } else if found.is_file() {
        options.open(path)
    } else {
        return Err(Fault::usage(format!("(-sfile) \"{shown}\" is neither file nor directory")));
    };
    let opened = opened.map_err(|error| {
        Fault::usage(format!("(-sfile) \"{shown}\" could not open ({})", os_error_text(&error)))
    });
    opened.map(|file| (file, false))
}

/// Locks a file for this process and those that inherit the descriptor. Returns false if the file system has no locks.
fn lock(file: &File, path: &Path, complain: &Complain) -> Outcome<bool> {
    let shown = path.display();
    for attempt in 1..=ATTEMPTS {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if attempt < ATTEMPTS => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => break,
            Err(error) => {
                let why = os_error_text(&error.into());
                let text =
                    format!("(-sfile) {shown}: cannot be locked ({why}); its objects end with the daemon");
                complain.report(Level::Error, &text);
                return Ok(false);
            }
        }
    }
    Err(Fault::plain(format!("(-sfile) \"{shown}\" is in use by another process or storage; end it first")))
}

/// Sets the length of a file, and reserves its blocks.
fn allocate(file: &File, size: u64) -> io::Result<()> {
    let (found, system) = (file.metadata()?, fstatvfs(file)?);
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if found.blocks().saturating_mul(512).saturating_add(free) < size {
        return Err(io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error()));
    }
    if is_in_memory(file) { file.set_len(size) } else { lacquer_disk::enlarge(file, size) }
}

/// Returns whether reserving blocks would occupy memory.
fn is_in_memory(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|found| is_tmpfs(&found))
}

/// Discards the contents of a file. Its blocks stay reserved, unless another file gets them first.
pub fn clear(file: &OwnedFd, size: u64) -> io::Result<()> {
    rustix::fs::ftruncate(file, 0)?;
    if !is_in_memory(file) {
        let _ = lacquer_system::reserve(file, 0, size);
    }
    Ok(rustix::fs::ftruncate(file, size)?)
}
