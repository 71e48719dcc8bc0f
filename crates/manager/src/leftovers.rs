//! The files and folders of a start that fails: those that did not exist before are removed, unless another process uses
//! them.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use lacquer_cli::pid_file::{FILE as PID_FILE, is_used};
use lacquer_shm::vsm::{self, CHILD_DIRNAME, MGT_DIRNAME};
use rustix::fs::{FlockOperation, flock};

use crate::admin;
use crate::fault::Outcome;
use crate::file_identity::FileIdentity;
use crate::jail::Jail;
use crate::options::named;
use crate::options::raw_args::{Ordered, RawOptions};
use crate::secret;
use crate::workdir::WRITTEN_VCL;

/// The files that a start may make.
pub struct Leftovers {
    jail: Jail,
    workdir: PathBuf,
    /// Those that did not exist before, in the order in which they are made.
    absent: Vec<PathBuf>,
    /// The files of storages that this start has made. A file at the same path may be another one later.
    made: Vec<(PathBuf, FileIdentity)>,
    /// Whether the storages were made, and locked, by this start. If that failed, another process may have made the files.
    is_made_by_us: bool,
    is_kept: bool,
}

impl Leftovers {
    /// Notes which files do not exist yet. With `is_kept`, none is removed: they are those of another program, which continues
    /// with them.
    pub fn watch(raw: &RawOptions, workdir: &Path, is_kept: bool, jail: &Jail) -> Leftovers {
        let mut this = Leftovers {
            jail: jail.clone(),
            workdir: without_parents(workdir),
            absent: Vec::new(),
            made: Vec::new(),
            is_made_by_us: false,
            is_kept,
        };
        this.absent.extend(std::env::var_os(WRITTEN_VCL).filter(|path| !path.is_empty()).map(PathBuf::from));
        this.add(workdir);
        for name in [MGT_DIRNAME, CHILD_DIRNAME, PID_FILE, secret::NAME, admin::TOKEN] {
            this.add(&workdir.join(name));
        }
        raw.pid_files.iter().for_each(|path| this.add(&workdir.join(path)));
        for option in &raw.ordered {
            if let Ordered::Listen(argument) | Ordered::Admin(argument) = option
                && let Ok(parsed) = named::parse(argument, "-a")
                && let Some(path) = parsed.fields.first().filter(|endpoint| endpoint.starts_with('/'))
            {
                this.add(Path::new(path));
            }
        }
        this
    }

    /// Makes storages, and notes which of their files did not exist before. Relative names refer to the working directory.
    pub fn while_making<T>(&mut self, files: &[PathBuf], make: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let absent: Vec<PathBuf> = {
            let _root = self.jail.raise();
            let paths = files.iter().map(|file| without_parents(&self.workdir.join(file)));
            paths.filter(|path| is_absent(path)).collect()
        };
        let result = make();
        let _root = self.jail.raise();
        let found = |path: PathBuf| FileIdentity::at(&path).map(|identity| (path, identity));
        self.made = absent.into_iter().filter_map(found).collect();
        self.is_made_by_us = result.is_ok();
        result
    }

    fn add(&mut self, path: &Path) {
        let _root = self.jail.raise();
        let path = without_parents(path);
        if is_absent(&path) {
            self.absent.push(path);
        }
    }

    /// Returns whether a file belongs to a storage that another process uses: that one was not removed before it.
    fn is_beside_used(&self, path: &Path) -> bool {
        path.extension().is_some()
            && self.made.iter().any(|(storage, _)| path.with_extension("") == *storage && storage.exists())
    }

    /// Keeps the files, because the start has succeeded.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let _root = self.jail.raise();
        for (path, identity) in &self.made {
            if !identity.is_at(path) {
                continue;
            }
            if self.is_made_by_us {
                // A worker that ends may hold a lock of the file for a moment.
                let _ = fs::remove_file(path);
            } else if !self.is_beside_used(path) {
                remove(path);
            }
        }
        // Another daemon may have started in the same directory meanwhile.
        let is_used = is_used(&self.workdir);
        for path in self.absent.iter().rev() {
            if !(is_used && path.starts_with(&self.workdir)) {
                remove(path);
            }
        }
    }
}

fn is_absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Returns a path without "..", which means nothing to the system behind a folder that does not exist yet.
fn without_parents(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            clean = fs::canonicalize(&clean).unwrap_or(clean);
            clean.pop();
        } else {
            clean.push(part);
        }
    }
    clean
}

/// Removes the file, socket or folder at a path, unless another process uses it. A folder with other files remains.
fn remove(path: &Path) {
    let Ok(kind) = fs::symlink_metadata(path).map(|found| found.file_type()) else { return };
    let is_shm = [MGT_DIRNAME, CHILD_DIRNAME].iter().any(|own| path.ends_with(own));
    if kind.is_dir() {
        // A failure to clean up after a failure is not reported.
        let _ = if is_shm { vsm::remove_dir(path).is_ok() } else { fs::remove_dir(path).is_ok() };
    } else if (kind.is_socket() && UnixStream::connect(path).is_err()) || (kind.is_file() && is_free(path)) {
        let _ = fs::remove_file(path);
    }
}

/// Returns whether no process holds a lock of a file.
fn is_free(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn only_what_is_new_and_unused_is_removed() {
        let folder = std::env::temp_dir().join(format!("lacquer-leftovers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        fs::write(path("old"), "").unwrap();
        let pid = path("pid").display().to_string();
        let raw = RawOptions { pid_files: vec![pid], ..RawOptions::default() };
        let start = |is_kept: bool, made: Outcome<()>| {
            let mut leftovers = Leftovers::watch(&raw, &path("work"), false, &Jail::none());
            let files = ["../old", "../new", "../used", "../other"].map(PathBuf::from);
            let _ = leftovers.while_making(&files, || {
                fs::create_dir_all(path("work").join(MGT_DIRNAME)).unwrap();
                for name in ["new", "used", "pid"] {
                    fs::write(path(name), "").unwrap();
                }
                made
            });
            // Another program makes a file at the same path.
            fs::write(path("other"), "").unwrap();
            if is_kept {
                leftovers.keep();
            }
            let used = File::open(path("used")).unwrap();
            flock(&used, FlockOperation::NonBlockingLockExclusive).unwrap();
            drop(leftovers);
            let names = ["old", "new", "used", "other", "pid", "work"];
            names.into_iter().filter(|name| path(name).exists()).collect::<Vec<_>>()
        };
        assert_eq!(start(false, Err(Fault::plain("The disk is in use"))), ["old", "used", "other"]);
        fs::remove_file(path("used")).unwrap();
        // Our own worker may hold the lock.
        assert_eq!(start(false, Ok(())), ["old", "other"]);
        assert_eq!(start(true, Ok(())).len(), 6);
        fs::remove_dir_all(&folder).unwrap();
    }
}
