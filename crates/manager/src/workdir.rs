//! `-n`: the directory with shared memory, the secret, and the lock that detects a second daemon in the same
//! directory; and `-P`, the files that contain our process id.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lacquer_cli::access_log;
use lacquer_cli::pid_file::{self, is_used};
use lacquer_shm::vsm::{CHILD_DIRNAME, MGT_DIRNAME};
use rustix::fs::{FlockOperation, Gid, Mode, OFlags, StatFs, flock};
use rustix::process::geteuid;

use crate::complain::{Complain, Level};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::file_identity::FileIdentity;
use crate::jail::Jail;
use crate::old_dirs;

/// The directory of instances whose `-n` is a name without a slash.
pub const STATE_DIR: &str = "/var/lib/varnish";
const DEFAULT_NAME: &str = "varnishd";
/// The variable with a working directory that only this run uses. `lacquer run` sets it.
pub const OWN_FOLDER: &str = "LACQUER_OWN_FOLDER";

/// The variable with a VCL that was written for this run only. `lacquer run` sets it.
pub const WRITTEN_VCL: &str = "LACQUER_WRITTEN_VCL";

/// Returns the absolute path, because the daemon leaves the directory in which it was started.
pub fn absolute(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Removes the directory of this run and its VCL at the end, unless another daemon uses them.
pub struct OwnFolder(Jail);

impl OwnFolder {
    pub fn new(jail: &Jail) -> OwnFolder {
        OwnFolder(jail.clone())
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let Some(folder) = std::env::var_os(OWN_FOLDER) else { return };
        let _root = self.0.raise();
        // A companion that was killed has left it.
        let _ = fs::remove_file(Path::new(&folder).join(access_log::FILE));
        let is_gone = match fs::remove_dir(&folder) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if let Some(vcl) = std::env::var_os(WRITTEN_VCL).filter(|_| is_gone) {
            let _ = fs::remove_file(vcl);
        }
    }
}

/// Returns the directory that `-n` selects.
pub fn path(argument: Option<&str>) -> PathBuf {
    Path::new(STATE_DIR).join(argument.filter(|a| !a.is_empty()).unwrap_or(DEFAULT_NAME))
}

fn refuse<T>(complain: &Complain, owner: Owner, text: &str) -> Outcome<T> {
    if owner == Owner::Trusted {
        // The caller reports it, only once if it tries again and again.
        return Err(Fault::plain(text.trim_end()));
    }
    complain.report(Level::Error, text);
    Err(Fault::silent(2))
}

/// Whose directory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Anyone's: the user has named the directory, and starts the daemon now.
    Anyone,
    /// That of root or of our users, or the current directory. The user has not named it, or nobody watches when the daemon
    /// creates it again, so one that another account has put in its place is refused.
    Trusted,
}

impl Owner {
    /// Returns whose directory a start may use. `lacquer run` puts its own where others may create files.
    pub fn at_start(path: &Path) -> Owner {
        let is_own = std::env::var_os(OWN_FOLDER).is_some_and(|own| Path::new(&own) == path);
        if is_own { Owner::Trusted } else { Owner::Anyone }
    }
}

/// Opens the directory. The error is the reason why it cannot be used.
fn open(path: &Path, owner: Owner, jail: &Jail) -> io::Result<OwnedFd> {
    let manager = jail.manager().map(|manager| manager.uid);
    let is_trusted = |uid: u32| uid == 0 || uid == geteuid().as_raw() || manager == Some(uid);
    let refused = |uid: u32| io::Error::other(format!("it belongs to user {uid}, who may have replaced it"));
    let is_strict = owner == Owner::Trusted;
    let link = fs::symlink_metadata(path)?;
    if is_strict && link.is_symlink() && !is_trusted(link.uid()) {
        return Err(refused(link.uid()));
    }
    // Only root, which may read any directory, changes its group.
    let access = if manager.is_some() { OFlags::RDONLY } else { OFlags::PATH };
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let uid = directory.metadata()?.uid();
    let is_ours = || FileIdentity::of(&directory).is_some_and(|ours| ours.is_at(Path::new(".")));
    if is_strict && !is_trusted(uid) && !is_ours() {
        return Err(refused(uid));
    }
    Ok(directory.into())
}

/// Creates the directory if it does not exist. Returns it.
pub fn make(path: &Path, owner: Owner, jail: &Jail, complain: &Complain) -> Outcome<OwnedFd> {
    let shown = path.display();
    let _root = jail.raise();
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let text = format!("Cannot create working directory '{shown}': {}\n", os_error_text(&error));
            return refuse(complain, owner, &text);
        }
        _ => {}
    }
    let directory = match open(path, owner, jail) {
        Ok(directory) => directory,
        Err(error) => {
            let text = format!("Cannot change to working directory '{shown}': {}\n", os_error_text(&error));
            return refuse(complain, owner, &text);
        }
    };
    if let Some(manager) = jail.manager()
        && let Err(error) = rustix::fs::fchown(&directory, None, Some(Gid::from_raw(manager.gid)))
    {
        let error = os_error_text(&error.into());
        let text = format!("Cannot change group of working directory '{shown}': {error}");
        return refuse(complain, owner, &text);
    }
    Ok(directory)
}

/// Creates the directory if it does not exist, and makes it the current one.
pub fn enter(path: &Path, owner: Owner, jail: &Jail, complain: &Complain) -> Outcome<()> {
    let directory = make(path, owner, jail, complain)?;
    let shown = path.display();
    let refuse = |text: String| refuse(complain, owner, &text);
    let _root = jail.raise();
    if let Err(error) = rustix::process::fchdir(&directory) {
        let error = os_error_text(&error.into());
        return refuse(format!("Cannot change to working directory '{shown}': {error}\n"));
    }
    let test = OpenOptions::new().write(true).create_new(true).mode(0o600).open("_.testfile");
    let _ = fs::remove_file("_.testfile");
    match test {
        Ok(_) => Ok(()),
        Err(error) => refuse(format!(
            "Cannot create test-file in {shown} ({})\nCheck permissions (or delete old directory)\n",
            os_error_text(&error)
        )),
    }
}

/// Returns whether the path still refers to the current directory.
pub fn is_current(path: &Path) -> bool {
    let here = FileIdentity::at(Path::new("."));
    here.is_some() && here == FileIdentity::at(path)
}

/// Bytes for the counters, the index and the manager's own files.
const BESIDE_THE_LOG: u64 = 2 << 20;

/// Removes the counts of an access log, which a companion that was killed has left. Fails if the current directory has no
/// room for a log of this size. A directory of a running daemon stays as it is; the lock is refused later.
pub fn prepare(path: &Path, log: u64, jail: &Jail) -> Outcome<()> {
    if is_used(path) {
        return Ok(());
    }
    {
        let _root = jail.raise();
        // Mostly there are none.
        let _ = fs::remove_file(path.join(access_log::FILE));
    }
    let Some(free) = free() else { return Ok(()) };
    let wanted = room_for(log);
    // The files of an earlier daemon are removed before ours are created, if there is no room for both.
    let old = old_dirs::all().into_iter().chain([MGT_DIRNAME, CHILD_DIRNAME].map(PathBuf::from));
    let left: u64 = old.map(|path| size_of_files(&path)).sum();
    let free = free.saturating_add(left);
    if free >= wanted {
        return Ok(());
    }
    Err(Fault::plain(format!(
        "Working directory '{}'{} has room for {} MB, but {} MB are needed, most of them for the log (vsl_space): enlarge \
         the file system or lower -p vsl_space",
        path.display(),
        if is_on_tmpfs() { " (tmpfs)" } else { "" },
        free >> 20,
        wanted.div_ceil(1 << 20)
    )))
}

/// Returns whether the current directory has room for a log of this size beside the files in it.
pub fn has_room(log: u64) -> bool {
    free().is_some_and(|free| free >= room_for(log))
}

fn room_for(log: u64) -> u64 {
    log.saturating_add(BESIDE_THE_LOG)
}

/// Returns the free bytes of the current directory's file system. `None` if they are not known.
fn free() -> Option<u64> {
    let system = rustix::fs::statvfs(".").ok()?;
    // A tmpfs without a limit reports no blocks.
    Some(if system.f_blocks == 0 { u64::MAX } else { system.f_bavail.saturating_mul(system.f_frsize) })
}

fn size_of_files(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.blocks() * 512).sum()
}

/// Returns whether the current directory, which will contain the log, is in memory. On a disk, the kernel would write
/// the log back continually.
pub fn is_on_tmpfs() -> bool {
    rustix::fs::statfs(".").is_ok_and(|found| is_tmpfs(&found))
}

/// Returns whether the files of a file system are in memory.
pub fn is_tmpfs(system: &StatFs) -> bool {
    const MAGIC: u32 = 0x0102_1994;
    u32::try_from(system.f_type) == Ok(MAGIC)
}

/// A file with our process id, locked while the process lives and removed at the end.
#[derive(Debug)]
pub struct PidFile {
    file: File,
    path: PathBuf,
}

impl PidFile {
    /// Opens and locks the file, and leaves it empty.
    pub fn open(path: &Path, jail: &Jail) -> Outcome<PidFile> {
        let _root = jail.raise();
        PidFile::lock(path).map_err(|error| match error {
            Held::By(pid) => {
                Fault::usage(format!("varnishd is already running (pid={pid}) (pidfile={})", path.display()))
            }
            Held::Foreign => Fault::usage(format!(
                "Could not open pid-file ({}): it contains something else than a process id; choose another path",
                path.display()
            )),
            Held::Error(error) => Fault::usage(format!(
                "Could not open pid-file ({}): {}",
                path.display(),
                os_error_text(&error)
            )),
        })
    }

    fn lock(path: &Path) -> Result<PidFile, Held> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o644);
            if path.file_name() == Some(pid_file::FILE.as_ref()) {
                // The lock of the working directory. Users name the other files, which may be links.
                options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            }
            let file = options.open(path)?;
            let mut text = String::new();
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    (&file).read_to_string(&mut text)?;
                    let pid = text.trim().parse();
                    return Err(pid.map_or_else(|_| Held::Error(io::ErrorKind::WouldBlock.into()), Held::By));
                }
                Err(error) => return Err(Held::Error(error.into())),
            }
            // The process that held the lock may have removed the file meanwhile.
            if FileIdentity::of(&file).is_some_and(|ours| ours.is_at(path)) {
                // A file of something else is not overwritten.
                if file.metadata()?.is_file() && !has_only_a_number(&file)? {
                    return Err(Held::Foreign);
                }
                file.set_len(0)?;
                return Ok(PidFile { file, path: path.to_owned() });
            }
        }
    }

    /// Returns the path and the number of the descriptor.
    pub fn describe(&self) -> (PathBuf, RawFd) {
        (self.path.clone(), self.file.as_raw_fd())
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Continues with a file that this process has locked with another program.
    pub fn adopt(path: PathBuf, file: OwnedFd) -> PidFile {
        PidFile { file: File::from(file), path }
    }

    /// Writes our process id.
    pub fn write(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{}", std::process::id())
    }

    /// Returns whether the path still refers to the open file.
    pub fn is_there(&self) -> bool {
        FileIdentity::of(&self.file).is_some_and(|ours| ours.is_at(&self.path))
    }

    /// Creates the file again if it was removed.
    pub fn renew(&mut self, jail: &Jail) -> Outcome<()> {
        if self.is_there() {
            return Ok(());
        }
        let mut anew = PidFile::open(&self.path, jail)?;
        anew.write()
            .map_err(|error| Fault::plain(format!("Could not write pid-file: {}", os_error_text(&error))))?;
        *self = anew;
        Ok(())
    }

    /// Removes the file, unless another has its place.
    pub fn remove(self, jail: &Jail) {
        let _root = jail.raise();
        if self.is_there() && self.file.metadata().is_ok_and(|found| found.is_file()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns whether a file is empty or contains a process id.
fn has_only_a_number(file: &File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.take(64).read_to_end(&mut start)?;
    Ok(start.len() < 64 && start.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_whitespace()))
}

/// Why a file cannot be locked.
enum Held {
    By(u32),
    Foreign,
    Error(io::Error),
}

impl From<io::Error> for Held {
    fn from(error: io::Error) -> Held {
        Held::Error(error)
    }
}

/// Problems of the directory that were reported, so that each is reported once.
#[derive(Debug, Default)]
pub struct Renewal {
    pub(crate) failed: bool,
    pub(crate) worker_unseen: bool,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn names_and_paths() {
        assert_eq!(path(None), Path::new("/var/lib/varnish/varnishd"));
        assert_eq!(path(Some("")), Path::new("/var/lib/varnish/varnishd"));
        assert_eq!(path(Some("v1")), Path::new("/var/lib/varnish/v1"));
        assert_eq!(path(Some("/tmp/v1")), Path::new("/tmp/v1"));
    }

    #[test]
    fn a_second_daemon_reports_the_pid_of_the_first() {
        let path = std::env::temp_dir().join(format!("lacquer-pid-{}", std::process::id()));
        let mut first = PidFile::open(&path, &Jail::none()).unwrap();
        first.write().unwrap();
        let fault = PidFile::open(&path, &Jail::none()).unwrap_err().to_string();
        assert!(fault.contains(&format!("already running (pid={})", std::process::id())), "{fault}");
        first.remove(&Jail::none());
        assert!(!path.exists());
    }

    #[test]
    fn counts_of_a_running_daemon_are_left() {
        let folder = std::env::temp_dir().join(format!("lacquer-counts-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let counts = folder.join(access_log::FILE);
        fs::write(&counts, "").unwrap();
        let running = PidFile::open(&folder.join(pid_file::FILE), &Jail::none()).unwrap();
        prepare(&folder, 0, &Jail::none()).unwrap();
        assert!(counts.exists());
        running.remove(&Jail::none());
        prepare(&folder, 0, &Jail::none()).unwrap();
        assert!(!counts.exists());
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn the_lock_of_the_directory_is_no_link() {
        let folder = std::env::temp_dir().join(format!("lacquer-pid-link-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let other = folder.join("other");
        symlink(&other, folder.join(pid_file::FILE)).unwrap();
        let fault = PidFile::open(&folder.join(pid_file::FILE), &Jail::none()).unwrap_err().to_string();
        assert!(fault.contains("Could not open pid-file") && !other.exists(), "{fault}");
        // As Varnish does.
        symlink(&other, folder.join("given")).unwrap();
        PidFile::open(&folder.join("given"), &Jail::none()).unwrap();
        assert!(other.exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Only root can give a directory to another user.
    #[test]
    fn a_directory_that_another_user_has_replaced_is_refused() {
        let folder = std::env::temp_dir().join(format!("lacquer-workdir-owner-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (real, link, jail) = (folder.join("real"), folder.join("link"), Jail::none());
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        let why = |path: &Path, owner| open(path, owner, &jail).err().map(|error| error.to_string());
        for path in [&real, &link] {
            assert_eq!((why(path, Owner::Anyone), why(path, Owner::Trusted)), (None, None));
        }
        assert!(why(&folder.join("none"), Owner::Trusted).is_some());
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(4711), None).unwrap();
            assert_eq!(why(&link, Owner::Anyone), None);
            assert_eq!(
                why(&link, Owner::Trusted).unwrap(),
                "it belongs to user 4711, who may have replaced it"
            );
            assert_eq!(why(&real, Owner::Trusted), None);
            chown(&real, Some(4712), None).unwrap();
            assert_eq!(why(&real, Owner::Anyone), None);
            assert_eq!(
                why(&real, Owner::Trusted).unwrap(),
                "it belongs to user 4712, who may have replaced it"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_of_something_else_are_neither_overwritten_nor_removed() {
        let path = std::env::temp_dir().join(format!("lacquer-pid-foreign-{}", std::process::id()));
        fs::write(&path, "12 apples").unwrap();
        let fault = PidFile::open(&path, &Jail::none()).unwrap_err().to_string();
        assert!(fault.contains("something else than a process id"), "{fault}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "12 apples");
        fs::write(&path, "4711\n").unwrap();
        let left = PidFile::open(&path, &Jail::none()).unwrap();
        fs::rename(&path, path.with_extension("moved")).unwrap();
        fs::write(&path, "1").unwrap();
        left.remove(&Jail::none());
        assert!(path.exists());
        fs::remove_file(path.with_extension("moved")).unwrap();
        fs::remove_file(&path).unwrap();
    }
}
