//! Restricts the files that a worker may open, with Landlock. Inherited descriptors (storage, sockets) are not
//! affected.
//!
//! The worker writes in a single directory, that of its shared memory, and starts no program. The parameter `jail_read`
//! lists the files that it may read. The default is every file that its user may read, because VCL refers to files by
//! their paths (std.fileread, password files, geographic databases).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use lacquer_system::confine::{self, Landlock};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_REGULAR: u64 = 1 << 8;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEVICE: u64 = 1 << 15;
/// The rights of Landlock's first version. Those above `READ_DIR` remove and create files of all kinds.
const FIRST_RIGHTS: u64 = (1 << 13) - 1;

const BIND_TCP: u64 = 1 << 0;
const SCOPE_SIGNAL: u64 = 1 << 1;

const READ: u64 = READ_FILE | READ_DIR;
const SHARED_MEMORY: u64 = READ | WRITE_FILE | REMOVE_FILE | MAKE_REGULAR | TRUNCATE;

/// Paths that the worker itself reads, in addition to those of `jail_read`: the resolver's files and modules, time
/// zones, user names, and its own program and mappings for backtraces. They are directories, because the files in them
/// are replaced by new ones.
const NEEDED: &[&str] = &[
    "/etc",
    "/lib",
    "/lib64",
    "/proc/self",
    "/proc/sys",
    "/run/nscd",
    "/run/systemd/resolve",
    "/sys/fs/cgroup",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/proc/self/exe",
];

/// Returns the rights that a kernel with this version of Landlock can control. They are denied unless a rule
/// allows them.
fn handled(version: u32) -> Landlock {
    let since = |first: u32, bits: u64| if version >= first { bits } else { 0 };
    Landlock {
        files: FIRST_RIGHTS | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL_DEVICE),
        network: since(4, BIND_TCP),
        scopes: since(6, SCOPE_SIGNAL),
    }
}

/// Returns the readable paths: those of `jail_read`, and those that the worker needs.
fn readable(jail_read: &str) -> Vec<&str> {
    let given = jail_read.split(':').filter(|path| !path.is_empty());
    given.chain(NEEDED.iter().copied()).collect()
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Removes rights for directories from `wanted` if `fd` is a file, for which they are invalid.
fn rights(fd: &OwnedFd, wanted: u64) -> io::Result<u64> {
    let is_directory = fstat(fd)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
    Ok(if is_directory {
        wanted
    } else {
        wanted & (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE)
    })
}

/// Restricts this thread, and those that it starts, to reading `jail_read` and writing below the directory `vsm`.
pub fn restrict(jail_read: &str, vsm: RawFd) -> io::Result<()> {
    let handled = handled(confine::landlock_version()?);
    let ruleset = confine::landlock_ruleset(handled)?;
    for path in readable(jail_read) {
        let Ok(fd) = open(path) else {
            if !NEEDED.contains(&path) {
                eprintln!("jail_read: {path} cannot be opened");
            }
            continue;
        };
        confine::landlock_allow(&ruleset, &fd, rights(&fd, READ)? & handled.files)?;
    }
    let vsm: BorrowedFd<'_> = confine::borrow(vsm);
    confine::landlock_allow(&ruleset, vsm, SHARED_MEMORY & handled.files)?;
    if let Ok(null) = open("/dev/null") {
        confine::landlock_allow(&ruleset, &null, READ_FILE | WRITE_FILE)?;
    }
    confine::landlock_enter(&ruleset)
}

/// Restricts this thread, and those that it starts, to reading below a directory.
pub fn restrict_to_reading(directory: &Path) -> io::Result<()> {
    let handled = handled(confine::landlock_version()?);
    let ruleset = confine::landlock_ruleset(handled)?;
    let directory = openat(CWD, directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    confine::landlock_allow(&ruleset, &directory, READ & handled.files)?;
    confine::landlock_enter(&ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_get_only_supported_rights() {
        assert_eq!(handled(1), Landlock { files: 0x1fff, network: 0, scopes: 0 });
        assert_eq!(handled(3), Landlock { files: 0x7fff, network: 0, scopes: 0 });
        assert_eq!(handled(4), Landlock { files: 0x7fff, network: 1, scopes: 0 });
        assert_eq!(handled(7), Landlock { files: 0xffff, network: 1, scopes: 2 });
    }

    #[test]
    fn a_narrow_jail_read_keeps_what_the_worker_needs() {
        assert_eq!(readable("/")[0], "/");
        let narrow = readable("/srv/geo:/etc/varnish::");
        assert_eq!(narrow[..2], ["/srv/geo", "/etc/varnish"]);
        assert!(narrow.contains(&"/run/systemd/resolve") && !narrow.contains(&"/"));
        assert_eq!(readable("").len(), NEEDED.len());
    }

    #[test]
    fn files_get_no_rights_of_directories() {
        assert_eq!(rights(&open("/etc/passwd").unwrap(), SHARED_MEMORY).unwrap() & READ_DIR, 0);
        assert_eq!(rights(&open("/etc").unwrap(), SHARED_MEMORY).unwrap(), SHARED_MEMORY);
    }

    #[test]
    fn a_reader_reads_its_directory_and_does_nothing_else() {
        use std::fs::{self, File};
        let directory = std::env::temp_dir().join(format!("lacquer-reader-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("log"), "text").unwrap();
        let version = confine::landlock_version();
        let own = directory.clone();
        // The rules are those of a thread and of the threads that it starts.
        let confined = std::thread::spawn(move || {
            restrict_to_reading(&own)?;
            assert_eq!(fs::read_to_string(own.join("log"))?, "text");
            let refused = |done: io::Result<File>| {
                done.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            };
            for path in ["/etc/passwd", "/proc/self/environ", "/dev/null"] {
                assert!(refused(File::open(path)), "{path}");
            }
            assert!(fs::read_dir("/").is_err());
            assert!(
                refused(File::create(own.join("new")))
                    && refused(File::options().write(true).open(own.join("log")))
            );
            assert!(fs::remove_file(own.join("log")).is_err());
            Ok::<(), io::Error>(())
        })
        .join()
        .unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(confined.is_ok() || version.is_err(), "{confined:?}");
    }
}
